//! Calls the guards of an agent in order on its input and output.
//!
//! A guard is foreign code. A panic, an error and a timeout all count as a failure, and by default
//! a failure blocks. A replacement keeps the parts on which the history depends, such as call ids,
//! whatever the guard returns.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, FutureExt, select};
use levity_core::text::clipped;
use levity_core::{
    Guard, GuardCx, GuardSubject, Intervention, Message, Part, SharedError, Stage, Verdict, World,
};

mod guarded;
mod screen;
mod secret;
mod size;
mod topic;

pub use guarded::Guarded;
pub(crate) use screen::{Goal, Screen, blocked_call_text};
pub use secret::SecretGuard;
pub use size::SizeGuard;
pub use topic::TopicGuard;

/// The maximum length of a stored reason.
const MAX_REASON: usize = 1_000;

/// The treatment of an item that a guard fails to check because it returned an error, panicked or
/// timed out.
///
/// ```
/// # use levity_loop::{Agent, GuardFailurePolicy, SecretGuard};
/// # use levity_test::ScriptedModel;
/// let agent = Agent::builder(ScriptedModel::new())
///     .guard(SecretGuard::new())
///     .on_guard_failure(GuardFailurePolicy::Pass) // availability before safety
///     .build();
/// assert!(agent.is_ok());
/// assert_eq!(GuardFailurePolicy::default(), GuardFailurePolicy::Block);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardFailurePolicy {
    /// The item is blocked.
    #[default]
    Block,
    /// The item passes, as the previous guards have left it.
    Pass,
}

/// The guards of an agent.
#[derive(Clone)]
pub struct Guards {
    pub(crate) all: Vec<Arc<dyn Guard>>,
    pub(crate) timeout: Duration,
    pub(crate) when_failing: GuardFailurePolicy,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            timeout: Self::DEFAULT_TIMEOUT,
            when_failing: GuardFailurePolicy::default(),
        }
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.all.iter().map(|guard| name(&**guard)))
            .finish()
    }
}

