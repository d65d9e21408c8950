//! A router and three ready-made workers: a researcher, a coder and a read-only reviewer. The
//! example prints their messages in the order of the plan, even if a later worker is faster. It
//! uses scripted models unless the environment names a real one, by `GEMINI_API_KEY`,
//! `OPENAI_API_KEY`, `ANTHROPIC_API_KEY` or `LEVITY_MODEL=ollama:qwen3`.
//!
//! ```text
//! cargo run --example swarm
//! ```

use std::sync::{Arc, Mutex};

use levity::agents::PresetWorkers;
use levity::observe::Lineage;
use levity::prelude::*;
use levity::sandbox::Workspace;
use levity::swarm::{Router, Swarm, SwarmNotice};
use levity::test::ScriptedModel;
use serde_json::json;

const GOAL: &str =
    "Find out how leap years work, write `leap.py` with a function for it, and have it reviewed.";

/// The plan that a router would write.
const PLAN: &str = r#"{"delegations": [
  {"id": "rules",  "worker": "researcher", "task": "Explain how leap years work.",
      "expected": "the rules, in order"},
  {"id": "code",   "worker": "coder", "task": "Write `leap.py` with a function `leap(year)`.",
      "depends_on": ["rules"]},
  {"id": "review", "worker": "reviewer", "task": "Review `leap.py`.",
      "depends_on": ["rules", "code"]}
]}"#;

const RULES: &str = "Every fourth year, but not every hundredth, and again every four-hundredth.";
const CODE: &str =
    "def leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n";
const ANSWER: &str = "`leap.py` is ready. The researcher named the rules, the coder implemented \
    them, and the reviewer found no errors.";

/// The models of the router, the researcher, the coder and the reviewer.
fn models() -> ([Arc<dyn Model>; 4], bool) {
    if let Ok(chosen) = levity::model_from_env() {
        println!("{chosen}\n");
        let model = chosen.into_model();
        return ([(); 4].map(|()| model.clone()), false);
    }
    println!("(scripted models replace real ones)\n");
    let router = ScriptedModel::new().reply(PLAN).reply(ANSWER);
    let researcher = ScriptedModel::new().reply(RULES);
    let coder = ScriptedModel::new()
        .call("write_file", json!({"path": "leap.py", "content": CODE}))
        .reply("`leap.py` is written. I have not run it.");
    // The reviewer cannot write: it has no tool for that, so this call fails.
    let reviewer = ScriptedModel::new()
        .call(
            "write_file",
            json!({"path": "leap.py", "content": "# mine\n"}),
        )
        .call("read_file", json!({"path": "leap.py"}))
        .reply("The function follows the rules. Ready.");
    (
        [router, researcher, coder, reviewer].map(|model| Arc::new(model) as Arc<dyn Model>),
        true,
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ([router, researcher, coder, reviewer], scripted) = models();
    let folder = std::env::temp_dir().join(format!("levity-example-swarm-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let workspace = Workspace::open(&folder)?;

    let swarm = Swarm::builder(Router::new(router))
        .worker(PresetWorkers::new(researcher).researcher()?)
        .worker(
            PresetWorkers::new(coder)
                .workspace(workspace.clone())
                .coder()?,
        )
        .worker(
            PresetWorkers::new(reviewer)
                .workspace(workspace)
                .reviewer()?,
        )
        .build()?;

    let lineage = Mutex::new(Lineage::new("swarm"));
    let finished = swarm
        .run(GOAL)
        .on_event(move |event| {
            let origin = lineage
                .lock()
                .expect("the lock is not poisoned")
                .apply(event);
            match (SwarmNotice::of(&event.kind), &event.kind) {
                (Some(SwarmNotice::Began { id, worker, .. }), _) => {
                    println!("{origin} › {worker}: starts `{id}`");
                }
                (_, EventKind::ToolFinished { result, .. }) => {
                    println!(
                        "{origin}: {}",
                        if result.is_error() { "failed" } else { "done" }
                    );
                }
                _ => {}
            }
        })
        .await?;

    println!("\nMessages:");
    for message in finished.bus().messages() {
        println!(
            "  {} -> {} ({}): {}",
            message.from, message.to, message.kind, message.content
        );
    }
    println!("\n{}", finished.text());

    let written = std::fs::read_to_string(folder.join("leap.py"));
    std::fs::remove_dir_all(&folder)?;
    if scripted {
        assert_eq!(finished.text(), ANSWER);
        assert_eq!(written?, CODE);
        let reports: Vec<_> = finished
            .reports()
            .iter()
            .map(|report| (&*report.worker, report.is_done()))
            .collect();
        assert_eq!(
            reports,
            [("researcher", true), ("coder", true), ("reviewer", true)]
        );
    }
    Ok(())
}
