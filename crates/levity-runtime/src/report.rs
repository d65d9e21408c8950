//! Reports on stored runs: what a run did, and how two runs differ.
//!
//! A report is a fold over records and needs neither the machine nor the program that wrote them.
//! So it also works for runs of older versions that can no longer be resumed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    CallId, Decision, EffectId, EffectKind, EffectNote, Entry, ForkPoint, Outcome, Record, RunId,
    Status, Usage,
};
use serde::Serialize;

use crate::asked_calls::RequestedCalls;

/// A report on a run, computed from its records.
///
/// ```
/// use levity_core::{
///     EffectClass, EffectId, EffectKind, EffectNote, Entry, Message, Outcome, Record, Response,
///     RunId, Status, Timestamp, Usage,
/// };
/// use levity_runtime::RunReport;
///
/// let effect = EffectId::new(0);
/// let note = EffectNote::new(EffectKind::Model, "main", EffectClass::Idempotent);
/// let reply = Response::new(Message::assistant("At six.")).with_usage(Usage::new(30, 4));
/// let entries = [
///     Entry::Started { effect, note },
///     Entry::finished(effect, Outcome::Model(Ok(reply))),
///     Entry::Ended(Status::Complete),
/// ];
/// let records: Vec<_> = (0..)
///     .zip(entries)
///     .map(|(seq, entry)| Record::new(seq, Timestamp::from_millis(seq * 50), entry))
///     .collect();
/// let report = RunReport::of(&RunId::new("r1"), &records);
/// assert_eq!((report.answer.as_str(), report.model_calls), ("At six.", 1));
/// assert_eq!((report.usage.total(), report.time.as_millis()), (34, 100));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// The id of the run.
    pub run: RunId,
    /// The run that it was forked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked: Option<ForkPoint>,
    /// The status at its end, if it has ended.
    pub status: Option<Status>,
    /// The last text of its model.
    pub answer: String,
    /// The usage of the run, including its children.
    pub usage: Usage,
    /// The number of model calls.
    pub model_calls: u64,
    /// The steps of the run, in order: calls of tools and agents with their results.
    pub steps: Vec<ReportStep>,
    /// The duration of the run, from its first record to its last.
    pub time: Duration,
}

/// A step of a run: one call of a tool or an agent.
///
/// Two steps are equal if they have the same name, the same arguments and the same success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReportStep {
    /// The name of the tool or the agent.
    pub name: String,
    /// The arguments of the call, as JSON; empty if the records do not contain them. Steps of the
    /// same call share the text.
    pub args: Arc<str>,
    /// `true` if the call failed.
    pub failed: bool,
}

impl RunReport {
    /// Builds the report from these records of a run.
    ///
    /// ```
    /// use levity_core::{Entry, Limits, MachineKind, Record, RunHeader, RunId, Timestamp};
    /// use levity_runtime::RunReport;
    ///
    /// let kind = MachineKind::new("idle", 1);
    /// let opened = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
    /// let records = [Record::new(0, Timestamp::default(), Entry::Opened(opened))];
    /// let report = RunReport::of(&RunId::new("r1"), &records);
    /// assert!(report.status.is_none()); // it has not ended
    /// ```
    pub fn of(run: &RunId, records: &[Record]) -> Self {
        let span = records.last().zip(records.first());
        let mut report = Self {
            run: run.clone(),
            forked: None,
            status: None,
            answer: String::new(),
            usage: Usage::default(),
            model_calls: 0,
            steps: Vec::new(),
            time: span.map_or(Duration::ZERO, |(last, first)| last.at.since(first.at)),
        };
        let mut calls = Calls::default();
        records
            .iter()
            .for_each(|record| report.add(&record.entry, &mut calls));
        report
    }

    fn add(&mut self, entry: &Entry, calls: &mut Calls) {
        match entry {
            Entry::Opened(opened) => self.forked.clone_from(&opened.forked),
            Entry::Started { note, .. } if note.kind == EffectKind::Model => self.model_calls += 1,
            Entry::Finished { outcome, .. } => self.finished(outcome, calls),
            Entry::Ended(status) => self.status = Some(status.clone()),
            _ => {}
        }
        if let Entry::Started { effect, note } = entry {
            calls.begun.insert(*effect, note.clone());
        }
        if let Entry::Finished {
            effect, outcome, ..
        } = entry
        {
            self.steps.extend(calls.step(*effect, outcome));
        }
    }

    fn finished(&mut self, outcome: &Outcome, calls: &mut Calls) {
        match outcome {
            Outcome::Model(Ok(response)) => {
                self.usage += response.usage;
                let text = response.message.text();
                if !text.trim().is_empty() {
                    self.answer = text.into_owned();
                }
                calls.asked.add(&response.message);
            }
            Outcome::Child(ending) => self.usage += ending.usage,
            _ => {}
        }
    }
}

/// The calls that a run has requested up to now.
#[derive(Default)]
struct Calls {
    asked: RequestedCalls,
    /// Effects that have started and not finished.
    begun: BTreeMap<EffectId, EffectNote>,
    /// The arguments of calls as JSON. Records of a stranger may have any number of effects for one
    /// call.
    args: HashMap<CallId, Arc<str>>,
}

