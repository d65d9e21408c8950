//! What is in a run's file, line by line. An export has the same lines.

use std::path::Path;

use levity_core::{Entry, JournalError, JournalErrorKind, Record, RunId, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bodies::{Bodies, Texts, put_aside};
use crate::checksum::checksum;

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

/// A record in a line without a checksum. The versions that wrote such lines knew no other fields,
/// so another name is a damaged one: the checksum's, say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    seq: u64,
    at: Timestamp,
    entry: Entry,
}

impl From<Unchecked> for Record {
    fn from(Unchecked { seq, at, entry }: Unchecked) -> Self {
        Self::new(seq, at, entry)
    }
}

/// What stands before the checksum in a line, and behind it.
const CHECK: (&[u8], &[u8]) = (b",\"crc\":\"", b"\"}\n");

/// Ends a line with the checksum of what stands in it from `start` on. An older version takes it
/// for a field that it does not know, and passes it over.
pub(super) fn seal(bytes: &mut Vec<u8>, start: usize) {
    // The brace moves behind the checksum.
    bytes.pop();
    let sum = checksum(&[bytes.get(start..).unwrap_or_default()]);
    bytes.extend_from_slice(CHECK.0);
    bytes.extend_from_slice(format!("{sum:08x}").as_bytes());
    bytes.extend_from_slice(CHECK.1);
}

/// Whether a line is as it was written; `None` when it has no checksum, as all lines of older
/// versions.
pub(super) fn is_intact(line: &[u8]) -> Option<bool> {
    let (line, sum) = line.strip_suffix(CHECK.1)?.split_last_chunk::<8>()?;
    let line = line.strip_suffix(CHECK.0)?;
    Some(format!("{:08x}", checksum(&[line])).as_bytes() == sum)
}

