//! The records of a run as a readable timeline.
//!
//! `levity runs show` prints this timeline: one line for each record that a person cares about,
//! with its number, and the lines of child runs below the effect that started them, indented.
//! Effects that are open at the end are listed last: a question waits for an answer, a timer for
//! its time, and any other effect was interrupted by a crash or is being performed.
//!
//! Records are untrusted: they may come from an imported run. Control characters become blanks, and
//! long texts are cut at 400 characters. The number of an effect and the fingerprint of its call
//! are printed beside each question, because `levity runs approve` takes them.
//!
//! The same pass finds the calls that were or will be approved (`asked_calls`, `approved`). A
//! person must approve exactly the call that is executed, so the arguments come from the reply of
//! the model in the records, and a call that no reply contains is shown as unknown and cannot be
//! approved.

use std::collections::{BTreeMap, BTreeSet};

use levity::core::{
    Ask, ControlCommand, Decision, EffectId, EffectKind, EffectNote, Entry, FileChange, Outcome,
    Record, Response, RunId, Timestamp, ToolCall,
};
use levity::runtime::__private::RequestedCalls;
use serde_json::Value;

use crate::marks::OwnJournal;
use crate::terminal::{is_shown_in_full, omit_middle};

/// The maximum number of characters of a text in a line; `--json` prints all of it.
const MAX_CHARS: usize = 400;

/// Formats a run and its child runs.
///
/// A child run that the journal cannot read appears without lines; the timeline of the parent is
/// still useful then.
pub(super) async fn render(journal: &OwnJournal, run: &RunId, records: &[Record]) -> String {
    let mut timeline = Timeline {
        text: String::new(),
        indent: 0,
    };
    Box::pin(timeline.run(journal, run, records)).await;
    timeline.text
}

/// Collects the text, because child runs are read from the journal while their parent is being
/// formatted.
struct Timeline {
    text: String,
    indent: usize,
}

/// The effects that the timeline has seen up to now.
///
/// Records name effects by number only. This state resolves a number to the tool and arguments, as
/// they were after edits by a person.
#[derive(Default)]
struct EffectLog {
    /// The calls that models have requested.
    calls: RequestedCalls,
    /// Effects that have started and not finished, in the order of their numbers.
    open: BTreeMap<EffectId, EffectNote>,
    /// The times at which effects started first.
    started: BTreeMap<EffectId, Timestamp>,
}

impl EffectLog {
    /// Describes an effect, such as a tool with its arguments. A question shows the arguments in
    /// full.
    ///
    /// Other effects than questions cut the arguments at 400 characters.
    fn describe(&self, note: &EffectNote) -> String {
        match self.calls.find(note) {
            Some(call) if note.kind == EffectKind::Ask => line(&omit_middle(&self.text(call))),
            Some(call) => format!("{} {}", call.name, short(&call.args.to_string())),
            None if note.call.is_some() => unknown_call(note),
            None => note.name.to_string(),
        }
    }

    /// Returns the fingerprint of a question, which the HTTP API also uses in its id; `None` if the
    /// records do not have its call.
    fn fingerprint(&self, effect: EffectId, note: &EffectNote) -> Option<String> {
        let call = self.calls.find(note)?;
        // Of calls with the same id in one reply, only the effects have distinct ids.
        let id = note.call.clone().unwrap_or_else(|| call.id.clone());
        let call = ToolCall::new(id, &*call.name, call.args.clone());
        let ask = Ask::new(RunId::new("run"), effect, call, "");
        Some(ask.fingerprint(*self.started.get(&effect)?))
    }

    /// Formats a call as its name and its arguments in JSON, for example `write_file
    /// {"path":"a.txt"}`.
    fn text(&self, call: &ToolCall) -> String {
        format!("{} {}", call.name, call.args)
    }
}

/// A call that needs or has a decision.
///
/// A decision on a call is accepted only if the call is known. One that is not shown in full asks
/// for an explicit confirmation by the caller of this type.
pub(super) struct ApprovalCall {
    /// Its name and arguments, as far as they are shown.
    pub(super) text: String,
    /// `true` if they are shown in full.
    pub(super) is_complete: bool,
    /// `true` if the records have the call that the question is about.
    pub(super) is_known: bool,
    /// Binds a decision to the question. A later run with the same id has other fingerprints.
    pub(super) fingerprint: Option<String>,
}

