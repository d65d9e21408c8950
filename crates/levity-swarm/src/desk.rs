//! The state that all patterns share: work in progress, the bus, the usage and the ending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levity_core::text::{clipped, head};
use levity_core::{
    ChildRun, ConversationId, Effect, EffectId, Ending, Failure, Limit, Limits, MachineOutput,
    Message, Outcome, OutputSchema, RunId, Signal, Stats, Status, Usage,
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::bus::{Bus, BusMessage, MessageKind, NewMessage, Recipient};
use crate::executor::unlimited;
use crate::names::USER;
use crate::notice::{FailureAction, SwarmNotice};
use crate::report::{ReportStatus, WorkerReport};
use crate::rules::{Rules, Start};

/// The state that the patterns of a swarm work with.
#[derive(Serialize)]
pub(crate) struct Desk {
    #[serde(skip)]
    pub(crate) rules: Arc<Rules>,
    #[serde(skip)]
    pub(crate) start: Arc<Start>,
    pub(crate) run: RunId,
    #[serde(serialize_with = "save_bus")]
    pub(crate) bus: Bus,
    /// The reports of all work, in the order of the plans.
    pub(crate) reports: Vec<WorkerReport>,
    /// The messages that the host has sent since the start.
    pub(crate) said: Vec<Arc<str>>,
    /// The limit that is nearly reached, if any: then only work for the answer starts.
    pub(crate) near: Option<Limit>,
    pub(crate) usage: Usage,
    pub(crate) stats: Stats,
    pub(crate) ending: Option<Ending>,
    next: u64,
    under_way: BTreeMap<EffectId, Duty>,
}

/// The saved form of the shared state.
#[derive(Deserialize)]
struct Saved {
    run: RunId,
    bus: Vec<BusMessage>,
    reports: Vec<WorkerReport>,
    said: Vec<Arc<str>>,
    near: Option<Limit>,
    usage: Usage,
    stats: Stats,
    ending: Option<Ending>,
    next: u64,
    under_way: BTreeMap<EffectId, Duty>,
}

/// An upper bound on the number of effects in a run.
const MOST_EFFECTS: u64 = 1 << 60;

fn save_bus<S: Serializer>(bus: &Bus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(bus.messages())
}

/// The purpose of a piece of work in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Duty {
    /// The router plans, or the judge judges between rounds.
    Lead,
    /// A worker works; the pattern interprets the number.
    Work(u32),
    /// The answer is being made.
    Close,
}

/// A piece of work for a worker, the router or the judge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Work {
    pub(crate) task: String,
    /// The earlier messages of the conversation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Arc<Message>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<ConversationId>,
    /// The limits of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limits: Option<Limits>,
    /// The schema of the requested output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Arc<OutputSchema>>,
    /// `true` if the worker does not get the tools of the pattern.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) plain: bool,
    /// `true` if the messages of the work are returned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) said: bool,
}

impl Work {
    pub(crate) fn new(task: String) -> Self {
        Self {
            task,
            ..Self::default()
        }
    }

    /// Sets the timeout of the work.
    pub(crate) fn within(mut self, time: Duration) -> Self {
        self.limits.get_or_insert_with(unlimited).wall_time = Some(time);
        self
    }
}

/// The result of a piece of work.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) result: Result<(), Why>,
    /// The final text, cut to the stored size.
    pub(crate) text: Arc<str>,
    pub(crate) signals: Vec<Signal>,
    pub(crate) said: Vec<Arc<Message>>,
    pub(crate) usage: Usage,
    pub(crate) stats: Stats,
    pub(crate) run: RunId,
}

/// The reason why a piece of work did not complete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Why {
    pub(crate) error: String,
    pub(crate) kind: WhyKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhyKind {
    /// The work failed, and another attempt may succeed.
    Failed,
    /// The work reached its own limit, which the same worker would reach again.
    Limit,
    /// The host stopped the work.
    Stopped,
}

/// The maximum size of a stored error, in bytes.
const MOST_ERROR: usize = 2_000;

