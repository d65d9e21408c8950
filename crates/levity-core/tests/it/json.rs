//! Checks that everything that crosses a boundary survives JSON, with the documented field names.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, Bytes, Capabilities, ChildRun, Content, Context, ContextBlock, ControlCommand,
    ConversationId, Decision, Delta, Digest, Effect, EffectClass, EffectId, EffectKind, EffectNote,
    Ending, Entry, Event, EventKind, Failure, Finish, ForkPoint, Hints, History, Limit, Limits,
    MachineKind, Media, Message, ModelCall, ModelCard, ModelError, ModelErrorKind, Money, Offer,
    Options, Outcome, OutputSchema, Part, Phase, Price, ProviderState, Record, Request,
    ReservedCost, Response, Role, RunHeader, RunId, RunSummary, Spending, Stats, Status, Timestamp,
    ToolCall, ToolChoice, ToolError, ToolErrorKind, ToolOutput, ToolResult, ToolRun, ToolSpec,
    Usage, WorkspaceView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Checks that a value survives JSON text and a JSON value.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(
        &serde_json::from_str::<T>(&text).unwrap(),
        value,
        "through {text}"
    );
    assert_eq!(
        &serde_json::from_value::<T>(serde_json::to_value(value).unwrap()).unwrap(),
        value
    );
}

/// Checks that a value is serialized in this form and deserialized again.
#[track_caller]
fn check_form<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, form: Value) {
    assert_eq!(serde_json::to_value(value).unwrap(), form);
    check(value);
}

fn opaque() -> ProviderState {
    ProviderState::new(
        "test",
        json!({"signature": "c2ln", "list": [1, -2, 2.5, null, true, {"ü": "\u{0}🪁"}]}),
    )
}

#[test]
fn null_value_of_tool_result_survives_json() {
    let result = ToolResult::new(&call(), Ok(ToolOutput::value(Value::Null)));
    assert_eq!(result.text(), "null");
    check(&result);
    check(&ToolResult::new(&call(), Ok(ToolOutput::default())));
}

fn call() -> ToolCall {
    let mut call = ToolCall::new(
        "c1",
        "add",
        json!({"a": 2, "b": -5, "c": 0.5, "type": "text"}),
    );
    call.opaque = Some(opaque());
    call
}

fn results() -> Vec<ToolResult> {
    let output = ToolOutput::text("7").with_media(Media::bytes("image/png", vec![0, 255]));
    let mut named = ToolResult::new(&call(), Ok(output));
    named.opaque = Some(opaque());
    let error = ToolError::transient("reset").with_source("closed");
    vec![
        named,
        ToolResult::new(&call(), Ok(ToolOutput::value(json!({"sum": 7})))),
        ToolResult::new(&call(), Ok(ToolOutput::default())),
        ToolResult::new(&call(), Err(error)),
    ]
}

fn parts() -> Vec<Part> {
    let mut media = Media::bytes("image/png", vec![1, 2, 3]);
    media.name = Some("a.png".into());
    let mut parts = vec![
        Part::text("line\r\n\"quoted\" \u{0}\u{2028} 🪁"),
        Part::thinking(""),
        Part::Media(media),
        Part::Media(Media::url("image/jpeg", "https://example.org/a.jpg")),
        Part::ToolCall(ToolCall::new("c2", "add", Value::Null)),
        Part::ToolCall(ToolCall::from_text("", "add", "{broken")),
        Part::ToolCall(call()),
        Part::Opaque(opaque()),
    ];
    parts.extend(results().into_iter().map(Part::ToolResult));
    let mut fastened = parts.clone();
    fastened
        .iter_mut()
        .for_each(|part| part.set_opaque(opaque()));
    parts.extend(fastened);
    parts
}

fn message() -> Message {
    Message::new(Role::Assistant, parts())
}

fn history() -> History {
    let mut history = History::new();
    history.push(Message::user("hi")).unwrap();
    let mut exchange = history
        .open(Arc::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call())],
        )))
        .unwrap();
    exchange.answer(results()[0].clone()).unwrap();
    check(&exchange);
    history.close(exchange, &ToolError::failed("none"));
    history
}

