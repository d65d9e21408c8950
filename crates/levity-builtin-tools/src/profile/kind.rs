//! Detection of a file's kind from its first bytes and its name.
//!
//! Content decides before the name: a PNG called `data.csv` is an image. The name decides only
//! about text, and about office documents, which are all zip archives. Lists are short and cover
//! what people attach to a conversation; anything else is plain text or binary data.

use serde::{Deserialize, Serialize};

/// The kind of a file.
///
/// ```
/// use levity_builtin_tools::profile::{FileKind, FileProfile};
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("misnamed.csv");
/// std::fs::write(&path, b"%PDF-1.7\n")?;
/// assert_eq!(FileProfile::read(&path).kind, FileKind::Pdf);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileKind {
    /// A file that could not be read.
    #[default]
    Unknown,
    /// A file without content.
    Empty,
    /// A table, mostly delimited by commas or semicolons.
    Csv,
    /// A table delimited by tabs.
    Tsv,
    /// A single JSON value.
    Json,
    /// A JSON value on each line.
    JsonLines,
    /// A document in the YAML format.
    Yaml,
    /// A document in the Markdown format.
    Markdown,
    /// A web page in the HTML format.
    Html,
    /// A document in the XML format.
    Xml,
    /// Source code; the format is its language.
    Source,
    /// A log file of a program.
    Log,
    /// Text of another kind.
    Text,
    /// A document in the PDF format.
    Pdf,
    /// An image of any format.
    Image,
    /// An archive of files, or a compressed file.
    Archive,
    /// An office document; the format is its extension.
    Document,
    /// A database file of SQLite.
    Sqlite,
    /// Binary data of another kind.
    Binary,
}

impl FileKind {
    /// Returns the name of the kind for people to read.
    ///
    /// ```
    /// use levity_builtin_tools::profile::FileKind;
    ///
    /// assert_eq!(FileKind::JsonLines.name(), "JSON lines");
    /// assert_eq!(FileKind::Sqlite.name(), "SQLite database");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Empty => "empty",
            Self::Csv => "CSV",
            Self::Tsv => "TSV",
            Self::Json => "JSON",
            Self::JsonLines => "JSON lines",
            Self::Yaml => "YAML",
            Self::Markdown => "Markdown",
            Self::Html => "HTML",
            Self::Xml => "XML",
            Self::Source => "source code",
            Self::Log => "log",
            Self::Text => "text",
            Self::Pdf => "PDF",
            Self::Image => "image",
            Self::Archive => "archive",
            Self::Document => "document",
            Self::Sqlite => "SQLite database",
            Self::Binary => "binary",
        }
    }
}

/// A kind and its exact format.
#[derive(Clone, Copy)]
pub(super) struct DetectedKind {
    pub(super) kind: FileKind,
    pub(super) format: Option<&'static str>,
}

impl DetectedKind {
    pub(super) fn new(kind: FileKind, format: Option<&'static str>) -> Self {
        Self { kind, format }
    }
}

/// The first bytes of files that are not text.
const SIGNATURES: [(&[u8], FileKind, Option<&str>); 14] = [
    (b"\x89PNG\r\n\x1a\n", FileKind::Image, Some("png")),
    (b"\xff\xd8\xff", FileKind::Image, Some("jpeg")),
    (b"GIF87a", FileKind::Image, Some("gif")),
    (b"GIF89a", FileKind::Image, Some("gif")),
    (b"II*\0", FileKind::Image, Some("tiff")),
    (b"MM\0*", FileKind::Image, Some("tiff")),
    (b"%PDF-", FileKind::Pdf, None),
    (b"SQLite format 3\0", FileKind::Sqlite, None),
    (b"\x1f\x8b", FileKind::Archive, Some("gzip")),
    (b"BZh", FileKind::Archive, Some("bzip2")),
    (b"\xfd7zXZ\0", FileKind::Archive, Some("xz")),
    (b"\x28\xb5\x2f\xfd", FileKind::Archive, Some("zstd")),
    (b"7z\xbc\xaf\x27\x1c", FileKind::Archive, Some("7z")),
    (b"Rar!\x1a\x07", FileKind::Archive, Some("rar")),
];

/// Document formats that are zip archives.
const DOCUMENTS: [&str; 7] = ["docx", "xlsx", "pptx", "odt", "ods", "odp", "epub"];

/// Detects the kind from the first bytes; `None` if the file may be text or anything else.
///
/// An archive signature in front of ordinary words counts as text: `BZh` may begin a sentence.
pub(super) fn by_bytes(head: &[u8], extension: &str) -> Option<DetectedKind> {
    if head.is_empty() {
        return Some(DetectedKind::new(FileKind::Empty, None));
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        let document = DOCUMENTS.into_iter().find(|known| *known == extension);
        return Some(match document {
            Some(format) => DetectedKind::new(FileKind::Document, Some(format)),
            None => DetectedKind::new(FileKind::Archive, Some("zip")),
        });
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some(DetectedKind::new(FileKind::Image, Some("webp")));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(DetectedKind::new(FileKind::Archive, Some("tar")));
    }
    // Some signatures are also ordinary words.
    let text = |kind| {
        kind == FileKind::Archive && !head.iter().take(64).any(|byte| *byte < 9 || *byte > 126)
    };
    let known = SIGNATURES
        .iter()
        .find(|(begin, kind, _)| head.starts_with(begin) && !text(*kind));
    known.map(|(_, kind, format)| DetectedKind::new(*kind, *format))
}

