//! Asks the agent one question.

#[tokio::main]
async fn main() -> levity::Result<()> {
    let question = std::env::args().nth(1);
    let question = question.unwrap_or_else(|| "How warm is it in Bergen?".to_owned());
    let model = levity::model_from_env()?;
    let agent = weather::agent(model.into_model())?;
    println!("{}", agent.run(question).await?);
    Ok(())
}
