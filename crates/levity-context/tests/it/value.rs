use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levity_context::{
    CONTEXT_SCHEMA, ContextProvider, Error, WorkspaceFiles, check_context, parse_context,
};
use levity_core::{Context, History, Message, Part, Role, ToolCall, ToolError};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::Place;

fn good() -> Value {
    json!({
        "intent": "Tidy up",
        "workspace": {"root": "/srv", "files": ["a.txt"]},
        "history": [{"step": 1, "action": {"tool": "ls"}, "observation": {"ok": true}}],
        "memory": {"likes": "tea"},
    })
}

#[test]
fn a_value_that_matches_is_read_and_written_as_it_is() {
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
    assert_eq!(error, format!("the value is no context: {expected}"));
    assert!(parse_context(&value).is_err());
}

#[test]
fn what_does_not_match_is_refused_with_its_place() {
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
    let uncountable = "at `/history/0/step`: value is no whole number of 64 bits";
    check("/history/0/step", json!(1.0), uncountable);
    check("/history/0/step", json!(1e30), uncountable);
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
        &json!({"intent": "", "workspace": {"root": "", "files": vec![0; 99]}, "history": [], "memory": {}}),
    );
    assert!(many.unwrap_err().to_string().ends_with("; and 91 more"));
}

#[test]
fn no_error_tells_what_was_there() {
    let mut value = good();
    value["memory"] = json!("the key is 123");
    value["workspace"]["root"] = json!({"key": "123"});
    let error = check_context(&value).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("123"), "{error}");
}

fn history() -> History {
    let mut history = History::new();
    history.say(Message::user("Tidy up")).unwrap();
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
async fn a_provider_builds_what_matches_and_only_when_it_is_asked() {
    let place = Place::with(&[("a.txt", "")]);
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
async fn a_memory_that_is_no_object_or_fails_is_an_error() {
    let odd = ContextProvider::new().memory(|| async { Ok::<_, std::io::Error>(json!("x")) });
    let error = odd.context("x", &History::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value is no context: at `/memory`: it is no object"
    );
    let gone = ContextProvider::new().memory(|| async { Err::<Value, _>("gone") });
    assert!(matches!(
        gone.context("x", &History::new()).await,
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
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_checked_can_be_read(place in 0usize..9, odd in any_json()) {
        let places = ["", "/intent", "/workspace", "/workspace/files", "/workspace/files/0", "/history", "/history/0",
            "/history/0/step", "/memory"];
        let mut value = good();
        *value.pointer_mut(places[place]).unwrap() = odd;
        prop_assert_eq!(check_context(&value).is_ok(), parse_context(&value).is_ok());
        if let Ok(context) = parse_context(&value) {
            prop_assert_eq!(serde_json::to_value(context).unwrap(), value);
        }
    }
}