/// A language with its extensions and the prefixes of its top-level items.
///
/// Prefixes are matched at the beginning of a line without indentation, so only top-level items
/// appear.
pub(super) struct Language {
    pub(super) name: &'static str,
    extensions: &'static [&'static str],
    pub(super) items: &'static [&'static str],
}

const C: &[&str] = &[
    "struct ",
    "enum ",
    "union ",
    "typedef ",
    "class ",
    "namespace ",
    "template",
    "#define ",
];
const JVM: &[&str] = &[
    "public ",
    "class ",
    "interface ",
    "enum ",
    "record ",
    "abstract ",
    "final ",
    "fun ",
    "object ",
    "data ",
    "sealed ",
    "trait ",
    "case ",
    "def ",
    "internal ",
    "namespace ",
    "static ",
    "struct ",
];
const JS: &[&str] = &[
    "function ",
    "async function ",
    "class ",
    "export ",
    "const ",
    "let ",
    "interface ",
    "type ",
    "enum ",
    "namespace ",
];
const RUST: &[&str] = &[
    "fn ",
    "pub ",
    "pub(",
    "async fn ",
    "unsafe ",
    "struct ",
    "enum ",
    "union ",
    "trait ",
    "impl ",
    "impl<",
    "mod ",
    "type ",
    "const ",
    "static ",
    "macro_rules!",
];

pub(super) const LANGUAGES: &[Language] = &[
    Language {
        name: "rust",
        extensions: &["rs"],
        items: RUST,
    },
    Language {
        name: "python",
        extensions: &["py", "pyi"],
        items: &["def ", "class ", "async def "],
    },
    Language {
        name: "javascript",
        extensions: &["js", "mjs", "cjs", "jsx"],
        items: JS,
    },
    Language {
        name: "typescript",
        extensions: &["ts", "mts", "tsx"],
        items: JS,
    },
    Language {
        name: "go",
        extensions: &["go"],
        items: &["func ", "type ", "const ", "var "],
    },
    Language {
        name: "c",
        extensions: &["c", "h"],
        items: C,
    },
    Language {
        name: "c++",
        extensions: &["cc", "cpp", "cxx", "hpp", "hh"],
        items: C,
    },
    Language {
        name: "java",
        extensions: &["java"],
        items: JVM,
    },
    Language {
        name: "kotlin",
        extensions: &["kt", "kts"],
        items: JVM,
    },
    Language {
        name: "scala",
        extensions: &["scala"],
        items: JVM,
    },
    Language {
        name: "c#",
        extensions: &["cs"],
        items: JVM,
    },
    Language {
        name: "swift",
        extensions: &["swift"],
        items: &[
            "func ",
            "class ",
            "struct ",
            "enum ",
            "protocol ",
            "extension ",
            "public ",
        ],
    },
    Language {
        name: "ruby",
        extensions: &["rb"],
        items: &["def ", "class ", "module "],
    },
    Language {
        name: "php",
        extensions: &["php"],
        items: &[
            "function ",
            "class ",
            "interface ",
            "trait ",
            "namespace ",
            "final ",
            "abstract ",
        ],
    },
    Language {
        name: "shell",
        extensions: &["sh", "bash", "zsh"],
        items: &["function "],
    },
    Language {
        name: "sql",
        extensions: &["sql"],
        items: &["CREATE ", "ALTER ", "DROP ", "create ", "alter ", "drop "],
    },
    Language {
        name: "lua",
        extensions: &["lua"],
        items: &["function ", "local function "],
    },
    Language {
        name: "r",
        extensions: &["r"],
        items: &[],
    },
    Language {
        name: "css",
        extensions: &["css", "scss", "less"],
        items: &[],
    },
    Language {
        name: "toml",
        extensions: &["toml"],
        items: &["["],
    },
    Language {
        name: "ini",
        extensions: &["ini", "cfg"],
        items: &["["],
    },
];

/// Returns the language with this file extension.
pub(super) fn language(extension: &str) -> Option<&'static Language> {
    LANGUAGES
        .iter()
        .find(|language| language.extensions.contains(&extension))
}

/// Returns the kind of text with this extension, for content that is not decisive.
pub(super) fn by_extension(extension: &str) -> Option<DetectedKind> {
    if let Some(language) = language(extension) {
        return Some(DetectedKind::new(FileKind::Source, Some(language.name)));
    }
    let kind = match extension {
        "csv" => FileKind::Csv,
        "tsv" | "tab" => FileKind::Tsv,
        "json" => FileKind::Json,
        "jsonl" | "ndjson" => FileKind::JsonLines,
        "yaml" | "yml" => FileKind::Yaml,
        "md" | "markdown" => FileKind::Markdown,
        "html" | "htm" | "xhtml" => FileKind::Html,
        "xml" | "svg" | "rss" | "atom" | "xsd" => FileKind::Xml,
        "log" => FileKind::Log,
        _ => return None,
    };
    Some(DetectedKind::new(kind, None))
}
