//! Tests of `levity conversations` over stores that another program has written.

use std::process::Output;
use std::sync::Arc;

use levity::core::{
    ConversationChange, ConversationId, MemoryStore, Part, Role, Summary, Timestamp, ToolCall,
    ToolResult,
};
use levity::memory::{FileMemory, SqliteMemory};
use levity::prelude::*;
use serde_json::json;

use crate::chat::script;
use crate::{Place, check, levity, text};

fn conversations(place: &Place, args: &[&str]) -> Output {
    levity(
        &[
            &["conversations"],
            args,
            &["--memory", place.0.to_str().unwrap()],
        ]
        .concat(),
    )
}

async fn fill(store: Arc<dyn MemoryStore>) {
    let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    let result = ToolResult::new(&call, Ok(ToolOutput::text("7")));
    let messages = [
        Message::user("What is 2 + 5?\u{1b}[2J"),
        Message::new(Role::Assistant, [Part::ToolCall(call)]),
        Message::new(Role::Tool, [Part::ToolResult(result)]),
        Message::assistant("Seven."),
    ];
    let save = |id: &str, change: ConversationChange| {
        let (store, id) = (store.clone(), ConversationId::from(id));
        async move { store.save(&id, &change).await.unwrap() }
    };
    let sums = ConversationChange::at(0)
        .with_messages(messages)
        .when(Timestamp::from_millis(1_000));
    save("sums", sums.with_summary(Summary::new("They count.", 1))).await;
    let many = (0..300).map(|n| Message::user(format!("line {n}")));
    save(
        "many",
        ConversationChange::at(0)
            .with_messages(many)
            .when(Timestamp::from_millis(2_000)),
    )
    .await;
}

#[tokio::test]
async fn conversations_are_listed_shown_and_deleted() {
    for name in ["talks", "talks.db"] {
        let place = Place::new(name);
        check(
            &conversations(&place, &["list"]),
            1,
            "there are no conversations in",
        );
        let store: Arc<dyn MemoryStore> = match name {
            "talks" => Arc::new(FileMemory::new(&place.0).unwrap()),
            _ => Arc::new(SqliteMemory::new(&place.0).unwrap()),
        };
        fill(store).await;
        let listed = text(&conversations(&place, &["list"]));
        let lines: Vec<&str> = listed.lines().collect();
        assert!(
            lines[0].ends_with("sums  4 messages") && lines[1].ends_with("many  300 messages"),
            "{listed}"
        );
        assert_eq!(
            text(&conversations(&place, &["list", "--json"]))
                .lines()
                .count(),
            2
        );

        let listing = text(&conversations(&place, &["show", "sums"]));
        let expected = "(a summary of the first 1 messages: They count.)\n\
                        \u{20}  0  user   What is 2 + 5?\u{fffd}[2J\n\
                        \u{20}  1  model  calls add {\"a\":2,\"b\":5}\n\
                        \u{20}  2  tool   add returned 7\n\
                        \u{20}  3  model  Seven.\n";
        assert_eq!(listing, expected);
        let many = text(&conversations(&place, &["show", "many", "--json"]));
        assert_eq!(many.lines().count(), 300);
        assert!(
            many.lines()
                .last()
                .unwrap()
                .starts_with("{\"at\":299,\"message\":"),
            "{many}"
        );
        check(
            &conversations(&place, &["show", "none"]),
            1,
            "there is no conversation `none`",
        );

        let deleted = conversations(&place, &["forget", "none", "many"]);
        check(&deleted, 1, "there is no conversation `none`");
        check(&deleted, 1, "deleted many");
        assert_eq!(text(&conversations(&place, &["list"])).lines().count(), 1);
    }
}

#[test]
fn run_of_conversation_resumes_with_its_memory() {
    let (journal, memory) = (Place::new("talk-runs"), Place::new("talk-memory"));
    let (journal, memory) = (journal.0.to_str().unwrap(), memory.0.to_str().unwrap());
    let steps = r#"[{"call": {"name": "add", "args": {"a": 1, "b": 2}}}, {"reply": "Three."}]"#;
    let script = script("talk-asks.json", steps);
    let base = ["--script", &script, "--ask", "add", "--memory", memory];
    let run = [
        &[
            "run",
            "Add.",
            "--journal",
            journal,
            "--id",
            "r",
            "--park",
            "--conversation",
            "c",
        ],
        &base[..],
    ];
    assert_eq!(
        levity(&run.concat()).status.code(),
        Some(3),
        "it waits for an answer"
    );
    let resume = [
        "runs",
        "resume",
        "r",
        "--journal",
        journal,
        "--script",
        &script,
        "--ask",
        "add",
    ];
    check(&levity(&resume), 1, "or `--memory`");
    assert!(
        levity(&["runs", "approve", "r", "--journal", journal])
            .status
            .success()
    );
    let resumed = levity(&[&resume[..], &["--memory", memory]].concat());
    assert!(text(&resumed).contains("Three."), "{resumed:?}");
    let listing = text(&levity(&["conversations", "show", "c", "--memory", memory]));
    assert_eq!(listing.lines().count(), 4, "{listing}");
}