/// The first line of a run.
pub(crate) fn header(run: &RunId) -> Vec<u8> {
    let header = Header {
        levity_journal: FORMAT,
        run: run.clone(),
    };
    // A number and a text are always JSON.
    let mut line = serde_json::to_vec(&header).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Whether a line is meant to be a header: of this version, or of any other.
pub(crate) fn is_header(line: &[u8]) -> bool {
    line.starts_with(b"{\"levity_journal\":")
}

/// The line of a record. Long texts of a long line go to `aside`, if there is one.
pub(crate) fn write(
    record: &Record,
    aside: Option<&mut Texts>,
    bytes: &mut Vec<u8>,
) -> Result<(), JournalError> {
    let start = bytes.len();
    serde_json::to_writer(&mut *bytes, record).map_err(|error| unreadable(record.seq, error))?;
    if is_too_deep(&bytes[start..]) {
        let message = format!(
            "record {} is nested deeper than {DEEP} levels, and could not be read again",
            record.seq
        );
        return Err(JournalError::new(JournalErrorKind::Refused, message));
    }
    if let Some(aside) = aside.filter(|_| bytes.len() - start > LONG) {
        bytes.truncate(start);
        let record = serde_json::to_value(record).map_err(|error| unreadable(record.seq, error))?;
        bytes.extend_from_slice(put_aside(record, aside).to_string().as_bytes());
    }
    seal(bytes, start);
    Ok(())
}

/// A line without the room behind it that was never written.
fn without_zeros(line: &[u8]) -> &[u8] {
    let end = line
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    &line[..end]
}

/// Whether a line is nested so deep that it could not be read again.
pub(crate) fn is_too_deep(line: &[u8]) -> bool {
    depth(line) > DEEP
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

/// Reads a file. What stands after its last whole line is no concern; anything else must be as it
/// should.
pub(super) fn read(
    run: &RunId,
    path: &Path,
    bytes: &[u8],
    bodies: &Bodies,
) -> Result<Read, JournalError> {
    let first = bytes.split_inclusive(|byte| *byte == b'\n').next();
    let whole = first.map_or(Ok(false), |first| {
        check_header(run, first).map_err(|flaw| flaw.of(path, 1))
    })?;
    match first.filter(|_| whole) {
        Some(first) => read_from(path, &bytes[first.len()..], (0, first.len()), bodies),
        None => Ok(Read {
            records: Vec::new(),
            good: 0,
        }),
    }
}

/// Reads the rest of a file, from the record of this number, which stands at this place of it.
pub(super) fn read_from(
    path: &Path,
    bytes: &[u8],
    (seq, place): (u64, usize),
    bodies: &Bodies,
) -> Result<Read, JournalError> {
    let mut read = Read {
        records: Vec::new(),
        good: place,
    };
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let seq = seq + read.records.len() as u64;
        match record(line, seq, Some(bodies)) {
            Ok(record) => {
                read.records.push(record);
                read.good += line.len();
            }
            Err(flaw) => {
                let rest = bytes
                    .get(read.good - place + line.len()..)
                    .unwrap_or_default();
                if is_torn(line, read.good, rest.is_empty())
                    && !rest.split(|byte| *byte == b'\n').any(is_record)
                {
                    break;
                }
                let line = usize::try_from(seq).unwrap_or(usize::MAX).saturating_add(2);
                return Err(flaw.of(path, line));
            }
        }
    }
    Ok(read)
}

/// Whether the header is whole; a flaw when the file is another's, or from a newer version.
pub(super) fn check_header(run: &RunId, line: &[u8]) -> Result<bool, Flaw> {
    // A beginning of what is written first, and nothing after it.
    if !line.ends_with(b"\n") && header(run).starts_with(without_zeros(line)) {
        return Ok(false);
    }
    let found = parse_header(line)?;
    if found != *run {
        return Err(Flaw::damaged(format!("it is of run `{found}`")));
    }
    Ok(line.ends_with(b"\n"))
}

/// The run that a header names.
pub(crate) fn parse_header(line: &[u8]) -> Result<RunId, Flaw> {
    let found: Header = serde_json::from_slice(line)
        .map_err(|error| Flaw::damaged("it is not a journal of levity's").because(error))?;
    if found.levity_journal == 0 {
        return Err(Flaw::damaged("it is not a journal of levity's"));
    }
    if found.levity_journal > FORMAT {
        let format = found.levity_journal;
        let what = format!(
            "it has format {format}, and this version reads up to {FORMAT}; use a newer one"
        );
        return Err(Flaw::version(what));
    }
    Ok(found.run)
}

/// Whether a line that stands at this place of the file was not written to its end, or has room in
/// it that was not. Any other was written, and somebody may have gone by it.
fn is_torn(line: &[u8], at: usize, is_last: bool) -> bool {
    let written = if is_last { without_zeros(line) } else { line };
    if written.contains(&0) {
        return has_holes(written, at);
    }
    // A beginning of a record: what is no JSON only because it stops there.
    let stops = |error: serde_json::Error| error.is_eof();
    written.len() < line.len()
        || (!line.ends_with(b"\n")
            && serde_json::from_slice::<IgnoredAny>(line).map_or_else(stops, |_| true))
}

/// Disks write so many bytes at once.
const SECTOR: usize = 512;

/// Whether all zeros in a line are room that was never written: whole sectors, but for the first of
/// the line. A zero that stands alone is damage, since no JSON has one.
fn has_holes(line: &[u8], at: usize) -> bool {
    let mut from = 0;
    while let Some(start) = line
        .get(from..)
        .and_then(|rest| rest.iter().position(|byte| *byte == 0))
    {
        let start = from + start;
        let length = line[start..]
            .iter()
            .position(|byte| *byte != 0)
            .unwrap_or(line.len() - start);
        from = start + length;
        let whole = (start == 0 || (at + start).is_multiple_of(SECTOR))
            && (at + from).is_multiple_of(SECTOR);
        if !whole {
            return false;
        }
    }
    true
}

/// What is wrong with a line.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// The line itself.
    Line {
        kind: JournalErrorKind,
        what: String,
        cause: Option<serde_json::Error>,
    },
    /// A text that it names.
    Body(JournalError),
}

