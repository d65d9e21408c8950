use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Context, Digest, EffectId, Ending, Failure, GuardSubject, Hints, History, Limit, Limits,
    LiveEvents, MachineKind, Media, Message, Options, OutputSchema, Part, Phase, Progress,
    ProviderState, Request, Role, RunId, Secrets, Status, Timestamp, ToolCall, ToolError,
    ToolOutput, ToolResult, Usage, World, idempotency_key,
};
use serde_json::{Value, json};

fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
    let mut usage = Usage::default();
    (usage.input, usage.output) = (input, output);
    usage
}

#[track_caller]
fn check_sum(a: Usage, b: Usage, expected: Usage) {
    let mut sum = a;
    sum += b;
    assert_eq!(sum, expected);
    let mut sum = b;
    sum += a;
    assert_eq!(sum, expected, "addition is commutative");
}

#[test]
fn usage_sum_adds_known_counts() {
    check_sum(Usage::new(1, 2), Usage::new(10, 20), Usage::new(11, 22));
    check_sum(Usage::default(), Usage::default(), Usage::default());
    check_sum(Usage::default(), Usage::new(1, 2), Usage::new(1, 2));
    check_sum(usage(Some(1), None), usage(None, Some(2)), Usage::new(1, 2));
    check_sum(usage(Some(0), None), Usage::default(), usage(Some(0), None));
    check_sum(
        Usage::new(u64::MAX, 0),
        Usage::new(1, 0),
        Usage::new(u64::MAX, 0),
    );
    let mut cached = Usage::new(1, 1);
    (cached.cached, cached.reasoning) = (Some(1), Some(2));
    let mut twice = Usage::new(2, 2);
    (twice.cached, twice.reasoning) = (Some(2), Some(4));
    check_sum(cached, cached, twice);
    assert_eq!(Usage::new(u64::MAX, 1).total(), u64::MAX);
    assert_eq!(usage(None, Some(3)).total(), 3);
}

#[test]
fn usage_update_replaces_known_counts() {
    let mut known = Usage::new(10, 1);
    known.update(usage(None, Some(5)));
    assert_eq!(known, Usage::new(10, 5));
    known.update(Usage::default());
    assert_eq!(known, Usage::new(10, 5));
    known.update(usage(Some(0), None));
    assert_eq!(known, Usage::new(0, 5));
    assert_eq!(known.to_string(), "0 tokens in, 5 out");
    assert_eq!(Usage::default().to_string(), "? tokens in, ? out");
}

/// A world that counts in place of random numbers.
struct CountingWorld(AtomicU64);

