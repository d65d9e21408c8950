//! Profiles of files: kind, size, first lines and structure, without reading the whole file.
//!
//! [`FileProfile::read`] profiles one file, [`profile_files`] several. Both block: on an async
//! thread, use `spawn_blocking`.
//!
//! ```
//! use levity_builtin_tools::profile::profile_files;
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("tides.csv");
//! std::fs::write(&path, "port,height\nDover,6.7\nBrest,6.9\n")?;
//! let prompt = profile_files([&path]).as_text(500);
//! assert!(prompt.contains("CSV, 32 B, 2 rows, 2 columns"));
//! assert!(prompt.contains("port (text), height (number)"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A profile answers the first questions about a file without loading it into a prompt. It is made
//! of these parts: `sample` reads at most 1 MiB, `kind` detects the format, and `table`, `json`,
//! `outline`, `image` and `text` describe the structure. Nothing is executed or decompressed.
//! Profiles serialize, so they can be stored with a session.

mod image;
mod json;
mod kind;
mod manifest;
mod outline;
mod sample;
mod table;
mod text;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use json::{JsonType, Shape};
pub use kind::FileKind;
pub use manifest::{FileManifest, profile_files};
pub use table::{Column, ColumnType};

use kind::DetectedKind;
use sample::{Sample, Text};

/// A profile of a file: its kind, size, first lines and structure.
///
/// Profiling reads at most [`MAX_READ`](Self::MAX_READ) bytes, whatever the file size. Treat the
/// text in a profile as data, not as instructions: the author of the file wrote it.
///
/// ```
/// use levity_builtin_tools::profile::{FileKind, FileProfile};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tides.csv");
/// std::fs::write(&path, "port,height\nDover,6.7\nBrest,6.9\n")?;
/// let profile = FileProfile::read(&path);
/// assert_eq!(profile.kind, FileKind::Csv);
/// assert_eq!(profile.summary(), "CSV, 32 B, 2 rows, 2 columns");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FileProfile {
    /// The path of the file, as passed by the caller.
    pub path: String,
    /// The last component of the path.
    pub name: String,
    /// The size of the file in bytes.
    pub size: u64,
    /// The kind of file, detected from the content first and the name second.
    pub kind: FileKind,
    /// The exact format: the language of source code, or the format of an image or archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The encoding of the text; `None` if the file is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// The first lines, cut to [`HEAD_LINES`](Self::HEAD_LINES) lines and
    /// [`HEAD_BYTES`](Self::HEAD_BYTES) bytes. Characters that control a terminal or reverse the
    /// text direction are replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub head: Vec<String>,
    /// The structure of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structure: Option<Structure>,
    /// Set if only parts of the file were read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sampled: bool,
    /// The reason why the profile is incomplete, or a problem in the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The encoding of the text in a file.
///
/// ```
/// use levity_builtin_tools::profile::{Encoding, FileProfile};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("note.txt");
/// std::fs::write(&path, b"\xff\xfeh\0i\0")?;
/// let profile = FileProfile::read(&path);
/// assert_eq!(profile.encoding, Some(Encoding::Utf16Le));
/// assert_eq!(profile.head, ["hi"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Encoding {
    /// UTF-8 without a byte order mark.
    Utf8,
    /// UTF-8 with a byte order mark.
    Utf8Bom,
    /// UTF-16 with the low byte first.
    Utf16Le,
    /// UTF-16 with the high byte first.
    Utf16Be,
    /// Another encoding; bytes that are not UTF-8 are shown as `\u{fffd}`.
    Other,
}

/// A number that is exact, or estimated from a sample.
///
/// ```
/// use levity_builtin_tools::profile::{FileProfile, Structure};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("note.txt");
/// std::fs::write(&path, "one\ntwo\n")?;
/// let Some(Structure::Lines { lines, .. }) = FileProfile::read(&path).structure else {
///     unreachable!("the file is plain text");
/// };
/// assert_eq!((lines.number, lines.exact), (2, true));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Count {
    /// The counted or estimated number.
    pub number: u64,
    /// Set if the number is exact; otherwise it is an estimate.
    pub exact: bool,
}

