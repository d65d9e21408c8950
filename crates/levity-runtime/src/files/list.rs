//! Builds the summary of a run from as little of its file as possible.
//!
//! A folder may have thousands of finished runs with megabytes each. Their summaries need 4 KiB
//! from each end of the file: the header and the first record, and the last line with the status.
//! Only a run in progress is read completely, because its waits are anywhere in it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use levity_core::{
    ControlCommand, EffectClass, EffectId, EffectKind, EffectNote, Entry, Limit, Limits,
    MachineKind, Outcome, Record, RunHeader, RunId, RunQuery, RunSummary, Status, Timestamp,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use levity_system::files as private;

use super::bodies::Bodies;
use super::format;

/// The number of bytes read at first, from either end.
const PIECE: usize = 4 << 10;

/// Returns the part of a query that depends on a run's first record alone: the rest of a file
/// changes neither its age nor its parent.
pub(super) fn by_first(query: &RunQuery) -> RunQuery {
    let mut query = query.clone();
    query.state = None;
    query.due = None;
    query
}

/// Returns the summary of a run; `None` if its file has none, or one whose first record does not
/// match.
///
/// The first record has the run's creation time and parent, and the last one its end. Only a run
/// that has not ended is read completely, to find what it waits for. A file is shown as far as it
/// can be read.
pub(super) fn summary(
    run: &RunId,
    path: &Path,
    by_first: &RunQuery,
    bodies: &Bodies,
) -> Option<RunSummary> {
    let mut file = FileEnds::open(path).ok()?;
    let (header, first) = file.first_lines().ok()??;
    if format::parse_header(header).ok()? != *run {
        return None;
    }
    let start = header.len();
    let bodies = &bodies.for_another();
    let first = Line::parse(first, bodies).filter(|line| line.seq == 0)?;
    let mut summary = RunSummary::new(run.clone(), first.at);
    first.add_to(&mut summary);
    if !by_first.matches(&summary) {
        return None;
    }
    let last = file
        .last_line()
        .ok()?
        .and_then(|line| Line::parse(&line, bodies));
    match last.filter(|last| last.entry.ended.is_some()) {
        Some(last) => {
            summary.records = last.seq;
            last.add_to(&mut summary);
        }
        None => fold(file.rest(start).ok()?, bodies, &mut summary),
    }
    Some(summary)
}

/// Adds all lines after the first record, up to one that is incomplete.
fn fold(lines: &[u8], bodies: &Bodies, summary: &mut RunSummary) {
    for line in lines.split_inclusive(|byte| *byte == b'\n').skip(1) {
        match Line::parse(line, bodies) {
            Some(line) if line.seq == summary.records => line.add_to(summary),
            _ => break,
        }
    }
}

/// A file that is read from both ends.
///
/// `len` is the length at the time of opening; a file that shrinks meanwhile is treated as that
/// short.
struct FileEnds {
    file: File,
    len: usize,
    /// The bytes read from the beginning.
    start: Vec<u8>,
}

impl FileEnds {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        private::check_size(&file, private::MAX_SIZE)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        Ok(Self {
            file,
            len,
            start: Vec::new(),
        })
    }

    /// Reads more from the beginning until there are this many bytes, or all.
    ///
    /// Each step reads four times as much, so that long first records cost few reads.
    fn grow(&mut self, to: usize) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.start.len() as u64))?;
        let more = to.min(self.len).saturating_sub(self.start.len());
        let read = (&mut self.file)
            .take(more as u64)
            .read_to_end(&mut self.start)?;
        if read < more {
            // Another process has truncated it meanwhile.
            self.len = self.start.len();
        }
        Ok(())
    }

    /// Returns the header and the first record, if both are complete.
    fn first_lines(&mut self) -> io::Result<Option<(&[u8], &[u8])>> {
        loop {
            let mut ends = self
                .start
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'\n')
                .map(|(at, _)| at + 1);
            if let (Some(header), Some(first)) = (ends.next(), ends.next()) {
                return Ok(Some((&self.start[..header], &self.start[header..first])));
            }
            if self.start.len() >= self.len {
                return Ok(None);
            }
            self.grow(PIECE.max(4 * self.start.len()))?;
        }
    }

    /// Returns the last line, if it is complete.
    fn last_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut size = PIECE;
        loop {
            let tail = self.tail(size)?;
            let Some((b'\n', before)) = tail.split_last().map(|(last, before)| (*last, before))
            else {
                return Ok(None);
            };
            if let Some(end) = before.iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(tail[end + 1..].to_vec()));
            }
            if size >= self.len {
                return Ok(None);
            }
            size = size.saturating_mul(4);
        }
    }

    fn tail(&mut self, size: usize) -> io::Result<Vec<u8>> {
        let from = self.len.saturating_sub(size);
        if self.start.len() >= self.len {
            return Ok(self.start[from..self.len].to_vec());
        }
        self.file.seek(SeekFrom::Start(from as u64))?;
        let mut tail = Vec::with_capacity(self.len - from);
        (&mut self.file)
            .take((self.len - from) as u64)
            .read_to_end(&mut tail)?;
        Ok(tail)
    }

    /// Returns all bytes from an offset on.
    fn rest(&mut self, from: usize) -> io::Result<&[u8]> {
        self.grow(self.len)?;
        Ok(self.start.get(from..).unwrap_or_default())
    }
}

