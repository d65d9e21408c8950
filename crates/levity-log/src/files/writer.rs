//! The thread that writes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use levity_core::{Event, EventKind, RunId};

use super::disk::Disk;
use super::folder;
use super::queue::{Count, Note, Place, Waiting};
use super::story::Story;
use crate::clock;
use crate::entry::{Entry, Level, Style};

/// The most notes that are written at once.
const BATCH: usize = 512;

/// The most runs whose sessions are remembered, for what is logged within them by `tracing`:
/// 16,384.
const MAX_RUNS: usize = 16_384;

pub(super) const GENERAL: &str = "general.log";
pub(super) const REASONING: &str = "reasoning.log";

/// Lines, by the folder and the file that they belong to.
type Lines = BTreeMap<(PathBuf, &'static str), Vec<String>>;

pub(super) struct Writer {
    root: PathBuf,
    style: Style,
    level: Option<Level>,
    disk: Disk,
    count: Arc<Count>,
    story: Story,
    /// The folders of runs, by the run at the top.
    sessions: HashMap<RunId, PathBuf>,
    /// How many lines of each file could not be written, to be said in it when it can be.
    unwritten: HashMap<(PathBuf, &'static str), u64>,
}

impl Writer {
    pub(super) fn new(
        root: PathBuf,
        style: Style,
        level: Option<Level>,
        disk: Disk,
        count: Arc<Count>,
    ) -> Self {
        let (story, sessions, unwritten) = (Story::default(), HashMap::new(), HashMap::new());
        Self {
            root,
            style,
            level,
            disk,
            count,
            story,
            sessions,
            unwritten,
        }
    }

    /// Writes what comes until nobody is left from whom something could.
    pub(super) fn write(mut self, waiting: &Receiver<Waiting>) {
        while let Ok(first) = waiting.recv() {
            let mut batch = vec![first];
            batch.extend(waiting.try_iter().take(BATCH - 1));
            let (notes, bytes) = (batch.len() as u64, batch.iter().map(|(_, size)| size).sum());
            let mut lines = Lines::new();
            for (note, _) in batch {
                self.add(note, &mut lines);
            }
            self.say_overflow(&mut lines);
            self.put(lines);
            self.count.finish(notes, bytes);
            // Something may have found no room until just now, and nothing may come behind it.
            let mut late = Lines::new();
            self.say_overflow(&mut late);
            self.put(late);
        }
    }

    fn add(&mut self, note: Note, lines: &mut Lines) {
        match note {
            Note::Event {
                place,
                event,
                answered,
            } => {
                let folder = self.folder(&place, &event);
                let mut told = self.story.tell(&event, answered);
                told.general = told
                    .general
                    .filter(|entry| self.level.is_some_and(|least| entry.level >= least));
                let mut push = |file, entry: &Entry| {
                    lines
                        .entry((folder.clone(), file))
                        .or_default()
                        .push(entry.line(&self.style));
                };
                told.general.iter().for_each(|entry| push(GENERAL, entry));
                told.reasoning
                    .iter()
                    .for_each(|entry| push(REASONING, entry));
            }
            Note::Line(entry) => {
                let run = entry.run.as_ref().map(top);
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

    /// The folder of an event, remembered for the run.
    fn folder(&mut self, place: &Place, event: &Event) -> PathBuf {
        let run = top(&event.run);
        let name = place
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

    fn say_overflow(&self, lines: &mut Lines) {
        for (place, dropped) in self.count.overflowed() {
            self.left_out(&place, dropped, lines);
        }
    }

    fn left_out(&self, place: &Place, dropped: u64, lines: &mut Lines) {
        let folder = place
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

    /// Writes lines. A file that cannot be written to holds up no other, and no run.
    fn put(&mut self, lines: Lines) {
        for (place, mut lines) in lines {
            let before = self.unwritten.remove(&place).unwrap_or(0);
            if before > 0 {
                let entry = Entry::new(
                    clock::timestamp(),
                    Level::Warn,
                    "entries lost: they could not be written",
                );
                lines.insert(0, entry.with("count", before).line(&self.style));
            }
            // Only the folder that the user named may be a link.
            let is_link = place.0 != self.root && place.0.is_symlink();
            let written = match is_link {
                true => Err(lines.len() as u64),
                false => self
                    .disk
                    .append(&place.0, place.1, &lines)
                    .map_err(|(left, _)| left),
            };
            if let Err(left) = written {
                // The line about what was lost before is none of those that are lost now.
                let said = before > 0 && left == lines.len() as u64;
                let lost = if said { left - 1 } else { left };
                self.count.lost(lost);
                if self.unwritten.len() < MAX_RUNS {
                    self.unwritten
                        .insert(place, lost + if said { before } else { 0 });
                }
            }
        }
    }
}

/// The run that a run is below, or that it is.
fn top(run: &RunId) -> RunId {
    match run.as_str().split_once('.') {
        Some((top, _)) => RunId::new(top),
        None => run.clone(),
    }
}
