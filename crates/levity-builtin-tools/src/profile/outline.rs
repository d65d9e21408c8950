//! Simple extraction of headings, top-level items and keys.
//!
//! These are scans of lines and not parsers: an outline helps a model to decide what to read, and a
//! wrong item does little harm. At most 100 items of 120 bytes are kept; further ones are counted.

use super::kind::{DetectedKind, FileKind, language};
use super::sample::Text;
use super::{Structure, text};

/// The maximum number of items in an outline.
const MAX_ITEMS: usize = 100;

/// Returns the outline of a text of this kind.
pub(super) fn outline(from: &Text, found: DetectedKind, extension: &str) -> Structure {
    let mut outline = Items::default();
    let lines = from.whole_lines();
    match found.kind {
        FileKind::Markdown => markdown(lines, &mut outline),
        FileKind::Html => html(lines, &mut outline),
        FileKind::Xml => xml(lines, &mut outline),
        FileKind::Yaml => keys(lines, &mut outline),
        _ => {
            let begins = language(extension).map_or(&[][..], |language| language.items);
            let item = |line: &&str| begins.iter().any(|begin| line.starts_with(begin));
            lines
                .lines()
                .filter(item)
                .for_each(|line| outline.add(line));
        }
    }
    Structure::Outline {
        items: outline.items,
        more_items: outline.more,
        lines: from.lines(),
    }
}

#[derive(Default)]
struct Items {
    items: Vec<String>,
    more: u64,
}

impl Items {
    /// Removes an opening brace or colon at the end, which says nothing in an outline.
    fn add(&mut self, item: &str) {
        let item = item.trim_end().trim_end_matches(['{', ':']).trim_end();
        match self.items.len() < MAX_ITEMS {
            true => self.items.push(text::cut(item, 120)),
            false => self.more += 1,
        }
    }
}

/// Collects headings outside of code fences.
fn markdown(lines: &str, into: &mut Items) {
    let mut fenced = false;
    for line in lines.lines() {
        let begin = line.trim_start();
        if begin.starts_with("```") || begin.starts_with("~~~") {
            fenced = !fenced;
        }
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if !fenced && (1..=6).contains(&level) && line[level..].starts_with(' ') {
            into.add(line);
        }
    }
}

/// Collects the text in `<title>` and `<h1>` to `<h6>`.
fn html(page: &str, into: &mut Items) {
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let name: String = rest
            .chars()
            .take(6)
            .take_while(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        let level = match name.as_str() {
            "title" => 0,
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => usize::from(name.as_bytes()[1] - b'0'),
            _ => continue,
        };
        let Some(begin) = rest.find('>') else { return };
        rest = &rest[begin + 1..];
        let (words, end) = without_tags(rest, &name);
        rest = &rest[end..];
        if !words.is_empty() {
            into.add(&format!(
                "{}{words}",
                if level == 0 {
                    "title: ".into()
                } else {
                    "#".repeat(level) + " "
                }
            ));
        }
    }
}

/// Returns the text up to the end of the element with this name, and where it ends.
fn without_tags(rest: &str, name: &str) -> (String, usize) {
    let (mut words, mut tag, mut read) = (String::new(), false, 0);
    for (at, char) in rest.char_indices().take(2_000) {
        read = at;
        match char {
            '<' if rest[at + 1..].starts_with('/')
                && rest
                    .get(at + 2..at + 2 + name.len())
                    .is_some_and(|end| end.eq_ignore_ascii_case(name)) =>
            {
                break;
            }
            '<' => tag = true,
            '>' if tag => tag = false,
            _ if !tag => words.push(char),
            _ => {}
        }
    }
    (words.split_whitespace().collect::<Vec<_>>().join(" "), read)
}

/// Collects the root element with its attributes.
fn xml(page: &str, into: &mut Items) {
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if rest.starts_with(|char: char| char.is_alphabetic() || char == '_') {
            let end = rest.find('>').unwrap_or(rest.len());
            return into.add(&format!(
                "<{}>",
                rest[..end].split_whitespace().collect::<Vec<_>>().join(" ")
            ));
        }
    }
}

/// Collects YAML keys at the beginning of a line.
fn keys(lines: &str, into: &mut Items) {
    for line in lines.lines() {
        let key = line
            .split_once(':')
            .filter(|(_, rest)| rest.is_empty() || rest.starts_with([' ', '\t']));
        if let Some((key, _)) =
            key.filter(|(key, _)| !key.starts_with([' ', '#', '-', '\t']) && !key.is_empty())
        {
            into.add(key);
        }
    }
}
