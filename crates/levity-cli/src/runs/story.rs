//! A run's records as a story.

use std::collections::{BTreeMap, BTreeSet};

use levity::core::{
    ControlCommand, Decision, EffectId, EffectKind, EffectNote, Entry, Journal, Outcome, Record,
    Response, RunId, ToolCall,
};
use levity::runtime::__private::AskedCalls;
use serde_json::Value;

use crate::terminal::{is_shown_whole, whole};

/// Texts that are longer are cut in a line of the story; `--json` has all of it.
const LONG: usize = 400;

/// Tells a run and, where it starts others, those.
pub(super) async fn tell(journal: &dyn Journal, run: &RunId, records: &[Record]) -> String {
    let mut story = Story {
        text: String::new(),
        indent: 0,
    };
    Box::pin(story.run(journal, run, records)).await;
    story.text
}

struct Story {
    text: String,
    indent: usize,
}

/// What the story knows of the effects so far.
#[derive(Default)]
struct Known {
    /// What models asked for.
    calls: AskedCalls,
    open: BTreeMap<EffectId, EffectNote>,
}

impl Known {
    /// What an effect is about: a tool with its arguments, say. Whoever is asked is shown them
    /// whole.
    fn what(&self, note: &EffectNote) -> String {
        match self.calls.find(note) {
            Some(call) if note.kind == EffectKind::Ask => line(&whole(&self.words(call))),
            Some(call) => format!("{} {}", call.name, short(&call.args.to_string())),
            None if note.call.is_some() => unknown(note),
            None => note.name.to_string(),
        }
    }

    fn words(&self, call: &ToolCall) -> String {
        format!("{} {}", call.name, call.args)
    }
}

/// A call that somebody decides about, or decided.
pub(super) struct Decided {
    /// Its name and arguments, as far as they are shown.
    pub(super) words: String,
    /// True if that is all of them.
    pub(super) is_whole: bool,
    /// True if the records have the call that the question was asked about.
    pub(super) is_known: bool,
}

impl Decided {
    fn new(known: &Known, note: &EffectNote) -> Self {
        let call = known.calls.find(note);
        let words = call.map_or_else(|| unknown(note), |call| known.words(call));
        Self {
            is_whole: is_shown_whole(&words),
            words: line(&whole(&words)),
            is_known: call.is_some(),
        }
    }
}

/// Words for a call that the records do not have.
fn unknown(note: &EffectNote) -> String {
    format!(
        "{} (no reply in the journal has this call with these arguments)",
        note.name
    )
}

/// The call that a question of a run is about.
pub(super) fn asked(records: &[Record], effect: EffectId) -> Option<Decided> {
    let mut known = Known::default();
    records
        .iter()
        .for_each(|record| drop(lines(record, &mut known)));
    Some(Decided::new(&known, known.open.get(&effect)?))
}

/// The calls that somebody has let a run make.
pub(super) fn approved(records: &[Record]) -> Vec<Decided> {
    let (mut known, mut found) = (Known::default(), Vec::new());
    for record in records {
        let note = match &record.entry {
            Entry::Finished {
                effect,
                outcome: Outcome::Decision(Decision::Allow | Decision::Edit { .. }),
                ..
            } => known.open.get(effect).cloned(),
            _ => None,
        };
        let mut decided = note.map(|note| Decided::new(&known, &note));
        if let (
            Entry::Finished {
                outcome: Outcome::Decision(Decision::Edit { args }),
                ..
            },
            Some(decided),
        ) = (&record.entry, &mut decided)
        {
            decided
                .words
                .push_str(&format!(", changed to {}", line(&whole(&args.to_string()))));
        }
        lines(record, &mut known);
        found.extend(decided);
    }
    found
}

impl Story {
    async fn run(&mut self, journal: &dyn Journal, run: &RunId, records: &[Record]) {
        let mut known = Known::default();
        // A run below that was taken up again has its story told already.
        let mut told = BTreeSet::new();
        for record in records {
            for line in lines(record, &mut known) {
                self.line(record.seq, &line);
            }
            if let Entry::Started { effect, note } = &record.entry
                && note.kind == EffectKind::Child
                && told.insert(*effect)
            {
                let child = run.child(*effect);
                self.line(record.seq, &format!("as run {child}:"));
                let below = journal.read(&child).await.unwrap_or_default();
                self.indent += 1;
                Box::pin(self.run(journal, &child, &below)).await;
                self.indent -= 1;
            }
        }
        for (effect, note) in &known.open {
            let what = known.what(note);
            let line = match note.kind {
                EffectKind::Ask => {
                    format!(
                        "waits for an answer to effect {effect}: {}",
                        question(note, &what)
                    )
                }
                EffectKind::Wait => format!("waits until {}", note.until.unwrap_or_default()),
                EffectKind::Child => continue,
                _ => format!("effect {effect} has begun and not finished: {what}"),
            };
            self.line(records.len() as u64, &line);
        }
    }

    fn line(&mut self, seq: u64, line: &str) {
        let indent = "    ".repeat(self.indent);
        self.text.push_str(&format!("{indent}{seq:>4}  {line}\n"));
    }
}

