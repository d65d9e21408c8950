//! The texts of a file.

use levity_core::text::head;
use serde::{Deserialize, Serialize};

use crate::FormatError;

/// The maximum size of a name, in bytes.
const MAX_NAME: usize = 900;

/// The texts of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileTexts {
    /// The texts; usually one, and several for archives, e-mails and workbooks.
    pub texts: Vec<Text>,
    /// The parts of the file that could not be read.
    pub left_out: Vec<LeftOut>,
}

impl FileTexts {
    /// Adds a text, unless it is blank.
    pub(crate) fn add(&mut self, text: Text) -> Result<(), FormatError> {
        if text.text.trim().is_empty() {
            return Err(FormatError::no_text());
        }
        self.texts.push(text);
        Ok(())
    }

    /// Records a part that could not be read.
    pub(crate) fn leave_out(&mut self, name: &str, error: FormatError) {
        self.left_out.push(LeftOut {
            name: name.to_owned(),
            error,
        });
    }
}

/// A text of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Text {
    /// The name of the file, or a name below it, such as `box.zip/tides.md`.
    pub name: String,
    /// The text, with `\n` at the end of lines.
    pub text: String,
    /// The positions in the text where pages, slides or chapters start; empty if there are none.
    pub pages: Vec<usize>,
    /// The structure of the text.
    pub layout: TextLayout,
}

impl Text {
    pub(crate) fn new(name: &str, text: impl Into<String>, layout: TextLayout) -> Self {
        Self {
            name: name.to_owned(),
            text: text.into(),
            pages: Vec::new(),
            layout,
        }
    }

    /// Creates a text of pages.
    pub(crate) fn of_pages(name: &str, pages: Vec<String>, layout: TextLayout) -> Self {
        let mut text = Self::new(name, String::new(), layout);
        for page in pages {
            text.pages.push(text.text.len());
            text.text.push_str(page.trim_end());
            text.text.push('\n');
        }
        text
    }
}

/// The structure of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TextLayout {
    /// The text is that of the file, so the ending of its name decides.
    ByName,
    /// Paragraphs without any other structure.
    Prose,
    /// Markdown with headings and tables.
    Markdown,
    /// Rows with tabs between cells. Line N is row N of a sheet.
    Table,
}

/// A part of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// The name below that of the file.
    pub name: String,
    /// The reason why it could not be read.
    pub error: FormatError,
}

/// Returns the name of a part within a file. Names in files are untrusted: the result is relative,
/// on one line, and contains neither `..` nor invisible characters.
pub(crate) fn name_within(file: &str, part: &str) -> Option<String> {
    let part = levity_html::visible(part).replace('\\', "/");
    let parts: Vec<&str> = part
        .split('/')
        .map(str::trim)
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.is_empty() || parts.contains(&"..") || part.contains(['\n', '\r', '\t']) {
        return None;
    }
    let name = format!("{file}/{}", parts.join("/"));
    (head(&name, MAX_NAME).len() == name.len()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_within_files_are_relative() {
        let check = |part: &str, expected: Option<&str>| {
            assert_eq!(name_within("box.zip", part).as_deref(), expected, "{part}");
        };
        check("a/b.md", Some("box.zip/a/b.md"));
        check("/etc/passwd", Some("box.zip/etc/passwd"));
        check("a\\b.md", Some("box.zip/a/b.md"));
        check("./a//b.md", Some("box.zip/a/b.md"));
        check("../a.md", None);
        check("a/../../b", None);
        check("a\nb", None);
        check("a\u{202e}b", Some("box.zip/ab"));
        check("", None);
        check(&"x".repeat(2_000), None);
    }
}
