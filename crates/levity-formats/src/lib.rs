//! Reads the texts of files: PDF, Office, OpenDocument, EPUB, HTML, e-mail, and archives of those.
//!
//! ```
//! use levity_formats::{Limits, read};
//!
//! let mail = b"From: harbour@example.com\r\nSubject: Tides\r\n\r\nHigh water is at six.\r\n";
//! let found = read("tides.eml", mail, &Limits::new())?;
//! assert!(found.texts[0].text.contains("High water is at six."));
//! # Ok::<(), levity_formats::FormatError>(())
//! ```
//!
//! - The content of a file decides on its format, not its name. Only formats that are plain text,
//!   such as e-mail, are recognized by the name.
//! - [`Limits`] bound the unpacked bytes, the texts, the nesting and the number of files in a file.
//! - One text that cannot be read does not affect the others of an archive.
//!
//! A hostile file can still exhaust the memory or the stack of a parser that this crate uses. Call
//! [`read`] in a process of its own with limits of the operating system, as `levity-docs` does.
//!
//! This crate deliberately opens no files and starts no processes.
//!
//! # Features
//! This crate has no features.
//!
//! # Where to go next
//! [`read`] reads a file, and [`format_risk`] decides where to call it.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod archive;
mod container;
mod detect;
mod email;
mod epub;
mod error;
mod limits;
mod markdown;
mod open_document;
mod output;
mod pdf;
mod presentation;
mod sheets;
mod word;
mod xml;

pub use detect::{FormatRisk, format_risk};
pub use error::{FormatError, FormatErrorKind};
pub use limits::Limits;
pub use output::{FileTexts, LeftOut, Text, TextLayout};

use detect::Format;
use limits::Budget;

/// Reads the texts of a file in memory.
///
/// The name is that of the file, for formats that only their names distinguish. The texts of a file
/// with several ones, such as an archive, have names below that of the file: `box.zip/tides.md`.
///
/// # Errors
/// If the format is unknown or not supported, if the file is damaged, encrypted or without text,
/// and if it exceeds the limits.
///
/// ```
/// use levity_formats::{FormatErrorKind, Limits, read};
///
/// let error = read("tides.pdf", b"%PDF-1.7 and nothing else", &Limits::new()).unwrap_err();
/// assert_eq!(error.kind(), FormatErrorKind::Damaged);
/// ```
pub fn read(name: &str, bytes: &[u8], limits: &Limits) -> Result<FileTexts, FormatError> {
    let mut output = FileTexts::default();
    let mut budget = Budget::new(limits);
    read_into(name, bytes, &mut budget, &mut output)?;
    if output.texts.is_empty() && output.left_out.is_empty() {
        return Err(FormatError::no_text());
    }
    Ok(output)
}

/// Reads a file, or a file within another one.
fn read_into(
    name: &str,
    bytes: &[u8],
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let format = Format::of(name, bytes)?;
    match format {
        Format::Zip => archive::read_zip(name, bytes, budget, output),
        Format::Tar => archive::read_tar(name, bytes, budget, output),
        Format::Gzip => archive::read_gzip(name, bytes, budget, output),
        Format::Email => email::read(name, bytes, budget, output),
        Format::Sheets(kind) => sheets::read(name, bytes, kind, budget, output),
        Format::Pdf => output.add(pdf::read(name, bytes, budget)?),
        Format::Word => output.add(word::read(name, bytes, budget)?),
        Format::Presentation => output.add(presentation::read(name, bytes, budget)?),
        Format::OpenDocument => output.add(open_document::read(name, bytes, budget)?),
        Format::Epub => output.add(epub::read(name, bytes, budget)?),
        Format::Html => {
            let page = levity_html::decode(bytes, None, true);
            let found = levity_html::extract(&page, "", budget.text_left());
            output.add(Text::new(name, found.text, TextLayout::Markdown))
        }
        Format::Text => {
            let text = levity_html::decode(bytes, None, false);
            output.add(Text::new(name, text, TextLayout::ByName))
        }
    }?;
    budget.spend_texts(output)
}