impl Flaw {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Line {
            kind: JournalErrorKind::Damaged,
            what: what.into(),
            cause: None,
        }
    }

    fn version(what: impl Into<String>) -> Self {
        Self::Line {
            kind: JournalErrorKind::Version,
            what: what.into(),
            cause: None,
        }
    }

    fn because(self, error: serde_json::Error) -> Self {
        // What serde says of a value of the wrong type shows the value.
        let shows = error.is_data() && error.to_string().starts_with("invalid");
        match self {
            Self::Line { kind, what, .. } if !shows => Self::Line {
                kind,
                what,
                cause: Some(error),
            },
            flaw => flaw,
        }
    }

    /// The error for a line of a file.
    pub(super) fn of(self, path: &Path, line: usize) -> JournalError {
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let place =
            format!("the journal `{name}` cannot be read and is left as it is: line {line}: ");
        self.with_way_out(line).into_error(&place)
    }

    /// Says what can be done about a damaged record.
    fn with_way_out(self, line: usize) -> Self {
        match self {
            Self::Line {
                kind: JournalErrorKind::Damaged,
                what,
                cause,
            } if line > 1 => {
                let before = line - 1;
                let what = format!(
                    "{what}; restore the file from a copy, or cut it after line {before} to resume \
                        from there, where what \
                     ran later may run again"
                );
                Self::Line {
                    kind: JournalErrorKind::Damaged,
                    what,
                    cause,
                }
            }
            flaw => flaw,
        }
    }

    /// The error, with what stands before it.
    pub(crate) fn into_error(self, place: &str) -> JournalError {
        match self {
            Self::Line { kind, what, cause } => {
                let error = JournalError::new(kind, format!("{place}{what}"));
                match cause {
                    Some(cause) => error.with_source(cause),
                    None => error,
                }
            }
            Self::Body(error) => error,
        }
    }
}

/// The record of this number in a line; without bodies, a line that names one is flawed.
pub(crate) fn record(line: &[u8], seq: u64, bodies: Option<&Bodies>) -> Result<Record, Flaw> {
    let other = || Flaw::damaged(format!("it is not record {seq}"));
    // Without its end, a line may be JSON by chance: a number that goes on, say.
    if !line.ends_with(b"\n") {
        return Err(Flaw::damaged("it has no end"));
    }
    let checked = is_intact(line);
    if checked == Some(false) {
        return Err(Flaw::damaged(format!(
            "it is not record {seq} as it was written: its checksum is another"
        )));
    }
    let is_checked = checked.is_some();
    let decoded = if Bodies::are_named_in(line) {
        let short: Value = serde_json::from_slice(line).map_err(|error| other().because(error))?;
        if !is_checked && short.as_object().is_none_or(|short| short.len() != 1) {
            return Err(other());
        }
        let Some(bodies) = bodies else {
            return Err(Flaw::damaged(
                "it has a text that is kept aside, in a folder that is not here",
            ));
        };
        let whole = bodies.put_back(short).map_err(Flaw::Body)?;
        match is_checked {
            true => serde_json::from_value(whole),
            false => serde_json::from_value::<Unchecked>(whole).map(Record::from),
        }
    } else if is_checked {
        serde_json::from_slice::<Record>(line)
    } else {
        serde_json::from_slice::<Unchecked>(line).map(Record::from)
    };
    match decoded {
        Ok(record) if record.seq == seq => Ok(record),
        Ok(_) => Err(other()),
        // The field may be the checksum's, and its name what was damaged.
        Err(error) if !is_checked && error.to_string().starts_with("unknown field") => {
            Err(other().because(error))
        }
        Err(error) => Err(unknown(line, seq, &error)
            .unwrap_or_else(other)
            .because(error)),
    }
}