fn model_errors() -> Vec<ModelError> {
    let later = Some(Duration::from_millis(1500));
    [
        ModelErrorKind::RateLimited { retry_after: None },
        ModelErrorKind::RateLimited { retry_after: later },
        ModelErrorKind::Overloaded,
        ModelErrorKind::Auth,
        ModelErrorKind::BadRequest,
        ModelErrorKind::ContextTooLong,
        ModelErrorKind::ContentFiltered,
        ModelErrorKind::Timeout,
        ModelErrorKind::Transport,
        ModelErrorKind::Malformed,
        ModelErrorKind::Server,
        ModelErrorKind::Unpriced,
    ]
    .map(|kind| {
        ModelError::new(kind, "no reply")
            .with_status(429)
            .with_request_id("q1")
            .with_source("closed")
    })
    .into()
}

fn ending(status: Status) -> Ending {
    let mut ending = Ending::new(status);
    ending.text = "7".into();
    ending.value = Some(json!({"sum": 7}));
    ending.usage = Usage::new(10, 3);
    ending.stats.turns = 2;
    ending
}

fn statuses() -> Vec<Status> {
    let failures = [
        Failure::Model(model_errors()[1].clone()),
        Failure::Behaviour("silent".into()),
        Failure::Output("no number".into()),
        Failure::Internal("no tool".into()),
    ];
    let mut statuses = vec![
        Status::Complete,
        Status::BestEffort(Limit::Turns),
        Status::Partial(Limit::WallTime),
        Status::Cancelled {
            reason: "enough".into(),
        },
    ];
    statuses.extend(failures.map(Status::Failed));
    statuses
}

fn outcomes() -> Vec<Outcome> {
    let reply = Response::new(message())
        .with_usage(Usage::new(1, 2))
        .with_finish(Finish::Other("pause".into()));
    let mut outcomes = vec![
        Outcome::Model(Ok(reply)),
        Outcome::Model(Err(model_errors()[0].clone())),
        Outcome::NeedsApproval {
            reason: "it may destroy".into(),
        },
        Outcome::Decision(Decision::Allow),
        Outcome::Decision(Decision::edit(json!({"a": 1}))),
        Outcome::Decision(Decision::deny("no")),
        Outcome::Child(Box::new(ending(Status::Complete))),
        Outcome::Refused(Limit::Depth),
        Outcome::Unknown,
    ];
    outcomes.extend(results().into_iter().map(Outcome::Tool));
    outcomes
}

fn request() -> Request {
    let mut options = Options::new();
    (options.temperature, options.top_p) = (Some(0.7), Some(0.1));
    (options.max_tokens, options.seed) = (Some(100), Some(u64::MAX));
    options.stop = vec!["END".into()];
    options.extra.insert("z".into(), json!(1));
    options
        .extra
        .insert("a".into(), json!({"order": ["is", "kept"]}));
    let hints = Hints::new()
        .idempotent()
        .parallel()
        .destructive()
        .blocking()
        .timeout(Duration::from_millis(1500));
    let tool = ToolSpec::new("add", "Adds.")
        .with_output(json!({"type": "number"}))
        .with_hints(hints);
    Request::new()
        .with_system("Be brief.")
        .with_history(history())
        .with_tools([Arc::new(tool), Arc::new(ToolSpec::new("now", "The time."))])
        .with_output(OutputSchema::new("sum", json!({"type": "object"})))
        .with_options(options)
}

#[test]
fn messages_survive_json() {
    for part in parts() {
        check(&part);
    }
    for role in [Role::System, Role::User, Role::Assistant, Role::Tool] {
        check(&Message::new(role, parts()));
    }
    check(&history());
    check(&Content::Media(Media::url(
        "image/png",
        "https://example.org",
    )));
    check_form(
        &Message::user("hi"),
        json!({"role": "user", "parts": [{"type": "text", "text": "hi"}]}),
    );
    check_form(
        &Part::ToolCall(ToolCall::new("c1", "add", json!({"a": 2}))),
        json!({"type": "tool_call", "id": "c1", "name": "add", "args": {"a": 2}}),
    );
    check_form(
        &Part::Opaque(ProviderState::new("test", json!(1))),
        json!({"type": "opaque", "provider": "test", "data": 1}),
    );
    let refused = serde_json::from_value::<Part>(json!({"type": "hologram"}));
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .starts_with("unknown variant `hologram`")
    );
}