/// The structure of a file's content.
///
/// ```
/// use levity_builtin_tools::profile::{ColumnType, FileProfile, Structure};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("tides.csv");
/// std::fs::write(&path, "port,height\nDover,6.7\nBrest,6.9\n")?;
/// match FileProfile::read(&path).structure {
///     Some(Structure::Table { delimiter, header, columns, rows, .. }) => {
///         assert_eq!((delimiter, header, rows.number), (',', true, 2));
///         assert_eq!(columns[1].kind, ColumnType::Number);
///     }
///     other => unreachable!("{other:?}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Structure {
    /// A table of rows and columns.
    Table {
        /// The character between two cells.
        delimiter: char,
        /// Set if the first row contains the names of the columns.
        header: bool,
        /// The columns, at most 100.
        columns: Vec<Column>,
        /// The number of further columns.
        #[serde(rename = "more")]
        more_columns: u64,
        /// The number of rows, without the header.
        rows: Count,
    },
    /// A single JSON value.
    Json {
        /// The shape of the value.
        shape: Shape,
        /// The number of elements, if the value is a list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        elements: Option<Count>,
    },
    /// One JSON value on each line.
    JsonLines {
        /// The shape of the values.
        shape: Shape,
        /// The number of values.
        records: Count,
    },
    /// Headings, top-level items or keys, from the part that was read.
    Outline {
        /// The first items, at most 100.
        items: Vec<String>,
        /// The number of further items in the part that was read.
        #[serde(rename = "more")]
        more_items: u64,
        /// The number of lines in the file.
        lines: Count,
    },
    /// Plain lines of text.
    Lines {
        /// The number of lines in the file.
        lines: Count,
        /// The last lines of the file.
        tail: Vec<String>,
    },
    /// The dimensions of an image.
    Image {
        /// The width in pixels.
        width: u32,
        /// The height in pixels.
        height: u32,
    },
}

impl FileProfile {
    /// The maximum number of bytes that are read of a file: 1 MiB. A larger file is sampled at its
    /// beginning, its end and some places between.
    pub const MAX_READ: u64 = sample::MAX_READ;
    /// The maximum number of lines in `head`.
    pub const HEAD_LINES: usize = 20;
    /// The maximum size of `head` in bytes.
    pub const HEAD_BYTES: usize = 4 << 10;

    /// Profiles a file. This reads from the disk, so do not call it on an async thread.
    ///
    /// It never fails. If the path does not exist, is a folder or device, or cannot be read, the
    /// profile's `error` states the reason. It follows a symbolic link to a regular file, and does
    /// not wait for a FIFO.
    ///
    /// ```
    /// use levity_builtin_tools::profile::{FileKind, FileProfile};
    ///
    /// let profile = FileProfile::read("/no/such/file.csv");
    /// assert_eq!(profile.kind, FileKind::Unknown);
    /// assert_eq!(profile.error.as_deref(), Some("`/no/such/file.csv` does not exist"));
    /// ```
    pub fn read(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut profile = Self {
            path: path.to_string_lossy().into_owned(),
            name,
            ..Self::default()
        };
        match Sample::of(path) {
            Ok(sample) => profile.inspect(&sample),
            Err(problem) => profile.error = Some(problem),
        }
        profile
    }

    /// Signatures of binary formats are tried first, then text; anything else is binary data.
    fn inspect(&mut self, sample: &Sample) {
        self.size = sample.size;
        self.sampled = !sample.whole;
        let extension = Path::new(&self.name)
            .extension()
            .and_then(|end| end.to_str())
            .unwrap_or_default();
        let extension = extension.to_ascii_lowercase();
        let DetectedKind { kind, format } = match kind::by_bytes(sample.head(), &extension) {
            Some(found) => found,
            None => match Text::of(sample) {
                Some(text) => return self.inspect_text(&text, &extension),
                None => DetectedKind::new(FileKind::Binary, None),
            },
        };
        (self.kind, self.format) = (kind, format.map(str::to_owned));
        if kind == FileKind::Image {
            self.structure = image::size(sample.head())
                .map(|(width, height)| Structure::Image { width, height });
        }
    }

    /// Fills in the head before the structure: even a file whose format is broken shows its first
    /// lines.
    fn inspect_text(&mut self, text: &Text, extension: &str) {
        self.encoding = Some(text.encoding);
        self.head = text::first_lines(&text.head, Self::HEAD_LINES, Self::HEAD_BYTES);
        let read = text::read(text, &self.name, extension);
        (self.kind, self.format) = (read.found.kind, read.found.format.map(str::to_owned));
        (self.structure, self.error) = (read.structure, read.problem);
    }

