//! What a run does, in words for whoever waits for it.

use levity_core::text::one_line;
use levity_core::{Event, EventKind};
use tokio::sync::watch;

/// How long such words are.
const LONGEST: usize = 120;

/// How far a run is.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    /// How much has happened.
    pub(super) steps: u64,
    /// The last of it.
    pub(super) text: Option<String>,
    /// How often something was asked.
    pub(super) asks: u64,
}

/// Notes an event, if it is worth it.
pub(super) fn noted(news: &watch::Sender<News>, event: &Event) {
    let asked = matches!(event.kind, EventKind::Asked(_));
    let text = words(&event.kind);
    if text.is_none() && !asked {
        return;
    }
    news.send_modify(|news| {
        news.steps += 1;
        news.asks += u64::from(asked);
        news.text = text.or(news.text.take());
    });
}

/// What happened, in words, if somebody who waits wants to know.
pub(super) fn words(kind: &EventKind) -> Option<String> {
    let text = match kind {
        EventKind::TurnStarted { turn, of } => format!("turn {turn} of {of}"),
        EventKind::Plan { steps } => format!("a plan of {} steps", steps.len()),
        EventKind::ToolStarted { call, .. } => format!("calls `{}`", call.name),
        EventKind::ToolFinished { result, .. } if result.is_error() => {
            format!("`{}` failed", result.name)
        }
        EventKind::Progress { text, .. } => text.clone(),
        EventKind::ChildStarted { agent, .. } => format!("`{agent}` begins"),
        EventKind::Asked(ask) => format!("asks about `{}`", ask.call.name),
        EventKind::Decided { .. } => "goes on".to_owned(),
        EventKind::Compacted(_) => "sums up what was said".to_owned(),
        EventKind::Guarded { intervention, .. } => format!("guard {intervention}"),
        EventKind::LimitNear(limit) => format!("the limit on {limit} is near"),
        _ => return None,
    };
    Some(one_line(&text, LONGEST))
}
