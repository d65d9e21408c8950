//! OpenDocument texts and presentations (`.odt`, `.odp`); each slide is a page.

use crate::container::Container;
use crate::limits::Budget;
use crate::markdown::{Markdown, Role};
use crate::xml::{Element, Piece, walk};
use crate::{FormatError, Text, TextLayout};

/// The maximum number of spaces that one element stands for.
const MAX_SPACES: usize = 1_000;

pub(crate) fn read(name: &str, bytes: &[u8], budget: &mut Budget) -> Result<Text, FormatError> {
    let mut container = Container::open(bytes)?;
    if let Some(manifest) = container.text_if_any("META-INF/manifest.xml", budget)?
        && manifest.contains("encryption-data")
    {
        return Err(FormatError::encrypted());
    }
    let xml = container.text("content.xml", budget)?;
    let mut body = Body::default();
    walk(&xml, |piece| body.take(&piece, budget))?;
    if body.slides == 0 {
        return Ok(Text::new(
            name,
            body.markdown.finish(),
            TextLayout::Markdown,
        ));
    }
    body.end_slide();
    Ok(Text::of_pages(name, body.pages, TextLayout::Markdown))
}

#[derive(Default)]
struct Body {
    markdown: Markdown,
    /// The open paragraphs: a text box or a note is a part of a paragraph and contains others.
    paragraphs: Vec<(Role, String)>,
    lists: usize,
    /// The number of open elements whose content is not shown.
    ignored: usize,
    slides: usize,
    pages: Vec<String>,
}

impl Body {
    fn take(&mut self, piece: &Piece<'_>, budget: &Budget) -> Result<(), FormatError> {
        match piece {
            Piece::Open(element) => self.open(element, budget),
            Piece::Close(name) => self.close(name, budget),
            Piece::Text(text) => {
                if self.ignored == 0 {
                    self.push_folded(text);
                }
                Ok(())
            }
        }
    }

    fn open(&mut self, element: &Element<'_>, budget: &Budget) -> Result<(), FormatError> {
        if is_ignored(element.name) {
            self.ignored += 1;
        }
        if self.ignored > 0 {
            return Ok(());
        }
        match element.name {
            "h" => {
                self.open_paragraph(Role::Heading(element.number("outline-level").unwrap_or(1)))?;
            }
            "p" if self.lists > 0 => self.open_paragraph(Role::Item)?,
            "p" => self.open_paragraph(Role::Text)?,
            "s" => {
                let spaces = element.number("c").unwrap_or(1).min(MAX_SPACES);
                self.push(&" ".repeat(spaces));
            }
            "tab" => self.push("\t"),
            "line-break" => self.push("\n"),
            "list" => self.lists += 1,
            "table" => self.markdown.open_table(),
            "table-row" => self.markdown.open_row(),
            "table-cell" => self.markdown.open_cell(),
            // A slide.
            "page" => {
                if self.slides > 0 {
                    self.end_slide();
                }
                self.slides += 1;
                budget.check_pages(self.slides)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, name: &str, budget: &Budget) -> Result<(), FormatError> {
        if is_ignored(name) {
            self.ignored = self.ignored.saturating_sub(1);
            return Ok(());
        }
        if self.ignored > 0 {
            return Ok(());
        }
        match name {
            "h" | "p" => {
                let (role, text) = self.paragraphs.pop().unwrap_or_default();
                self.markdown.paragraph(role, &text, budget)?;
            }
            "list" => self.lists = self.lists.saturating_sub(1),
            "table" => self.markdown.close_table(),
            "table-row" => self.markdown.close_row(budget)?,
            _ => {}
        }
        Ok(())
    }

    fn open_paragraph(&mut self, role: Role) -> Result<(), FormatError> {
        // Only a hostile file nests paragraphs deeply.
        if self.paragraphs.len() > 100 {
            return Err(FormatError::damaged("the document"));
        }
        self.paragraphs.push((role, String::new()));
        Ok(())
    }

    fn push(&mut self, text: &str) {
        if let Some((_, paragraph)) = self.paragraphs.last_mut() {
            paragraph.push_str(text);
        }
    }

    /// White space between elements is one space.
    fn push_folded(&mut self, text: &str) {
        let Some((_, paragraph)) = self.paragraphs.last_mut() else {
            return;
        };
        for sign in text.chars() {
            match sign {
                ' ' | '\t' | '\r' | '\n' if paragraph.ends_with(' ') => {}
                ' ' | '\t' | '\r' | '\n' => paragraph.push(' '),
                sign => paragraph.push(sign),
            }
        }
    }

    fn end_slide(&mut self) {
        self.pages.push(std::mem::take(&mut self.markdown).finish());
    }
}

/// Elements without text for readers: earlier versions, comments, and the marks of notes.
fn is_ignored(name: &str) -> bool {
    matches!(
        name,
        "tracked-changes" | "annotation" | "note-citation" | "settings" | "binary-data"
    )
}