#[test]
fn bytes_survive_json_as_base64() {
    for bytes in [
        vec![],
        vec![0],
        vec![255; 2],
        (0..=255).collect::<Vec<u8>>(),
    ] {
        check(&Bytes::from(bytes));
    }
    check_form(&Bytes::from(&b"any carnal"[..]), json!("YW55IGNhcm5hbA=="));
    for refused in [json!("not base64!"), json!("YW55"), json!(7)] {
        let read = serde_json::from_value::<Bytes>(refused.clone());
        assert_eq!(read.is_ok(), refused == json!("YW55"), "{refused}");
    }
    assert_eq!(format!("{:?}", Bytes::from(vec![1, 2, 3])), "Bytes(3)");
    assert_eq!(
        format!("{:?}", opaque()),
        "Opaque(test)",
        "provider data is not shown"
    );
}

#[test]
fn requests_and_responses_survive_json() {
    check(&request());
    check(&Request::new());
    check_form(
        &Request::new(),
        json!({"history": [], "tool_choice": "auto", "options": {}}),
    );
    assert_eq!(
        serde_json::from_value::<Request>(json!({})).unwrap(),
        Request::new()
    );
    for choice in [
        ToolChoice::Auto,
        ToolChoice::None,
        ToolChoice::Required,
        ToolChoice::Tool("add".into()),
    ] {
        check(&choice);
    }
    for finish in [
        Finish::Stop,
        Finish::ToolCalls,
        Finish::Length,
        Finish::ContentFilter,
        Finish::Paused,
        Finish::Other("x".into()),
    ] {
        check(&finish);
        check(&Response::new(message()).with_finish(finish));
    }
    let mut usage = Usage::default();
    check_form(&usage, json!({}));
    (usage.cached, usage.reasoning) = (Some(0), Some(u64::MAX));
    check_form(&usage, json!({"cached": 0, "reasoning": u64::MAX}));
    (usage.cache_written, usage.cost) = (Some(1), Some(Money::from_dollars(1.5)));
    check(&usage);
    let extra: Vec<_> = request().options.extra.keys().cloned().collect();
    assert_eq!(extra, ["z", "a"], "fields keep their order");
}

#[test]
fn deltas_survive_json() {
    let deltas = [
        Delta::Text("a".into()),
        Delta::Thinking("b".into()),
        Delta::CallStart {
            index: 0,
            id: "c1".into(),
            name: "add".into(),
        },
        Delta::CallArgs {
            index: u32::MAX,
            text: "{".into(),
        },
        Delta::Opaque(opaque()),
        Delta::Usage(Usage::new(1, 2)),
        Delta::Finish(Finish::Stop),
        Delta::Waiting {
            time: Duration::from_millis(4_500),
            reason: "15 a minute".into(),
        },
        Delta::Restart {
            reason: "overloaded".into(),
        },
    ];
    deltas.iter().for_each(check);
    parts()
        .into_iter()
        .map(Delta::Part)
        .for_each(|delta| check(&delta));
}

#[test]
fn cards_and_specs_survive_json() {
    let mut card = ModelCard::new("test", "m1").with_capabilities(Capabilities::default());
    check(&card);
    (card.window, card.max_output) = (Some(128_000), Some(4_096));
    check(&card);
    let price = Price::new(3.0, 15.0).with_cached(0.3);
    check(&card.with_price(price.with_cache_write(3.75)));
    check(
        &Limits::new()
            .money(Money::MAX)
            .assumed_price(price)
            .low(200),
    );
    check(&ToolSpec::new("add", "Adds."));
    for tool in &*request().tools {
        check(&**tool);
    }
    check(&Hints::new());
    check(&Hints::new().compensable());
    for class in [
        EffectClass::ReadOnly,
        EffectClass::Idempotent,
        EffectClass::AtMostOnce,
    ] {
        check(&class);
    }
    check(&OutputSchema::new("sum", json!({"type": "object"})));
    check(
        &Limits::new()
            .tokens(5)
            .wall_time(Duration::from_millis(1500))
            .depth(0),
    );
    let mut none = Limits::new();
    (none.model_calls, none.tool_calls) = (None, None);
    check(&none);
    assert_eq!(
        serde_json::from_value::<Limits>(json!({})).unwrap(),
        Limits::new()
    );
}

#[test]
fn effects_and_outcomes_survive_json() {
    let ask = Ask::new(RunId::new("r1"), EffectId::new(3), call(), "it may destroy");
    let effects = [
        Effect::Model(ModelCall::new("main", request(), Offer::None)),
        Effect::Model(ModelCall::new("planner", Request::new(), Offer::All)),
        Effect::Tool(ToolRun::new(call())),
        Effect::Tool(ToolRun::approved(call())),
        Effect::Ask(ask),
        Effect::Child(ChildRun::new("helper", json!({"goal": "add"}))),
    ];
    effects.iter().for_each(check);
    outcomes().iter().for_each(check);
    results().iter().for_each(check);
    check(&ToolOutput::value(json!([1])));
    check(&ToolOutput::default());
}

