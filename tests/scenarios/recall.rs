//! Facts and past sessions that later runs recall.
//!
//! `Recall` works on a separate thread, so these runs use the real clock. A clock that advances
//! automatically would exceed their time limits meanwhile.

use std::sync::Arc;

use levity::core::{Request, Role};
use levity::memory::{Conversations, InMemory, Recall, Scope};
use levity::prelude::*;
use levity::test::ScriptedModel;
use serde_json::json;

fn texts(request: &Request) -> String {
    request
        .history
        .messages()
        .iter()
        .map(|message| format!("{}\n", message.text()))
        .collect()
}

#[tokio::test]
async fn fact_remembered_in_one_run_is_recalled_in_another() {
    let runtime = Runtime::new();
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(runtime.world().clone());
    let scopes = [Scope::user("u1")];
    let model = ScriptedModel::new()
        .call("remember", json!({"text": "The user's bicycle is green."}))
        .reply("Noted.")
        .reply("Green.");
    let model = Arc::new(model);
    let agent = Agent::builder(model.clone())
        .instructions("Be brief.")
        .tools(recall.tools(scopes.clone()))
        .context(recall.context(scopes.clone()))
        .runtime(runtime)
        .verify_replay()
        .build()
        .unwrap();
    let first = agent.run("My bicycle is green.").await.unwrap();
    let failed: Vec<_> = first
        .history()
        .calls()
        .filter(|(_, result)| result.is_error())
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    agent.run("Which colour has my bicycle?").await.unwrap();
    let last = model.requests().pop().unwrap();
    assert_eq!(
        last.system.as_deref(),
        Some("Be brief."),
        "recalled facts must not change the cached prefix of the request"
    );
    let recalled = last.history.messages()[0].clone();
    assert_eq!(recalled.role, Role::User);
    assert!(
        recalled.text().contains("The user's bicycle is green."),
        "{}",
        recalled.text()
    );
    assert_eq!(
        last.history.messages()[1].text(),
        "Which colour has my bicycle?"
    );
    let others = recall
        .recall(&[Scope::user("u2")], "bicycle", 5)
        .await
        .unwrap();
    assert!(others.facts.is_empty());
}

#[tokio::test]
async fn past_session_is_recalled_until_forgotten() {
    let runtime = Runtime::new();
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(runtime.world().clone());
    let scope = Scope::user("u1");
    let conversations =
        Conversations::new(Arc::new(InMemory::new())).world(runtime.world().clone());
    let conversations = conversations.with_session_notes(recall.sessions(scope.clone()));
    let model = ScriptedModel::new()
        .reply("The ferry it is.")
        .reply("You took the ferry.")
        .reply("Swim.")
        .reply("No idea.");
    let model = Arc::new(model);
    let agent = Agent::builder(model.clone())
        .conversations(conversations.clone())
        .context(recall.context([scope.clone()]))
        .runtime(runtime)
        .build()
        .unwrap();
    agent
        .run("Shall I take the train or the ferry to the island?")
        .conversation("monday")
        .await
        .unwrap();
    agent
        .start_in("tuesday", "How did I go to the island?")
        .await;
    let request = &model.requests()[1];
    assert!(
        texts(request).contains("The ferry it is."),
        "{}",
        texts(request)
    );
    agent
        .run("And back from the island?")
        .conversation("monday")
        .await
        .unwrap();
    let own = texts(&model.requests()[2]);
    assert!(
        !own.contains("conversation monday") && own.contains("conversation tuesday"),
        "a conversation must not recall itself: {own}"
    );
    assert!(conversations.forget(&"monday".into()).await.unwrap());
    assert!(conversations.forget(&"tuesday".into()).await.unwrap());
    agent
        .run("Remind me of the island, please.")
        .conversation("friday")
        .await
        .unwrap();
    assert!(
        !texts(&model.requests()[3]).contains("ferry"),
        "{}",
        texts(&model.requests()[3])
    );
    // Recalled text beside a goal is not part of the conversation.
    let friday = conversations
        .store()
        .load(&"friday".into(), 10)
        .await
        .unwrap();
    assert_eq!(friday.messages.len(), 2);
}

trait StartIn {
    async fn start_in(&self, conversation: &str, goal: &str);
}

impl StartIn for Agent {
    /// Runs the goal on a separate task.
    async fn start_in(&self, conversation: &str, goal: &str) {
        self.run(goal)
            .conversation(conversation)
            .start()
            .await
            .unwrap();
    }
}
