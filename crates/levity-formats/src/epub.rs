//! Books in EPUB: the chapters in reading order.

use std::collections::HashMap;

use crate::container::{Container, resolve};
use crate::limits::Budget;
use crate::xml::{Piece, walk};
use crate::{FormatError, Text, TextLayout};

pub(crate) fn read(name: &str, bytes: &[u8], budget: &mut Budget) -> Result<Text, FormatError> {
    let mut container = Container::open(bytes)?;
    let package = package(&container.text("META-INF/container.xml", budget)?)?;
    let chapters = chapters(&package, &container.text(&package, budget)?)?;
    budget.check_pages(chapters.len())?;
    let (mut text, mut missing) = (String::new(), 0_usize);
    for chapter in &chapters {
        if !container.has(chapter) {
            missing += 1;
            continue;
        }
        let page = container.text(chapter, budget)?;
        let left = budget.text_left().saturating_sub(text.len());
        let found = levity_html::extract(&page, "", left);
        if found.text.trim().is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(found.text.trim());
        budget.check_text(text.len() + 1)?;
    }
    if missing == chapters.len() {
        // The chapters of a protected book have other names, or are encrypted.
        return Err(match container.has("META-INF/encryption.xml") {
            true => FormatError::encrypted(),
            false => FormatError::damaged("the book"),
        });
    }
    text.push('\n');
    Ok(Text::new(name, text, TextLayout::Markdown))
}

/// Returns the path of the list of chapters.
fn package(container: &str) -> Result<String, FormatError> {
    let mut package = None;
    walk(container, |piece| {
        if let Piece::Open(element) = piece
            && element.name == "rootfile"
            && package.is_none()
        {
            package = element.attr("full-path");
        }
        Ok(())
    })?;
    package.ok_or_else(|| FormatError::damaged("the book"))
}

/// Returns the paths of the chapters in reading order.
fn chapters(package: &str, xml: &str) -> Result<Vec<String>, FormatError> {
    let (mut files, mut order) = (HashMap::new(), Vec::new());
    walk(xml, |piece| {
        if let Piece::Open(element) = piece {
            let attr = |name| element.attr(name).unwrap_or_default();
            match element.name {
                "item" if attr("media-type").contains("html") => {
                    files.insert(attr("id"), attr("href"));
                }
                "itemref" => order.push(attr("idref")),
                _ => {}
            }
        }
        Ok(())
    })?;
    let paths = order.iter().filter_map(|id| files.get(id));
    Ok(paths.map(|path| resolve(package, &decoded(path))).collect())
}

/// Decodes `%20` and others in a path.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| {
            after
                .get(at)
                .and_then(|byte| char::from(*byte).to_digit(16))
        };
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded() {
        assert_eq!(decoded("a%20b%C3%A9.xhtml"), "a bé.xhtml");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%4"), "%4");
    }
}
