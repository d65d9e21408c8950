//! The files of the workspace, as text.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the workspace.
pub(crate) struct Source {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    /// Returns the name of the crate that the file is a part of.
    pub(crate) fn package(&self) -> &str {
        self.path
            .strip_prefix("crates/")
            .and_then(|rest| rest.split('/').next())
            .unwrap_or("")
    }

    /// Returns `true` if the file is a part of a library or program, and not of its tests.
    pub(crate) fn is_product(&self) -> bool {
        let in_src = self.path.starts_with("crates/") && self.path.contains("/src/");
        in_src && !self.path.contains("/tests/") && !self.path.ends_with("/tests.rs")
    }

    /// Returns the lines before the unit tests at the end of the file.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = &str> {
        let tests = self.text.find("#[cfg(test)]\nmod tests {");
        self.text[..tests.unwrap_or(self.text.len())].lines()
    }
}

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all files below some folders whose names end with `suffix`, sorted by path.
pub(crate) fn sources(folders: &[&str], suffix: &str) -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for folder in folders {
        collect(&root, &root.join(folder), suffix, &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(root: &Path, folder: &Path, suffix: &str, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "data" && name != "fixtures" {
                collect(root, &path, suffix, found);
            }
        } else if name.ends_with(suffix) {
            let text = fs::read_to_string(&path).unwrap();
            let path = path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            found.push(Source { path, text });
        }
    }
}

/// A paragraph or line of documentation.
pub(crate) struct Text {
    pub(crate) place: String,
    pub(crate) text: String,
}

/// Returns the doc comments of a Rust file, one for each item, without code blocks.
pub(crate) fn doc_comments(source: &Source) -> Vec<Text> {
    let mut comments: Vec<Text> = Vec::new();
    let mut is_open = false;
    let mut in_code = false;
    for (at, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
            .filter(|rest| !rest.starts_with('/'));
        let Some(doc) = doc else {
            is_open = false;
            in_code = false;
            continue;
        };
        if !is_open {
            let place = format!("{}:{}", source.path, at + 1);
            comments.push(Text {
                place,
                text: String::new(),
            });
            is_open = true;
        }
        if doc.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let text = &mut comments.last_mut().unwrap().text;
            text.push_str(doc.trim());
            text.push('\n');
        }
    }
    comments
}

/// Returns the prose of a Markdown page, without code blocks and tables.
pub(crate) fn prose_of_page(source: &Source) -> Text {
    let mut text = String::new();
    let mut in_code = false;
    for line in source.text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !line.trim_start().starts_with('|') {
            text.push_str(line.trim());
            text.push('\n');
        }
    }
    Text {
        place: source.path.clone(),
        text,
    }
}

/// Returns the sentences of a text. Headings, list items and paragraphs begin new ones.
pub(crate) fn sentences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current = String::new();
    for line in text.lines() {
        let begins = line.is_empty()
            || line.starts_with(['#', '-', '*', '|'])
            || line
                .split_once(". ")
                .is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        if begins {
            push(&mut found, &mut current);
        }
        let mut rest = line.trim_start_matches(['#', '-', '*', '>', ' ']);
        while let Some(end) = rest.find(". ").or_else(|| rest.find("? ")) {
            current.push_str(&rest[..=end]);
            push(&mut found, &mut current);
            rest = &rest[end + 2..];
        }
        current.push_str(rest);
        current.push(' ');
    }
    push(&mut found, &mut current);
    found
}

fn push(found: &mut Vec<String>, current: &mut String) {
    let sentence = std::mem::take(current);
    if sentence.split_whitespace().count() > 1 {
        found.push(sentence.trim().to_owned());
    }
}