#[async_trait]
impl World for CountingWorld {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn random(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    async fn sleep(&self, _: Duration) {}
}

#[test]
fn run_id_returns_parent_and_child() {
    let run = RunId::new("r1");
    let child = run.child(EffectId::new(3)).child(EffectId::new(12));
    assert_eq!(child.as_str(), "r1.3.12");
    assert_eq!((run.depth(), child.depth()), (0, 2));
    assert_eq!(run.parent(), None);
    assert_eq!(child.parent(), Some(RunId::new("r1.3")));
    assert_eq!(
        child.parent().and_then(|parent| parent.parent()),
        Some(run.clone())
    );
    let world = CountingWorld(AtomicU64::new(10));
    assert_eq!(
        RunId::random(&world).as_str(),
        "000000000000000a000000000000000b"
    );
    assert_eq!(format!("{run} {run:?}"), "r1 \"r1\"");
    assert_eq!(&*idempotency_key(&child, EffectId::new(4)), "r1.3.12/4");
}

#[test]
fn effect_id_next_saturates() {
    assert_eq!(EffectId::new(1).next(), EffectId::new(2));
    assert!(EffectId::new(9) < EffectId::new(10));
    // A journal may contain any number.
    assert_eq!(EffectId::new(u64::MAX).next().get(), u64::MAX);
}

#[test]
fn digest_distinguishes_inputs() {
    // Known values of FNV-1a.
    assert_eq!(Digest::EMPTY.with(b"a").to_string(), "af63dc4c8601ec8c");
    assert_eq!(
        Digest::EMPTY.with(b"foobar").to_string(),
        "85944171f73967e8"
    );
    assert_eq!(
        Digest::EMPTY.with(b"foo").with(b"bar"),
        Digest::EMPTY.with(b"foobar")
    );
    assert_eq!(
        Digest::of(&json!({"a": 1})),
        Digest::EMPTY.with(br#"{"a":1}"#)
    );
    assert_ne!(Digest::of(&json!([1, 2])), Digest::of(&json!([2, 1])));
}

#[test]
fn tool_output_as_text_returns_text_or_value() {
    let picture = || Media::bytes("image/png", vec![1]);
    let check = |output: ToolOutput, expected: &str| {
        assert_eq!(output.as_text(), expected);
        let call = ToolCall::new("c1", "add", json!({}));
        assert_eq!(ToolResult::new(&call, Ok(output)).text(), expected);
    };
    check(ToolOutput::default(), "");
    check(ToolOutput::text("done"), "done");
    check(ToolOutput::value(json!({"sum": 7})), r#"{"sum":7}"#);
    check(ToolOutput::text("done").with_media(picture()), "done");
    let mut both = ToolOutput::text("seven");
    both.value = Some(json!(7));
    check(both, "seven");
    // An image is not text, so the value is shown.
    check(ToolOutput::value(json!(7)).with_media(picture()), "7");
}

#[test]
fn tool_result_text_describes_failure() {
    let call = ToolCall::new("c1", "add", json!({}));
    let error = ToolError::failed("no such number").with_source("out of range");
    let result = ToolResult::new(&call, Err(error));
    assert!(result.is_error());
    assert_eq!(result.text(), "no such number: out of range");
    assert_eq!((result.call.as_str(), result.name.as_str()), ("c1", "add"));
}

#[test]
fn message_accessors_select_parts() {
    let parts = [
        Part::thinking("a"),
        Part::text("b"),
        Part::thinking("c"),
        Part::text("d"),
    ];
    let message = Message::new(Role::Assistant, parts);
    assert_eq!((&*message.text(), &*message.thinking()), ("bd", "ac"));
    assert_eq!(Message::from("hi"), Message::user("hi"));
    assert_eq!(Message::from("hi".to_owned()).role, Role::User);
    assert_eq!(Message::new(Role::User, []).text(), "");
    assert_eq!(
        (Message::system("a").role, Message::assistant("a").role),
        (Role::System, Role::Assistant)
    );
}

#[test]
fn with_message_ignores_calls_and_results() {
    let orphan = Message::new(Role::Tool, []);
    let request = Request::new()
        .with_message(Message::user("hi"))
        .with_message(orphan);
    assert_eq!(request.history.len(), 1);
    assert_eq!(request, request.clone().with_options(Options::new()));
    assert_eq!(Request::new().with_history(History::new()), Request::new());
}

#[test]
fn output_schema_has_name_of_type() {
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Sum {
        total: f64,
    }
    let schema = OutputSchema::of::<Vec<Sum>>();
    assert!(
        schema
            .name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'),
        "{}",
        schema.name
    );
    assert_eq!(
        OutputSchema::of::<Sum>().schema["properties"]["total"]["type"],
        "number"
    );
}

#[test]
fn hints_default_to_careful_values() {
    assert!(!Hints::new().runs_in_parallel() && !Hints::new().class.may_repeat());
    assert!(
        Hints::new().read_only().runs_in_parallel() && Hints::new().read_only().class.may_repeat()
    );
    assert!(
        !Hints::new().idempotent().runs_in_parallel()
            && Hints::new().idempotent().class.may_repeat()
    );
    assert!(Hints::new().parallel().runs_in_parallel());
    let undone = Hints::new().compensable();
    assert!(undone.class.needs_undo() && !undone.class.may_repeat() && !undone.runs_in_parallel());
    assert!(!Hints::new().class.needs_undo() && !Hints::new().idempotent().class.needs_undo());
}

#[test]
fn status_displays_reason() {
    let shown = |status: Status| status.to_string();
    assert_eq!(shown(Status::Complete), "complete");
    assert_eq!(
        shown(Status::BestEffort(Limit::Turns)),
        "best effort: the limit on turns was near"
    );
    assert_eq!(
        shown(Status::Partial(Limit::WallTime)),
        "stopped: the limit on time was reached"
    );
    assert_eq!(
        shown(Status::Cancelled {
            reason: "enough".into()
        }),
        "cancelled: enough"
    );
    assert_eq!(
        shown(Status::Failed(Failure::Internal("x".into()))),
        "failed: internal error in the run: x"
    );
    assert!(Status::Complete.is_answer() && Status::BestEffort(Limit::Turns).is_answer());
    assert!(!Status::Partial(Limit::Turns).is_answer());
    assert_eq!(MachineKind::new("agent", 2).to_string(), "agent/2");
    assert_eq!(Phase::Reflect.to_string(), "reflect");
    assert_eq!(Ending::new(Status::Complete).text, "");
    assert_eq!(Limits::default(), Limits::new());
}

#[test]
fn live_events_have_no_subscriber_by_default() {
    assert!(!LiveEvents::default().is_watched());
    Progress::default().report("half");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = heard.clone();
    let progress = Progress::new(move |text| listener.lock().unwrap().push(text.to_owned()));
    progress.clone().report("half");
    assert_eq!(*heard.lock().unwrap(), ["half"]);
}

#[test]
fn context_lists_calls_of_history() {
    let mut history = History::new();
    let calls = [
        ToolCall::new("a", "add", json!({"a": 2})),
        ToolCall::new("b", "sub", json!({})),
    ];
    let reply = Message::new(Role::Assistant, calls.clone().map(Part::ToolCall));
    let mut exchange = history.open(Arc::new(reply)).unwrap();
    exchange
        .answer(ToolResult::new(
            &calls[0],
            Ok(ToolOutput::value(json!({"sum": 7}))),
        ))
        .unwrap();
    history.close(exchange, &ToolError::failed("never ran"));
    let steps: Vec<Value> = Context::new("x")
        .with_history(&history)
        .history
        .iter()
        .map(|step| json!(step))
        .collect();
    assert_eq!(
        steps,
        [
            json!({
                "step": 1,
                "action": {"tool": "add", "args": {"a": 2}},
                "observation": {"ok": true, "output": {"sum": 7}},
            }),
            json!({
                "step": 2,
                "action": {"tool": "sub", "args": {}},
                "observation": {"ok": false, "output": "never ran"},
            }),
        ]
    );
}

#[test]
fn redacted_provider_state_keeps_origin() {
    let state = ProviderState::new("openai", json!({"note": "password=hunter2"}))
        .with_origin("server account gpt");
    let message = Message::new(Role::Assistant, [Part::Opaque(state)]);
    let clean = GuardSubject::Answer(Arc::new(message)).without(&Secrets::new());
    let Some(GuardSubject::Answer(clean)) = clean else {
        panic!("{clean:?}")
    };
    let [Part::Opaque(clean)] = &clean.parts[..] else {
        panic!("{clean:?}")
    };
    assert_eq!(
        (&clean.data["note"], clean.origin()),
        (
            &json!("password=[secret: password]"),
            Some("server account gpt")
        )
    );
}

#[test]
fn json_problem_names_position_without_value() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[allow(dead_code, reason = "only its errors matter")]
    enum Word {
        Yes(u8),
        No,
    }
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors matter")]
    struct Fields {
        goal: String,
    }
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoFields {}
    let typo = serde_json::from_str::<Fields>(r#"{"gaol": 1}"#).unwrap_err();
    assert!(
        levity_core::text::json_problem(&typo).contains("`gaol`"),
        "{typo}"
    );
    let key = format!(r#"{{"ghp_{}": 1}}"#, "a1B2".repeat(9));
    let key = levity_core::text::json_problem(&serde_json::from_str::<Fields>(&key).unwrap_err());
    assert!(
        !key.contains("a1B2") && key.contains("expected `goal` at line 1"),
        "{key}"
    );
    let long = format!("{{{}: 1}}", serde_json::json!("x, expected ".repeat(1_000)));
    assert!(
        levity_core::text::json_problem(&serde_json::from_str::<Fields>(&long).unwrap_err()).len()
            <= 400
    );
    for json in [
        r#"{"a": "hush"}"#,
        r#"{"a": "hush\", expected u8"}"#,
        r#"{"a": ["hush`, expected x"]}"#,
        r#"["hush"]"#,
        r#""hush""#,
        r#"{"yes": "hush"}"#,
        r#"{"hush, expected 1": 1}"#,
        r#"{"hush sk-0123456789abcdef0123": 1}"#,
        r#"{"hush invalid type: x": 1}"#,
        r#"{"invalid type: hush, expected y": 1}"#,
        r#"{"hush`, expected `x": 1}"#,
        r#"{"unknown field `hush": 1}"#,
    ] {
        let numbers = serde_json::from_str::<std::collections::BTreeMap<String, u8>>(json);
        let words = serde_json::from_str::<Word>(json);
        let (fields, none) = (
            serde_json::from_str::<Fields>(json),
            serde_json::from_str::<NoFields>(json),
        );
        for error in [numbers.err(), words.err(), fields.err(), none.err()]
            .into_iter()
            .flatten()
        {
            let problem = levity_core::text::json_problem(&error);
            assert!(
                !problem.contains("hush") && problem.contains("line 1"),
                "{json}: {problem}"
            );
        }
    }
}
