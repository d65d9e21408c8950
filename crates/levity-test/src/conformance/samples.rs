//! Sample values that are hard to store or to transmit without damage.
//!
//! Suites for journals, memory stores and models share them. Each has a reason: a state larger than
//! one page, numbers in provider data, empty messages, results with media, ids that differ only in
//! case or look like paths.

use std::sync::Arc;

use levity_core::{
    Content, EffectClass, EffectId, EffectKind, EffectNote, Entry, Finish, History, Limit, Limits,
    MachineKind, Media, Message, ModelError, ModelErrorKind, Outcome, Part, ProviderState, Record,
    Response, Role, RunHeader, Status, Timestamp, ToolCall, ToolError, ToolOutput, ToolResult,
    Usage,
};
use serde_json::json;

/// A text that is easily damaged in transit: line ends, quotes, zero, characters of four bytes.
pub(super) const ODD_TEXT: &str =
    "line one\r\nline \"two\"\t\u{0}\u{2028}\\ ünïcödé 🪁 \u{202e}end";

/// Ids that a careless store would confuse, or take for a path.
pub(super) const ODD_IDS: [&str; 8] = [
    "case",
    "CASE",
    "a/b",
    "a",
    "../up",
    "..",
    "with space and \n line",
    "ü🪁",
];

/// One message of each kind, with provider data and media.
pub(super) fn messages() -> Vec<Arc<Message>> {
    let mut thought = Part::thinking("two numbers");
    thought.set_opaque(ProviderState::new(
        "test",
        json!({"signature": "c2ln", "n": [1, 2.5, null]}),
    ));
    let call = ToolCall::new(
        "c1",
        "add",
        json!({"a": 2, "b": 5.25, "deep": {"list": [[], {}]}}),
    );
    let output = ToolOutput::value(json!({"sum": 7.25}))
        .with_media(Media::bytes("image/png", vec![0, 255, 7]));
    let mut result = ToolResult::new(&call, Ok(output));
    result.whole = Some(ODD_TEXT.repeat(3).into());
    let picture = Part::Media(Media::url("image/jpeg", "https://example.org/a.jpg"));
    [
        Message::new(Role::User, [Part::text(ODD_TEXT), picture]),
        Message::new(
            Role::Assistant,
            [thought, Part::text("Let me see."), Part::ToolCall(call)],
        ),
        Message::new(Role::Tool, [Part::ToolResult(result)]),
        Message::assistant("The sum is 7.25."),
        Message::system("Be brief."),
        Message::new(
            Role::User,
            [Part::Opaque(ProviderState::new("test", json!("block")))],
        ),
        Message::new(Role::Assistant, []),
    ]
    .map(Arc::new)
    .into()
}

/// Returns a history of those messages that a history accepts.
pub(super) fn history() -> History {
    let messages = messages()
        .iter()
        .map(|message| (**message).clone())
        .collect::<Vec<_>>();
    History::try_from(messages).unwrap_or_default()
}

/// Returns the records of a run from its first to its last, beginning at `start`.
pub(super) fn records(start: u64) -> Vec<Record> {
    let at = |seq: u64| Timestamp::from_millis(start + seq);
    entries()
        .into_iter()
        .zip(0..)
        .map(|(entry, seq)| Record::new(seq, at(seq), entry))
        .collect()
}

fn entries() -> Vec<Entry> {
    let id = EffectId::new;
    let call = ToolCall::new("c1", "add", json!({"a": 2}));
    let reply = Response::new(Message::new(
        Role::Assistant,
        [Part::text(ODD_TEXT), Part::ToolCall(call.clone())],
    ))
    .with_finish(Finish::Other("pause".into()))
    .with_usage(Usage::new(10, 3));
    let busy = ModelError::new(
        ModelErrorKind::RateLimited { retry_after: None },
        "too many requests",
    );
    let failed = ToolResult::new(
        &call,
        Err(ToolError::failed("no such number").with_source("out of range")),
    );
    let note = EffectNote::new(EffectKind::Model, "main", EffectClass::ReadOnly);
    vec![
        opened(),
        Entry::Started {
            effect: id(1),
            note,
        },
        Entry::finished(id(1), Outcome::Model(Ok(reply))),
        Entry::Started {
            effect: id(2),
            note: EffectNote::new(EffectKind::Tool, "add", EffectClass::AtMostOnce),
        },
        Entry::finished(id(2), Outcome::Tool(failed)),
        Entry::finished(id(3), Outcome::Model(Err(busy.with_status(429)))),
        Entry::finished(id(4), Outcome::Unknown),
        Entry::Wrapped(Limit::Tokens),
        Entry::Ended(Status::BestEffort(Limit::Tokens)),
    ]
}

/// Returns the entry of the first record; its state is larger than one buffer or page.
pub(super) fn opened() -> Entry {
    let state = json!({"goal": ODD_TEXT, "long": "x".repeat(200_000)});
    Entry::Opened(RunHeader::new(
        MachineKind::new("sample", 1),
        state,
        Limits::default(),
    ))
}

/// Returns a result with media only, which differs from an empty one.
pub(super) fn media_result(call: &ToolCall) -> ToolResult {
    let mut result = ToolResult::new(call, Ok(ToolOutput::default()));
    result.content = vec![Content::Media(Media::bytes("image/png", vec![1, 2, 3]))];
    result
}