    /// Returns a summary of the file on one line.
    ///
    /// The parts are the kind with its format, the size, an unusual encoding, the amount of
    /// content, a note about sampling, and a problem. Characters that control a terminal are
    /// replaced.
    ///
    /// ```
    /// use levity_builtin_tools::profile::FileProfile;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("main.rs");
    /// std::fs::write(&path, "fn main() {}\n")?;
    /// assert_eq!(FileProfile::read(&path).summary(), "source code (rust), 13 B, 1 line");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        if self.kind != FileKind::Unknown {
            let format = self
                .format
                .as_ref()
                .map(|format| format!(" ({format})"))
                .unwrap_or_default();
            parts.push(format!("{}{format}", self.kind.name()));
            parts.push(sample::bytes(self.size));
        }
        if let Some(encoding) = self.encoding.filter(|encoding| *encoding != Encoding::Utf8) {
            parts.push(encoding.name().to_owned());
        }
        parts.extend(self.structure.as_ref().and_then(Structure::size));
        if self.sampled {
            parts.push("sampled".to_owned());
        }
        parts.extend(self.error.as_deref().map(text::sanitized));
        parts.join(", ")
    }
}

impl Encoding {
    fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with a byte order mark",
            Self::Utf16Le | Self::Utf16Be => "UTF-16",
            Self::Other => "not UTF-8",
        }
    }
}

impl Count {
    fn exact(number: u64) -> Self {
        Self {
            number,
            exact: true,
        }
    }

    fn estimated(number: u64) -> Self {
        Self {
            number,
            exact: false,
        }
    }

    /// Extrapolates a number seen in `seen` bytes to `all` bytes.
    fn scaled(number: u64, all: u64, seen: u64) -> Self {
        let all = u128::from(number) * u128::from(all) / u128::from(seen.max(1));
        Self::estimated(u64::try_from(all).unwrap_or(u64::MAX))
    }

    /// Formats the count with its noun: `1 row`, `about 200 rows`.
    fn of(self, one: &str) -> String {
        let estimated = if self.exact { "" } else { "about " };
        let many = if self.number == 1 { "" } else { "s" };
        format!("{estimated}{} {one}{many}", self.number)
    }
}

impl Structure {
    /// Returns the amount of content in words.
    fn size(&self) -> Option<String> {
        Some(match self {
            Self::Table {
                columns,
                more_columns: more,
                rows,
                ..
            } => {
                let columns = Count::exact(columns.len() as u64 + more);
                format!("{}, {}", rows.of("row"), columns.of("column"))
            }
            Self::Json { elements, .. } => return elements.map(|count| count.of("element")),
            Self::JsonLines { records, .. } => records.of("record"),
            Self::Outline { lines, .. } | Self::Lines { lines, .. } => lines.of("line"),
            Self::Image { width, height } => format!("{width} x {height}"),
        })
    }

    /// Describes the structure in a few lines; `None` if there is nothing to add.
    fn describe(&self) -> Option<String> {
        Some(match self {
            Self::Table {
                delimiter,
                header,
                columns,
                more_columns: more,
                ..
            } => {
                let names: Vec<_> = columns.iter().map(ToString::to_string).collect();
                let more = if *more > 0 {
                    format!(", and {more} more")
                } else {
                    String::new()
                };
                let header = if *header { "" } else { " (without a header)" };
                format!(
                    "columns by {delimiter:?}{header}: {}{more}",
                    names.join(", ")
                )
            }
            Self::Json { shape, .. } => shape.to_string(),
            Self::JsonLines { shape, .. } => format!("each line: {shape}"),
            Self::Outline {
                items,
                more_items: more,
                ..
            } if !items.is_empty() => {
                let more = if *more > 0 {
                    format!("\nand {more} more")
                } else {
                    String::new()
                };
                format!("outline:\n{}{more}", items.join("\n"))
            }
            Self::Lines { tail, .. } if !tail.is_empty() => {
                format!("ends with:\n{}", tail.join("\n"))
            }
            _ => return None,
        })
    }
}
