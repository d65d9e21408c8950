//! Recordings and debug logs.

use std::fs;
use std::sync::Arc;

use levity_core::{
    Message, Model, ModelErrorKind, Options, Part, Request, Role, ToolCall, ToolError, ToolOutput,
    ToolResult, ToolSpec,
};
use levity_llm::ModelExt;
use levity_llm::layers::{Replay, ReplayError, Scrub};
use levity_test::{ManualWorld, ScriptedModel, Turn};
use serde_json::json;

use super::support::{Folder, ask};

const KEY: &str = "sk-0123456789abcdef0123";

#[tokio::test]
async fn replay_answers_in_recorded_order() {
    let folder = Folder::new();
    let path = folder.path().join("calls.jsonl");
    let inner = ScriptedModel::new()
        .turn(
            Turn::new()
                .thinking("hm")
                .text("one")
                .call("add", json!({"a": 1}))
                .usage(10, 3)
                .pieces(2),
        )
        .fail(ModelErrorKind::Overloaded)
        .reply("two")
        .reply("three");
    let recorded = inner.record(&path).unwrap();
    let first = recorded
        .stream(ask("a"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap();
    let failed = recorded.complete(ask("a")).await.unwrap_err();
    let other = recorded.complete(ask("b")).await.unwrap();
    let third = recorded.complete(ask("a")).await.unwrap();

    let replay = Replay::open(&path).unwrap();
    assert_eq!(replay.card(), recorded.card());
    assert_eq!(
        replay.complete(ask("b")).await.unwrap(),
        other,
        "in any order"
    );
    assert_eq!(replay.complete(ask("a")).await.unwrap(), first);
    assert_eq!(replay.stream(ask("a")).await.unwrap_err(), failed);
    assert_eq!(
        replay.stream(ask("a")).await.unwrap().fold().await.unwrap(),
        third
    );
    let over = replay.complete(ask("a")).await.unwrap_err();
    assert_eq!(over.kind(), ModelErrorKind::BadRequest);
    assert_eq!(
        cause(&over),
        "the request was recorded 3 times, but this run sends it more often; record it again"
    );
}

fn cause(error: &levity_core::ModelError) -> String {
    std::error::Error::source(error).unwrap().to_string()
}

#[tokio::test]
async fn unrecorded_request_error_names_difference() {
    let folder = Folder::new();
    let path = folder.path().join("calls.jsonl");
    let model = ScriptedModel::looping(Turn::new().text("yes"))
        .record(&path)
        .unwrap();
    model
        .complete(ask("a").with_system("Be brief."))
        .await
        .unwrap();
    model
        .complete(
            ask("a")
                .with_message(Message::assistant("b"))
                .with_message(Message::user("c")),
        )
        .await
        .unwrap();
    let replay = Replay::open(&path).unwrap();
    let error = replay
        .complete(ask("a").with_system("Be long: s3cret."))
        .await
        .unwrap_err();
    let expected =
        "the request was not recorded; the most similar one, in line 1, differs in `system`";
    assert_eq!(
        (error.kind(), cause(&error).as_str()),
        (ModelErrorKind::BadRequest, expected)
    );
    assert!(!format!("{error:?}").contains("s3cret"));
    let request = ask("a")
        .with_message(Message::assistant("b"))
        .with_message(Message::user("d"));
    let error = replay.complete(request).await.unwrap_err();
    let expected = "the request was not recorded; the most similar one, in line 2, differs in \
        `history[2].parts[0].text`";
    assert_eq!(cause(&error), expected);
}

#[tokio::test]
async fn invalid_recording_is_reported() {
    let folder = Folder::new();
    let path = folder.path().join("calls.jsonl");
    assert!(matches!(Replay::open(&path), Err(ReplayError::Read { .. })));
    fs::write(&path, "\n").unwrap();
    assert!(matches!(
        Replay::open(&path),
        Err(ReplayError::Empty { .. })
    ));
    fs::write(&path, "\n{\"digest\": 1}\n").unwrap();
    assert!(matches!(
        Replay::open(&path),
        Err(ReplayError::Line { line: 2, .. })
    ));
}

#[tokio::test]
async fn record_creates_folder_and_names_path_in_error() {
    let folder = Folder::new();
    let path = folder.path().join("new/folder/calls.jsonl");
    let model = ScriptedModel::new().reply("yes").record(&path).unwrap();
    model.complete(Request::new()).await.unwrap();
    assert!(Replay::open(&path).is_ok());

    // A file takes the place of the folder.
    let path = path.join("calls.jsonl");
    let error = ScriptedModel::new().record(&path).unwrap_err();
    let start = format!("cannot record calls in `{}`: ", path.display());
    assert!(error.to_string().starts_with(&start), "{error}");
}

#[tokio::test]
async fn recordings_contain_no_secrets() {
    let folder = Folder::new();
    let path = folder.path().join("calls.jsonl");
    let request = || {
        let mut options = Options::new();
        options.extra.insert("x-api-key".into(), json!("short"));
        options
            .extra
            .insert("headers".into(), json!([{"Authorization": "Basic abc"}]));
        ask(&format!("my key is {KEY} and my word is hunter2")).with_options(options)
    };
    let scrub = || Scrub::new().secret("hunter2");
    let inner = ScriptedModel::looping(
        Turn::new()
            .text("hunter2!")
            .call("log_in", json!({"password": "pw1"})),
    );
    let logged = inner.debug_log(folder.path().join("log")).scrub(scrub());
    let model = logged.record(&path).unwrap().scrub(scrub());
    model.complete(request()).await.unwrap();
    let mut all = fs::read_to_string(&path).unwrap();
    for entry in fs::read_dir(folder.path().join("log")).unwrap() {
        all += &fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    for secret in [KEY, "hunter2", "Basic abc", "short"] {
        assert!(!all.contains(secret), "{secret} is in: {all}");
    }
    assert!(all.contains("my key is *** and my word is ***"));
    assert!(!fs::read_to_string(&path).unwrap().contains("pw1"));
    let replay = Replay::open(&path).unwrap().scrub(scrub());
    assert_eq!(
        replay.complete(request()).await.unwrap().message.text(),
        "***!",
        "found under the same mask"
    );
}

#[test]
fn only_key_like_texts_are_masked() {
    let scrub = Scrub::new()
        .secret("abc")
        .secret("longer than that")
        .secret("long");
    let check = |text: &str, expected: &str| assert_eq!(scrub.text(text), expected);
    check("abc", "abc");
    check("a longer than that one", "a *** one");
    check("so long", "so ***");
    check("task-0123456789abcdef0123", "task-0123456789abcdef0123");
    check("sk-tooshort", "sk-tooshort");
    check(&format!("({KEY},{KEY})é"), "(***,***)é");
    check("Bearer é0123456789abcdef", "Bearer é0123456789abcdef");
    check("AKIA0123456789ABCDEF", "***");
    check(
        "gsk_0123456789abcdefghij ya29.0123456789abcdefghij",
        "*** ***",
    );
    let keys = json!({"accessToken": "a", "client-secret": "b", "PrivateKey": "c", "tokens": "d"});
    let masked =
        json!({"accessToken": "***", "client-secret": "***", "PrivateKey": "***", "tokens": "d"});
    assert_eq!(scrub.value(keys), masked);
}

fn history() -> Request {
    let mut request = ask("What is 2 + 5?").with_system("Be brief.");
    let call = ToolCall::new("c1", "add", json!({"a": 2, "b": 5}));
    let reply = Message::new(
        Role::Assistant,
        [Part::thinking("easy"), Part::ToolCall(call.clone())],
    );
    let mut exchange = request.history.open(reply.into()).unwrap();
    exchange
        .answer(ToolResult::new(&call, Ok(ToolOutput::text("7"))))
        .unwrap();
    request
        .history
        .close(exchange, &ToolError::failed("never used"));
    request.with_tools([ToolSpec::new("add", "Adds.").into()])
}

#[tokio::test]
async fn debug_log_contains_every_prompt_and_reply() {
    let folder = Folder::new();
    let inner = ScriptedModel::new()
        .turn(Turn::new().text("It is 7.").usage(20, 4))
        .fail(ModelErrorKind::Overloaded);
    let model = inner
        .debug_log(folder.path())
        .name("Cal/culator")
        .with_world(Arc::new(ManualWorld::new()));
    model.complete(history()).await.unwrap();
    let stem = "2025-01-01T000000.000Z_00000_Cal-culator";
    let names = [
        &format!("{stem}_prompt.txt"),
        &format!("{stem}_response.txt"),
        "latest_prompt.txt",
        "latest_response.txt",
    ];
    assert_eq!(folder.names(), names);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let prompt = read("latest_prompt.txt");
    for part in [
        "model: test/scripted\n",
        "\n--- system ---\nBe brief.\n",
        "\n--- tools ---\nadd: Adds.\n",
        "\n--- user ---\nWhat is 2 + 5?\n",
        "\n--- assistant ---\n[thinking] easy\n[call c1] add {\"a\":2,\"b\":5}\n",
        "\n--- tool ---\n[result c1] add: 7\n",
    ] {
        assert!(prompt.contains(part), "no {part:?} in {prompt}");
    }
    assert_eq!(prompt, read(names[0]));
    assert_eq!(
        read("latest_response.txt"),
        "finish: \"stop\"\nusage: 20 tokens in, 4 out\n\nIt is 7.\n"
    );
    assert!(model.stream(ask("?")).await.unwrap().fold().await.is_err());
    assert_eq!(
        read("latest_response.txt"),
        "error: Overloaded: the script says so\n"
    );
    assert_eq!((folder.names().len(), model.failures()), (6, 0));
}

#[tokio::test]
async fn debug_log_names_files_by_label_of_request() {
    let folder = Folder::new();
    let model = ScriptedModel::new()
        .reply("It is 7.")
        .debug_log(folder.path());
    let mut options = Options::new();
    options.label = Some("Coder sum_up".into());
    model
        .complete(history().with_options(options))
        .await
        .unwrap();
    let names = folder.names();
    let ends = |end: &str| names.iter().any(|name| name.ends_with(end));
    assert!(
        ends("_Coder-sum-up_prompt.txt") && ends("_Coder-sum-up_response.txt"),
        "{names:?}"
    );
}

#[tokio::test]
async fn debug_log_is_bounded() {
    let folder = Folder::new();
    fs::write(folder.path().join("mine_prompt.txt"), "").unwrap();
    let model = || {
        let inner = ScriptedModel::looping(Turn::new().text("é".repeat(500)));
        inner
            .debug_log(folder.path())
            .calls(3)
            .bytes(101)
            .with_world(Arc::new(ManualWorld::new()))
    };
    let one = model();
    for _ in 0..17 {
        one.complete(ask("?")).await.unwrap();
    }
    let names = folder.names();
    assert_eq!(
        names
            .iter()
            .filter(|name| name.ends_with("_prompt.txt"))
            .count(),
        3 + 1 + 2,
        "{names:?}"
    );
    assert!(names.contains(&"mine_prompt.txt".into()));
    let text = fs::read_to_string(folder.path().join("latest_response.txt")).unwrap();
    assert!(
        text.len() < 150 && text.contains("bytes left out"),
        "{text}"
    );
    // Another process, at the same time.
    model().complete(ask("?")).await.unwrap();
}

#[tokio::test]
async fn failing_disk_does_not_fail_call() {
    let folder = Folder::new();
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    let model = ScriptedModel::new()
        .reply("yes")
        .reply("yes")
        .debug_log(file.join("below"));
    assert_eq!(
        model.complete(ask("?")).await.unwrap().message.text(),
        "yes"
    );
    assert_eq!(
        model
            .stream(ask("?"))
            .await
            .unwrap()
            .fold()
            .await
            .unwrap()
            .message
            .text(),
        "yes"
    );
    assert_eq!(model.failures(), 2);
}
