//! Events as lines of text, for snapshots of whole runs.
//!
//! Each event kind has a form of its own; kinds that this list does not know appear as JSON, so
//! that a new kind changes a snapshot visibly instead of vanishing. Lines of transient events begin
//! with `~`, lines of effects with `#` and the number of the effect.

use std::fmt::Write as _;

use levity_core::{
    Content, Decision, Delta, Ending, Event, EventKind, Message, Part, ToolCall, ToolResult, Usage,
};

/// Renders events as text, one line for each: the run, the kind and the relevant content.
///
/// It leaves out times, so that the story of a repeated run is identical to the byte. Texts are
/// quoted, so that each stays on its line. It is made for snapshots.
///
/// ```
/// use levity_core::{Event, EventKind, RunId, Timestamp};
/// use levity_test::story;
///
/// let turn = EventKind::TurnStarted { turn: 1, of: 10 };
/// let events = [Event::new(RunId::new("r1"), 1, Timestamp::default(), turn)];
/// assert_eq!(story(&events), "r1 turn 1 of 10\n");
/// ```
pub fn story(events: &[Event]) -> String {
    events
        .iter()
        .map(|event| format!("{} {}\n", event.run, line(&event.kind)))
        .collect()
}

fn line(kind: &EventKind) -> String {
    match kind {
        EventKind::ModelStarted { .. }
        | EventKind::ModelFinished { .. }
        | EventKind::ModelFailed { .. }
        | EventKind::ToolStarted { .. }
        | EventKind::ToolFinished { .. }
        | EventKind::Asked(_)
        | EventKind::Decided { .. }
        | EventKind::ChildStarted { .. }
        | EventKind::ChildFinished { .. }
        | EventKind::Refused { .. }
        | EventKind::OutcomeUnknown { .. } => effect(kind),
        EventKind::Delta { .. } | EventKind::Progress { .. } | EventKind::Lagged { .. } => {
            fleeting(kind)
        }
        _ => of_run(kind),
    }
}

/// Renders an event about the run as a whole.
fn of_run(kind: &EventKind) -> String {
    match kind {
        EventKind::RunStarted { machine } => format!("started: {machine}"),
        EventKind::Goal { text } => format!("goal {text:?}"),
        EventKind::Phase(phase) => format!("phase {phase}"),
        EventKind::TurnStarted { turn, of } => format!("turn {turn} of {of}"),
        EventKind::Plan { steps } => format!("plan {steps:?}"),
        EventKind::Note { text } => format!("note {text:?}"),
        EventKind::MessageReceived { message } => format!("said {}", words(message)),
        EventKind::Paused => "paused".into(),
        EventKind::Resumed => "resumed".into(),
        EventKind::LimitNear(limit) => format!("limit near: {limit}"),
        EventKind::LimitPassed(limit) => format!("limit passed: {limit}"),
        EventKind::RunEnded(end) => format!("ended: {}", ending(end)),
        EventKind::Custom { name, data } => format!("{name} {data}"),
        // Kinds that are newer than this list.
        other => serde_json::to_string(other).unwrap_or_else(|_| "?".into()),
    }
}

/// Renders an event about one effect: `#3 tool c1 add: "7"`.
fn effect(kind: &EventKind) -> String {
    match kind {
        EventKind::ModelStarted { effect, slot } => format!("#{effect} model {slot}"),
        EventKind::ModelFinished {
            effect,
            message,
            finish,
            usage,
        } => {
            format!(
                "#{effect} model: {} [{finish:?}{}]",
                words(message),
                cost(usage)
            )
        }
        EventKind::ModelFailed { effect, error } => {
            format!("#{effect} model failed: {:?}: {error}", error.kind())
        }
        EventKind::ToolStarted { effect, call } => format!("#{effect} tool {}", asked(call)),
        EventKind::ToolFinished { effect, result } => {
            format!("#{effect} tool {}", answered(result))
        }
        EventKind::Asked(ask) => format!(
            "#{} asked {}: {:?}",
            ask.effect,
            asked(&ask.call),
            ask.reason
        ),
        EventKind::Decided { effect, decision } => {
            format!("#{effect} decided: {}", decided(decision))
        }
        EventKind::ChildStarted {
            effect,
            child,
            agent,
        } => format!("#{effect} child {agent} is {child}"),
        EventKind::ChildFinished {
            effect,
            ending: end,
        } => format!("#{effect} child: {}", ending(end)),
        EventKind::Refused { effect, limit } => format!("#{effect} refused: {limit}"),
        EventKind::OutcomeUnknown { effect } => format!("#{effect} outcome unknown"),
        other => of_run(other),
    }
}

