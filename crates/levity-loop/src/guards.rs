//! The guards of an agent are asked, in order, about what goes in and out.

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
pub(crate) use screen::{Goal, Screen, not_made};
pub use secret::SecretGuard;
pub use size::SizeGuard;
pub use topic::TopicGuard;

/// How much of a reason is kept.
const LONGEST_REASON: usize = 1_000;

/// What becomes of a thing when a guard fails to look at it: it returned an error, panicked or took
/// too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenGuardFails {
    /// It is blocked.
    #[default]
    Block,
    /// It passes, as the guards before have left it.
    Pass,
}

/// The guards of an agent.
#[derive(Clone)]
pub struct Guards {
    pub(crate) all: Vec<Arc<dyn Guard>>,
    pub(crate) timeout: Duration,
    pub(crate) when_failing: WhenGuardFails,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            timeout: Self::DEFAULT_TIMEOUT,
            when_failing: WhenGuardFails::default(),
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

/// What the guards made of something. When it was blocked, the last of those who stepped in says
/// so.
pub(crate) struct Looked {
    pub(crate) subject: GuardSubject,
    pub(crate) guarded: Vec<Intervention>,
}

impl Looked {
    /// What it is now, or who blocked it.
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

    /// Whether anybody looks at this. Where nobody does, nothing is made for it.
    pub fn watch(&self, stage: Stage) -> bool {
        self.all.iter().any(|guard| watches(&**guard, stage))
    }

    /// Has all guards look, each at what the one before made of it, until one blocks.
    pub(crate) async fn look(
        &self,
        mut subject: GuardSubject,
        cx: &GuardCx,
        world: &dyn World,
    ) -> Looked {
        let (stage, call) = (subject.stage(), subject.call().cloned());
        let mut guarded = Vec::new();
        for guard in self.all.iter().filter(|guard| watches(&***guard, stage)) {
            let verdict = match self.ask(&**guard, &subject, cx, world).await {
                Ok(verdict) => verdict,
                Err(_) if self.when_failing == WhenGuardFails::Pass => Verdict::Pass,
                Err(problem) => Verdict::Block { reason: problem },
            };
            let name: Arc<str> = name(&**guard).into();
            match verdict {
                Verdict::Rewrite(new) => {
                    subject = *new;
                    guarded.push(Intervention::rewrote(name, stage).for_call(call.clone()));
                }
                Verdict::Block { reason } => {
                    let reason = clipped(&reason, LONGEST_REASON).into_owned();
                    guarded.push(Intervention::blocked(name, stage, reason).for_call(call));
                    break;
                }
                _ => {}
            }
        }
        Looked { subject, guarded }
    }

    /// Asks one guard, and sees to it that what it puts in place of something may stand there.
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
                return Err("the guard panicked: a fault in its code".to_owned());
            }
            Either::Right(((), _)) => {
                return Err(format!("the guard said nothing within {:?}", self.timeout));
            }
        };
        match verdict {
            Verdict::Rewrite(new) => match in_place_of(subject, *new) {
                Some(new) => Ok(Verdict::rewrite(new)),
                None => Err("the guard put something of another kind in its place".to_owned()),
            },
            verdict => Ok(verdict),
        }
    }
}

fn failed(cause: &SharedError) -> String {
    format!("the guard failed: {cause}")
}

/// Guards are foreign code, so what panics watches: it is asked, and fails.
fn watches(guard: &dyn Guard, stage: Stage) -> bool {
    std::panic::catch_unwind(AssertUnwindSafe(|| guard.watches(stage))).unwrap_or(true)
}

pub(crate) fn name(guard: &dyn Guard) -> String {
    std::panic::catch_unwind(AssertUnwindSafe(|| guard.name().to_owned()))
        .unwrap_or_else(|_| "guard".to_owned())
}

/// The new one, with what a guard may not change as it was: who says it, which call it is.
fn in_place_of(old: &GuardSubject, new: GuardSubject) -> Option<GuardSubject> {
    Some(match (old, new) {
        (GuardSubject::Input(old), GuardSubject::Input(new)) => {
            GuardSubject::Input(Arc::new(said(old, &new)))
        }
        (GuardSubject::Answer(old), GuardSubject::Answer(new)) => {
            GuardSubject::Answer(Arc::new(said(old, &new)))
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

/// The new message with the calls of the old one, each in its place: a history needs them all.
fn said(old: &Message, new: &Message) -> Message {
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
