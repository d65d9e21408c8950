//! The files that a stored run and its child runs wrote.
//!
//! The records of a run contain the changed files of each call. They are converted to the events
//! from which `levity::observe::Artifacts` makes its list; the journal of the child runs is read
//! where their parent starts them.
//!
//! Records are untrusted: they may come from an imported run. Line breaks in paths and arguments
//! are replaced, and long arguments are cut; `--json` prints all of them.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use levity::core::{
    EffectId, EffectKind, EffectNote, Entry, Event, EventKind, Journal, Outcome, Record, RunId,
    ToolCall, ToolResult,
};
use levity::observe::{Artifact, Artifacts as ArtifactList};
use levity::runtime::__private::RequestedCalls;
use serde_json::{Value, json};

use super::timeline::short;
use super::{CommandResult, RunArg};
use crate::terminal::{print_json, print_text};

#[derive(Args)]
pub(crate) struct Artifacts {
    #[command(flatten)]
    run_arg: RunArg,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Artifacts {
    /// Prints a line for each file, in the order of their paths.
    pub(super) async fn print(self) -> CommandResult {
        let (journal, records) = self.run_arg.records().await?;
        let name = match records.first().map(|record| &record.entry) {
            Some(Entry::Opened(opened)) => opened.machine.name.to_string(),
            _ => "run".to_owned(),
        };
        let mut reader = Reader {
            journal: &*journal,
            artifacts: ArtifactList::new(name),
        };
        Box::pin(reader.run(&self.run_arg.id(), &records)).await;
        for artifact in reader.artifacts.iter() {
            match self.json {
                true => print_json(&as_json(artifact)),
                false => print_text(&as_line(artifact)),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a run and the runs below it.
struct Reader<'a> {
    journal: &'a dyn Journal,
    artifacts: ArtifactList,
}

impl Reader<'_> {
    /// Applies the records of a run, and those of each child run where its parent starts it.
    ///
    /// Files that siblings wrote at the same time are compared by the times of their records, so
    /// the order of reading does not matter.
    async fn run(&mut self, run: &RunId, records: &[Record]) {
        let (mut calls, mut known) = (RequestedCalls::default(), BTreeSet::new());
        for record in records {
            match &record.entry {
                Entry::Started { effect, note } => {
                    let is_new = known.insert(*effect);
                    self.start(run, record, (*effect, note), &calls);
                    if note.kind == EffectKind::Child && is_new {
                        let child = run.child(*effect);
                        // A child run without records has written nothing.
                        let below = self.journal.read(&child).await.unwrap_or_default();
                        Box::pin(self.run(&child, &below)).await;
                    }
                }
                Entry::Finished {
                    outcome: Outcome::Model(Ok(reply)),
                    ..
                } => calls.add(&reply.message),
                Entry::Finished {
                    effect, outcome, ..
                } => {
                    if let Some(result) = outcome.tool_result() {
                        self.finish(run, record, *effect, result);
                    }
                }
                _ => {}
            }
        }
    }

    /// Applies the start of a call or a child run, which later changes belong to.
    ///
    /// The arguments come from the reply of the model. A call of a plan has no such reply, so only
    /// its name is known.
    fn start(
        &mut self,
        run: &RunId,
        record: &Record,
        (effect, note): (EffectId, &EffectNote),
        calls: &RequestedCalls,
    ) {
        let kind = match note.kind {
            EffectKind::Child => EventKind::ChildStarted {
                effect,
                child: run.child(effect),
                agent: note.name.clone(),
            },
            EffectKind::Tool => {
                let unknown = || ToolCall::new("", &*note.name, Value::Null);
                let call = calls.find(note).cloned().unwrap_or_else(unknown);
                EventKind::ToolStarted { effect, call }
            }
            _ => return,
        };
        self.apply(run, record, kind);
    }

    /// Applies the files of a finished call, also of a failed one.
    fn finish(&mut self, run: &RunId, record: &Record, effect: EffectId, result: &ToolResult) {
        for change in &result.changes {
            let (call, change) = (result.call.clone(), change.clone());
            let kind = EventKind::FileChanged {
                effect,
                call,
                change,
            };
            self.apply(run, record, kind);
        }
    }

    /// Applies an event with the number and the time of its record.
    fn apply(&mut self, run: &RunId, record: &Record, kind: EventKind) {
        let event = Event::new(run.clone(), record.seq, record.at, kind);
        self.artifacts.apply(&event);
    }
}

/// Converts an artifact to JSON, with the complete arguments of its call.
fn as_json(artifact: &Artifact) -> Value {
    let file = &artifact.file;
    json!({
        "path": file.path,
        "media_type": artifact.media_type(),
        "size": file.size,
        "sha256": file.sha256,
        "run": artifact.origin.run,
        "agents": artifact.origin.agents(),
        "tool": artifact.origin.tool(),
        "arguments": artifact.call.as_ref().map(|call| &call.args),
        "at": artifact.at.to_string(),
    })
}

/// Formats a file with its size, the beginning of its hash, and the call that wrote it.
fn as_line(artifact: &Artifact) -> String {
    let file = &artifact.file;
    let size = file
        .size
        .map_or_else(|| "unknown size".to_owned(), |size| format!("{size} bytes"));
    let hash = file.sha256.as_deref().unwrap_or_default();
    let hash = hash.get(..12).unwrap_or(hash);
    let args = artifact
        .call
        .as_ref()
        .map(|call| short(&call.args.to_string()));
    let line = format!(
        "{}  {size}  {}  {hash}  {}  {}",
        file.path,
        artifact.media_type(),
        artifact.origin,
        args.unwrap_or_default(),
    );
    format!("{}\n", line.trim_end().replace('\n', "\u{fffd}"))
}
