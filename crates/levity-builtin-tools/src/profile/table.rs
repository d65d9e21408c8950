//! Detection of tables with delimiters.
//!
//! There is no standard for such files, so everything is guessed from the first rows: the delimiter
//! by equal numbers of cells, the header by words above other values, and types by the cells. A
//! wrong guess costs a worse summary, and never an error.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sample::Text;
use super::{Count, Structure, text};

/// The maximum number of columns in a profile.
const MAX_COLUMNS: usize = 100;
/// The number of rows from which column types are guessed.
const MAX_INSPECTED_ROWS: usize = 1_000;
/// The possible delimiters between two cells; the first one breaks a tie.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];

/// A column of a table.
///
/// ```
/// use levity_builtin_tools::profile::{FileProfile, Structure};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("people.csv");
/// std::fs::write(&path, "name,born\nAda,1815-12-10\nAlan,\n")?;
/// let Some(Structure::Table { columns, .. }) = FileProfile::read(&path).structure else {
///     unreachable!("the file is a table");
/// };
/// assert_eq!(columns[1].to_string(), "born (date, with gaps)");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Column {
    /// The name of the column, or its number from 1 if there is no header.
    pub name: String,
    /// The type of its cells, as far as they were inspected.
    #[serde(rename = "type")]
    pub kind: ColumnType,
    /// Set if some cells are empty.
    #[serde(rename = "gaps")]
    pub has_empty: bool,
}

/// The type of the cells in a column.
///
/// The type is the narrowest one that all inspected cells share: integers and decimals together are
/// numbers, and any other mixture is text. The first 1,000 rows are inspected.
///
/// ```
/// use levity_builtin_tools::profile::ColumnType;
///
/// assert_eq!(serde_json::to_string(&ColumnType::Integer)?, r#""integer""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ColumnType {
    /// All cells are empty.
    #[default]
    Empty,
    /// Whole numbers only, without decimals.
    Integer,
    /// Whole numbers or decimals.
    Number,
    /// Truth values such as yes and no.
    Boolean,
    /// Dates, with or without a time.
    Date,
    /// Text of any kind.
    Text,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ColumnType::Empty => "empty",
            ColumnType::Integer => "integer",
            ColumnType::Number => "number",
            ColumnType::Boolean => "boolean",
            ColumnType::Date => "date",
            ColumnType::Text => "text",
        };
        write!(
            f,
            "{} ({kind}{})",
            self.name,
            if self.has_empty { ", with gaps" } else { "" }
        )
    }
}

/// Parses a text as a table because its file extension requires it.
pub(super) fn table(from: &Text, delimiter: char) -> Structure {
    let records: Vec<_> = records(from.whole_lines(), delimiter)
        .take(MAX_INSPECTED_ROWS + 1)
        .collect();
    let header = has_header(&records);
    let width = records.iter().map(Vec::len).max().unwrap_or_default();
    let cells = if header { &records[1..] } else { &records };
    let column = |at: usize| {
        let name = records
            .first()
            .filter(|_| header)
            .and_then(|names| names.get(at));
        let name = name.map_or_else(|| (at + 1).to_string(), |name| text::cut(name, 80));
        let (kind, gaps) = guess(
            cells
                .iter()
                .map(|row| row.get(at).map_or("", String::as_str)),
        );
        Column {
            name,
            kind,
            has_empty: gaps,
        }
    };
    let columns: Vec<_> = (0..width.min(MAX_COLUMNS)).map(column).collect();
    let more = (width - columns.len()) as u64;
    Structure::Table {
        delimiter,
        header,
        columns,
        more_columns: more,
        rows: rows(from, delimiter, header),
    }
}

/// Returns the delimiter of a text that looks like a table: at least two rows, all with the same
/// number of cells.
pub(super) fn delimiter(from: &Text) -> Option<char> {
    let even = |delimiter: &char| {
        let widths: Vec<_> = records(from.whole_lines(), *delimiter)
            .take(20)
            .map(|row| row.len())
            .collect();
        let width = widths
            .first()
            .copied()
            .filter(|width| *width > 1 && widths.len() > 1)?;
        widths
            .iter()
            .all(|other| *other == width)
            .then_some((width, *delimiter))
    };
    DELIMITERS
        .iter()
        .filter_map(even)
        .max_by_key(|(width, _)| *width)
        .map(|(_, delimiter)| delimiter)
}