impl Desk {
    pub(crate) fn new(rules: Arc<Rules>, start: Start) -> Self {
        let bus = Bus::with_limits(rules.bus.0, rules.bus.1);
        Self {
            rules,
            start: Arc::new(start),
            run: RunId::new(""),
            bus,
            reports: Vec::new(),
            said: Vec::new(),
            near: None,
            usage: Usage::default(),
            stats: Stats::default(),
            ending: None,
            next: 0,
            under_way: BTreeMap::new(),
        }
    }

    /// Resumes from a saved state.
    pub(crate) fn resumed(self, saved: &Value) -> Result<Self, String> {
        let saved = Saved::deserialize(saved)
            .map_err(|_| "the saved state cannot be read by this swarm")?;
        let Saved {
            run,
            bus,
            reports,
            said,
            near,
            usage,
            stats,
            ending,
            next,
            under_way,
        } = saved;
        let bus =
            Bus::restored(self.rules.bus, bus).ok_or("the saved messages are not in order")?;
        if next > MOST_EFFECTS || under_way.keys().any(|id| id.get() >= next) {
            return Err(
                "the saved state is inconsistent: work is in progress that was not \
                requested"
                    .to_owned(),
            );
        }
        let (rules, start) = (self.rules, self.start);
        Ok(Self {
            rules,
            start,
            run,
            bus,
            reports,
            said,
            near,
            usage,
            stats,
            ending,
            next,
            under_way,
        })
    }

    /// Returns the numbers of the workers' pieces in progress, in ascending order.
    pub(crate) fn working(&self) -> Vec<u32> {
        let numbers = self.under_way.values().filter_map(|duty| match duty {
            Duty::Work(number) => Some(*number),
            Duty::Lead | Duty::Close => None,
        });
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }

    /// Requests a piece of work from a member.
    pub(crate) fn want(
        &mut self,
        member: &Arc<str>,
        work: &Work,
        duty: Duty,
        wants: &mut MachineOutput,
    ) -> EffectId {
        let id = EffectId::new(self.next);
        self.next += 1;
        self.under_way.insert(id, duty);
        let input = serde_json::to_value(work).unwrap_or_default();
        wants.want(id, Effect::Child(ChildRun::new(member.clone(), input)));
        id
    }

    pub(crate) fn tell(&self, wants: &mut MachineOutput, notice: impl FnOnce() -> SwarmNotice) {
        if wants.is_watched() {
            wants.tell(notice().into_event());
        }
    }

    /// Posts a message on the bus.
    pub(crate) fn post(&mut self, draft: NewMessage, wants: &mut MachineOutput) {
        let message = self.bus.post(draft, wants.at(), &self.run);
        if wants.is_watched() {
            wants.tell(SwarmNotice::Message(message.clone()).into_event());
        }
    }

    /// Marks the start of an attempt in its report.
    pub(crate) fn began(
        &mut self,
        at: usize,
        worker: Arc<str>,
        effect: EffectId,
        wants: &mut MachineOutput,
    ) {
        let report = &mut self.reports[at];
        report.status = ReportStatus::Running;
        report.attempts = report.attempts.saturating_add(1);
        report.worker = worker.clone();
        let (id, attempt) = (report.id.clone(), report.attempts);
        self.tell(wants, || SwarmNotice::Began {
            id,
            worker,
            effect,
            attempt,
        });
    }

    /// Records the end of an attempt in its report.
    pub(crate) fn ended(&mut self, at: usize, came: &Came) {
        let report = &mut self.reports[at];
        report.usage += came.usage;
        report.stats += came.stats;
        (report.text, report.run) = (came.text.clone(), Some(came.run.clone()));
    }

    /// Marks the work of a report as done.
    pub(crate) fn done(&mut self, at: usize, wants: &mut MachineOutput) {
        let report = &mut self.reports[at];
        (report.status, report.error) = (ReportStatus::Done, None);
        let (id, worker) = (report.id.clone(), report.worker.clone());
        self.tell(wants, || SwarmNotice::Done { id, worker });
    }

