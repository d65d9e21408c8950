//! Describes the progress of a run for the client that waits for it.
//!
//! Only events that a person would notice are reported, as lines of at most 120 characters. Reports
//! are a state and not a queue: a client that reads slowly gets the latest one.

use levity_core::text::one_line;
use levity_core::{Event, EventKind};
use tokio::sync::watch;

/// The maximum length of a description.
const MAX_LENGTH: usize = 120;

/// The progress of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// The number of reported steps.
    pub(super) steps: u64,
    /// A description of the latest step.
    pub(super) text: Option<String>,
    /// The number of questions that were asked.
    pub(super) asks: u64,
}

/// Records an event, if it is worth reporting.
pub(super) fn record_progress(progress: &watch::Sender<Progress>, event: &Event) {
    let asked = matches!(event.kind, EventKind::Asked(_));
    let text = describe(&event.kind);
    if text.is_none() && !asked {
        return;
    }
    progress.send_modify(|progress| {
        progress.steps += 1;
        progress.asks += u64::from(asked);
        progress.text = text.or(progress.text.take());
    });
}

/// Describes an event in a few words, if it is worth reporting to a client.
pub(super) fn describe(kind: &EventKind) -> Option<String> {
    let text = match kind {
        EventKind::TurnStarted { turn, of } => format!("turn {turn} of {of}"),
        EventKind::Plan { steps } => format!("planned {} steps", steps.len()),
        EventKind::ToolStarted { call, .. } => format!("calls `{}`", call.name),
        EventKind::ToolFinished { result, .. } if result.is_error() => {
            format!("`{}` failed", result.name)
        }
        EventKind::Progress { text, .. } => text.clone(),
        EventKind::ChildStarted { agent, .. } => format!("`{agent}` started"),
        EventKind::Asked(ask) => format!("asks for approval of `{}`", ask.call.name),
        EventKind::Decided { .. } => "continues".to_owned(),
        EventKind::Compacted(_) => "summarizes the conversation".to_owned(),
        EventKind::Guarded { intervention, .. } => format!("guard {intervention}"),
        EventKind::LimitNear(limit) => format!("the limit on {limit} is near"),
        _ => return None,
    };
    Some(one_line(&text, MAX_LENGTH))
}
