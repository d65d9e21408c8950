//! What text is, and text that is safe to show.

use super::json::{JsonType, Shape};
use super::kind::{FileKind, Found, by_extension};
use super::sample::Text;
use super::{Count, Structure, outline, table};

/// What was found out about a text.
pub(super) struct Read {
    pub(super) found: Found,
    pub(super) structure: Option<Structure>,
    pub(super) problem: Option<String>,
}

impl Read {
    fn new(kind: FileKind, structure: Structure) -> Self {
        Self {
            found: Found::new(kind, None),
            structure: Some(structure),
            problem: None,
        }
    }
}

/// Looks at a text: what it is by its content, and where that leaves it open, by its name.
pub(super) fn read(text: &Text, name: &str, extension: &str) -> Read {
    let named = by_extension(extension).or_else(|| match name {
        "Makefile" | "Dockerfile" => Some(Found::new(FileKind::Source, None)),
        _ => None,
    });
    let kind = named.map(|found| found.kind);
    // Code and prose may begin like something else.
    if !matches!(kind, Some(FileKind::Source | FileKind::Markdown))
        && let Some(read) = by_content(text)
    {
        return read;
    }
    match (kind, named) {
        (Some(kind @ (FileKind::Csv | FileKind::Tsv)), _) => {
            let usual = if kind == FileKind::Tsv { '\t' } else { ',' };
            let delimiter = table::delimiter(text)
                .or_else(|| table::most_used(text))
                .unwrap_or(usual);
            Read::new(kind, table::table(text, delimiter))
        }
        (Some(kind @ (FileKind::Json | FileKind::JsonLines)), _) => malformed(text, kind),
        (Some(FileKind::Log), _) => Read::new(FileKind::Log, lines(text)),
        (Some(_), Some(found)) => Read {
            found,
            structure: Some(outline::outline(text, found, extension)),
            problem: None,
        },
        _ => unnamed(text),
    }
}

fn by_content(text: &Text) -> Option<Read> {
    let begin = text.head.trim_start();
    let tag: String = begin
        .chars()
        .take(15)
        .collect::<String>()
        .to_ascii_lowercase();
    if tag.starts_with("<!doctype html") || tag.starts_with("<html") {
        let found = Found::new(FileKind::Html, None);
        return Some(Read::new(FileKind::Html, outline::outline(text, found, "")));
    }
    if tag.starts_with("<?xml") {
        let found = Found::new(FileKind::Xml, None);
        return Some(Read::new(FileKind::Xml, outline::outline(text, found, "")));
    }
    if begin.starts_with(['{', '[']) {
        return json(text).or_else(|| json_lines(text));
    }
    None
}

/// JSON, if it is that as far as it was read. One that ends before the file does is only the first
/// of several.
fn json(text: &Text) -> Option<Read> {
    let mut shape = Shape::default();
    match shape.read(&text.head) {
        Ok(()) if text.whole => {}
        Err(error) if error.is_eof() && !text.whole => {}
        _ => return None,
    }
    Some(Read::new(FileKind::Json, one_value(text, shape)))
}

/// How one JSON value is built. Of one that was cut, the elements are estimated from those that
/// were seen.
fn one_value(text: &Text, shape: Shape) -> Structure {
    let seen = shape.elements.filter(|_| shape.types == [JsonType::List]);
    let elements = seen.map(|seen| match text.whole {
        true => Count::exact(seen),
        false => Count::scaled(seen, text.size, text.head.len() as u64),
    });
    Structure::Json { shape, elements }
}

/// A JSON object or list on each of the first lines, two at least.
fn json_lines(text: &Text) -> Option<Read> {
    let (mut shape, mut seen) = (Shape::default(), 0);
    let whole = text.whole_lines();
    for line in whole
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(100)
    {
        shape.read(line).ok()?;
        seen += 1;
    }
    let records = shape
        .types
        .iter()
        .all(|kind| matches!(kind, JsonType::Object | JsonType::List));
    (seen > 1 && records).then(|| {
        Read::new(
            FileKind::JsonLines,
            Structure::JsonLines {
                shape,
                records: count(text),
            },
        )
    })
}

