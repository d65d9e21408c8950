//! The state that all patterns share: work in progress, the bus, the usage and the ending.
//!
//! A pattern requests work with `request` and gets the result in `work_finished`. It never sees
//! effects, so it cannot lose one. The state is saved as a whole between any two inputs; the bus is
//! saved as its messages, and its index is built again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use levity_core::text::{clipped, head};
use levity_core::{
    ChildRun, ConversationId, Effect, EffectId, Ending, Failure, Limit, Limits, MachineOutput,
    Media, Message, Outcome, OutputSchema, RunId, Signal, Stats, Status, Usage,
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
pub(crate) struct SharedState {
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
    #[serde(rename = "said")]
    pub(crate) host_messages: Vec<Arc<str>>,
    /// The limit that is nearly reached, if any: then only work for the answer starts.
    #[serde(rename = "near")]
    pub(crate) near_limit: Option<Limit>,
    pub(crate) usage: Usage,
    pub(crate) stats: Stats,
    pub(crate) ending: Option<Ending>,
    next: u64,
    #[serde(rename = "under_way")]
    in_progress: BTreeMap<EffectId, WorkKind>,
}

/// The saved form of the shared state.
#[derive(Deserialize)]
struct SavedState {
    run: RunId,
    bus: Vec<BusMessage>,
    reports: Vec<WorkerReport>,
    #[serde(rename = "said")]
    host_messages: Vec<Arc<str>>,
    #[serde(rename = "near")]
    near_limit: Option<Limit>,
    usage: Usage,
    stats: Stats,
    ending: Option<Ending>,
    next: u64,
    #[serde(rename = "under_way")]
    in_progress: BTreeMap<EffectId, WorkKind>,
}

/// The maximum size of the description of the files, in tokens.
const MAX_FILES_TOKENS: u64 = 8_000;

fn counted_media(count: usize) -> String {
    match count {
        1 => "An image or file comes".to_owned(),
        count => format!("{count} images or files come"),
    }
}

/// An upper bound on the number of effects in a run.
const MAX_EFFECTS: u64 = 1 << 60;

fn save_bus<S: Serializer>(bus: &Bus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(bus.messages())
}

/// The purpose of a piece of work in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkKind {
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
pub(crate) struct FinishedWork {
    pub(crate) result: Result<(), WorkError>,
    /// The final text, cut to the stored size.
    pub(crate) text: Arc<str>,
    pub(crate) signals: Vec<Signal>,
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) usage: Usage,
    pub(crate) stats: Stats,
    pub(crate) run: RunId,
}

/// The reason why a piece of work did not complete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkError {
    pub(crate) error: String,
    pub(crate) kind: WorkErrorKind,
}

/// The kind decides on the next attempt; the text of an error never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkErrorKind {
    /// The work failed, and another attempt may succeed.
    Failed,
    /// The work reached its own limit, which the same worker would reach again.
    Limit,
    /// The host stopped the work.
    Stopped,
}

/// The maximum size of a stored error, in bytes.
const MAX_ERROR_BYTES: usize = 2_000;

impl SharedState {
    pub(crate) fn new(rules: Arc<Rules>, start: Start) -> Self {
        let bus = Bus::with_limits(rules.bus.0, rules.bus.1);
        Self {
            rules,
            start: Arc::new(start),
            run: RunId::new(""),
            bus,
            reports: Vec::new(),
            host_messages: Vec::new(),
            near_limit: None,
            usage: Usage::default(),
            stats: Stats::default(),
            ending: None,
            next: 0,
            in_progress: BTreeMap::new(),
        }
    }