impl ApprovalCall {
    /// The completeness is judged before line breaks are replaced, on the same text that
    /// `omit_middle` cuts.
    fn new(log: &EffectLog, effect: EffectId, note: &EffectNote) -> Self {
        let call = log.calls.find(note);
        let text = call.map_or_else(|| unknown_call(note), |call| log.text(call));
        Self {
            is_complete: is_shown_in_full(&text),
            text: line(&omit_middle(&text)),
            is_known: call.is_some(),
            fingerprint: log.fingerprint(effect, note),
        }
    }

    /// Describes a call whose question is not in the records, as in a forged journal.
    fn without_question(effect: EffectId) -> Self {
        Self {
            text: format!("a call that the journal does not name (effect {effect})"),
            is_complete: false,
            is_known: false,
            fingerprint: None,
        }
    }
}

/// Describes a call that the records do not have.
///
/// This happens for a damaged or forged journal: a question was stored whose call no model
/// requested.
fn unknown_call(note: &EffectNote) -> String {
    format!(
        "{} (no reply in the journal has this call with these arguments)",
        note.name
    )
}

/// Returns the calls that the open questions of a run are about, by the numbers of the questions.
pub(super) fn asked_calls(records: &[Record]) -> BTreeMap<EffectId, ApprovalCall> {
    let log = log_of(records);
    let asks = log.open.iter();
    let asks = asks.filter(|(_, note)| note.kind == EffectKind::Ask);
    asks.map(|(effect, note)| (*effect, ApprovalCall::new(&log, *effect, note)))
        .collect()
}

/// Returns the effects that have started and not finished.
pub(super) fn open_effects(records: &[Record]) -> BTreeMap<EffectId, EffectNote> {
    log_of(records).open
}

/// Returns what is known about each effect after all records.
fn log_of(records: &[Record]) -> EffectLog {
    let mut log = EffectLog::default();
    records
        .iter()
        .for_each(|record| drop(lines(record, &mut log)));
    log
}

/// Returns the calls of a run that were approved.
///
/// A decision without a question is one of them: the machine asks the question when the run is
/// resumed, and the decision answers it.
///
/// Calls that a person changed before allowing them show both forms: the one requested and the one
/// executed. The state is read before the record is applied, because applying a decision closes its
/// effect and edits its call.
pub(super) fn approved(records: &[Record]) -> Vec<ApprovalCall> {
    let (mut log, mut found) = (EffectLog::default(), Vec::new());
    for record in records {
        let mut decided = match &record.entry {
            Entry::Finished {
                effect,
                outcome: Outcome::Decision(Decision::Allow | Decision::Edit { .. }),
                ..
            } => Some(match log.open.get(effect) {
                Some(note) => ApprovalCall::new(&log, *effect, note),
                None => ApprovalCall::without_question(*effect),
            }),
            _ => None,
        };
        if let (
            Entry::Finished {
                outcome: Outcome::Decision(Decision::Edit { args }),
                ..
            },
            Some(decided),
        ) = (&record.entry, &mut decided)
        {
            decided.text.push_str(&format!(
                ", changed to {}",
                line(&omit_middle(&args.to_string()))
            ));
        }
        lines(record, &mut log);
        found.extend(decided);
    }
    found
}

impl Timeline {
    /// Formats one run and recurses into its child runs.
    async fn run(&mut self, journal: &OwnJournal, run: &RunId, records: &[Record]) {
        let mut log = EffectLog::default();
        // A child run that was resumed is formatted only once.
        let mut shown_children = BTreeSet::new();
        for record in records {
            for line in lines(record, &mut log) {
                self.line(record.seq, &line);
            }
            if let Entry::Started { effect, note } = &record.entry
                && note.kind == EffectKind::Child
                && shown_children.insert(*effect)
            {
                let child = run.child(*effect);
                self.line(record.seq, &format!("as run {child}:"));
                let below = journal.read_to_show(&child).await.unwrap_or_default();
                self.indent += 1;
                Box::pin(self.run(journal, &child, &below)).await;
                self.indent -= 1;
            }
        }
        for (effect, note) in &log.open {
            let what = log.describe(note);
            let line = match note.kind {
                EffectKind::Ask => {
                    let option = log.fingerprint(*effect, note);
                    let option = option.map(|hash| format!(" (--effect {effect}:{hash})"));
                    format!(
                        "waiting for an answer to effect {effect}: {}{}",
                        question(note, &what),
                        option.unwrap_or_default()
                    )
                }
                EffectKind::Wait => format!("waiting until {}", note.until.unwrap_or_default()),
                EffectKind::Child => continue,
                _ => format!("effect {effect} has started but not finished: {what}"),
            };
            self.line(records.len() as u64, &line);
        }
    }