impl Calls {
    /// Questions and waits are no steps: they return `None`.
    fn step(&mut self, effect: EffectId, outcome: &Outcome) -> Option<ReportStep> {
        let note = self.begun.remove(&effect)?;
        if let Outcome::Decision(Decision::Edit { args }) = outcome {
            if let Some(call) = self.asked.find(&note) {
                self.args.remove(&call.id);
            }
            self.asked.edit(&note, args);
        }
        let failed = match outcome {
            Outcome::Tool(result) => result.is_error(),
            Outcome::Child(ending) => !ending.status.is_answer(),
            Outcome::Unknown => true,
            _ => return None,
        };
        let asked = self.asked.find(&note);
        let args = asked.map(|call| {
            let text = self.args.entry(call.id.clone());
            text.or_insert_with(|| call.args.to_string().into()).clone()
        });
        Some(ReportStep {
            name: note.name.to_string(),
            args: args.unwrap_or_default(),
            failed,
        })
    }
}

/// A comparison of two runs: their answers, their cost, their steps.
///
/// Its `Display` is a table.
///
/// ```
/// # use levity_core::RunId;
/// # use levity_runtime::{RunComparison, RunReport};
/// let report = |run| RunReport::of(&RunId::new(run), &[]);
/// let compared = RunComparison::new(report("r1"), report("r2"));
/// assert!(!compared.same_answer, "a run without an end has no answer");
/// assert!(compared.to_string().contains("both took the same steps"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunComparison {
    /// The first of the two runs.
    pub left: RunReport,
    /// The second of the two runs.
    pub right: RunReport,
    /// The number of identical steps before the runs diverge.
    pub same_steps: usize,
    /// `true` if the answers are identical.
    pub same_answer: bool,
}

impl RunComparison {
    /// Compares two runs by their steps and answers.
    pub fn new(left: RunReport, right: RunReport) -> Self {
        let pairs = left.steps.iter().zip(&right.steps);
        let same_steps = pairs.take_while(|(left, right)| left == right).count();
        let same_answer =
            left.status.is_some() && right.status.is_some() && left.answer == right.answer;
        Self {
            same_steps,
            same_answer,
            left,
            right,
        }
    }
}

impl fmt::Display for RunComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, left: &dyn fmt::Display, right: &dyn fmt::Display| {
            writeln!(f, "{name:<12} {:<36} {}", left.to_string(), right)
        };
        let (left, right) = (&self.left, &self.right);
        let status = |run: &RunReport| match &run.status {
            Some(status) => status.to_string(),
            None => "has not ended".to_owned(),
        };
        row("run", &left.run, &right.run)?;
        row("status", &status(left), &status(right))?;
        row("used", &left.usage, &right.usage)?;
        row("model calls", &left.model_calls, &right.model_calls)?;
        row("steps", &left.steps.len(), &right.steps.len())?;
        row(
            "time",
            &format!("{:?}", left.time),
            &format!("{:?}", right.time),
        )?;
        self.parting(f)?;
        writeln!(f, "{} answered: {}", left.run, left.answer)?;
        writeln!(f, "{} answered: {}", right.run, right.answer)
    }
}

impl RunComparison {
    /// Shows the first step in which the runs differ, or that they do not.
    fn parting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = |run: &RunReport| match run.steps.get(self.same_steps) {
            Some(step) => format!("{} {}", step.name, step.args),
            None => "nothing more".to_owned(),
        };
        let (left, right) = (next(&self.left), next(&self.right));
        match self.same_steps {
            all if all == self.left.steps.len() && all == self.right.steps.len() => {
                writeln!(f, "both took the same steps")
            }
            same => writeln!(f, "after {same} steps in common: {left} | {right}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use levity_core::{EffectClass, Message, Part, Response, Role, Timestamp, ToolCall};
    use serde_json::json;

    use super::*;

    fn report(entries: impl IntoIterator<Item = Entry>) -> RunReport {
        let records: Vec<_> = (0..)
            .zip(entries)
            .map(|(seq, entry)| Record::new(seq, Timestamp::default(), entry))
            .collect();
        RunReport::of(&RunId::new("r1"), &records)
    }

    #[test]
    fn of_many_effects_of_one_call_shares_its_arguments() {
        let call = ToolCall::new("c", "run", json!({"n": 1}));
        let reply = Message::new(Role::Assistant, [Part::ToolCall(call)]);
        let mut note = EffectNote::new(EffectKind::Tool, "run", EffectClass::ReadOnly);
        note.call = Some("c".into());
        let finished = |effect, outcome| {
            let (effect, note) = (EffectId::new(effect), note.clone());
            [
                Entry::Started { effect, note },
                Entry::finished(effect, outcome),
            ]
        };
        let edit = Decision::Edit {
            args: json!({"n": 2}),
        };
        let entries = [
            finished(0, Outcome::Model(Ok(Response::new(reply)))),
            finished(1, Outcome::Unknown),
            finished(2, Outcome::Unknown),
            finished(3, Outcome::Decision(edit)),
            finished(4, Outcome::Unknown),
        ];
        let steps = report(entries.into_iter().flatten()).steps;
        assert!(Arc::ptr_eq(&steps[0].args, &steps[1].args));
        let args: Vec<_> = steps.iter().map(|step| &*step.args).collect();
        assert_eq!(args, [r#"{"n":1}"#, r#"{"n":1}"#, r#"{"n":2}"#]);
    }

    #[test]
    fn of_many_open_effects_finds_each_by_its_number() {
        // With a scan of the open effects, 20,000,000,000 of them would be compared.
        const COUNT: u64 = 200_000;
        let note = EffectNote::new(EffectKind::Tool, "run", EffectClass::ReadOnly);
        let started = (0..COUNT).map(|effect| Entry::Started {
            effect: EffectId::new(effect),
            note: note.clone(),
        });
        let finished = (0..COUNT)
            .rev()
            .map(|effect| Entry::finished(EffectId::new(effect), Outcome::Unknown));
        let report = report(started.chain(finished));
        assert_eq!(report.steps.len() as u64, COUNT);
    }
}