impl FromIterator<Arc<dyn Guard>> for Guards {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Guard>>>(all: I) -> Self {
        Self {
            all: all.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The result of all guards for one item. If it was blocked, the last intervention is the one that
/// blocked it.
pub(crate) struct GuardOutcome {
    pub(crate) subject: GuardSubject,
    pub(crate) guarded: Vec<Intervention>,
}

impl GuardOutcome {
    /// Returns the item as it is now, or the interventions if it was blocked.
    pub(crate) fn passed(self) -> Result<(GuardSubject, Vec<Intervention>), Vec<Intervention>> {
        match is_blocked(&self.guarded) {
            true => Err(self.guarded),
            false => Ok((self.subject, self.guarded)),
        }
    }
}

pub(crate) fn is_blocked(guarded: &[Intervention]) -> bool {
    guarded.last().is_some_and(|last| last.blocked.is_some())
}

impl Guards {
    pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

    /// Returns `true` if any guard watches this stage. If none does, no subject is built.
    pub fn watch(&self, stage: Stage) -> bool {
        self.all.iter().any(|guard| watches(&**guard, stage))
    }

    /// Calls all guards, each on the output of the one before, until one blocks.
    pub(crate) async fn check(
        &self,
        mut subject: GuardSubject,
        cx: &GuardCx,
        world: &dyn World,
    ) -> GuardOutcome {
        let (stage, call) = (subject.stage(), subject.call().cloned());
        let mut guarded = Vec::new();
        for guard in self.all.iter().filter(|guard| watches(&***guard, stage)) {
            let verdict = match self.ask(&**guard, &subject, cx, world).await {
                Ok(verdict) => verdict,
                Err(_) if self.when_failing == GuardFailurePolicy::Pass => Verdict::Pass,
                Err(problem) => Verdict::Block { reason: problem },
            };
            let name: Arc<str> = name(&**guard).into();
            match verdict {
                Verdict::Rewrite(new) => {
                    subject = *new;
                    guarded.push(Intervention::rewrote(name, stage).for_call(call.clone()));
                }
                Verdict::Block { reason } => {
                    let reason = clipped(&reason, MAX_REASON).into_owned();
                    guarded.push(Intervention::blocked(name, stage, reason).for_call(call));
                    break;
                }
                _ => {}
            }
        }
        GuardOutcome { subject, guarded }
    }

    /// Calls one guard, and checks that its replacement is valid.
    async fn ask(
        &self,
        guard: &dyn Guard,
        subject: &GuardSubject,
        cx: &GuardCx,
        world: &dyn World,
    ) -> Result<Verdict, String> {
        let check = AssertUnwindSafe(guard.check(subject, cx)).catch_unwind();
        let limit = pin!(async { world.sleep(self.timeout).await });
        let verdict = match select(pin!(check), limit).await {
            Either::Left((Ok(verdict), _)) => verdict.map_err(|cause| failed(&cause))?,
            Either::Left((Err(_), _)) => {
                return Err("the guard panicked; this is a bug in the guard's code".to_owned());
            }
            Either::Right(((), _)) => {
                return Err(format!(
                    "the guard gave no verdict within {:?}",
                    self.timeout
                ));
            }
        };
        match verdict {
            Verdict::Rewrite(new) => match merge_replacement(subject, *new) {
                Some(new) => Ok(Verdict::rewrite(new)),
                None => Err("the guard returned a replacement of another kind".to_owned()),
            },
            verdict => Ok(verdict),
        }
    }
}

fn failed(cause: &SharedError) -> String {
    format!("the guard failed: {cause}")
}

/// Returns `true` if a guard watches a stage.
///
/// Guards are foreign code, so one that panics counts as watching: it is then called, and fails.
fn watches(guard: &dyn Guard, stage: Stage) -> bool {
    std::panic::catch_unwind(AssertUnwindSafe(|| guard.watches(stage))).unwrap_or(true)
}

pub(crate) fn name(guard: &dyn Guard) -> String {
    std::panic::catch_unwind(AssertUnwindSafe(|| guard.name().to_owned()))
        .unwrap_or_else(|_| "guard".to_owned())
}

/// Returns the replacement with the parts that a guard may not change as they were: the role and
/// the call id.
fn merge_replacement(old: &GuardSubject, new: GuardSubject) -> Option<GuardSubject> {
    Some(match (old, new) {
        (GuardSubject::Input(old), GuardSubject::Input(new)) => {
            GuardSubject::Input(Arc::new(keep_calls(old, &new)))
        }
        (GuardSubject::Answer(old), GuardSubject::Answer(new)) => {
            GuardSubject::Answer(Arc::new(keep_calls(old, &new)))
        }
        (GuardSubject::Call(old), GuardSubject::Call(mut new)) => {
            (new.id, new.name) = (old.id.clone(), old.name.clone());
            GuardSubject::Call(new)
        }
        (GuardSubject::Result(old), GuardSubject::Result(mut new)) => {
            (new.call, new.name) = (old.call.clone(), old.name.clone());
            new.guarded.clear();
            GuardSubject::Result(new)
        }
        (GuardSubject::Failure(_), new @ GuardSubject::Failure(_)) => new,
        _ => return None,
    })
}

/// Returns the new message with the calls of the old one, each in its place: a history needs them
/// all.
fn keep_calls(old: &Message, new: &Message) -> Message {
    let mut calls = old.calls().cloned().map(Part::ToolCall);
    let mut parts = Vec::with_capacity(new.parts.len());
    for part in &new.parts {
        match part {
            Part::ToolCall(_) => parts.extend(calls.next()),
            Part::ToolResult(_) => {}
            part => parts.push(part.clone()),
        }
    }
    parts.extend(calls);
    Message::new(old.role, parts)
}
