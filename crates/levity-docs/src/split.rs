//! Splits text into chunks that keep their place: lines, headings and definitions.
//!
//! A chunk is a range of the text, unchanged, so a citation of it can be checked. Chunks do not
//! overlap, and together they contain every line that is not blank. The splitter prefers to start a
//! chunk at a heading or a definition, then after a blank line, then at a line, and only cuts lines
//! that are longer than a chunk.

use std::ops::Range;

use levity_core::text::head;
use serde::{Deserialize, Serialize};

/// The kind of a text, which decides where chunks begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TextKind {
    /// Paragraphs, without any other structure.
    #[default]
    Prose,
    /// Markdown, whose headings start sections.
    Markdown,
    /// The source code of a program.
    Code,
    /// Rows below a line with the names of the columns.
    Table,
    /// Lines that are each complete, such as JSONL or a log.
    Lines,
}

impl TextKind {
    /// Returns the kind of a file by the ending of its name; prose by default.
    ///
    /// ```
    /// use levity_docs::TextKind;
    ///
    /// assert_eq!(TextKind::of_file("src/main.rs"), TextKind::Code);
    /// assert_eq!(TextKind::of_file("README"), TextKind::Prose);
    /// ```
    pub fn of_file(name: &str) -> Self {
        let ending = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let ending = ending.rsplit_once('.').map_or("", |(_, ending)| ending);
        match ending.to_ascii_lowercase().as_str() {
            "md" | "markdown" | "mdx" | "qmd" => Self::Markdown,
            "csv" | "tsv" => Self::Table,
            "jsonl" | "ndjson" | "log" => Self::Lines,
            ending if CODE_ENDINGS.binary_search(&ending).is_ok() => Self::Code,
            _ => Self::Prose,
        }
    }

    /// Returns the name, such as `markdown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prose => "prose",
            Self::Markdown => "markdown",
            Self::Code => "code",
            Self::Table => "table",
            Self::Lines => "lines",
        }
    }

    /// Returns the kind with this name; prose if there is none.
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "markdown" => Self::Markdown,
            "code" => Self::Code,
            "table" => Self::Table,
            "lines" => Self::Lines,
            _ => Self::Prose,
        }
    }
}

/// The endings of files with source code.
const CODE_ENDINGS: [&str; 52] = [
    "asm", "bash", "c", "cc", "clj", "cpp", "cs", "css", "cxx", "d", "dart", "el", "erl", "ex",
    "exs", "f90", "fs", "go", "gradle", "groovy", "h", "hpp", "hs", "java", "jl", "js", "jsx",
    "kt", "lisp", "lua", "m", "ml", "mm", "nim", "pas", "php", "pl", "proto", "ps1", "py", "r",
    "rb", "rs", "scala", "sh", "sol", "sql", "swift", "toml", "ts", "tsx", "zig",
];

/// The size from which a chunk ends at the next good place, in bytes.
const GOOD_BYTES: usize = 900;

/// The maximum size of a chunk, in bytes.
const MAX_BYTES: usize = 1_800;

/// The minimum size of a chunk that ends before a heading or a definition, in bytes. Smaller ones
/// are joined with what follows.
const MIN_BYTES: usize = 200;

/// The maximum size of the context of a chunk, in bytes.
const MAX_CONTEXT: usize = 300;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The bytes of the text.
    pub(crate) bytes: Range<usize>,
    /// The first and the last line, counted from 1.
    pub(crate) lines: (u32, u32),
    /// The headings above the chunk, the definition that it begins with, or the names of columns.
    pub(crate) context: String,
    /// The page, counted from 1, if the text has pages.
    pub(crate) page: Option<u32>,
}

/// Splits a text of this kind, and at the start of each page. `pages` are the positions where pages
/// start; a text without pages has none.
pub(crate) fn split(text: &str, kind: TextKind, pages: &[usize]) -> Vec<Chunk> {
    let mut splitter = Splitter {
        text,
        kind,
        pages,
        page: None,
        chunks: Vec::new(),
        headings: Vec::new(),
        columns: String::new(),
        in_fence: None,
        open: None,
        after_blank: false,
    };
    let mut start = 0;
    for (number, line) in (1_u32..).zip(text.split_inclusive('\n')) {
        splitter.add(number, start..start + line.len());
        start += line.len();
    }
    splitter.finish();
    splitter.chunks
}

