//! The output of a search for the model.
//!
//! The format is that of `grep` with headings: the path once, then `12: text` for a match and `11-
//! text` for a line around it. `--` marks omitted lines. The last line says whether the result is
//! complete.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use levity_core::ToolOutput;
use serde_json::{Value, json};

use super::display;
use super::hits::{FileHits, Line, overhead};
use super::search::MAX_TEXT;

/// The numbers of files and folders that a search visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) searched: u64,
    /// The files that could not be searched.
    pub(super) failed: u64,
    /// The folders that could not be read.
    pub(super) unread: u64,
}

/// Formats the first `max` matches as text and as a value.
pub(super) fn report(files: &BTreeMap<String, FileHits>, max: usize, counts: Counts) -> ToolOutput {
    let mut report = Report {
        max,
        ..Report::default()
    };
    let complete = files
        .iter()
        .all(|(path, hits)| report.file(path, &hits.lines));
    let mut text = report.text;
    let (matches, in_files) = (report.matches.len() as u64, report.files);
    text.push_str(&match (complete, matches) {
        (true, 0) => {
            let files = display::count(counts.searched, "file");
            format!("[no match in {files}; hidden, ignored and binary files are omitted]")
        }
        (true, _) => format!(
            "[{}, in {}]",
            count_matches(matches),
            display::count(in_files, "file")
        ),
        (false, _) => {
            format!(
                "[the first {}; there are more: narrow `pattern`, `path` or `glob`]",
                count_matches(matches)
            )
        }
    });
    for (count, what, done) in [
        (counts.failed, "file", "searched"),
        (counts.unread, "folder", "read"),
    ] {
        if count > 0 {
            let _ = write!(
                text,
                "\n[{} could not be {done}]",
                display::count(count, what)
            );
        }
    }
    let complete = complete && counts.unread == 0;
    let mut output = ToolOutput::text(text);
    output.value = Some(json!({"matches": report.matches, "complete": complete}));
    output
}

/// The plural of "match" is irregular, so `display::count` does not fit.
fn count_matches(matches: u64) -> String {
    if matches == 1 {
        "1 match".to_owned()
    } else {
        format!("{matches} matches")
    }
}

/// The text and the value that grow together, with the same limits.
#[derive(Default)]
struct Report {
    text: String,
    matches: Vec<Value>,
    files: u64,
    bytes: usize,
    max: usize,
}

impl Report {
    /// Adds a file; returns `false` if part of it exceeds the limits.
    fn file(&mut self, path: &str, lines: &[Line]) -> bool {
        for (at, line) in lines.iter().enumerate() {
            self.bytes += line.text.len() + overhead(path);
            if (line.matches && self.matches.len() == self.max) || self.bytes > MAX_TEXT {
                return false;
            }
            if at == 0 {
                self.files += 1;
                let _ = writeln!(self.text, "{}", display::path(path));
            }
            let gap = if line.gap { "--\n" } else { "" };
            let mark = if line.matches { ':' } else { '-' };
            let _ = writeln!(self.text, "{gap}{}{mark} {}", line.number, line.text);
            if line.matches {
                self.matches
                    .push(json!({"path": path, "line": line.number, "text": line.text}));
            }
        }
        self.text.push('\n');
        true
    }
}
