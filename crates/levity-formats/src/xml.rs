//! XML as a sequence of elements and texts.
//!
//! Entities of a document type are not expanded, so a small file cannot become a large one.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::FormatError;

/// A piece of an XML document. Names are without their prefixes.
pub(crate) enum Piece<'a> {
    Open(&'a Element<'a>),
    Close(&'a str),
    Text(&'a str),
}

/// An element with its attributes.
pub(crate) struct Element<'a> {
    pub(crate) name: &'a str,
    start: &'a BytesStart<'a>,
}

impl Element<'_> {
    /// Returns an attribute by its name without prefix.
    pub(crate) fn attr(&self, name: &str) -> Option<String> {
        self.attr_where(|key| key.rsplit(':').next() == Some(name))
    }

    /// Returns an attribute by its whole name.
    pub(crate) fn whole_attr(&self, name: &str) -> Option<String> {
        self.attr_where(|key| key == name)
    }

    fn attr_where(&self, is_it: impl Fn(&str) -> bool) -> Option<String> {
        let mut attributes = self.start.attributes();
        attributes.with_checks(false);
        let found = attributes
            .flatten()
            .find(|attribute| is_it(attribute.key.as_ref()))?;
        let raw: &str = found.value.as_ref();
        Some(quick_xml::escape::unescape(raw).map_or_else(|_| raw.to_owned(), Cow::into_owned))
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.attr(name)?.trim().parse().ok()
    }
}

/// Passes each piece of a document to `take`.
pub(crate) fn walk(
    xml: &str,
    mut take: impl FnMut(Piece<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let mut reader = Reader::from_str(xml);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    loop {
        let event = reader.read_event();
        match event.map_err(|_| FormatError::damaged("a part of the file"))? {
            Event::Start(start) => open(&start, &mut take)?,
            Event::Empty(start) => {
                open(&start, &mut take)?;
                take(Piece::Close(start.local_name().as_ref()))?;
            }
            Event::End(end) => take(Piece::Close(end.local_name().as_ref()))?,
            Event::Text(text) => take(Piece::Text(&text.xml10_content()))?,
            Event::CData(text) => take(Piece::Text(&text.xml10_content()))?,
            Event::GeneralRef(reference) => {
                let mut buffer = [0; 4];
                let text = match reference.resolve_char_ref() {
                    Ok(Some(sign)) => &*sign.encode_utf8(&mut buffer),
                    _ => match &*reference.xml10_content() {
                        "amp" => "&",
                        "lt" => "<",
                        "gt" => ">",
                        "quot" => "\"",
                        "apos" => "'",
                        // An entity of the document type.
                        _ => "",
                    },
                };
                take(Piece::Text(text))?;
            }
            Event::Eof => return Ok(()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
}

fn open(
    start: &BytesStart<'_>,
    take: &mut impl FnMut(Piece<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let name = start.local_name();
    take(Piece::Open(&Element {
        name: name.as_ref(),
        start,
    }))
}