struct Splitter<'a> {
    text: &'a str,
    kind: TextKind,
    /// The starts of pages that are not reached yet.
    pages: &'a [usize],
    page: Option<u32>,
    chunks: Vec<Chunk>,
    /// The headings that apply to the current line, with their levels.
    headings: Vec<(usize, &'a str)>,
    /// The first line of a table.
    columns: String,
    /// The marker of the current fenced code block in Markdown.
    in_fence: Option<&'a str>,
    open: Option<Chunk>,
    after_blank: bool,
}

impl<'a> Splitter<'a> {
    fn add(&mut self, number: u32, bytes: Range<usize>) {
        self.start_pages(bytes.start);
        let line = &self.text[bytes.clone()];
        if line.trim().is_empty() {
            self.after_blank = true;
            return;
        }
        let heading = self.heading(line);
        let size = self
            .open
            .as_ref()
            .map_or(0, |open| bytes.start - open.bytes.start);
        let starts_section = heading.is_some() || self.is_definition(line);
        let is_good = match self.kind {
            TextKind::Table | TextKind::Lines => size >= GOOD_BYTES,
            _ if starts_section => size >= MIN_BYTES,
            _ => size >= GOOD_BYTES && self.after_blank,
        };
        let is_full = self
            .open
            .as_ref()
            .is_some_and(|open| bytes.end - open.bytes.start > MAX_BYTES);
        if is_good || is_full {
            self.finish();
        }
        if let Some((level, title)) = heading {
            self.headings.retain(|(above, _)| *above < level);
            self.headings.push((level, head(title, MAX_CONTEXT)));
        }
        self.after_blank = false;
        if self.kind == TextKind::Table && number == 1 {
            head(line.trim(), MAX_CONTEXT).clone_into(&mut self.columns);
        }
        if bytes.len() > MAX_BYTES {
            self.finish();
            return self.add_long(number, bytes);
        }
        if self.open.is_none() {
            self.open = Some(Chunk {
                bytes: bytes.clone(),
                lines: (number, number),
                context: self.context(line),
                page: self.page,
            });
        }
        let Some(open) = &mut self.open else { return };
        open.bytes.end = bytes.end;
        open.lines.1 = number;
    }

    /// Ends the open chunk if a page starts at or before this position.
    fn start_pages(&mut self, position: usize) {
        while let Some((_, rest)) = self
            .pages
            .split_first()
            .filter(|(start, _)| **start <= position)
        {
            self.finish();
            self.page = Some(self.page.unwrap_or(0).saturating_add(1));
            self.pages = rest;
        }
    }

    /// Adds a line that is longer than a chunk, in parts that end at a sentence or a word.
    fn add_long(&mut self, number: u32, bytes: Range<usize>) {
        let (mut start, context) = (bytes.start, self.context(""));
        while start < bytes.end {
            let end = start + part_of_line(&self.text[start..bytes.end]);
            if !self.text[start..end].trim().is_empty() {
                self.chunks.push(Chunk {
                    bytes: trimmed(self.text, start..end),
                    lines: (number, number),
                    context: context.clone(),
                    page: self.page,
                });
            }
            start = end;
        }
    }

    /// Ends the open chunk.
    fn finish(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.bytes = trimmed(self.text, open.bytes);
            self.chunks.push(open);
        }
    }

    /// Returns the level and the title of a heading in Markdown. `#` in a code block is none.
    fn heading(&mut self, line: &'a str) -> Option<(usize, &'a str)> {
        if self.kind != TextKind::Markdown {
            return None;
        }
        let start = line.trim_start();
        match self.in_fence {
            Some(fence) if start.trim_end().trim_end_matches(&fence[..1]).is_empty() => {
                if start.starts_with(fence) {
                    self.in_fence = None;
                }
                return None;
            }
            Some(_) => return None,
            None => {}
        }
        for fence in ["```", "~~~"] {
            if start.starts_with(fence) {
                self.in_fence = Some(fence);
                return None;
            }
        }
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let title = line[level..].strip_prefix([' ', '\t'])?;
        (1..=6)
            .contains(&level)
            .then(|| (level, title.trim().trim_end_matches('#').trim_end()))
    }

    /// Returns `true` if a definition starts at this line of source code.
    fn is_definition(&self, line: &str) -> bool {
        self.kind == TextKind::Code && definition(line).is_some()
    }

    /// Returns the context of a chunk that begins with this line.
    fn context(&self, line: &str) -> String {
        match self.kind {
            TextKind::Table => self.columns.clone(),
            TextKind::Markdown => {
                let titles: Vec<_> = self.headings.iter().map(|(_, title)| *title).collect();
                head(&titles.join(" > "), MAX_CONTEXT).to_owned()
            }
            TextKind::Code => {
                let definition = definition(line).unwrap_or_default();
                head(definition, MAX_CONTEXT).to_owned()
            }
            TextKind::Prose | TextKind::Lines => String::new(),
        }
    }
}

