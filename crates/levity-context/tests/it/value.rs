use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levity_context::{
    CONTEXT_SCHEMA, ContextProvider, Error, WorkspaceFiles, check_context, parse_context,
};
use levity_core::{Context, History, Message, Part, Role, ToolCall, ToolError};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::TestFolder;

fn good() -> Value {
    json!({
        "intent": "Tidy up",
        "workspace": {"root": "/srv", "files": ["a.txt"]},
        "history": [{"step": 1, "action": {"tool": "ls"}, "observation": {"ok": true}}],
        "memory": {"likes": "tea"},
    })
}

#[test]
fn valid_context_value_survives_parse_and_serialize() {
    let context = parse_context(&good()).unwrap();
    assert_eq!(serde_json::to_value(&context).unwrap(), good());
    for context in [Context::default(), Context::new("x")] {
        check_context(&serde_json::to_value(context).unwrap()).unwrap();
    }
    assert!(jsonschema::meta::is_valid(
        &serde_json::from_str(CONTEXT_SCHEMA).unwrap()
    ));
}

#[track_caller]
fn check(pointer: &str, to: Value, expected: &str) {
    let mut value = good();
    *value.pointer_mut(pointer).unwrap() = to;
    let error = check_context(&value).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("the value is not a valid context: {expected}")
    );
    assert!(parse_context(&value).is_err());
}

#[test]
fn invalid_context_value_returns_error_with_path() {
    check(
        "/intent",
        json!(7),
        "at `/intent`: value is not of type \"string\"",
    );
    check(
        "/memory",
        json!(null),
        "at `/memory`: value is not of type \"object\"",
    );
    check(
        "/workspace/files/0",
        json!(false),
        "at `/workspace/files/0`: value is not of type \"string\"",
    );
    check(
        "/history/0/step",
        json!(0),
        "at `/history/0/step`: value is less than the minimum of 1",
    );
    check(
        "/history/0/step",
        json!(1.5),
        "at `/history/0/step`: value is not of type \"integer\"",
    );
    let invalid_step = "at `/history/0/step`: value is not a 64-bit integer";
    check("/history/0/step", json!(1.0), invalid_step);
    check("/history/0/step", json!(1e30), invalid_step);
    check(
        "/history/0/action",
        json!("ls"),
        "at `/history/0/action`: value is not of type \"object\"",
    );
    check(
        "/history/0/observation",
        json!([]),
        "at `/history/0/observation`: value is not of type \"object\"",
    );
    check("", json!([]), "at ``: value is not of type \"object\"");
    let many = check_context(
        &json!({"intent": "", "workspace": {"root": "", "files": vec![0; 99]}, "history": [],
            "memory": {}}),
    );
    assert!(many.unwrap_err().to_string().ends_with("; and 91 more"));
}

#[test]
fn error_does_not_contain_content() {
    let mut value = good();
    value["memory"] = json!("the key is 123");
    value["workspace"]["root"] = json!({"key": "123"});
    let error = check_context(&value).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("123"), "{error}");
}

fn history() -> History {
    let mut history = History::new();
    history.push(Message::user("Tidy up")).unwrap();
    let call = ToolCall::new("c1", "add", json!({"a": 1}));
    let exchange = history
        .open(Arc::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call)],
        )))
        .unwrap();
    history.close(exchange, &ToolError::failed("it was given up"));
    history
}

#[tokio::test]
async fn provider_builds_valid_value_on_request() {
    let place = TestFolder::with(&[("a.txt", "")]);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let provider = ContextProvider::new()
        .workspace(WorkspaceFiles::open(place.path()).unwrap())
        .memory(move || {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, std::io::Error>(json!({"likes": "tea"})) }
        });
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    place.write("b.txt", "");
    let value = provider.value("Tidy up", &history()).await.unwrap();
    assert_eq!(value["workspace"]["files"], json!(["a.txt", "b.txt"]));
    let step = &value["history"][0];
    assert_eq!(
        (
            &step["step"],
            &step["action"]["tool"],
            &step["observation"]["ok"]
        ),
        (&json!(1), &json!("add"), &json!(false))
    );
    assert_eq!(
        (&value["intent"], &value["memory"]),
        (&json!("Tidy up"), &json!({"likes": "tea"}))
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let empty = ContextProvider::new()
        .context("x", &History::new())
        .await
        .unwrap();
    assert_eq!(empty, Context::new("x"));
}

#[tokio::test]
async fn invalid_or_failing_memory_returns_error() {
    let odd = ContextProvider::new().memory(|| async { Ok::<_, std::io::Error>(json!("x")) });
    let error = odd.context("x", &History::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value is not a valid context: at `/memory`: it is not an object"
    );
    let failing = ContextProvider::new().memory(|| async { Err::<Value, _>("gone") });
    assert!(matches!(
        failing.context("x", &History::new()).await,
        Err(Error::Memory(_))
    ));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "intent",
        "workspace",
        "root",
        "files",
        "history",
        "step",
        "action",
        "memory",
        "\\PC{0,5}"
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn checked_value_can_be_parsed(place in 0usize..9, odd in any_json()) {
        let places = [
            "", "/intent", "/workspace", "/workspace/files", "/workspace/files/0", "/history",
            "/history/0", "/history/0/step", "/memory",
        ];
        let mut value = good();
        *value.pointer_mut(places[place]).unwrap() = odd;
        prop_assert_eq!(check_context(&value).is_ok(), parse_context(&value).is_ok());
        if let Ok(context) = parse_context(&value) {
            prop_assert_eq!(serde_json::to_value(context).unwrap(), value);
        }
    }
}
