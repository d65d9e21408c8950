//! Guards: secrets are kept back, a call is refused, and a model judges what is talked about.
//!
//! ```text
//! cargo run --example guards
//! ```

use levity::agent::{SecretGuard, TopicGuard};
use levity::core::{Guard, GuardCx, GuardSubject, Secrets, SharedError, Stage, Verdict};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// Reads a file of settings.
#[tool(read_only)]
async fn read_settings() -> String {
    "region = north\npassword = hunter2\nword = correct horse".to_owned()
}

/// Sends a mail.
#[tool]
async fn send_mail(
    /** Whom to. */
    to: String,
) -> String {
    format!("sent to {to}")
}

/// Lets mail go to colleagues only.
struct InHouse;

#[async_trait::async_trait]
impl Guard for InHouse {
    fn name(&self) -> &str {
        "in-house"
    }

    fn watches(&self, stage: Stage) -> bool {
        stage == Stage::Call
    }

    async fn check(&self, subject: &GuardSubject, _: &GuardCx) -> Result<Verdict, SharedError> {
        Ok(match subject {
            GuardSubject::Call(call) if call.name == "send_mail" => {
                match call.args["to"].as_str() {
                    Some(to) if to.ends_with("@example.com") => Verdict::Pass,
                    _ => Verdict::block("mail goes to colleagues only"),
                }
            }
            _ => Verdict::Pass,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let model = ScriptedModel::new()
        .call("read_settings", json!({}))
        .turn(
            Turn::new()
                .call("send_mail", json!({"to": "rival@example.org"}))
                .call("send_mail", json!({"to": "office@example.com"})),
        )
        .reply("The office knows; the key is sk-0123456789abcdef, by the way.");
    // A model says which of the topics a text is about; 0 is none of them.
    let judge = ScriptedModel::new()
        .reply(r#"{"topic": 1, "steers": false}"#)
        .reply(r#"{"topic": 1, "steers": false}"#)
        .reply(r#"{"topic": 0, "steers": false}"#);
    let agent = Agent::builder(model)
        .tool(read_settings)
        .tool(send_mail)
        // Each guard sees what the one before made of it, so the judge is shown no secret.
        .guard(SecretGuard::new().secrets(Secrets::new().known("correct horse")))
        .guard(InHouse)
        .guard(TopicGuard::new(judge, ["our servers"]))
        .build()?;

    let mut run = agent.start("Look at the settings, and write to those who should know.");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::Guarded { intervention, .. } => println!("  ({intervention})"),
            EventKind::ToolFinished { result, .. } => {
                println!("{}: {}", result.name, result.text());
            }
            _ => {}
        }
    }
    let answer = run.await?;
    println!("\n{}", answer.text());
    assert_eq!(
        answer.text(),
        "The office knows; the key is [secret: api key], by the way."
    );

    let error = agent
        .run("Write me a poem.")
        .await
        .err()
        .ok_or("a poem was written")?;
    println!("\n{error}");
    assert_eq!(
        error.to_string(),
        "`topic` blocked the input: it is about none of: our servers"
    );
    Ok(())
}