    /// Appends a line with the number of its record, right-aligned to four digits.
    fn line(&mut self, seq: u64, line: &str) {
        let indent = "    ".repeat(self.indent);
        self.text.push_str(&format!("{indent}{seq:>4}  {line}\n"));
    }
}

/// Returns the lines for a record.
///
/// Returns none for records that only machines need, such as started model calls, and
/// updates the log in each case.
fn lines(record: &Record, log: &mut EffectLog) -> Vec<String> {
    let at = record.at;
    match &record.entry {
        Entry::Opened(opened) => {
            let mut lines = vec![format!("opened {at}, driven by {}", opened.machine)];
            lines.extend(goal(&opened.state).map(|goal| format!("goal: {}", short(&goal))));
            lines.extend(
                opened
                    .forked
                    .as_ref()
                    .map(|f| format!("forked from {} after {}", f.run, f.after)),
            );
            lines
        }
        Entry::Started { effect, note } => {
            let again = log.open.insert(*effect, note.clone()).is_some();
            log.started.entry(*effect).or_insert(at);
            let what = log.describe(note);
            let again = if again { " again" } else { "" };
            match note.kind {
                EffectKind::Tool | EffectKind::Child => vec![format!("calls{again} {what}")],
                EffectKind::Ask => vec![format!("asks{again}: {}", question(note, &what))],
                EffectKind::Wait => vec![format!(
                    "waits{again} until {}",
                    note.until.unwrap_or_default()
                )],
                _ => Vec::new(),
            }
        }
        Entry::Finished {
            effect, outcome, ..
        } => {
            let note = log.open.remove(effect);
            if let (Outcome::Decision(Decision::Edit { args }), Some(note)) = (outcome, &note) {
                log.calls.edit(note, args);
            }
            outcome_lines(outcome, note.as_ref(), log)
        }
        Entry::Cleared { effect } => vec![format!(
            "the host reports: effect {effect} was not performed"
        )],
        Entry::Commanded(command) => vec![command_line(command)],
        Entry::Low(limit) => vec![format!("the limit on {limit} is almost reached")],
        Entry::Wrapped(limit) => vec![format!(
            "the limit on {limit} is close, so the run wraps up"
        )],
        Entry::Stopped(limit) => vec![format!("the limit on {limit} is exceeded")],
        Entry::Ended(status) => vec![format!("ended {at}: {status}")],
        _ => Vec::new(),
    }
}

/// Describes a command of the host or of another process. Rare commands are printed in debug form
/// instead of being hidden.
fn command_line(command: &ControlCommand) -> String {
    match command {
        ControlCommand::Say { message } => format!("the host writes: {}", short(&message.text())),
        ControlCommand::Cancel { reason } => format!("the host cancels: {reason}"),
        ControlCommand::Pause => "the host pauses".to_owned(),
        ControlCommand::Resume => "the host resumes".to_owned(),
        other => format!("the host sends: {other:?}"),
    }
}

/// Describes a file that a call changed.
fn change_line(change: &FileChange) -> String {
    let size = change.size.map(|size| format!(" ({size} bytes)"));
    let path = short(&change.path);
    format!("{} {path}{}", change.kind, size.unwrap_or_default())
}

/// Describes the result of an effect. A finished effect without a known start is called "it".
fn outcome_lines(outcome: &Outcome, note: Option<&EffectNote>, log: &mut EffectLog) -> Vec<String> {
    let name = note.map_or("it", |note| &*note.name);
    vec![match outcome {
        Outcome::Model(Ok(response)) => return response_lines(response, log),
        Outcome::Model(Err(error)) => format!("no reply: {error}"),
        Outcome::Tool(result) => {
            let verb = if result.is_error() {
                "failed:"
            } else {
                "returned"
            };
            let mut lines = vec![format!("{name} {verb} {}", short(&result.text()))];
            lines.extend(result.changes.iter().map(change_line));
            return lines;
        }
        Outcome::NeedsApproval { reason } => format!("approval is required: {reason}"),
        Outcome::Denied { reason } => format!("{name} is denied: {reason}"),
        Outcome::Decision(decision) => format!("decision: {decision:?}"),
        Outcome::Child(ending) => {
            format!("{name} ended, {}: {}", ending.status, short(&ending.text))
        }
        Outcome::Woken => "the time has passed".to_owned(),
        Outcome::Refused(limit) => format!("{name} is refused: the limit on {limit}"),
        Outcome::Unknown => format!("the result of {name} is unknown"),
        _ => return Vec::new(),
    }]
}

