//! A conversation that outlives the program and always fits its window, and facts that the next
//! conversation recalls.

use std::sync::Arc;

use levity::core::{EventKind, MemoryStore as _};
use levity::memory::{Conversations, Recall, Scope, SqliteMemory, Window};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("levity-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = Arc::new(SqliteMemory::new(folder.join("talk.db"))?);
    let recall = Recall::open(folder.join("facts.db"))?;
    let user = Scope::user("u-17");

    // Conversation ids cannot be guessed. A conversation expires after a month without use.
    let conversations =
        Conversations::new(store.clone()).with_session_notes(recall.sessions(user.clone()));
    let id = conversations.new_id();

    let summariser =
        ScriptedModel::looping(Turn::new().text("The user asked for many facts about harbours."));
    let model = ScriptedModel::new()
        .call(
            "remember",
            json!({"text": "The user has a green sailing boat."}),
        )
        .reply("I will remember your boat.");
    let model = (1..=8).fold(model, |model, n| {
        model.reply(format!("Fact {n} about harbours."))
    });
    let model = Arc::new(model.reply("Your boat is green."));
    let agent = Agent::builder(model.clone())
        .conversations(conversations.clone())
        .window(Window::new().messages(6))
        .model_for("summariser", summariser)
        .recall(&recall, [user.clone()])
        .build()?;

    agent
        .run("I have a green sailing boat.")
        .conversation(id.clone())
        .await?;
    for n in 1..=8 {
        let run = agent
            .run(format!("Tell me fact {n}."))
            .conversation(id.clone())
            .on_event(|event| {
                if let EventKind::Compacted(done) = &event.kind {
                    println!(
                        "{} messages remaining the window, {} tokens instead of {}",
                        done.folded, done.after, done.before
                    );
                }
            });
        run.await?;
    }
    let request = model
        .requests()
        .pop()
        .ok_or("the model received no request")?;
    println!("\nmessages of the last request:");
    for message in request.history.messages() {
        println!(
            "  {:?}: {}",
            message.role,
            message.text().lines().last().unwrap_or_default()
        );
    }
    let stored = store.load(&id, 0).await?;
    println!(
        "\nstored: {} messages, and the summary {:?}",
        stored.end,
        stored.summary.map(|summary| summary.text)
    );

    // Another conversation has no messages of the first one, only the facts that the agent
    // remembered.
    let answer = agent
        .run("Which colour has my boat?")
        .conversation(conversations.new_id())
        .await?;
    let request = model
        .requests()
        .pop()
        .ok_or("the model received no request")?;
    println!(
        "\nrecalled for the next conversation:\n{}",
        request.history.messages()[0].text()
    );
    println!("\nanswer: {answer}");

    conversations.forget(&id).await?;
    let remaining = recall.recall(&[user], "harbours", 5).await?;
    println!(
        "notes of the first conversation after it was forgotten: {}",
        remaining.facts.len()
    );
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
