//! Events of a swarm as lines of text.
//!
//! Each line begins with the path of agents that it comes from, such as `swarm › coder: completed`,
//! because workers run at the same time and their lines are interleaved. A line is cut after 300
//! bytes and has no line breaks; the whole text is in the journal.
//!
//! Events of three sources meet here: notices of the swarm (plans, delegations, messages), tool
//! calls of workers, and events that every kind of run has, which `follow` formats. Deltas of
//! thinking are left out, since several workers think at once.

use levity::core::text::one_line;
use levity::core::{Delta, Event, EventKind};
use levity::observe::Origin;
use levity::swarm::{FailureAction, MessageKind, PlannedBy, SwarmNotice};

use crate::follow;

/// The maximum number of bytes of a text in a line.
const MAX_BYTES: usize = 300;

/// Formats an event as a line that begins with its origin, if it is important enough.
///
/// Returns `None` for events that a person does not need to follow the run, such as started turns.
pub(super) fn line(event: &Event, origin: &Origin) -> Option<String> {
    if let Some(notice) = SwarmNotice::of(&event.kind) {
        return notice_line(&notice, origin);
    }
    let what = match &event.kind {
        EventKind::ToolStarted { call, .. } => format!("is called with {}", call.args),
        EventKind::ToolFinished { result, .. } if result.is_error() => {
            format!("fails: {}", result.text())
        }
        EventKind::ToolFinished { result, .. } => format!("returns {}", result.text()),
        // Notices report children of the swarm; children of workers are reported here.
        EventKind::ChildStarted { .. } | EventKind::ChildFinished { .. }
            if origin.worker().is_none() =>
        {
            return None;
        }
        // The thoughts of several models at the same time would be mixed up.
        EventKind::Delta {
            delta: Delta::Thinking(_),
            ..
        }
        | EventKind::TurnStarted { .. } => return None,
        _ => follow::line(event)?,
    };
    Some(format!("{origin}: {}", one_line(&what, MAX_BYTES)))
}

/// Formats a notice of the swarm itself. Notices about one delegation carry the name of its worker
/// in the origin; notices about the plan belong to the swarm. Unknown notices of later versions
/// return `None`.
fn notice_line(notice: &SwarmNotice, origin: &Origin) -> Option<String> {
    let of = |worker: &str, what: String| {
        Some(format!(
            "{origin} › {worker}: {}",
            one_line(&what, MAX_BYTES)
        ))
    };
    let what = match notice {
        SwarmNotice::Planning {
            attempt: 1,
            round: 1,
            ..
        } => "the router makes a plan".to_owned(),
        SwarmNotice::Planning { attempt: 1, .. } => {
            "the router makes a plan for the remaining work".to_owned()
        }
        SwarmNotice::Planning { .. } => "the router is asked for another plan".to_owned(),
        SwarmNotice::PlanRepaired { mends } => format!("the plan is repaired: {mends}"),
        SwarmNotice::PlanRejected { faults, .. } => {
            format!("the plan cannot be carried out: {faults}")
        }
        SwarmNotice::FellBack { reason: why } => {
            format!("keywords of the goal select the workers: {why}")
        }
        SwarmNotice::Planned { by, plan, .. } => {
            let source = match by {
                PlannedBy::Keywords => "by keywords of the goal",
                PlannedBy::Host => "as given",
                PlannedBy::Coordinator => "by the pattern",
                _ => "by the router",
            };
            let plan: Vec<_> = plan
                .iter()
                .map(|one| format!("{} ({})", one.id, one.worker))
                .collect();
            format!("the plan, {source}: {}", plan.join(", "))
        }
        SwarmNotice::Began {
            id,
            worker,
            attempt: 1,
            ..
        } => return of(worker, format!("starts `{id}`")),
        SwarmNotice::Began {
            id,
            worker,
            attempt,
            ..
        } => {
            return of(worker, format!("starts `{id}`, attempt {attempt}"));
        }
        SwarmNotice::Done { id, worker } => return of(worker, format!("completed `{id}`")),
        SwarmNotice::Failed {
            id,
            worker,
            error,
            then,
        } => {
            return of(
                worker,
                format!("failed at `{id}`: {error}; {}", action_text(then)),
            );
        }
        SwarmNotice::Skipped { id, reason: why } => format!("`{id}` is skipped: {why}"),
        SwarmNotice::Synthesising { .. } => "the results are combined".to_owned(),
        SwarmNotice::Listed { reason: why } => format!("the results are listed: {why}"),
        SwarmNotice::Message(message) if message.kind == MessageKind::Result => {
            return of(&message.from, format!("answers: {}", message.content));
        }
        SwarmNotice::Message(message) if message.kind == MessageKind::Note => {
            return of(
                &message.from,
                format!("writes to {}: {}", message.to, message.content),
            );
        }
        _ => return None,
    };
    Some(format!("{origin}: {}", one_line(&what, MAX_BYTES)))
}

/// Describes the reaction of the swarm to a failed delegation. An unknown reaction reads as "it is
/// not retried", which is the final one.
fn action_text(then: &FailureAction) -> String {
    match then {
        FailureAction::Retry => "it retries".to_owned(),
        FailureAction::Fallback { worker } => format!("{worker} takes over"),
        _ => "it is not retried".to_owned(),
    }
}
