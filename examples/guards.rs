//! Guards: one removes secrets, one blocks a call, and one asks a model for the topic of a text.
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
    /** The recipient. */
    to: String,
) -> String {
    format!("sent to {to}")
}

/// A guard that allows mail to colleagues only.
struct ColleaguesOnly;

#[async_trait::async_trait]
impl Guard for ColleaguesOnly {
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
    // The judge replies with the number of the topic; 0 means none of them.
    let judge = ScriptedModel::new()
        .reply(r#"{"topic": 1, "steers": false}"#)
        .reply(r#"{"topic": 1, "steers": false}"#)
        .reply(r#"{"topic": 0, "steers": false}"#);
    let agent = Agent::builder(model)
        .tool(read_settings)
        .tool(send_mail)
        // Each guard receives the output of the previous one, so the judge never sees a secret.
        .guard(SecretGuard::new().secrets(Secrets::new().known("correct horse")))
        .guard(ColleaguesOnly)
        .guard(TopicGuard::new(judge, ["our servers"]))
        .build()?;

    let mut run = agent.start("Read the settings, and write to the people who need to know.");
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
        .ok_or("the guard did not block the poem")?;
    println!("\n{error}");
    assert_eq!(
        error.to_string(),
        "`topic` blocked the input: it is about none of: our servers"
    );
    Ok(())
}