/// The part of a record that a summary needs; everything else is skipped, and long texts are not
/// loaded.
#[derive(Deserialize)]
struct Line {
    seq: u64,
    at: Timestamp,
    entry: Kind,
}

/// One field for each kind of entry that changes a summary. An unknown kind leaves all of them
/// empty and still counts as a record.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    opened: Option<First>,
    started: Option<Start>,
    finished: Option<Finish>,
    commanded: Option<Value>,
    stopped: Option<Limit>,
    ended: Option<Status>,
}

#[derive(Deserialize)]
struct First {
    origin: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Start {
    effect: EffectId,
    note: Note,
}

#[derive(Deserialize)]
struct Note {
    kind: EffectKind,
    until: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Finish {
    effect: EffectId,
}

/// A line that refers to long texts.
#[derive(Deserialize)]
struct LineWithBodies {
    #[serde(rename = "$aside")]
    record: Line,
}

impl Line {
    fn parse(line: &[u8], bodies: &Bodies) -> Option<Self> {
        if !line.ends_with(b"\n") || format::is_intact(line) == Some(false) {
            return None;
        }
        if !Bodies::are_named_in(line) {
            return serde_json::from_slice(line).ok();
        }
        if let Ok(line) = serde_json::from_slice::<LineWithBodies>(line) {
            return Some(line.record);
        }
        // The end of a run may itself be a long text.
        let whole = bodies
            .insert_texts(serde_json::from_slice(line).ok()?)
            .ok()?;
        serde_json::from_value(whole).ok()
    }

    /// Adds the record to the summary, without the parts that it does not use.
    fn add_to(self, summary: &mut RunSummary) {
        let (seq, at) = (self.seq, self.at);
        match self.entry.into_entry() {
            Some(entry) => summary.add(&Record::new(seq, at, entry)),
            None => {
                summary.updated = at;
                summary.records += 1;
            }
        }
    }
}

impl Kind {
    fn into_entry(self) -> Option<Entry> {
        if let Some(first) = self.opened {
            let mut opened =
                RunHeader::new(MachineKind::new("", 0), Value::Null, Limits::default());
            opened.origin = first.origin.map(|_| levity_core::Digest::EMPTY);
            return Some(Entry::Opened(opened));
        }
        if let Some(Start {
            effect,
            note: Note { kind, until },
        }) = self.started
        {
            let mut note = EffectNote::new(kind, "", EffectClass::ReadOnly);
            note.until = until;
            return Some(Entry::Started { effect, note });
        }
        if let Some(finish) = self.finished {
            return Some(Entry::finished(finish.effect, Outcome::Unknown));
        }
        if let Some(command) = self.commanded {
            return command_of(&command).map(Entry::Commanded);
        }
        if let Some(limit) = self.stopped {
            return Some(Entry::Stopped(limit));
        }
        self.ended.map(Entry::Ended)
    }
}

/// Returns a command without its content.
fn command_of(command: &Value) -> Option<ControlCommand> {
    match command {
        Value::String(word) if word == "pause" => Some(ControlCommand::Pause),
        Value::String(word) if word == "resume" => Some(ControlCommand::Resume),
        Value::Object(map) if map.contains_key("cancel") => Some(ControlCommand::Cancel {
            reason: String::new(),
        }),
        _ => None,
    }
}