/// Words with which a definition begins, in many languages.
const DEFINITION_WORDS: [&str; 32] = [
    "abstract",
    "async",
    "class",
    "const",
    "data",
    "def",
    "defmodule",
    "enum",
    "export",
    "final",
    "fn",
    "fun",
    "func",
    "function",
    "impl",
    "interface",
    "macro_rules!",
    "mod",
    "module",
    "namespace",
    "object",
    "package",
    "private",
    "protected",
    "pub",
    "public",
    "static",
    "struct",
    "sub",
    "trait",
    "type",
    "union",
];

/// Returns the first line of a definition that is not indented, without its body.
fn definition(line: &str) -> Option<&str> {
    let word = line.split([' ', '\t', '(', '<', '\r', '\n']).next()?;
    let is_definition = DEFINITION_WORDS.binary_search(&word).is_ok();
    is_definition.then(|| line.trim_end().trim_end_matches(['{', ':', '(']).trim_end())
}

/// Returns the size of the first part of a long line: up to the end of a sentence if there is one
/// in the second half, else up to a blank, else up to the maximum.
fn part_of_line(line: &str) -> usize {
    if line.len() <= MAX_BYTES {
        return line.len();
    }
    let mut end = MAX_BYTES;
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    let part = &line[..end];
    let second_half = |at: &usize| *at >= MAX_BYTES / 2;
    let sentence = [". ", "! ", "? ", "。", "; "]
        .iter()
        .filter_map(|mark| part.rfind(mark).map(|at| at + mark.len()));
    let blank = part
        .rfind(char::is_whitespace)
        .map(|at| at + 1)
        .filter(second_half);
    sentence
        .max()
        .filter(second_half)
        .or(blank.filter(|at| line.is_char_boundary(*at)))
        .unwrap_or(end)
}

