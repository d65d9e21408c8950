//! A model by name, with layers. The example uses a scripted model unless the environment names a
//! real one, by `GEMINI_API_KEY`, `OPENAI_API_KEY`, `ANTHROPIC_API_KEY` or
//! `LEVITY_MODEL=ollama:qwen3`.

use std::sync::Arc;

use levity::llm::ModelExt;
use levity::llm::layers::Cache;
use levity::prelude::*;
use levity::test::ScriptedModel;

#[tokio::main]
async fn main() -> levity::Result<()> {
    // Use `levity::model("gemini:gemini-3.8-flash")?` to name a model in code.
    let model: Arc<dyn Model> = match levity::model_from_env() {
        Ok(chosen) => {
            println!("{chosen}");
            chosen.into_model()
        }
        Err(error) => {
            println!("{error}\n(a scripted model replaces a real one)");
            Arc::new(ScriptedModel::new().reply("Because air scatters blue light the most."))
        }
    };
    // Each layer wraps a model and is a model: `retry` repeats failed requests, and `cached`
    // answers repeated requests.
    let model = model.retry().cached(Cache::new());
    let agent = Agent::builder(model)
        .instructions("Answer in one sentence.")
        .build()?;
    for _ in 0..2 {
        let answer = agent.run("Why is the sky blue?").await?;
        println!("\n{}\n{}", answer.text(), answer.usage());
    }
    Ok(())
}
