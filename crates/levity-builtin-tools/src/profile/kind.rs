//! What a file is, by its first bytes and by its name.

use serde::{Deserialize, Serialize};

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileKind {
    /// It could not be looked at.
    #[default]
    Unknown,
    /// Nothing is in it.
    Empty,
    /// A table, mostly with commas or semicolons.
    Csv,
    /// A table with tabs.
    Tsv,
    /// One JSON value.
    Json,
    /// A JSON value on each line.
    JsonLines,
    /// YAML.
    Yaml,
    /// Markdown.
    Markdown,
    /// HTML.
    Html,
    /// XML.
    Xml,
    /// Source code; the format is its language.
    Source,
    /// What a program wrote about its work.
    Log,
    /// Other text.
    Text,
    /// PDF.
    Pdf,
    /// A picture.
    Image,
    /// Files in a file, or one that is compressed.
    Archive,
    /// An office document; the format is its extension.
    Document,
    /// An SQLite database.
    Sqlite,
    /// Other bytes.
    Binary,
}

impl FileKind {
    /// The kind in words.
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

/// A kind, and what exactly.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) kind: FileKind,
    pub(super) format: Option<&'static str>,
}

impl Found {
    pub(super) fn new(kind: FileKind, format: Option<&'static str>) -> Self {
        Self { kind, format }
    }
}

/// How files begin that are not text.
const BEGINNINGS: [(&[u8], FileKind, Option<&str>); 14] = [
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

/// Documents that are zip archives inside.
const DOCUMENTS: [&str; 7] = ["docx", "xlsx", "pptx", "odt", "ods", "odp", "epub"];

/// What a file is that begins like this; nothing when it may be text or anything.
pub(super) fn by_bytes(head: &[u8], extension: &str) -> Option<Found> {
    if head.is_empty() {
        return Some(Found::new(FileKind::Empty, None));
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        let document = DOCUMENTS.into_iter().find(|known| *known == extension);
        return Some(match document {
            Some(format) => Found::new(FileKind::Document, Some(format)),
            None => Found::new(FileKind::Archive, Some("zip")),
        });
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some(Found::new(FileKind::Image, Some("webp")));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(Found::new(FileKind::Archive, Some("tar")));
    }
    // Some beginnings are also words.
    let text = |kind| {
        kind == FileKind::Archive && !head.iter().take(64).any(|byte| *byte < 9 || *byte > 126)
    };
    let known = BEGINNINGS
        .iter()
        .find(|(begin, kind, _)| head.starts_with(begin) && !text(*kind));
    known.map(|(_, kind, format)| Found::new(*kind, *format))
}

/// Languages by extension, and how their top-level items begin.
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

/// The language of source code of this extension.
pub(super) fn language(extension: &str) -> Option<&'static Language> {
    LANGUAGES
        .iter()
        .find(|language| language.extensions.contains(&extension))
}

/// What text with this extension is, when its content leaves it open.
pub(super) fn by_extension(extension: &str) -> Option<Found> {
    if let Some(language) = language(extension) {
        return Some(Found::new(FileKind::Source, Some(language.name)));
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
    Some(Found::new(kind, None))
}