/// Removes blank lines at the end, and keeps the indentation of the first line.
fn trimmed(text: &str, bytes: Range<usize>) -> Range<usize> {
    bytes.start..bytes.start + text[bytes.clone()].trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(text: &'a str, chunks: &[Chunk]) -> Vec<&'a str> {
        chunks
            .iter()
            .map(|chunk| &text[chunk.bytes.clone()])
            .collect()
    }

    /// Checks what holds for the chunks of every text.
    #[track_caller]
    fn check(text: &str, kind: TextKind) -> Vec<Chunk> {
        let chunks = split(text, kind, &[]);
        let mut end = 0;
        for chunk in &chunks {
            assert!(chunk.bytes.start >= end, "chunks overlap: {chunk:?}");
            assert!(
                text[end..chunk.bytes.start].trim().is_empty(),
                "text is lost before {chunk:?}"
            );
            assert!(chunk.bytes.len() <= MAX_BYTES && chunk.context.len() <= MAX_CONTEXT);
            let line = |at: usize| text[..at].matches('\n').count() + 1;
            let lines = (line(chunk.bytes.start), line(chunk.bytes.end));
            assert_eq!(
                (chunk.lines.0 as usize, chunk.lines.1 as usize),
                lines,
                "{chunk:?}"
            );
            end = chunk.bytes.end;
        }
        assert!(text[end..].trim().is_empty(), "text is lost at the end");
        chunks
    }

    #[test]
    fn words_are_sorted() {
        assert!(DEFINITION_WORDS.is_sorted());
        assert!(CODE_ENDINGS.is_sorted());
    }

    #[test]
    fn chunks_end_with_their_page() {
        let text = "one\n\ntwo\n\nthree\n";
        let chunks = split(text, TextKind::Prose, &[0, 5, 10]);
        let pages: Vec<_> = chunks.iter().map(|chunk| chunk.page).collect();
        assert_eq!(pages, [Some(1), Some(2), Some(3)]);
        assert_eq!(texts(text, &chunks), ["one", "two", "three"]);
    }

    #[test]
    fn markdown_starts_chunks_at_headings_and_keeps_them() {
        let words = "Some words about tides. ".repeat(20);
        let text = format!(
            "# Tides\n\n{words}\n\n## High\n\n{words}\n\n```\n# no heading\n```\n\n\
                ## Low ##\n{words}\n"
        );
        let chunks = check(&text, TextKind::Markdown);
        let contexts: Vec<_> = chunks.iter().map(|chunk| &*chunk.context).collect();
        assert_eq!(contexts, ["Tides", "Tides > High", "Tides > Low"]);
        assert!(texts(&text, &chunks)[1].starts_with("## High"));
    }

    #[test]
    fn small_sections_are_joined() {
        let text = "# A\none\n# B\ntwo\n";
        assert_eq!(
            texts(text, &check(text, TextKind::Markdown)),
            ["# A\none\n# B\ntwo"]
        );
    }

    #[test]
    fn code_starts_chunks_at_definitions() {
        let body = "    let x = compute(1, 2, 3);\n".repeat(12);
        let text = format!("pub fn first(a: u8) {{\n{body}}}\n\nfn second() {{\n{body}}}\n");
        let chunks = check(&text, TextKind::Code);
        let contexts: Vec<_> = chunks.iter().map(|chunk| &*chunk.context).collect();
        assert_eq!(contexts, ["pub fn first(a: u8)", "fn second()"]);
    }

    #[test]
    fn table_keeps_names_of_columns() {
        let rows: String = (0..200).map(|n| format!("{n},harbour {n}\n")).collect();
        let text = format!("id,name\n{rows}");
        let chunks = check(&text, TextKind::Table);
        assert!(chunks.len() > 2 && chunks.iter().all(|chunk| chunk.context == "id,name"));
    }

    #[test]
    fn long_lines_are_cut_at_sentences_words_and_characters() {
        let sentences = "The water is high at six. ".repeat(300);
        let chunks = check(&sentences, TextKind::Prose);
        assert!(
            texts(&sentences, &chunks)
                .iter()
                .all(|text| text.ends_with('.'))
        );
        check(&"word ".repeat(3_000), TextKind::Prose);
        check(&"水".repeat(5_000), TextKind::Prose);
        check(&"\u{3000}水".repeat(2_000), TextKind::Prose);
        check(&"x".repeat(100_000), TextKind::Code);
    }

    #[test]
    fn long_names_of_columns_and_titles_are_cut_once() {
        let long = "x".repeat(1 << 20);
        let rows = "1,2\n".repeat(100_000);
        let (table, markdown) = (format!("{long}\n{rows}"), format!("# {long}\n{rows}"));
        for (text, kind) in [(table, TextKind::Table), (markdown, TextKind::Markdown)] {
            let chunks = split(&text, kind, &[]);
            assert!(chunks.len() > 100);
            let contexts: usize = chunks.iter().map(|chunk| chunk.context.capacity()).sum();
            assert!(contexts <= chunks.len() * MAX_CONTEXT, "{contexts} bytes");
        }
    }

    #[test]
    fn any_text_is_split_without_loss() {
        let mut state = 4_711_u64;
        let mut next = |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % limit
        };
        let pieces = [
            "\n",
            "\n\n",
            " ",
            "# a\n",
            "```\n",
            "~~~",
            "fn x() {\n",
            "},\r\n",
            "水。",
            "word ",
            "\t",
            "\u{2028}",
            "a. b? c! ",
            "é",
            "\u{feff}",
            "#",
            "id,name\n",
        ];
        for _ in 0..300 {
            let mut text = String::new();
            for _ in 0..next(200) {
                text += &pieces[next(pieces.len())].repeat(1 + next(60));
            }
            for kind in [
                TextKind::Prose,
                TextKind::Markdown,
                TextKind::Code,
                TextKind::Table,
                TextKind::Lines,
            ] {
                check(&text, kind);
            }
        }
    }
}
