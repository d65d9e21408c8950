//! The thread that writes the log files.
//!
//! It takes up to 512 items at a time, groups their lines by file and writes each file once. A file
//! that cannot be written loses its lines; the next successful write begins with their number.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use levity_core::{Event, EventKind, RunId};

use super::disk::Disk;
use super::entry_builder::EntryBuilder;
use super::folder;
use super::queue::{Destination, QueueItem, QueueState, QueuedItem};
use crate::clock;
use crate::entry::{Entry, Level, Style};

/// The maximum number of entries in one batch.
const BATCH: usize = 512;

/// The maximum number of runs whose folders are remembered, for `tracing` events within them:
/// 16,384.
const MAX_RUNS: usize = 16_384;

pub(super) const GENERAL: &str = "general.log";
pub(super) const REASONING: &str = "reasoning.log";

/// Lines by folder and file name.
type Lines = BTreeMap<(PathBuf, &'static str), Vec<String>>;

/// The state of the writing thread, which nothing else accesses.
pub(super) struct Writer {
    root: PathBuf,
    style: Style,
    level: Option<Level>,
    disk: Disk,
    state: Arc<QueueState>,
    entry_builder: EntryBuilder,
    /// The folders of runs, by their root run.
    sessions: HashMap<RunId, PathBuf>,
    /// The number of unwritten lines per file, which is logged once a write succeeds.
    unwritten: HashMap<(PathBuf, &'static str), u64>,
}

impl Writer {
    pub(super) fn new(
        root: PathBuf,
        style: Style,
        level: Option<Level>,
        disk: Disk,
        state: Arc<QueueState>,
    ) -> Self {
        let (entry_builder, sessions, unwritten) =
            (EntryBuilder::default(), HashMap::new(), HashMap::new());
        Self {
            root,
            style,
            level,
            disk,
            state,
            entry_builder,
            sessions,
            unwritten,
        }
    }

    /// Writes queued items until all senders are dropped.
    pub(super) fn write(mut self, receiver: &Receiver<QueuedItem>) {
        while let Ok(first) = receiver.recv() {
            let mut batch = vec![first];
            batch.extend(receiver.try_iter().take(BATCH - 1));
            let (items, bytes) = (batch.len() as u64, batch.iter().map(|(_, size)| size).sum());
            let mut lines = Lines::new();
            for (item, _) in batch {
                self.add(item, &mut lines);
            }
            self.report_overflow(&mut lines);
            self.append_lines(lines);
            self.state.finish(items, bytes);
            // An item may have been dropped just now, and no further item may follow to report it.
            let mut remaining_lines = Lines::new();
            self.report_overflow(&mut remaining_lines);
            self.append_lines(remaining_lines);
        }
    }

    /// Converts an item into lines, by the level of the log and the folder of its session.
    fn add(&mut self, item: QueueItem, lines: &mut Lines) {
        match item {
            QueueItem::Event {
                destination,
                event,
                result_bytes,
            } => {
                let folder = self.folder(&destination, &event);
                let mut entries = self.entry_builder.entries_for(&event, result_bytes);
                entries.general = entries
                    .general
                    .filter(|entry| self.level.is_some_and(|min_level| entry.level >= min_level));
                let mut push = |file, entry: &Entry| {
                    lines
                        .entry((folder.clone(), file))
                        .or_default()
                        .push(entry.line(&self.style));
                };
                entries
                    .general
                    .iter()
                    .for_each(|entry| push(GENERAL, entry));
                entries
                    .reasoning
                    .iter()
                    .for_each(|entry| push(REASONING, entry));
            }
            QueueItem::Line(entry) => {
                let run = entry.run.as_ref().map(root_run);
                let folder = run
                    .and_then(|run| self.sessions.get(&run))
                    .unwrap_or(&self.root)
                    .clone();
                lines
                    .entry((folder, GENERAL))
                    .or_default()
                    .push(entry.line(&self.style));
            }
        }
    }

    /// Returns the folder of an event, and remembers it for the run.
    fn folder(&mut self, destination: &Destination, event: &Event) -> PathBuf {
        let run = root_run(&event.run);
        let name = destination
            .folder
            .clone()
            .unwrap_or_else(|| folder::name(run.as_str(), &self.style.secrets));
        let folder = self.root.join(name);
        if matches!(event.kind, EventKind::RunStarted { .. }) || !self.sessions.contains_key(&run) {
            if self.sessions.len() >= MAX_RUNS {
                self.sessions.clear();
            }
            self.sessions.insert(run, folder.clone());
        }
        folder
    }

    fn report_overflow(&self, lines: &mut Lines) {
        for (destination, dropped) in self.state.take_overflowed() {
            self.add_overflow_line(&destination, dropped, lines);
        }
    }

    fn add_overflow_line(&self, destination: &Destination, dropped: u64, lines: &mut Lines) {
        let folder = destination
            .folder
            .as_ref()
            .map_or_else(|| self.root.clone(), |name| self.root.join(name));
        let entry = Entry::new(
            clock::timestamp(),
            Level::Warn,
            "entries left out: the log could not keep up",
        );
        lines
            .entry((folder, GENERAL))
            .or_default()
            .push(entry.with("count", dropped).line(&self.style));
    }

    /// Writes lines. A file that cannot be written blocks neither other files nor runs.
    fn append_lines(&mut self, lines: Lines) {
        for (destination, mut lines) in lines {
            let earlier_losses = self.unwritten.remove(&destination).unwrap_or(0);
            if earlier_losses > 0 {
                let entry = Entry::new(
                    clock::timestamp(),
                    Level::Warn,
                    "entries lost: they could not be written",
                );
                lines.insert(0, entry.with("count", earlier_losses).line(&self.style));
            }
            // Only the folder that the user named may be a link.
            let is_link = destination.0 != self.root && destination.0.is_symlink();
            let written = match is_link {
                true => Err(lines.len() as u64),
                false => self
                    .disk
                    .append(&destination.0, destination.1, &lines)
                    .map_err(|(unwritten_count, _)| unwritten_count),
            };
            if let Err(unwritten_count) = written {
                // The line about earlier losses does not count as a lost line.
                let includes_report = earlier_losses > 0 && unwritten_count == lines.len() as u64;
                let lost_lines = if includes_report {
                    unwritten_count - 1
                } else {
                    unwritten_count
                };
                self.state.record_lost(lost_lines);
                if self.unwritten.len() < MAX_RUNS {
                    self.unwritten.insert(
                        destination,
                        lost_lines + if includes_report { earlier_losses } else { 0 },
                    );
                }
            }
        }
    }
}

/// Returns the root run of a run.
fn root_run(run: &RunId) -> RunId {
    match run.as_str().split_once('.') {
        Some((root, _)) => RunId::new(root),
        None => run.clone(),
    }
}
