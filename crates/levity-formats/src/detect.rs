//! The format of a file, by its content.

use crate::container::Container;
use crate::{FormatError, sheets};

/// A format that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Pdf,
    Word,
    Presentation,
    Sheets(sheets::Kind),
    OpenDocument,
    Epub,
    Html,
    Email,
    Zip,
    Tar,
    Gzip,
    Text,
}

/// The position of the mark of a TAR archive.
const TAR_MARK: usize = 257;

/// The beginning of the files of old Office programs.
const OLE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

impl Format {
    /// Determines the format of a file.
    pub(crate) fn of(name: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        let ending = ending(name);
        if bytes[..bytes.len().min(1_024)]
            .windows(5)
            .any(|part| part == b"%PDF-")
        {
            return Ok(Self::Pdf);
        }
        if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
            return Self::of_zip(bytes);
        }
        if bytes.starts_with(OLE) {
            return Self::of_ole(&ending, bytes);
        }
        if bytes.starts_with(b"\x1f\x8b") {
            return Ok(Self::Gzip);
        }
        if bytes.get(TAR_MARK..TAR_MARK + 5) == Some(b"ustar") {
            return Ok(Self::Tar);
        }
        if bytes.starts_with(b"{\\rtf") {
            let message = "RTF files are not supported; save it as .docx or .odt";
            return Err(FormatError::unsupported(message));
        }
        let is_wide = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
        if !is_wide && bytes.contains(&0) {
            let message = "it is neither text nor in a supported format";
            return Err(FormatError::unsupported(message));
        }
        Ok(match ending.as_str() {
            "html" | "htm" | "xhtml" => Self::Html,
            "eml" => Self::Email,
            _ => Self::Text,
        })
    }

    /// Office files are ZIP archives with certain parts.
    fn of_zip(bytes: &[u8]) -> Result<Self, FormatError> {
        let container = Container::open(bytes)?;
        let has = |name: &str| container.has(name);
        let kind = container.head("mimetype", 100).unwrap_or_default();
        if kind.starts_with("application/epub+zip") || has("META-INF/container.xml") {
            return Ok(Self::Epub);
        }
        if kind.contains("opendocument.spreadsheet") {
            return Ok(Self::Sheets(sheets::Kind::Ods));
        }
        if kind.contains("opendocument") {
            return Ok(Self::OpenDocument);
        }
        if has("[Content_Types].xml") {
            if has("word/document.xml") {
                return Ok(Self::Word);
            }
            if has("ppt/presentation.xml") {
                return Ok(Self::Presentation);
            }
            if has("xl/workbook.xml") {
                return Ok(Self::Sheets(sheets::Kind::Xlsx));
            }
            if has("xl/workbook.bin") {
                return Ok(Self::Sheets(sheets::Kind::Xlsb));
            }
        }
        Ok(Self::Zip)
    }

    /// Files of old Office programs, and encrypted ones of new programs.
    fn of_ole(ending: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        // The name of a stream, in UTF-16.
        let encrypted: Vec<u8> = "EncryptedPackage"
            .bytes()
            .flat_map(|byte| [byte, 0])
            .collect();
        if contains(bytes, &encrypted) {
            return Err(FormatError::encrypted());
        }
        match ending {
            "xls" | "xlt" | "xla" => Ok(Self::Sheets(sheets::Kind::Xls)),
            "doc" | "dot" => Err(old("Word", "docx")),
            "ppt" | "pps" => Err(old("PowerPoint", "pptx")),
            "msg" => Err(FormatError::unsupported(
                "Outlook messages (.msg) are not supported; save it as .eml",
            )),
            _ => Err(FormatError::unsupported(
                "files of old Office programs are not supported; save it in a current format",
            )),
        }
    }
}

fn old(program: &str, ending: &str) -> FormatError {
    FormatError::unsupported(format!(
        "files of old {program} versions are not supported; save it as .{ending}"
    ))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    // Directory entries are in the first or the last megabyte in practice.
    let (first, last) = (
        bytes.len().min(1 << 20),
        bytes.len().saturating_sub(1 << 20),
    );
    [&bytes[..first], &bytes[last..]]
        .iter()
        .any(|bytes| bytes.windows(part.len()).any(|found| found == part))
}

fn ending(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    ending.to_ascii_lowercase()
}

/// The risk of reading a file, which decides where to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FormatRisk {
    /// The file is plain text, or not in a known format.
    Plain,
    /// Reading takes linear time and memory, so it may happen in any process.
    Bounded,
    /// Reading can exhaust memory, stack or time. Use a process of its own.
    Unbounded,
}

/// Returns the risk of reading a file, by its name and its first bytes.
///
/// ```
/// use levity_formats::{FormatRisk, format_risk};
///
/// assert_eq!(format_risk("tides.md", b"# Tides"), FormatRisk::Plain);
/// assert_eq!(format_risk("tides.html", b"<p>High water"), FormatRisk::Bounded);
/// assert_eq!(format_risk("tides", b"%PDF-1.7"), FormatRisk::Unbounded);
/// ```
pub fn format_risk(name: &str, head: &[u8]) -> FormatRisk {
    let marks = [b"PK\x03\x04".as_slice(), b"PK\x05\x06", OLE, b"\x1f\x8b"];
    let is_pdf = head[..head.len().min(1_024)]
        .windows(5)
        .any(|part| part == b"%PDF-");
    let is_tar = head.get(TAR_MARK..TAR_MARK + 5) == Some(b"ustar");
    let ending = ending(name);
    if is_pdf || is_tar || marks.iter().any(|mark| head.starts_with(mark)) || ending == "eml" {
        return FormatRisk::Unbounded;
    }
    let bounded = [b"{\\rtf".as_slice(), b"\xff\xfe", b"\xfe\xff"];
    let is_html = matches!(ending.as_str(), "html" | "htm" | "xhtml");
    match is_html || bounded.iter().any(|mark| head.starts_with(mark)) {
        true => FormatRisk::Bounded,
        false => FormatRisk::Plain,
    }
}