/// The flaw of a record that is whole, in its place, and has something that this version does not
/// know; `None` when it is no such record.
fn unknown(line: &[u8], seq: u64, error: &serde_json::Error) -> Option<Flaw> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let record = Bodies::record_in(&line);
    let in_place = record.get("seq").and_then(Value::as_u64) == Some(seq);
    if !in_place || record.get("at").and_then(Value::as_u64).is_none() {
        return None;
    }
    let entry = record.get("entry")?;
    let kind = entry
        .as_str()
        .or_else(|| entry.as_object()?.keys().next().map(String::as_str));
    // What serde says of an enum without such a variant. Anything else may have a payload in it.
    let error = error.to_string();
    let name = error
        .strip_prefix("unknown variant `")
        .and_then(|rest| rest.split('`').next());
    let short = |name: &str| name.chars().take(64).collect::<String>();
    Some(Flaw::version(match name {
        Some(name) if kind == Some(name) => {
            format!(
                "record {seq} is a `{}`, which this version does not know; use a newer one",
                short(name)
            )
        }
        Some(name) => {
            format!(
                "record {seq} has a `{}`, which this version does not know; use a newer one",
                short(name)
            )
        }
        None => format!("record {seq} is not of a form that this version knows; use a newer one"),
    }))
}

fn is_record(line: &[u8]) -> bool {
    let Ok(line) = serde_json::from_slice::<Value>(line) else {
        return false;
    };
    let record = Bodies::record_in(&line);
    record.get("seq").is_some() && record.get("entry").is_some()
}

#[cfg(test)]
mod tests {
    use levity_core::{
        Durability, EffectClass, EffectId, EffectKind, EffectNote, Limits, MachineKind, Opened,
        Outcome, Status, ToolCall, ToolOutput, ToolResult,
    };
    use serde_json::json;

    use super::*;

    fn records() -> Vec<Record> {
        let opened = Opened::new(
            MachineKind::new("calls", 1),
            json!({"count": 1}),
            Limits::default(),
        );
        let effect = EffectId::new(0);
        let note = EffectNote::new(EffectKind::Tool, "pay", EffectClass::AtMostOnce);
        let result = ToolResult::new(
            &ToolCall::new("c", "pay", json!({})),
            Ok(ToolOutput::text("a b, c @ é")),
        );
        let entries = [
            Entry::Opened(opened),
            Entry::Started { effect, note },
            Entry::finished(effect, Outcome::Tool(result)),
            Entry::Ended(Status::Complete),
        ];
        (0..)
            .zip(entries)
            .map(|(seq, entry)| Record::new(seq, Timestamp::from_millis(5), entry))
            .collect()
    }

    fn written(run: &RunId, records: &[Record]) -> Vec<u8> {
        let mut bytes = header(run);
        records
            .iter()
            .for_each(|record| write(record, None, &mut bytes).unwrap());
        bytes
    }

    /// No bit of a file can be another without an error: neither is a record taken that is not the
    /// one that was written, nor is one cut off.
    #[test]
    fn every_flipped_bit_of_a_file_is_found() {
        let (run, path) = (RunId::new("r"), Path::new("r.jsonl"));
        let bodies = Bodies::new(Path::new("nowhere"), Durability::Buffered);
        // A run that goes on may end with any of its records.
        for count in 1..=records().len() {
            let whole = written(&run, &records()[..count]);
            let found = read(&run, path, &whole, &bodies).unwrap();
            assert_eq!((found.records.len(), found.good), (count, whole.len()));
            for bit in 0..8 * whole.len() {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                match read(&run, path, &flipped, &bodies) {
                    Ok(found) => panic!(
                        "byte {} of {} (`{}`), bit {}: {} records were read",
                        bit / 8,
                        whole.len(),
                        char::from(whole[bit / 8]),
                        bit % 8,
                        found.records.len()
                    ),
                    Err(error) => {
                        let kinds = [JournalErrorKind::Damaged, JournalErrorKind::Version];
                        assert!(kinds.contains(&error.kind()), "{error}");
                    }
                }
            }
        }
    }
}
