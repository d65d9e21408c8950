//! ZIP files whose parts have known names, such as those of Office programs.

use std::io::{Cursor, Read};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::FormatError;
use crate::limits::Budget;

/// The parts of a ZIP file.
pub(crate) struct Container<'a>(pub(crate) ZipArchive<Cursor<&'a [u8]>>);

impl<'a> Container<'a> {
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let archive = ZipArchive::new(Cursor::new(bytes));
        archive.map(Self).map_err(|error| failure(&error))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.index_for_name(name).is_some()
    }

    /// Returns the first bytes of a part as text.
    pub(crate) fn head(&self, name: &str, max: u64) -> Option<String> {
        let mut archive = self.0.clone();
        let mut bytes = Vec::new();
        let part = archive.by_name(name).ok()?;
        part.take(max).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a part as text, in the encoding that it declares.
    pub(crate) fn text(&mut self, name: &str, budget: &mut Budget) -> Result<String, FormatError> {
        let bytes = self.bytes(name, budget)?;
        Ok(levity_html::decode(&bytes, None, true).into_owned())
    }

    /// Reads a part as text; none if there is no such part.
    pub(crate) fn text_if_any(
        &mut self,
        name: &str,
        budget: &mut Budget,
    ) -> Result<Option<String>, FormatError> {
        match self.has(name) {
            true => self.text(name, budget).map(Some),
            false => Ok(None),
        }
    }

    pub(crate) fn bytes(
        &mut self,
        name: &str,
        budget: &mut Budget,
    ) -> Result<Vec<u8>, FormatError> {
        let part = self.0.by_name(name).map_err(|error| failure(&error))?;
        budget.unpack(part, "a part of the file")
    }
}

/// Converts an error of the archive.
pub(crate) fn failure(error: &ZipError) -> FormatError {
    match error {
        ZipError::InvalidPassword => FormatError::encrypted(),
        ZipError::UnsupportedArchive(reason) if *reason == ZipError::PASSWORD_REQUIRED => {
            FormatError::encrypted()
        }
        ZipError::UnsupportedArchive(_) | ZipError::CompressionMethodNotSupported(_) => {
            FormatError::unsupported("its compression is not supported; save it again with another")
        }
        _ => FormatError::damaged("the file"),
    }
}

/// Resolves the target of a reference within a container, relative to the part that has it.
pub(crate) fn resolve(part: &str, target: &str) -> String {
    let target = target.split('#').next().unwrap_or_default();
    let mut path: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => part.split('/').collect(),
    };
    path.pop();
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                path.pop();
            }
            step => path.push(step),
        }
    }
    path.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_relative_to_their_part() {
        assert_eq!(
            resolve("ppt/presentation.xml", "slides/a.xml"),
            "ppt/slides/a.xml"
        );
        assert_eq!(
            resolve("ppt/slides/a.xml", "../notes/b.xml"),
            "ppt/notes/b.xml"
        );
        assert_eq!(resolve("ppt/a.xml", "/ppt/b.xml"), "ppt/b.xml");
        assert_eq!(resolve("a.xml", "../../b.xml#c"), "b.xml");
    }
}
