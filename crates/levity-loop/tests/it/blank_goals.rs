//! Goals without visible content.

use levity_core::{
    Decision, ErrorKind, Hints, Media, Message, Part, Role, RunId, RunRequest, ToolOutput,
};
use levity_loop::{Agent, Error};
use levity_memory::InMemory;
use levity_runtime::{MachineRun, MemoryJournal, Runtime};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

const BLANK: [&str; 7] = [
    "",
    " ",
    "\n\t",
    "\u{200b}",
    "\0",
    "\u{feff} \u{2060}\u{3164}\0\u{e0020}",
    "\u{200d}\u{ad}",
];

fn refused<T>(ended: Result<T, Error>) {
    let error = ended.err().unwrap();
    assert!(matches!(error, Error::EmptyPrompt), "{error:?}");
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Config, false)
    );
    assert_eq!(error.to_string(), "the prompt is empty; describe the task");
    assert!(error.partial().is_none());
}

#[tokio::test]
async fn blank_goal_starts_no_run() {
    let journal = MemoryJournal::new();
    let model = ScriptedModel::new();
    let agent = Agent::builder(model.clone())
        .memory(InMemory::new())
        .runtime(Runtime::new().with_journal(journal))
        .build()
        .unwrap();
    for goal in BLANK {
        refused(agent.run(goal).await);
        refused(agent.start(goal).await);
        refused(agent.run(goal).conversation("c").start().await);
        refused(agent.run(goal).typed::<String>().await);
        refused(agent.run(goal).id("r").park().await);
        refused(
            agent
                .run(Message::new(
                    Role::User,
                    [Part::text(goal), Part::text(" ")],
                ))
                .await,
        );
    }
    refused(agent.run(Message::new(Role::User, [])).await);
    assert!(model.requests().is_empty());
    assert!(
        agent
            .runtime()
            .journal()
            .list(&Default::default())
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn goal_with_only_an_image_is_accepted() {
    let agent = Agent::builder(ScriptedModel::new().reply("A cat."))
        .build()
        .unwrap();
    let picture = Part::Media(Media::bytes("image/png", vec![1, 2, 3]));
    let answer = agent
        .run(Message::new(Role::User, [picture]))
        .await
        .unwrap();
    assert_eq!(answer.text(), "A cat.");
}

#[tokio::test]
async fn old_run_with_a_blank_goal_is_resumed() {
    let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    let agent = Agent::builder(ScriptedModel::new().call("send", json!({})).reply("Sent."))
        .tool(send.with_hints(Hints::new().destructive()))
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .build()
        .unwrap();
    // The journal of a version that did not reject such goals.
    let job = MachineRun::new(agent.machine(""), agent.executor())
        .id(RunId::new("old"))
        .park();
    assert!(
        agent.runtime().run(job).await.is_err(),
        "it waits for a person"
    );
    let run = RunId::new("old");
    for ask in agent.pending_asks(&run).await.unwrap() {
        let allow = RunRequest::Decide {
            effect: ask.effect,
            decision: Decision::Allow,
        };
        agent.send_request(&ask.run, allow).await.unwrap();
    }
    let answer = agent.resume(run.clone()).await.unwrap();
    assert_eq!(answer.text(), "Sent.");
    assert_eq!(
        agent.resume(run).await.unwrap().text(),
        "Sent.",
        "and read when it has ended"
    );
}

#[tokio::test]
async fn answer_messages_are_those_of_its_run_with_every_result() {
    let tool = || RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    let model = ScriptedModel::new()
        .reply("Hello.")
        .call("send", json!({}))
        .call("none", json!({}))
        .reply("Done.");
    let policy =
        levity_tools::Policy::new().rule(levity_tools::Rule::tool("send").deny("it is Sunday"));
    let agent = Agent::builder(model)
        .tool(tool())
        .policy(policy)
        .memory(InMemory::new())
        .build()
        .unwrap();
    agent.run("Hi").conversation("c").await.unwrap();
    let answer = agent.run("Send it").conversation("c").await.unwrap();
    let roles: Vec<_> = answer
        .messages()
        .iter()
        .map(|message| message.role)
        .collect();
    let (user, model, tool) = (Role::User, Role::Assistant, Role::Tool);
    assert_eq!(roles, [user, model, tool, model, tool, model]);
    assert_eq!(answer.messages()[0].text(), "Send it");
    assert!(
        answer.messages()[2]
            .results()
            .next()
            .unwrap()
            .text()
            .contains("it is Sunday")
    );
}