fn records() -> Vec<Entry> {
    let mut note = EffectNote::new(EffectKind::Ask, "add", EffectClass::Idempotent);
    note.reserved = Some(ReservedCost::new(700, Some(Money::from_nanos(5))));
    note.inputs = vec![
        ("tools".into(), Digest::of(&json!([1]))),
        ("empty".into(), Digest::EMPTY),
    ];
    let state = json!({"goal": "add"});
    let machine = MachineKind::new("agent", 3);
    let plain = RunHeader::new(machine, state, Limits::new().tokens(5));
    let mut full = plain.clone();
    full.origin = Some(Digest::EMPTY);
    full.wrap = Some(Limit::Tokens);
    full.low = Some(Limit::Money);
    full.limits = Limits::new()
        .tokens(5)
        .money(Money::from_dollars(0.5))
        .low(20)
        .into();
    full.setup = vec![("tool add".into(), Digest::EMPTY)];
    full.forked = Some(ForkPoint::new(RunId::new("r0"), 3));
    let mut waits = EffectNote::new(EffectKind::Wait, "wait", EffectClass::ReadOnly);
    waits.until = Some(Timestamp::from_millis(5));
    let mut entries = vec![
        Entry::Opened(plain),
        Entry::Opened(full),
        Entry::Started {
            effect: EffectId::new(3),
            note: waits,
        },
        Entry::finished(EffectId::new(3), Outcome::Woken),
        Entry::Started {
            effect: EffectId::new(1),
            note: EffectNote::new(EffectKind::Model, "main", EffectClass::ReadOnly),
        },
        Entry::Started {
            effect: EffectId::new(2),
            note,
        },
        Entry::Commanded(ControlCommand::Pause),
        Entry::Commanded(ControlCommand::Resume),
        Entry::Commanded(ControlCommand::Cancel {
            reason: "enough".into(),
        }),
        Entry::Commanded(ControlCommand::Say {
            message: Arc::new(message()),
        }),
        Entry::Wrapped(Limit::Turns),
        Entry::Low(Limit::Money),
        Entry::Stopped(Limit::ModelCalls),
    ];
    entries.extend(
        outcomes()
            .into_iter()
            .map(|outcome| Entry::finished(EffectId::new(1), outcome)),
    );
    entries.extend(statuses().into_iter().map(Entry::Ended));
    entries
}

#[test]
fn journal_records_survive_json() {
    for (seq, entry) in (0..).zip(records()) {
        check(&Record::new(seq, Timestamp::from_millis(u64::MAX), entry));
    }
    let record = |entry| Record::new(0, Timestamp::from_millis(5), entry);
    check_form(
        &record(Entry::Ended(Status::Complete)),
        json!({"seq": 0, "at": 5, "entry": {"ended": "complete"}}),
    );
    check(&Spending::on(700, Some(Money::from_nanos(5))));
    let old: Spending =
        serde_json::from_value(json!({"model_calls": 1, "tool_calls": 0, "tokens": 9})).unwrap();
    assert_eq!(
        (old, old.unpriced()),
        (Spending::new(1, 0, 9), 9),
        "a missing price is not free"
    );
    let run = RunId::new("r1");
    assert_eq!(RunSummary::of(&run, &[]), None);
    let all = [
        record(Entry::Wrapped(Limit::Turns)),
        record(Entry::Ended(Status::Complete)),
    ];
    let summary = RunSummary::of(&run, &all).unwrap();
    assert_eq!(
        (summary.records, &summary.status),
        (2, &Some(Status::Complete))
    );
    check(&summary);
    check(&RunSummary::of(&run, &all[..1]).unwrap());
}

