//! Profiles of files: kind, size, first lines and structure, without reading the whole file.
//!
//! [`FileProfile::of`] looks at one file, [`profile_all`] at several. Both block: on an async
//! thread, use `spawn_blocking`.

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
pub use manifest::{Manifest, profile_all};
pub use table::{Column, ColumnType};

use kind::Found;
use sample::{Sample, Text};

/// What a file is: its kind, its size, how it begins and how it is built.
///
/// At most [`READ`](Self::READ) bytes of it are read, whatever its size. What it says comes from
/// whoever wrote it: it is data, not instructions.
///
/// ```
/// use levity_builtin_tools::profile::{FileKind, FileProfile};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tides.csv");
/// std::fs::write(&path, "port,height\nDover,6.7\nBrest,6.9\n")?;
/// let profile = FileProfile::of(&path);
/// assert_eq!(profile.kind, FileKind::Csv);
/// assert_eq!(profile.summary(), "CSV, 32 B, 2 rows, 2 columns");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FileProfile {
    /// Where it is, as it was given.
    pub path: String,
    /// The last part of the path.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
    /// What it is, by what is in it and then by its name.
    pub kind: FileKind,
    /// What exactly: the language of source code, the format of an image or an archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// How its text is written; none when it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Its first lines, cut to [`HEAD_LINES`](Self::HEAD_LINES) lines and
    /// [`HEAD_BYTES`](Self::HEAD_BYTES) bytes. What would move a terminal or turn text around is
    /// replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub head: Vec<String>,
    /// How it is built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structure: Option<Structure>,
    /// Whether only pieces of it were read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sampled: bool,
    /// Why nothing more is known of it, or what is odd about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How text is written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// UTF-8 with a mark before it.
    Utf8Bom,
    /// UTF-16, the low byte first.
    Utf16Le,
    /// UTF-16, the high byte first.
    Utf16Be,
    /// Something else; what is not UTF-8 is shown as `\u{fffd}`.
    Other,
}

/// A number that was counted, or estimated from pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Count {
    /// The number.
    pub number: u64,
    /// Whether it was counted; otherwise it is an estimate.
    pub exact: bool,
}

/// How a file is built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Structure {
    /// Rows and columns.
    Table {
        /// What stands between two cells.
        delimiter: char,
        /// Whether the first row has the names of the columns.
        header: bool,
        /// The columns, at most 100.
        columns: Vec<Column>,
        /// How many more there are.
        more: u64,
        /// How many rows there are, without the header.
        rows: Count,
    },
    /// One JSON value.
    Json {
        /// What it looks like.
        shape: Shape,
        /// How many elements it has, if it is a list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        elements: Option<Count>,
    },
    /// One JSON value on each line.
    JsonLines {
        /// What the values look like.
        shape: Shape,
        /// How many there are.
        records: Count,
    },
    /// Headings, top-level items or keys, from the part that was read.
    Outline {
        /// The first of them, at most 100.
        items: Vec<String>,
        /// How many more were seen.
        more: u64,
        /// How many lines the file has.
        lines: Count,
    },
    /// Lines of text.
    Lines {
        /// How many.
        lines: Count,
        /// The last of them.
        tail: Vec<String>,
    },
    /// A picture.
    Image {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
}

impl FileProfile {
    /// 1 MiB of a file is read at most; of a larger file its beginning, some pieces and its end.
    pub const READ: u64 = sample::MOST;
    /// 20 lines.
    pub const HEAD_LINES: usize = 20;
    /// 4 KiB.
    pub const HEAD_BYTES: usize = 4 << 10;

    /// Looks at a file. This reads from the disk, so it has no place on an async thread.
    ///
    /// It does not fail: when the path leads to nothing, to a folder or a device, or cannot be
    /// read, the profile says so in its `error`. A symbolic link is followed if it leads to a
    /// regular file. A FIFO is not waited for.
    pub fn of(path: impl AsRef<Path>) -> Self {
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
            Ok(sample) => profile.look(&sample),
            Err(problem) => profile.error = Some(problem),
        }
        profile
    }

    fn look(&mut self, sample: &Sample) {
        self.size = sample.size;
        self.sampled = !sample.whole;
        let extension = Path::new(&self.name)
            .extension()
            .and_then(|end| end.to_str())
            .unwrap_or_default();
        let extension = extension.to_ascii_lowercase();
        let Found { kind, format } = match kind::by_bytes(sample.head(), &extension) {
            Some(found) => found,
            None => match Text::of(sample) {
                Some(text) => return self.look_at_text(&text, &extension),
                None => Found::new(FileKind::Binary, None),
            },
        };
        (self.kind, self.format) = (kind, format.map(str::to_owned));
        if kind == FileKind::Image {
            self.structure = image::size(sample.head())
                .map(|(width, height)| Structure::Image { width, height });
        }
    }

    fn look_at_text(&mut self, text: &Text, extension: &str) {
        self.encoding = Some(text.encoding);
        self.head = text::first_lines(&text.head, Self::HEAD_LINES, Self::HEAD_BYTES);
        let read = text::read(text, &self.name, extension);
        (self.kind, self.format) = (read.found.kind, read.found.format.map(str::to_owned));
        (self.structure, self.error) = (read.structure, read.problem);
    }

    /// What it is, on one line.
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
        parts.extend(self.error.as_deref().map(text::harmless));
        parts.join(", ")
    }
}

impl Encoding {
    fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with a mark",
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

    fn about(number: u64) -> Self {
        Self {
            number,
            exact: false,
        }
    }

    /// What there is in `all` bytes if there is so much in `seen` of them.
    fn scaled(number: u64, all: u64, seen: u64) -> Self {
        let all = u128::from(number) * u128::from(all) / u128::from(seen.max(1));
        Self::about(u64::try_from(all).unwrap_or(u64::MAX))
    }

    fn of(self, one: &str) -> String {
        let about = if self.exact { "" } else { "about " };
        let many = if self.number == 1 { "" } else { "s" };
        format!("{about}{} {one}{many}", self.number)
    }
}

impl Structure {
    /// How much of it there is.
    fn size(&self) -> Option<String> {
        Some(match self {
            Self::Table {
                columns,
                more,
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

    /// How it is built, in a few lines; none when there is nothing to say.
    fn describe(&self) -> Option<String> {
        Some(match self {
            Self::Table {
                delimiter,
                header,
                columns,
                more,
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
            Self::Outline { items, more, .. } if !items.is_empty() => {
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