    /// Resumes from a saved state.
    pub(crate) fn resumed(self, saved: &Value) -> Result<Self, String> {
        let saved = SavedState::deserialize(saved)
            .map_err(|_| "the saved state cannot be read by this swarm")?;
        let SavedState {
            run,
            bus,
            reports,
            host_messages,
            near_limit,
            usage,
            stats,
            ending,
            next,
            in_progress,
        } = saved;
        let bus =
            Bus::restored(self.rules.bus, bus).ok_or("the saved messages are not in order")?;
        if next > MAX_EFFECTS || in_progress.keys().any(|id| id.get() >= next) {
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
            host_messages,
            near_limit,
            usage,
            stats,
            ending,
            next,
            in_progress,
        })
    }

    /// Returns the numbers of the workers' pieces in progress, in ascending order.
    pub(crate) fn working(&self) -> Vec<u32> {
        let numbers = self.in_progress.values().filter_map(|kind| match kind {
            WorkKind::Work(number) => Some(*number),
            WorkKind::Lead | WorkKind::Close => None,
        });
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }

    /// Requests a piece of work from a member.
    pub(crate) fn request(
        &mut self,
        member: &Arc<str>,
        work: &Work,
        kind: WorkKind,
        out: &mut MachineOutput,
    ) -> EffectId {
        let id = EffectId::new(self.next);
        self.next += 1;
        self.in_progress.insert(id, kind);
        let (task, media) = self.given(work, kind);
        let mut input = serde_json::to_value(work).unwrap_or_default();
        if let Some(task) = task {
            input["task"] = task.into();
        }
        let label = match kind {
            WorkKind::Work(number) => {
                let report = usize::try_from(number)
                    .ok()
                    .and_then(|at| self.reports.get(at));
                report.map_or_else(
                    || member.to_string(),
                    |report| format!("{member} {}", report.id),
                )
            }
            WorkKind::Lead | WorkKind::Close => member.to_string(),
        };
        let child = ChildRun::new(member.clone(), input);
        out.request(id, Effect::Child(child.with_label(label).with_media(media)));
        id
    }

    /// Returns the task of a piece of work with the files of the goal, unless it has none, and the
    /// media of the goal.
    fn given(&self, work: &Work, kind: WorkKind) -> (Option<String>, Arc<[Media]>) {
        let (files, media) = (&self.start.files, &self.start.media);
        // The answer is made of the results.
        if kind == WorkKind::Close || (files.is_none() && media.is_empty()) {
            return (None, Arc::default());
        }
        let files = files
            .as_ref()
            .map(|files| files.as_text(MAX_FILES_TOKENS))
            .unwrap_or_default();
        let mut task = work.task.clone();
        if !files.is_empty() {
            let _ = write!(task, "\n\n{files}\n");
        }
        if !media.is_empty() {
            let count = counted_media(media.len());
            let _ = write!(task, "\n{count} with the goal, after this text.\n");
        }
        (Some(task), media.clone())
    }

    pub(crate) fn notify(&self, out: &mut MachineOutput, notice: impl FnOnce() -> SwarmNotice) {
        if out.is_watched() {
            out.emit(notice().into_event());
        }
    }

    /// Posts a message on the bus.
    pub(crate) fn post(&mut self, draft: NewMessage, out: &mut MachineOutput) {
        let message = self.bus.post(draft, out.at(), &self.run);
        if out.is_watched() {
            out.emit(SwarmNotice::Message(message.clone()).into_event());
        }
    }

    /// Marks the start of an attempt in its report.
    pub(crate) fn record_start(
        &mut self,
        at: usize,
        worker: Arc<str>,
        effect: EffectId,
        out: &mut MachineOutput,
    ) {
        let report = &mut self.reports[at];
        report.status = ReportStatus::Running;
        report.attempts = report.attempts.saturating_add(1);
        report.worker = worker.clone();
        let (id, attempt) = (report.id.clone(), report.attempts);
        self.notify(out, || SwarmNotice::Began {
            id,
            worker,
            effect,
            attempt,
        });
    }

    /// Records the end of an attempt in its report.
    pub(crate) fn record_end(&mut self, at: usize, finished: &FinishedWork) {
        let report = &mut self.reports[at];
        report.usage += finished.usage;
        report.stats += finished.stats;
        (report.text, report.run) = (finished.text.clone(), Some(finished.run.clone()));
    }

    /// Marks the work of a report as done.
    pub(crate) fn mark_done(&mut self, at: usize, out: &mut MachineOutput) {
        let report = &mut self.reports[at];
        (report.status, report.error) = (ReportStatus::Done, None);
        let (id, worker) = (report.id.clone(), report.worker.clone());
        self.notify(out, || SwarmNotice::Done { id, worker });
    }

    /// Marks failed work as final, because a limit prevents the retry.
    pub(crate) fn mark_failed(&mut self, at: usize, limit: Limit, out: &mut MachineOutput) {
        let report = &mut self.reports[at];
        report.status = ReportStatus::Failed;
        let (id, worker) = (report.id.clone(), report.worker.clone());
        let why = report.error.as_deref().unwrap_or("no error was reported");
        let error = format!("{why}; not retried, because the limit on {limit} was nearly reached");
        self.notify(out, || SwarmNotice::Failed {
            id,
            worker,
            error,
            then: FailureAction::GiveUp,
        });
    }

    /// Returns the result of an effect, if it was requested.
    pub(crate) fn take(
        &mut self,
        effect: EffectId,
        outcome: Outcome,
    ) -> Option<(WorkKind, FinishedWork)> {
        let kind = self.in_progress.remove(&effect)?;
        let finished = FinishedWork::of(self.run.child(effect), outcome);
        self.usage += finished.usage;
        self.stats += finished.stats;
        Some((kind, finished))
    }

    /// Returns the number of pieces of work in progress.
    pub(crate) fn busy(&self) -> usize {
        self.in_progress.len()
    }

    /// Ends the run with a status, an answer and a value.
    ///
    /// Work in progress is forgotten, and its outcomes are ignored.
    pub(crate) fn end(&mut self, status: Status, text: String, value: Option<Value>) {
        let mut ending = self.ending_with(status, text);
        ending.value = value;
        self.in_progress.clear();
        self.ending = Some(ending);
    }

    pub(crate) fn ending_with(&self, status: Status, text: String) -> Ending {
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
        out: &mut MachineOutput,
    ) {
        self.post(
            NewMessage::new(
                from,
                Recipient::One(USER.into()),
                MessageKind::Answer,
                &*text,
            ),
            out,
        );
        let status = self.answer_status();
        self.end(status, text, None);
    }

    /// Returns the status of an answer: complete, or best effort near a limit.
    pub(crate) fn answer_status(&self) -> Status {
        self.near_limit.map_or(Status::Complete, Status::BestEffort)
    }
}