fn events() -> Vec<EventKind> {
    let effect = EffectId::new(1);
    let mut events = vec![
        EventKind::RunStarted {
            machine: MachineKind::new("agent", 1),
        },
        EventKind::Goal { text: "add".into() },
        EventKind::TurnStarted { turn: 1, of: 10 },
        EventKind::Plan {
            steps: vec!["look".into()],
        },
        EventKind::Note {
            text: "last turn".into(),
        },
        EventKind::ModelStarted {
            effect,
            slot: "main".into(),
        },
        EventKind::ModelFinished {
            effect,
            message: Arc::new(message()),
            finish: Finish::Stop,
            usage: Usage::new(1, 2),
        },
        EventKind::ModelFailed {
            effect,
            error: model_errors()[0].clone(),
        },
        EventKind::ToolStarted {
            effect,
            call: call(),
        },
        EventKind::ToolFinished {
            effect,
            result: results()[0].clone(),
        },
        EventKind::Asked(Ask::new(RunId::new("r1"), effect, call(), "why")),
        EventKind::Decided {
            effect,
            decision: Decision::Allow,
        },
        EventKind::ChildStarted {
            effect,
            child: RunId::new("r1.1"),
            agent: "b".into(),
        },
        EventKind::ChildFinished {
            effect,
            ending: Box::new(ending(Status::Complete)),
        },
        EventKind::Refused {
            effect,
            limit: Limit::Tokens,
        },
        EventKind::OutcomeUnknown { effect },
        EventKind::MessageReceived {
            message: Arc::new(message()),
        },
        EventKind::Paused,
        EventKind::Resumed,
        EventKind::LimitNear(Limit::WallTime),
        EventKind::LimitLow(Limit::Money),
        EventKind::LimitPassed(Limit::ToolCalls),
        EventKind::Custom {
            name: "handoff".into(),
            data: json!({"to": "b"}),
        },
        EventKind::Delta {
            effect,
            delta: Delta::Text("a".into()),
        },
        EventKind::Progress {
            effect,
            call: "c1".into(),
            text: "half".into(),
        },
        EventKind::Lagged { missed: 3 },
    ];
    let phases = [
        Phase::Goal,
        Phase::Plan,
        Phase::Act,
        Phase::Observe,
        Phase::Reflect,
        Phase::End,
    ];
    events.extend(phases.map(EventKind::Phase));
    events.extend(
        statuses()
            .into_iter()
            .map(|status| EventKind::RunEnded(Box::new(ending(status)))),
    );
    events
}

#[test]
fn events_survive_json() {
    for kind in events() {
        let json = serde_json::to_value(&kind).unwrap();
        let name = json
            .as_str()
            .or_else(|| json.as_object()?.keys().next().map(String::as_str));
        assert_eq!(name, Some(kind.name()));
        check(&Event::new(
            RunId::new("r1.2"),
            7,
            Timestamp::from_millis(5),
            kind,
        ));
    }
    let transient = events().iter().filter(|kind| kind.is_transient()).count();
    assert_eq!(transient, 3);
    statuses().iter().for_each(check);
    check(&Stats::default());
}

#[test]
fn errors_survive_json() {
    model_errors().iter().for_each(check);
    check(&ModelError::new(ModelErrorKind::Auth, "the key is wrong"));
    check(&ModelError::new(ModelErrorKind::Auth, "the key is wrong").with_charge());
    let kinds = [
        ToolErrorKind::NotFound,
        ToolErrorKind::InvalidArgs,
        ToolErrorKind::Denied,
        ToolErrorKind::Timeout,
        ToolErrorKind::Failed,
        ToolErrorKind::InvalidOutput,
        ToolErrorKind::Cancelled,
        ToolErrorKind::Unknown,
    ];
    for kind in kinds {
        check(
            &ToolError::new(kind, "no")
                .with_source("closed")
                .with_retryable(true),
        );
        check_form(
            &ToolError::new(kind, "no"),
            json!({"kind": kind, "message": "no"}),
        );
    }
}

#[test]
fn contexts_and_ids_survive_json() {
    let context = Context::new("add")
        .with_workspace(WorkspaceView::new(".", ["a.txt"]))
        .with_history(&history());
    check(&context);
    check(&Context::default());
    check(&ContextBlock::new("readme.md", "Be brief."));
    assert_eq!(context.history.len(), 1);
    assert_eq!(
        context.history[0].observation,
        json!({"ok": true, "output": "7"})
    );
    check_form(&RunId::new("r1.2"), json!("r1.2"));
    check_form(&ConversationId::new("ü"), json!("ü"));
    check_form(&EffectId::new(u64::MAX), json!(u64::MAX));
    check_form(&Timestamp::from_millis(5), json!(5));
    check_form(&Digest::EMPTY, json!("cbf29ce484222325"));
    assert!(serde_json::from_value::<Digest>(json!("xyz")).is_err());
}
