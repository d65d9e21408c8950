//! Reads and writes a run's file, line by line. An export has the same lines.
//!
//! The first line is `{"levity_journal":1,"run":"r1"}`. Each further line is a record,
//! `{"seq":0,"at":…,"entry":…,"crc":"…"}`, with the CRC-32 of all bytes before the comma in front
//! of `crc`. The checksum finds a flipped bit that is still valid JSON. `docs/journal.md` specifies
//! the format for other programs.
//!
//! Reading distinguishes two kinds of bad lines. A torn line is the last one and was being written
//! when the machine stopped: it is ignored. A flawed line was complete once: it is an error that
//! names the line, and nothing is changed.

use std::path::Path;

use levity_core::{Entry, JournalError, JournalErrorKind, Record, RunId, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bodies::{Bodies, Texts, extract_texts};
use crate::checksum::checksum;

/// The version of the format that is written. Older versions are read, newer ones are rejected.
const FORMAT: u32 = 1;

/// The length above which the long texts of a line are stored separately.
const LONG: usize = 64 << 10;

/// The maximum nesting: a reader of JSON stops at 128 levels.
pub(crate) const DEEP: usize = 120;

#[derive(Serialize, Deserialize)]
struct Header {
    levity_journal: u32,
    run: RunId,
}

/// A record in a line without a checksum. The versions that wrote such lines knew no other fields,
/// so an unknown field is a damaged one, such as the checksum.
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

/// The bytes before the checksum in a line, and after it.
const CHECK: (&[u8], &[u8]) = (b",\"crc\":\"", b"\"}\n");

/// Ends a line with the checksum of its bytes from `start` on. Older versions ignore it as an
/// unknown field.
pub(super) fn append_checksum(bytes: &mut Vec<u8>, start: usize) {
    // The brace moves behind the checksum.
    bytes.pop();
    let sum = checksum(&[bytes.get(start..).unwrap_or_default()]);
    bytes.extend_from_slice(CHECK.0);
    bytes.extend_from_slice(format!("{sum:08x}").as_bytes());
    bytes.extend_from_slice(CHECK.1);
}

/// Returns `true` if a line is as it was written, and `None` if it has no checksum, like all lines
/// of older versions.
pub(super) fn is_intact(line: &[u8]) -> Option<bool> {
    let (line, sum) = line.strip_suffix(CHECK.1)?.split_last_chunk::<8>()?;
    let line = line.strip_suffix(CHECK.0)?;
    Some(format!("{:08x}", checksum(&[line])).as_bytes() == sum)
}

/// Returns the first line of a run.
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

/// Returns `true` if a line is a header, of this version or any other.
pub(crate) fn is_header(line: &[u8]) -> bool {
    line.starts_with(b"{\"levity_journal\":")
}

/// Appends the line of a record. The long texts of a long line go to `texts`, if there is one.
pub(crate) fn write(
    record: &Record,
    texts: Option<&mut Texts>,
    bytes: &mut Vec<u8>,
) -> Result<(), JournalError> {
    let start = bytes.len();
    serde_json::to_writer(&mut *bytes, record).map_err(|error| unreadable(record.seq, error))?;
    if is_too_deep(&bytes[start..]) {
        let message = format!(
            "record {} is nested deeper than the limit of {DEEP} levels",
            record.seq
        );
        return Err(JournalError::new(JournalErrorKind::Refused, message));
    }
    if let Some(texts) = texts.filter(|_| bytes.len() - start > LONG) {
        bytes.truncate(start);
        let record = serde_json::to_value(record).map_err(|error| unreadable(record.seq, error))?;
        bytes.extend_from_slice(extract_texts(record, texts).to_string().as_bytes());
    }
    append_checksum(bytes, start);
    Ok(())
}

/// Returns a line without the unwritten zeros behind it.
fn without_zeros(line: &[u8]) -> &[u8] {
    let end = line
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    &line[..end]
}

/// Returns `true` if a line is nested so deeply that it could not be read again.
pub(crate) fn is_too_deep(line: &[u8]) -> bool {
    depth(line) > DEEP
}

/// Returns the nesting depth of the values of a line.
///
/// It counts braces and brackets outside texts, without parsing. Invalid JSON gives some number and
/// no error.
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

/// The content of a file.
pub(super) struct Read {
    pub(super) records: Vec<Record>,
    /// The number of bytes in complete lines; the rest was being written when the process ended.
    pub(super) good: usize,
}

/// Reads a file. Bytes after its last complete line are ignored; any other damage is an error.
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

/// Reads the rest of a file, from the record of this number, which begins at this offset.
///
/// A bad line is torn only if no record follows it: records are written in order.
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

/// Returns `true` if the header is complete, and a flaw if the file belongs to another run or to a
/// newer version.
pub(super) fn check_header(run: &RunId, line: &[u8]) -> Result<bool, Flaw> {
    // A part of the first line, and nothing after it.
    if !line.ends_with(b"\n") && header(run).starts_with(without_zeros(line)) {
        return Ok(false);
    }
    let found = parse_header(line)?;
    if found != *run {
        return Err(Flaw::damaged(format!("it belongs to run `{found}`")));
    }
    Ok(line.ends_with(b"\n"))
}

/// Returns the run that a header names.
pub(crate) fn parse_header(line: &[u8]) -> Result<RunId, Flaw> {
    let found: Header = serde_json::from_slice(line)
        .map_err(|error| Flaw::damaged("it is not a levity journal").because(error))?;
    if found.levity_journal == 0 {
        return Err(Flaw::damaged("it is not a levity journal"));
    }
    if found.levity_journal > FORMAT {
        let format = found.levity_journal;
        let what = format!(
            "it has format {format}, but this version of levity reads formats up to {FORMAT}; use \
                a newer version"
        );
        return Err(Flaw::version(what));
    }
    Ok(found.run)
}

/// Returns `true` if a line at this offset was not written completely, or has unwritten parts. Any
/// other line was written, and its content may have been relied on.
///
/// A disk that loses power may leave zeros in place of sectors that it has not written.
fn is_torn(line: &[u8], at: usize, is_last: bool) -> bool {
    let written = if is_last { without_zeros(line) } else { line };
    if written.contains(&0) {
        return has_holes(written, at);
    }
    // The beginning of a record: it is invalid JSON only because it stops there.
    let stops = |error: serde_json::Error| error.is_eof();
    written.len() < line.len()
        || (!line.ends_with(b"\n")
            && serde_json::from_slice::<IgnoredAny>(line).map_or_else(stops, |_| true))
}

/// The number of bytes that a disk writes at once.
const SECTOR: usize = 512;

/// Returns `true` if all zeros in a line are unwritten sectors, of which the first may be partial.
/// A single zero is damage, since JSON contains none.
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

/// The damage of a line.
///
/// It becomes a [`JournalError`] once the place is known: a line of a file, or a line of an export.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// The line itself is damaged.
    Line {
        kind: JournalErrorKind,
        what: String,
        cause: Option<serde_json::Error>,
    },
    /// A text that it refers to is damaged.
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
        // The error of serde for a value of the wrong type shows the value.
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

    /// Returns the error for a line of a file.
    pub(super) fn of(self, path: &Path, line: usize) -> JournalError {
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let place =
            format!("the journal `{name}` cannot be read and was left unchanged: line {line}: ");
        self.with_advice(line).into_error(&place)
    }

    /// Adds advice about a damaged header or record.
    fn with_advice(self, line: usize) -> Self {
        match self {
            // The position within the line does not help.
            Self::Line {
                kind: JournalErrorKind::Damaged,
                what,
                ..
            } => {
                let advice = match line - 1 {
                    0 => "or name another journal".to_owned(),
                    before => format!(
                        "or cut it after line {before} to resume from there; later effects may \
                         then run again"
                    ),
                };
                Self::damaged(format!("{what}; restore the file from a copy, {advice}"))
            }
            flaw => flaw,
        }
    }

    /// Returns the error, prefixed with its place.
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

/// Parses the record of this number in a line; without bodies, a line that refers to one is flawed.
pub(crate) fn record(line: &[u8], seq: u64, bodies: Option<&Bodies>) -> Result<Record, Flaw> {
    let other = || Flaw::damaged(format!("it is not record {seq}"));
    // An incomplete line may be JSON by chance, such as a number that was cut.
    if !line.ends_with(b"\n") {
        return Err(Flaw::damaged("it is incomplete"));
    }
    let checked = is_intact(line);
    if checked == Some(false) {
        return Err(Flaw::damaged(format!(
            "it is not record {seq} as it was written: its checksum does not match"
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
                "it refers to a text that is stored in a separate folder, which is missing",
            ));
        };
        let whole = bodies.insert_texts(short).map_err(Flaw::Body)?;
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
        // The field may be the checksum with a damaged name.
        Err(error) if !is_checked && error.to_string().starts_with("unknown field") => {
            Err(other().because(error))
        }
        Err(error) => Err(unknown(line, seq, &error)
            .unwrap_or_else(other)
            .because(error)),
    }
}

/// Returns the flaw of an intact record that contains something unknown to this version; `None` if
/// it is not such a record.
///
/// Without this distinction, a journal of a newer version would look damaged, and a person might
/// delete it.
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
    // Only the message of serde about an unknown variant is safe. Any other may contain a payload.
    let error = error.to_string();
    let name = error
        .strip_prefix("unknown variant `")
        .and_then(|rest| rest.split('`').next());
    let short = |name: &str| name.chars().take(64).collect::<String>();
    Some(Flaw::version(match name {
        Some(name) if kind == Some(name) => {
            format!(
                "record {seq} is a `{}`, which this version of levity does not know; use a newer \
                    version",
                short(name)
            )
        }
        Some(name) => {
            format!(
                "record {seq} has a `{}`, which this version of levity does not know; use a newer \
                    version",
                short(name)
            )
        }
        None => format!(
            "record {seq} has a form that this version of levity does not know; use a newer version"
        ),
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
        Durability, EffectClass, EffectId, EffectKind, EffectNote, Limits, MachineKind, Outcome,
        RunHeader, Status, ToolCall, ToolOutput, ToolResult,
    };
    use serde_json::json;

    use super::*;

    fn records() -> Vec<Record> {
        let opened = RunHeader::new(
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

    /// No bit of a file can change without an error: a changed record is neither accepted nor cut
    /// off.
    #[test]
    fn every_flipped_bit_of_file_is_detected() {
        let (run, path) = (RunId::new("r"), Path::new("r.jsonl"));
        let bodies = Bodies::new(Path::new("nowhere"), Durability::Buffered);
        // A run in progress may end with any of its records.
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