/// Returns the delimiter that occurs most often in the first row.
pub(super) fn most_used(from: &Text) -> Option<char> {
    let line = from.head.lines().next()?;
    let delimiter = DELIMITERS
        .into_iter()
        .rev()
        .max_by_key(|delimiter| line.matches(*delimiter).count())?;
    line.contains(delimiter).then_some(delimiter)
}

/// Counts the rows of the part that was read, and extrapolates by the number of lines if that is
/// not all.
fn rows(from: &Text, delimiter: char, header: bool) -> Count {
    let seen = records(from.whole_lines(), delimiter).count() as u64;
    let names = u64::from(header);
    if from.whole {
        return Count::exact(seen.saturating_sub(names));
    }
    // A row may span several lines, and empty lines may lie between rows.
    let lines = from.whole_lines().lines().count().max(1) as u64;
    let rows = Count::scaled(from.lines().number, seen, lines);
    Count::estimated(rows.number.saturating_sub(names))
}

/// Iterates over the non-empty rows of a text. A quoted cell may contain delimiters and line
/// breaks; quotes in it are doubled.
fn records(text: &str, delimiter: char) -> impl Iterator<Item = Vec<String>> + '_ {
    let mut chars = text.chars().peekable();
    std::iter::from_fn(move || {
        loop {
            let row = record(&mut chars, delimiter)?;
            if row.len() > 1 || row.first().is_some_and(|cell| !cell.trim().is_empty()) {
                return Some(row);
            }
        }
    })
}

/// The maximum number of bytes stored per cell.
const MAX_CELL_BYTES: usize = 256;
/// The maximum number of cells stored per row.
const MAX_CELLS: usize = 10_000;

/// Reads one row. Cells beyond 10,000 and bytes of a cell beyond 256 are read and dropped, so a
/// single endless line needs little memory.
fn record(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    delimiter: char,
) -> Option<Vec<String>> {
    chars.peek()?;
    let (mut row, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
            '"' if quoted => quoted = false,
            '"' if cell.is_empty() => quoted = true,
            '\n' if !quoted => break,
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            _ if char == delimiter && !quoted => {
                if row.len() < MAX_CELLS {
                    row.push(std::mem::take(&mut cell));
                }
                cell.clear();
            }
            _ if cell.len() < MAX_CELL_BYTES => cell.push(char),
            _ => {}
        }
    }
    row.push(cell);
    Some(row)
}

/// Returns `true` if the first row contains names: each is unique and not a number, and the next
/// row differs in that.
fn has_header(records: &[Vec<String>]) -> bool {
    let [names, rest @ ..] = records else {
        return false;
    };
    let word = |cell: &String| guess_one(cell.trim()) == ColumnType::Text;
    let mut sorted: Vec<_> = names.iter().map(|name| name.trim()).collect();
    sorted.sort_unstable();
    sorted.dedup();
    if !names.iter().all(word) || sorted.len() != names.len() {
        return false;
    }
    // A one-column list of words has no detectable header.
    names.len() > 1 || rest.is_empty() || rest.iter().flatten().any(|cell| !word(cell))
}

/// Returns the common type of the cells, and whether some of them are empty.
fn guess<'a>(cells: impl Iterator<Item = &'a str>) -> (ColumnType, bool) {
    let (mut kind, mut gaps) = (ColumnType::Empty, false);
    for cell in cells {
        kind = match (kind, guess_one(cell.trim())) {
            (kind, ColumnType::Empty) => {
                gaps = true;
                kind
            }
            (ColumnType::Empty, found) => found,
            (kind, found) if kind == found => kind,
            (
                ColumnType::Integer | ColumnType::Number,
                ColumnType::Integer | ColumnType::Number,
            ) => ColumnType::Number,
            _ => ColumnType::Text,
        };
    }
    (kind, gaps && kind != ColumnType::Empty)
}

/// A number must contain a digit, as `inf` and `nan` parse as numbers. A date is a short text that
/// begins with one.
fn guess_one(cell: &str) -> ColumnType {
    let number = |cell: &str| {
        cell.parse::<f64>().is_ok() && cell.contains(|char: char| char.is_ascii_digit())
    };
    match cell {
        "" => ColumnType::Empty,
        "true" | "false" | "True" | "False" | "TRUE" | "FALSE" => ColumnType::Boolean,
        _ if cell.parse::<i64>().is_ok() => ColumnType::Integer,
        _ if number(cell) => ColumnType::Number,
        _ if text::begins_with_date(cell) && cell.len() <= 35 => ColumnType::Date,
        _ => ColumnType::Text,
    }
}