/// What a record has to say.
fn lines(record: &Record, known: &mut Known) -> Vec<String> {
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
            let again = known.open.insert(*effect, note.clone()).is_some();
            let what = known.what(note);
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
            let note = known.open.remove(effect);
            if let (Outcome::Decision(Decision::Edit { args }), Some(note)) = (outcome, &note) {
                known.calls.edit(note, args);
            }
            came_of(outcome, note.as_ref(), known)
        }
        Entry::Cleared { effect } => vec![format!(
            "the host says: effect {effect} did not take effect"
        )],
        Entry::Commanded(command) => vec![commanded(command)],
        Entry::Low(limit) => vec![format!("little is left of the limit on {limit}")],
        Entry::Wrapped(limit) => vec![format!("the limit on {limit} is near")],
        Entry::Stopped(limit) => vec![format!("the limit on {limit} is passed")],
        Entry::Ended(status) => vec![format!("ended {at}: {status}")],
        _ => Vec::new(),
    }
}

fn commanded(command: &ControlCommand) -> String {
    match command {
        ControlCommand::Say { message } => format!("the host says: {}", short(&message.text())),
        ControlCommand::Cancel { reason } => format!("the host cancels: {reason}"),
        ControlCommand::Pause => "the host pauses".to_owned(),
        ControlCommand::Resume => "the host resumes".to_owned(),
        other => format!("the host commands: {other:?}"),
    }
}

fn came_of(outcome: &Outcome, note: Option<&EffectNote>, known: &mut Known) -> Vec<String> {
    let name = note.map_or("it", |note| &*note.name);
    vec![match outcome {
        Outcome::Model(Ok(response)) => return said(response, known),
        Outcome::Model(Err(error)) => format!("no reply: {error}"),
        Outcome::Tool(result) if result.is_error() => {
            format!("{name} failed: {}", short(&result.text()))
        }
        Outcome::Tool(result) => format!("{name} gave {}", short(&result.text())),
        Outcome::NeedsApproval { reason } => format!("somebody must be asked: {reason}"),
        Outcome::Denied { reason } => format!("{name} is denied: {reason}"),
        Outcome::Decision(decision) => format!("decided: {decision:?}"),
        Outcome::Child(ending) => {
            format!("{name} ended, {}: {}", ending.status, short(&ending.text))
        }
        Outcome::Woken => "the time has passed".to_owned(),
        Outcome::Refused(limit) => format!("{name} is refused: the limit on {limit}"),
        Outcome::Unknown => format!("nobody knows what came of {name}"),
        _ => return Vec::new(),
    }]
}

fn said(response: &Response, known: &mut Known) -> Vec<String> {
    known.calls.add(&response.message);
    let text = response.message.text();
    let calls: Vec<&str> = response
        .message
        .calls()
        .map(|call| call.name.as_str())
        .collect();
    let mut line = "the model".to_owned();
    if !text.trim().is_empty() {
        line.push_str(&format!(" says {}", short(text.trim())));
    }
    if !calls.is_empty() {
        line.push_str(&format!(" wants {}", calls.join(", ")));
    }
    vec![format!("{line} ({})", response.usage)]
}

/// What a person is asked: for leave, or a question of the model's.
fn question(note: &EffectNote, what: &str) -> String {
    if &*note.name == "ask_user" {
        what.to_owned()
    } else {
        format!("may it call {what}?")
    }
}

/// What an agent was told to do, if it is an agent.
pub(super) fn goal(state: &Value) -> Option<String> {
    let goal = state.get("goal")?;
    let message: levity::core::Message = serde::Deserialize::deserialize(goal).ok()?;
    Some(message.text().into_owned())
}

/// A text on one line, cut when it is long.
fn short(text: &str) -> String {
    let mut line: String = line(
        text.char_indices()
            .nth(LONG)
            .map_or(text, |(end, _)| &text[..end]),
    );
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

/// A text on one line.
fn line(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
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
    fn calls_with_one_id_are_told_apart() {
        let (mild, harsh) = (json!({"command": "ls"}), json!({"command": "rm -rf /"}));
        let mut reply = Message::assistant("");
        reply.parts = [&mild, &harsh]
            .map(|args| Part::ToolCall(ToolCall::new("c", "run", args.clone())))
            .into();
        let entries = [
            Entry::finished(EffectId::new(0), Outcome::Model(Ok(Response::new(reply)))),
            asks(1, "c", &mild),
            asks(2, "c-2", &harsh),
            // Of a forged journal.
            asks(3, "c", &json!({"command": "other"})),
            Entry::finished(EffectId::new(1), Outcome::Decision(Decision::Allow)),
        ];
        let record = |(seq, entry)| Record::new(seq, Timestamp::default(), entry);
        let records: Vec<Record> = (0..).zip(entries).map(record).collect();
        let words = |effect| asked(&records[..4], EffectId::new(effect)).unwrap();
        assert_eq!(words(1).words, r#"run {"command":"ls"}"#);
        assert_eq!(words(2).words, r#"run {"command":"rm -rf /"}"#);
        assert!(words(1).is_known && words(2).is_known && !words(3).is_known);
        assert!(
            words(3)
                .words
                .contains("no reply in the journal has this call")
        );
        let approved: Vec<_> = approved(&records)
            .into_iter()
            .map(|call| call.words)
            .collect();
        assert_eq!(approved, [r#"run {"command":"ls"}"#]);
    }
}