/// Lines that are not empty.
fn count(text: &Text) -> Count {
    match text.whole {
        true => Count::exact(
            text.head
                .lines()
                .filter(|line| !line.trim().is_empty())
                .count() as u64,
        ),
        false => text.lines(),
    }
}

/// JSON by its name alone.
fn malformed(text: &Text, kind: FileKind) -> Read {
    let mut shape = Shape::default();
    let line = match kind {
        FileKind::JsonLines => text.head.lines().next().unwrap_or_default(),
        _ => &text.head,
    };
    let problem = match shape.read(line) {
        Ok(()) if kind == FileKind::JsonLines => {
            let records = count(text);
            return Read::new(kind, Structure::JsonLines { shape, records });
        }
        Ok(()) => return Read::new(kind, one_value(text, shape)),
        // Its words hold no content, only places and what was expected there.
        Err(error) => format!("its name says JSON, but it is none: {error}"),
    };
    Read {
        problem: Some(problem),
        ..Read::new(kind, lines(text))
    }
}

/// Text whose name says nothing.
fn unnamed(text: &Text) -> Read {
    if let Some(delimiter) = table::delimiter(text).filter(|_| text.head.lines().count() > 2) {
        let kind = if delimiter == '\t' {
            FileKind::Tsv
        } else {
            FileKind::Csv
        };
        return Read::new(kind, table::table(text, delimiter));
    }
    let first: Vec<_> = text
        .head
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(10)
        .collect();
    let dated = first
        .iter()
        .filter(|line| begins_with_date(line.trim_start_matches(['[', ' '])))
        .count();
    let log = first.len() > 2 && dated * 2 > first.len();
    Read::new(
        if log { FileKind::Log } else { FileKind::Text },
        lines(text),
    )
}

fn lines(text: &Text) -> Structure {
    let end = if text.tail.is_empty() {
        &text.head
    } else {
        &text.tail
    };
    let shown = if text.tail.is_empty() {
        super::FileProfile::HEAD_LINES
    } else {
        0
    };
    let count = end.lines().count();
    let from = count.saturating_sub(5).max(shown.min(count));
    // The first line of the last piece may be cut.
    let from = if text.tail.is_empty() {
        from
    } else {
        from.max(1)
    };
    Structure::Lines {
        lines: text.lines(),
        tail: end.lines().skip(from).map(|line| cut(line, 200)).collect(),
    }
}

/// Whether a text begins with a date like `2026-03-01` or `01.03.2026`.
pub(super) fn begins_with_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| {
        bytes
            .get(from..to)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let mark = |at: usize| bytes.get(at).copied().filter(|byte| b"-/.".contains(byte));
    let year_first =
        digits(0, 4) && mark(4).is_some() && mark(4) == mark(7) && digits(5, 7) && digits(8, 10);
    let year_last =
        digits(0, 2) && mark(2).is_some() && mark(2) == mark(5) && digits(3, 5) && digits(6, 10);
    year_first || year_last
}

/// The first lines of a text, within so many bytes, safe to show.
pub(super) fn first_lines(text: &str, lines: usize, bytes: usize) -> Vec<String> {
    let mut left = bytes;
    let mut first = Vec::new();
    for line in text.lines().take(lines) {
        let line = cut(line, 300.min(left));
        left -= line.len().min(left);
        first.push(line);
        if left == 0 {
            break;
        }
    }
    first
}

/// The first characters of a text, at most so many bytes of it and two dots, safe to show.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.len() > most {
        true => harmless(&text[..boundary(text, most)]) + "..",
        false => harmless(text),
    }
}

/// Where the last character ends that ends at `most` or before.
fn boundary(text: &str, most: usize) -> usize {
    (0..=most)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default()
}

/// The text without what moves a terminal, breaks a line or turns the direction of text.
pub(super) fn harmless(text: &str) -> String {
    let turns = |char| matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hides = |char| matches!(char, '\u{2028}' | '\u{2029}' | '\u{e0000}'..='\u{e007f}');
    let acts = |char: char| turns(char) || hides(char) || (char.is_control() && char != '\t');
    text.chars()
        .map(|char| if acts(char) { '\u{fffd}' } else { char })
        .collect()
}

/// A path on one line, not too long.
pub(super) fn one_line(path: &str) -> String {
    cut(path, 400)
}
