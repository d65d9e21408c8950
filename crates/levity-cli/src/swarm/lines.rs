//! What happens, as lines.

use levity::core::text::one_line;
use levity::core::{Delta, Event, EventKind};
use levity::observe::Origin;
use levity::swarm::{FailureAction, MessageKind, PlannedBy, SwarmNotice};

use crate::follow;

/// How much of a text is shown.
const MOST: usize = 300;

/// An event as a line that begins with where it comes from, if it is worth one.
pub(super) fn line(event: &Event, origin: &Origin) -> Option<String> {
    if let Some(notice) = SwarmNotice::of(&event.kind) {
        return notice_line(&notice, origin);
    }
    let what = match &event.kind {
        EventKind::ToolStarted { call, .. } => format!("is called with {}", call.args),
        EventKind::ToolFinished { result, .. } if result.is_error() => {
            format!("fails: {}", result.text())
        }
        EventKind::ToolFinished { result, .. } => format!("gives {}", result.text()),
        // The notices tell of them; below workers, they are told of here.
        EventKind::ChildStarted { .. } | EventKind::ChildFinished { .. }
            if origin.worker().is_none() =>
        {
            return None;
        }
        // What several models think at a time would be all mixed up.
        EventKind::Delta {
            delta: Delta::Thinking(_),
            ..
        }
        | EventKind::TurnStarted { .. } => return None,
        _ => follow::line(event)?,
    };
    Some(format!("{origin}: {}", one_line(&what, MOST)))
}

fn notice_line(notice: &SwarmNotice, origin: &Origin) -> Option<String> {
    let of = |worker: &str, what: String| {
        Some(format!("{origin} › {worker}: {}", one_line(&what, MOST)))
    };
    let what = match notice {
        SwarmNotice::Planning {
            attempt: 1,
            round: 1,
            ..
        } => "the router makes a plan".to_owned(),
        SwarmNotice::Planning { attempt: 1, .. } => {
            "the router makes a plan for what is not done".to_owned()
        }
        SwarmNotice::Planning { .. } => "the router is asked for a plan once more".to_owned(),
        SwarmNotice::PlanRepaired { mends } => format!("the plan is mended: {mends}"),
        SwarmNotice::PlanRejected { faults, .. } => {
            format!("the plan cannot be carried out: {faults}")
        }
        SwarmNotice::FellBack { why } => format!("the words of the goal decide: {why}"),
        SwarmNotice::Planned { by, plan, .. } => {
            let who = match by {
                PlannedBy::Keywords => "by words of the goal",
                PlannedBy::Host => "as given",
                PlannedBy::Coordinator => "by the pattern",
                _ => "by the router",
            };
            let plan: Vec<_> = plan
                .iter()
                .map(|one| format!("{} ({})", one.id, one.worker))
                .collect();
            format!("the plan, {who}: {}", plan.join(", "))
        }
        SwarmNotice::Began {
            id,
            worker,
            attempt: 1,
            ..
        } => return of(worker, format!("begins `{id}`")),
        SwarmNotice::Began {
            id,
            worker,
            attempt,
            ..
        } => {
            return of(worker, format!("begins `{id}`, attempt {attempt}"));
        }
        SwarmNotice::Done { id, worker } => return of(worker, format!("has done `{id}`")),
        SwarmNotice::Failed {
            id,
            worker,
            error,
            then,
        } => {
            return of(worker, format!("failed at `{id}`: {error}; {}", next(then)));
        }
        SwarmNotice::Skipped { id, why } => format!("`{id}` is left out: {why}"),
        SwarmNotice::Synthesising { .. } => "the results are put together".to_owned(),
        SwarmNotice::Listed { why } => format!("the results are listed: {why}"),
        SwarmNotice::Message(message) if message.kind == MessageKind::Result => {
            return of(&message.from, format!("answers: {}", message.content));
        }
        SwarmNotice::Message(message) if message.kind == MessageKind::Note => {
            return of(
                &message.from,
                format!("says to {}: {}", message.to, message.content),
            );
        }
        _ => return None,
    };
    Some(format!("{origin}: {}", one_line(&what, MOST)))
}

fn next(then: &FailureAction) -> String {
    match then {
        FailureAction::Retry => "it tries again".to_owned(),
        FailureAction::StandIn { worker } => format!("{worker} takes it"),
        _ => "it is left".to_owned(),
    }
}