/// Renders an event that is not in the journal, such as a delta: `~ #1 text "Good"`.
fn fleeting(kind: &EventKind) -> String {
    match kind {
        EventKind::Delta { effect, delta } => format!("~ #{effect} {}", piece(delta)),
        EventKind::Progress { effect, call, text } => format!("~ #{effect} {call}: {text:?}"),
        EventKind::Lagged { missed } => format!("~ missed {missed}"),
        other => of_run(other),
    }
}

fn piece(delta: &Delta) -> String {
    match delta {
        Delta::Text(text) => format!("text {text:?}"),
        Delta::Thinking(text) => format!("thinking {text:?}"),
        Delta::CallStart { index, id, name } => format!("call {index} is {id}: {name}"),
        Delta::CallArgs { index, text } => format!("call {index} args {text:?}"),
        Delta::Waiting { time, reason } => format!("waits {time:?}: {reason:?}"),
        Delta::Notice { text } => format!("notice: {text:?}"),
        Delta::Restart { reason } => format!("begins anew: {reason:?}"),
        other => serde_json::to_string(other).unwrap_or_else(|_| "?".into()),
    }
}

/// Renders the parts of a message in order, or `nothing` if it has none.
fn words(message: &Message) -> String {
    let mut all: Vec<String> = Vec::new();
    for part in &message.parts {
        all.push(match part {
            Part::Text(text) => format!("{:?}", text.text),
            Part::Thinking(thinking) => format!("thinks {:?}", thinking.text),
            Part::Media(media) => format!("media {}", media.mime),
            Part::ToolCall(call) => format!("calls {}", asked(call)),
            Part::ToolResult(result) => answered(result),
            other => format!("{other:?}"),
        });
    }
    if all.is_empty() {
        "nothing".into()
    } else {
        all.join(", ")
    }
}

/// Renders a call with its id, name and arguments; arguments that are not JSON are quoted.
fn asked(call: &ToolCall) -> String {
    match &call.raw {
        Some(raw) => format!("{} {} not JSON: {raw:?}", call.id, call.name),
        None => format!("{} {} {}", call.id, call.name, call.args),
    }
}

/// Renders a tool result; media are counted, not shown.
fn answered(result: &ToolResult) -> String {
    let mut line = format!("{} {}", result.call, result.name);
    // Writing to a string cannot fail.
    let _ = match result.error {
        Some(kind) => write!(line, " failed: {kind:?}: {:?}", result.text()),
        None => write!(line, ": {:?}", result.text()),
    };
    let media = result
        .content
        .iter()
        .filter(|content| matches!(content, Content::Media(_)))
        .count();
    if media > 0 {
        let _ = write!(line, " and {media} media");
    }
    line
}

fn decided(decision: &Decision) -> String {
    match decision {
        Decision::Allow => "allow".into(),
        Decision::Edit { args } => format!("edit {args}"),
        Decision::Answer { text } => format!("answer {text:?}"),
        Decision::Deny { reason } => format!("deny {reason:?}"),
        other => format!("{other:?}"),
    }
}

fn ending(ending: &Ending) -> String {
    let value = ending
        .value
        .as_ref()
        .map(|value| format!(" {value}"))
        .unwrap_or_default();
    format!(
        "{} {:?}{value}{}",
        ending.status,
        ending.text,
        cost(&ending.usage)
    )
}

fn cost(usage: &Usage) -> String {
    if *usage == Usage::default() {
        String::new()
    } else {
        format!("; {usage}")
    }
}
