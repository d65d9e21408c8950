//! What is in a run's file, line by line.

use std::path::Path;

use levity_core::{JournalError, JournalErrorKind, Record, RunId, RunSummary};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bodies::Bodies;

/// The version of the format that is written. Older ones are read, newer ones are refused.
const FORMAT: u32 = 1;

/// Lines that are longer have their long texts put aside.
const LONG: usize = 64 << 10;

/// A reader of JSON stops at 128 levels.
pub(crate) const DEEP: usize = 120;

#[derive(Serialize, Deserialize)]
struct Header {
    levity_journal: u32,
    run: RunId,
}

pub(super) fn header(run: &RunId) -> Vec<u8> {
    let header = Header { levity_journal: FORMAT, run: run.clone() };
    // A number and a text are always JSON.
    let mut line = serde_json::to_vec(&header).unwrap_or_default();
    line.push(b'\n');
    line
}

pub(super) fn write(record: &Record, bodies: &Bodies, bytes: &mut Vec<u8>) -> Result<(), JournalError> {
    let start = bytes.len();
    serde_json::to_writer(&mut *bytes, record).map_err(|error| unreadable(record.seq, error))?;
    if depth(&bytes[start..]) > DEEP {
        let message =
            format!("record {} is nested deeper than {DEEP} levels, and could not be read again", record.seq);
        return Err(JournalError::new(JournalErrorKind::Refused, message));
    }
    if bytes.len() - start > LONG {
        bytes.truncate(start);
        let record = serde_json::to_value(record).map_err(|error| unreadable(record.seq, error))?;
        let short = bodies.put_aside(record)?;
        bytes.extend_from_slice(short.to_string().as_bytes());
    }
    bytes.push(b'\n');
    Ok(())
}

/// A line without the room behind it that was never written.
fn without_zeros(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &line[..end]
}

/// How deep the values of a line are nested.
pub(crate) fn depth(line: &[u8]) -> usize {
    let (mut depth, mut deepest, mut text, mut escaped) = (0usize, 0, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'{' | b'[' if !text => depth += 1,
            b'}' | b']' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn unreadable(seq: u64, error: serde_json::Error) -> JournalError {
    let message = format!("record {seq} cannot be written as JSON");
    JournalError::new(JournalErrorKind::Damaged, message).with_source(error)
}

/// What a file holds.
pub(super) struct Read {
    pub(super) records: Vec<Record>,
    /// How many bytes of it are whole lines; the rest was being written when the process ended.
    pub(super) good: usize,
}

/// Reads a file. What stands after its last whole line is no concern; anything else must be as it should.
pub(super) fn read(run: &RunId, path: &Path, bytes: &[u8], bodies: &Bodies) -> Result<Read, JournalError> {
    let mut read = Read { records: Vec::new(), good: 0 };
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let Some(first) = lines.next() else { return Ok(read) };
    if !check_header(run, path, first)? {
        return Ok(read);
    }
    read.good = first.len();
    for line in lines {
        match record(line, bodies) {
            Ok(record) if record.seq == read.records.len() as u64 => {
                read.records.push(record);
                read.good += line.len();
            }
            other => {
                let rest = bytes.get(read.good + line.len()..).unwrap_or_default();
                let torn = is_torn(line) && !rest.split(|byte| *byte == b'\n').any(is_record);
                if torn {
                    break;
                }
                let at = read.records.len() + 2;
                let error = damaged(path, &format!("line {at} is not record {}", read.records.len()));
                return Err(match other {
                    Err(Flaw::Body(error)) => error,
                    Err(Flaw::Json(flaw)) => error.with_source(flaw),
                    Ok(_) => error,
                });
            }
        }
    }
    Ok(read)
}

/// Whether the header is whole; an error when the file is another's, or from a newer version.
fn check_header(run: &RunId, path: &Path, line: &[u8]) -> Result<bool, JournalError> {
    let found: Header = match serde_json::from_slice(line) {
        Ok(found) => found,
        // A beginning of what is written first, and nothing after it.
        Err(_) if !line.ends_with(b"\n") && header(run).starts_with(without_zeros(line)) => return Ok(false),
        Err(error) => return Err(damaged(path, "it is not a journal of levity's").with_source(error)),
    };
    if found.levity_journal > FORMAT {
        let message = format!(
            "the journal `{}` has format {}, and this version reads up to {FORMAT}; use a newer one",
            name(path),
            found.levity_journal
        );
        return Err(JournalError::new(JournalErrorKind::Version, message));
    }
    if found.run != *run {
        return Err(damaged(path, &format!("it is of run `{}`", found.run)));
    }
    Ok(line.ends_with(b"\n"))
}

/// Whether a line was not written to its end. One that is JSON and no record was written by somebody else.
fn is_torn(line: &[u8]) -> bool {
    !line.ends_with(b"\n") || serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err()
}

enum Flaw {
    Json(serde_json::Error),
    Body(JournalError),
}

fn record(line: &[u8], bodies: &Bodies) -> Result<Record, Flaw> {
    // Without its end, a line may be JSON by chance: a number that goes on, say.
    if !line.ends_with(b"\n") {
        return Err(Flaw::Json(serde::de::Error::custom("the line has no end")));
    }
    if !Bodies::are_named_in(line) {
        return serde_json::from_slice(line).map_err(Flaw::Json);
    }
    let short = serde_json::from_slice(line).map_err(Flaw::Json)?;
    let whole = bodies.put_back(short).map_err(Flaw::Body)?;
    serde_json::from_value(whole).map_err(Flaw::Json)
}

fn is_record(line: &[u8]) -> bool {
    let Ok(line) = serde_json::from_slice::<Value>(line) else { return false };
    let record = Bodies::record_in(&line);
    record.get("seq").is_some() && record.get("entry").is_some()
}

/// What a list shows of a file; `None` when it holds no run.
pub(super) fn summary(path: &Path, bytes: &[u8], bodies: &Bodies) -> Option<RunSummary> {
    let header: Header = serde_json::from_slice(bytes.split(|byte| *byte == b'\n').next()?).ok()?;
    RunSummary::of(&header.run, &read(&header.run, path, bytes, bodies).ok()?.records)
}

fn damaged(path: &Path, what: &str) -> JournalError {
    let message = format!("the journal `{}` cannot be read and is left as it is: {what}", name(path));
    JournalError::new(JournalErrorKind::Damaged, message)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