impl FinishedWork {
    fn of(run: RunId, outcome: Outcome) -> Self {
        let mut finished = Self {
            result: Ok(()),
            text: Arc::default(),
            signals: Vec::new(),
            messages: Vec::new(),
            usage: Usage::default(),
            stats: Stats::default(),
            run,
        };
        match outcome {
            Outcome::Child(ending) => finished.set_ending(*ending),
            other => finished.result = Err(not_run_error(&other)),
        }
        finished
    }

    fn set_ending(&mut self, ending: Ending) {
        let Ending {
            status,
            text,
            value,
            usage,
            stats,
            signals,
            messages: said,
            ..
        } = ending;
        let text = match value {
            Some(value) if text.is_empty() => value.to_string(),
            _ => text,
        };
        self.text = clipped(&text, WorkerReport::MAX_TEXT).into();
        (self.usage, self.stats, self.signals, self.messages) = (usage, stats, signals, said);
        self.result = match status {
            status if status.is_answer() => Ok(()),
            Status::Cancelled { reason } => Err(WorkError::new(
                WorkErrorKind::Stopped,
                format!("the work was stopped: {reason}"),
            )),
            status @ Status::Partial(_) => {
                Err(WorkError::new(WorkErrorKind::Limit, status.to_string()))
            }
            Status::Failed(failure) => {
                Err(WorkError::new(WorkErrorKind::Failed, explain(&failure)))
            }
            status => Err(WorkError::new(WorkErrorKind::Failed, status.to_string())),
        };
    }
}

impl WorkError {
    pub(crate) fn new(kind: WorkErrorKind, error: impl Into<String>) -> Self {
        let error = error.into();
        Self {
            kind,
            error: head(&error, MAX_ERROR_BYTES).to_owned(),
        }
    }
}

fn not_run_error(outcome: &Outcome) -> WorkError {
    match outcome {
        Outcome::Refused(limit) => WorkError::new(
            WorkErrorKind::Limit,
            format!("the work was not started: the limit on {limit} was reached"),
        ),
        Outcome::Denied { reason } => WorkError::new(
            WorkErrorKind::Stopped,
            format!("the work was denied: {reason}"),
        ),
        _ => WorkError::new(
            WorkErrorKind::Failed,
            "the process ended during the work, so its result is \
            unknown",
        ),
    }
}

/// Returns a failure with its causes.
fn explain(failure: &Failure) -> String {
    levity_core::text::chain(failure)
}
