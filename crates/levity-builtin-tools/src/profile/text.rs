//! Detection of text formats, and text that is safe to display.
//!
//! JSON, HTML and XML are recognized by how they begin, whatever the file is called. Source code
//! and Markdown are recognized by name only, since both may begin with anything. Text that is shown
//! goes through [`sanitized`], so it cannot control a terminal or reverse its direction.

use super::json::{JsonType, Shape};
use super::kind::{DetectedKind, FileKind, by_extension};
use super::sample::Text;
use super::{Count, Structure, outline, table};

/// The result of inspecting a text.
pub(super) struct Inspection {
    pub(super) found: DetectedKind,
    pub(super) structure: Option<Structure>,
    pub(super) problem: Option<String>,
}

impl Inspection {
    fn new(kind: FileKind, structure: Structure) -> Self {
        Self {
            found: DetectedKind::new(kind, None),
            structure: Some(structure),
            problem: None,
        }
    }
}

/// Detects the format of a text from its content, and from its name if the content is ambiguous.
pub(super) fn read(text: &Text, name: &str, extension: &str) -> Inspection {
    let named = by_extension(extension).or_else(|| match name {
        "Makefile" | "Dockerfile" => Some(DetectedKind::new(FileKind::Source, None)),
        _ => None,
    });
    let kind = named.map(|found| found.kind);
    // Code and prose may begin like another format.
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
            Inspection::new(kind, table::table(text, delimiter))
        }
        (Some(kind @ (FileKind::Json | FileKind::JsonLines)), _) => malformed(text, kind),
        (Some(FileKind::Log), _) => Inspection::new(FileKind::Log, lines(text)),
        (Some(_), Some(found)) => Inspection {
            found,
            structure: Some(outline::outline(text, found, extension)),
            problem: None,
        },
        _ => unnamed(text),
    }
}

/// Returns `None` if the content does not decide.
fn by_content(text: &Text) -> Option<Inspection> {
    let begin = text.head.trim_start();
    let tag: String = begin
        .chars()
        .take(15)
        .collect::<String>()
        .to_ascii_lowercase();
    if tag.starts_with("<!doctype html") || tag.starts_with("<html") {
        let found = DetectedKind::new(FileKind::Html, None);
        return Some(Inspection::new(
            FileKind::Html,
            outline::outline(text, found, ""),
        ));
    }
    if tag.starts_with("<?xml") {
        let found = DetectedKind::new(FileKind::Xml, None);
        return Some(Inspection::new(
            FileKind::Xml,
            outline::outline(text, found, ""),
        ));
    }
    if begin.starts_with(['{', '[']) {
        return json(text).or_else(|| json_lines(text));
    }
    None
}

/// Parses JSON as far as it was read. A value that ends before the file does is only the first of
/// several.
fn json(text: &Text) -> Option<Inspection> {
    let mut shape = Shape::default();
    match shape.read(&text.head) {
        Ok(()) if text.whole => {}
        Err(error) if error.is_eof() && !text.whole => {}
        _ => return None,
    }
    Some(Inspection::new(FileKind::Json, one_value(text, shape)))
}

/// Describes a single JSON value. If the value was cut, the number of elements is extrapolated.
fn one_value(text: &Text, shape: Shape) -> Structure {
    let seen = shape.elements.filter(|_| shape.types == [JsonType::List]);
    let elements = seen.map(|seen| match text.whole {
        true => Count::exact(seen),
        false => Count::scaled(seen, text.size, text.head.len() as u64),
    });
    Structure::Json { shape, elements }
}

/// Detects a JSON object or list on each of the first lines, at least two.
fn json_lines(text: &Text) -> Option<Inspection> {
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
        Inspection::new(
            FileKind::JsonLines,
            Structure::JsonLines {
                shape,
                records: count(text),
            },
        )
    })
}

/// Counts the lines that are not empty.
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

/// Describes a file that is JSON only by its name.
fn malformed(text: &Text, kind: FileKind) -> Inspection {
    let mut shape = Shape::default();
    let line = match kind {
        FileKind::JsonLines => text.head.lines().next().unwrap_or_default(),
        _ => &text.head,
    };
    let problem = match shape.read(line) {
        Ok(()) if kind == FileKind::JsonLines => {
            let records = count(text);
            return Inspection::new(kind, Structure::JsonLines { shape, records });
        }
        Ok(()) => return Inspection::new(kind, one_value(text, shape)),
        // The error text contains no content, only positions and expected tokens.
        Err(error) => format!("the file name indicates JSON, but the content is invalid: {error}"),
    };
    Inspection {
        problem: Some(problem),
        ..Inspection::new(kind, lines(text))
    }
}

/// Detects the format of a text whose name is not decisive.
fn unnamed(text: &Text) -> Inspection {
    if let Some(delimiter) = table::delimiter(text).filter(|_| text.head.lines().count() > 2) {
        let kind = if delimiter == '\t' {
            FileKind::Tsv
        } else {
            FileKind::Csv
        };
        return Inspection::new(kind, table::table(text, delimiter));
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
    Inspection::new(
        if log { FileKind::Log } else { FileKind::Text },
        lines(text),
    )
}

/// Describes a plain text by its number of lines and its last five. Lines that `head` shows already
/// are not repeated.
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

/// Returns `true` if a text begins with a date like `2026-03-01` or `01.03.2026`.
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

/// Returns the first lines of a text within a byte limit, safe to display.
pub(super) fn first_lines(text: &str, lines: usize, bytes: usize) -> Vec<String> {
    let mut remaining = bytes;
    let mut first = Vec::new();
    for line in text.lines().take(lines) {
        let line = cut(line, 300.min(remaining));
        remaining -= line.len().min(remaining);
        first.push(line);
        if remaining == 0 {
            break;
        }
    }
    first
}

/// Cuts a text to `max` bytes plus two dots, and makes it safe to display.
pub(super) fn cut(text: &str, max: usize) -> String {
    match text.len() > max {
        true => sanitized(&text[..boundary(text, max)]) + "..",
        false => sanitized(text),
    }
}

/// Returns the end of the last character that ends at `max` or before.
fn boundary(text: &str, max: usize) -> usize {
    (0..=max)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default()
}

/// Replaces characters that control a terminal, break a line or change the text direction.
pub(super) fn sanitized(text: &str) -> String {
    let turns = |char| {
        matches!(
            char,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
    };
    let hides = |char| matches!(char, '\u{2028}' | '\u{2029}' | '\u{e0000}'..='\u{e007f}');
    let acts = |char: char| turns(char) || hides(char) || (char.is_control() && char != '\t');
    text.chars()
        .map(|char| if acts(char) { '\u{fffd}' } else { char })
        .collect()
}

/// Formats a path on one line of limited length.
pub(super) fn one_line(path: &str) -> String {
    cut(path, 400)
}