    /// Marks failed work as final, because a limit prevents the retry.
    pub(crate) fn leave(&mut self, at: usize, limit: Limit, wants: &mut MachineOutput) {
        let report = &mut self.reports[at];
        report.status = ReportStatus::Failed;
        let (id, worker) = (report.id.clone(), report.worker.clone());
        let why = report.error.as_deref().unwrap_or("no error was reported");
        let error = format!("{why}; not retried, because the limit on {limit} was nearly reached");
        self.tell(wants, || SwarmNotice::Failed {
            id,
            worker,
            error,
            then: FailureAction::Leave,
        });
    }

    /// Returns the result of an effect, if it was requested.
    pub(crate) fn take(&mut self, effect: EffectId, outcome: Outcome) -> Option<(Duty, Came)> {
        let duty = self.under_way.remove(&effect)?;
        let came = Came::of(self.run.child(effect), outcome);
        self.usage += came.usage;
        self.stats += came.stats;
        Some((duty, came))
    }

    /// Returns the number of pieces of work in progress.
    pub(crate) fn busy(&self) -> usize {
        self.under_way.len()
    }

    /// Ends the run.
    pub(crate) fn end(&mut self, status: Status, text: String, value: Option<Value>) {
        let mut ending = self.so_far(status, text);
        ending.value = value;
        self.under_way.clear();
        self.ending = Some(ending);
    }

    pub(crate) fn so_far(&self, status: Status, text: String) -> Ending {
        let mut ending = Ending::new(status);
        ending.text = text;
        (ending.usage, ending.stats) = (self.usage, self.stats);
        ending
    }

    /// Sends the answer to the user and ends the run.
    pub(crate) fn answer(
        &mut self,
        from: impl Into<Arc<str>>,
        text: String,
        wants: &mut MachineOutput,
    ) {
        self.post(
            NewMessage::new(
                from,
                Recipient::One(USER.into()),
                MessageKind::Answer,
                &*text,
            ),
            wants,
        );
        let status = self.answered();
        self.end(status, text, None);
    }

    /// Returns the status of an answer: complete, or best effort near a limit.
    pub(crate) fn answered(&self) -> Status {
        self.near.map_or(Status::Complete, Status::BestEffort)
    }
}

impl Came {
    fn of(run: RunId, outcome: Outcome) -> Self {
        let mut came = Self {
            result: Ok(()),
            text: Arc::default(),
            signals: Vec::new(),
            said: Vec::new(),
            usage: Usage::default(),
            stats: Stats::default(),
            run,
        };
        match outcome {
            Outcome::Child(ending) => came.ended(*ending),
            other => came.result = Err(not_run(&other)),
        }
        came
    }

    fn ended(&mut self, ending: Ending) {
        let Ending {
            status,
            text,
            value,
            usage,
            stats,
            signals,
            said,
            ..
        } = ending;
        let text = match value {
            Some(value) if text.is_empty() => value.to_string(),
            _ => text,
        };
        self.text = clipped(&text, WorkerReport::MAX_TEXT).into();
        (self.usage, self.stats, self.signals, self.said) = (usage, stats, signals, said);
        self.result = match status {
            status if status.is_answer() => Ok(()),
            Status::Cancelled { reason } => Err(Why::new(
                WhyKind::Stopped,
                format!("the work was stopped: {reason}"),
            )),
            status @ Status::Partial(_) => Err(Why::new(WhyKind::Limit, status.to_string())),
            Status::Failed(failure) => Err(Why::new(WhyKind::Failed, explain(&failure))),
            status => Err(Why::new(WhyKind::Failed, status.to_string())),
        };
    }
}

impl Why {
    pub(crate) fn new(kind: WhyKind, error: impl Into<String>) -> Self {
        let error = error.into();
        Self {
            kind,
            error: head(&error, MOST_ERROR).to_owned(),
        }
    }
}

fn not_run(outcome: &Outcome) -> Why {
    match outcome {
        Outcome::Refused(limit) => Why::new(
            WhyKind::Limit,
            format!("the work was not started: the limit on {limit} was reached"),
        ),
        Outcome::Denied { reason } => {
            Why::new(WhyKind::Stopped, format!("the work was denied: {reason}"))
        }
        _ => Why::new(
            WhyKind::Failed,
            "the process ended during the work, so its result is \
            unknown",
        ),
    }
}

/// Returns a failure with its causes.
fn explain(failure: &Failure) -> String {
    levity_core::text::chain(failure)
}