/// Adds the calls of the reply to the log, so that later effects can show their arguments, and
/// returns one line with the text, the names of the calls and the usage.
fn response_lines(response: &Response, log: &mut EffectLog) -> Vec<String> {
    log.calls.add(&response.message);
    let text = response.message.text();
    let calls: Vec<&str> = response
        .message
        .calls()
        .map(|call| call.name.as_str())
        .collect();
    let mut line = "the model".to_owned();
    if !text.trim().is_empty() {
        line.push_str(&format!(" writes {}", short(text.trim())));
    }
    if !calls.is_empty() {
        line.push_str(&format!(" calls {}", calls.join(", ")));
    }
    vec![format!("{line} ({})", response.usage)]
}

/// Formats the question for a person: an approval, or a question of the model.
///
/// The tool `ask_user` carries the question in its arguments; all other questions are about an
/// approval.
fn question(note: &EffectNote, what: &str) -> String {
    if &*note.name == "ask_user" {
        what.to_owned()
    } else {
        format!("allow the call {what}?")
    }
}

/// Returns the goal of an agent, if this is the state of an agent.
///
/// Machines other than agents store other states; for these it returns `None` instead of an error.
pub(super) fn goal(state: &Value) -> Option<String> {
    let goal = state.get("goal")?;
    let message: levity::core::Message = serde::Deserialize::deserialize(goal).ok()?;
    Some(message.text().into_owned())
}

/// Returns a text on one line, cut if it is long.
///
/// Cuts after 400 characters and marks the cut with an ellipsis.
pub(super) fn short(text: &str) -> String {
    let mut line: String = line(
        text.char_indices()
            .nth(MAX_CHARS)
            .map_or(text, |(end, _)| &text[..end]),
    );
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

/// Returns a text on one line.
///
/// Line breaks and tabs become blanks, so no text can begin a line of its own and imitate another
/// record. Other control characters remain visible as `\u{fffd}`.
fn line(text: &str) -> String {
    let visible = |char: char| match char {
        '\n' | '\r' | '\t' => ' ',
        char if char.is_control() => char::REPLACEMENT_CHARACTER,
        char => char,
    };
    text.chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use levity::core::{Digest, EffectClass, Message, Part, Timestamp};
    use serde_json::json;

    use super::*;

    fn asks(effect: u64, call: &str, args: &Value) -> Entry {
        let mut note = EffectNote::new(EffectKind::Ask, "run", EffectClass::AtMostOnce);
        note.call = Some(call.into());
        note.inputs = vec![("arguments".to_owned(), Digest::of(args))];
        Entry::Started {
            effect: EffectId::new(effect),
            note,
        }
    }

    #[test]
    fn calls_with_same_id_are_distinguished_by_arguments() {
        let (mild, harsh) = (json!({"command": "ls"}), json!({"command": "rm -rf /"}));
        let mut reply = Message::assistant("");
        reply.parts = [&mild, &harsh]
            .map(|args| Part::ToolCall(ToolCall::new("c", "run", args.clone())))
            .into();
        let entries = [
            Entry::finished(EffectId::new(0), Outcome::Model(Ok(Response::new(reply)))),
            asks(1, "c", &mild),
            asks(2, "c-2", &harsh),
            // This entry is from a forged journal.
            asks(3, "c", &json!({"command": "other"})),
            Entry::finished(EffectId::new(1), Outcome::Decision(Decision::Allow)),
        ];
        let record = |(seq, entry)| Record::new(seq, Timestamp::default(), entry);
        let records: Vec<Record> = (0..).zip(entries).map(record).collect();
        let asked = asked_calls(&records[..4]);
        let text = |effect| &asked[&EffectId::new(effect)];
        assert_eq!(text(1).text, r#"run {"command":"ls"}"#);
        assert_eq!(text(2).text, r#"run {"command":"rm -rf /"}"#);
        assert!(text(1).is_known && text(2).is_known && !text(3).is_known);
        let fingerprint = |call, args: &Value| {
            let call = ToolCall::new(call, "run", args.clone());
            let ask = Ask::new(RunId::new("r"), EffectId::new(1), call, "");
            Some(ask.fingerprint(Timestamp::default()))
        };
        assert_eq!(text(1).fingerprint, fingerprint("c", &mild));
        assert_eq!(text(2).fingerprint, fingerprint("c-2", &harsh));
        assert_eq!(text(3).fingerprint, None);
        assert!(
            text(3)
                .text
                .contains("no reply in the journal has this call")
        );
        let approved: Vec<_> = approved(&records)
            .into_iter()
            .map(|call| call.text)
            .collect();
        assert_eq!(approved, [r#"run {"command":"ls"}"#]);
    }
}
