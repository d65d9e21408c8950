//! Documents of Word (`.docx`).

use std::collections::HashMap;

use crate::container::Container;
use crate::limits::Budget;
use crate::markdown::{Markdown, Role};
use crate::xml::{Piece, walk};
use crate::{FormatError, Text, TextLayout};

/// The styles that are headings, with their levels.
type Styles = HashMap<String, usize>;

pub(crate) fn read(name: &str, bytes: &[u8], budget: &mut Budget) -> Result<Text, FormatError> {
    let mut container = Container::open(bytes)?;
    let styles = match container.text_if_any("word/styles.xml", budget)? {
        Some(xml) => heading_styles(&xml)?,
        None => Styles::new(),
    };
    let mut body = Body {
        styles: &styles,
        markdown: Markdown::default(),
        paragraphs: Vec::new(),
        ignored: 0,
        in_text: false,
    };
    for part in ["document", "footnotes", "endnotes", "comments"] {
        let xml = container.text_if_any(&format!("word/{part}.xml"), budget)?;
        if let Some(xml) = xml {
            walk(&xml, |piece| body.take(&piece, budget))?;
        }
    }
    Ok(Text::new(
        name,
        body.markdown.finish(),
        TextLayout::Markdown,
    ))
}

/// Returns the styles that are headings. Their ids depend on the language, their names do not.
fn heading_styles(xml: &str) -> Result<Styles, FormatError> {
    let (mut styles, mut current) = (Styles::new(), String::new());
    walk(xml, |piece| {
        let Piece::Open(element) = piece else {
            return Ok(());
        };
        match element.name {
            "style" => current = element.attr("styleId").unwrap_or_default(),
            "name" => {
                let name = element.attr("val").unwrap_or_default().to_ascii_lowercase();
                let level = match name.strip_prefix("heading ") {
                    Some(level) => level.trim().parse().ok(),
                    None => (name == "title").then_some(1),
                };
                if let Some(level) = level {
                    styles.insert(current.clone(), level);
                }
            }
            "outlineLvl" => {
                // Level 9 is body text.
                if let Some(level) = element.number("val").filter(|level| *level < 9) {
                    styles.insert(current.clone(), level + 1);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(styles)
}

struct Body<'a> {
    styles: &'a Styles,
    markdown: Markdown,
    /// The open paragraphs: a text box is a part of a paragraph and contains others.
    paragraphs: Vec<(Role, String)>,
    /// The number of open elements whose content is not shown.
    ignored: usize,
    in_text: bool,
}

impl Body<'_> {
    fn take(&mut self, piece: &Piece<'_>, budget: &Budget) -> Result<(), FormatError> {
        match piece {
            Piece::Open(element) => {
                if is_ignored(element.name) {
                    self.ignored += 1;
                }
                if self.ignored > 0 {
                    return Ok(());
                }
                match element.name {
                    "p" => {
                        // Only a hostile file nests paragraphs deeply.
                        if self.paragraphs.len() > 100 {
                            return Err(FormatError::damaged("the document"));
                        }
                        self.paragraphs.push((Role::Text, String::new()));
                    }
                    "pStyle" => {
                        let level = element.attr("val").and_then(|id| self.styles.get(&id));
                        self.set_role(level.map(|level| Role::Heading(*level)));
                    }
                    "outlineLvl" => {
                        let level = element.number("val").filter(|level| *level < 9);
                        self.set_role(level.map(|level| Role::Heading(level + 1)));
                    }
                    "numPr" => self.set_item(),
                    "t" => self.in_text = true,
                    "tab" | "ptab" => self.push("\t"),
                    "br" | "cr" => self.push("\n"),
                    "noBreakHyphen" => self.push("-"),
                    "tbl" => self.markdown.open_table(),
                    "tr" => self.markdown.open_row(),
                    "tc" => self.markdown.open_cell(),
                    _ => {}
                }
            }
            Piece::Close(name) => {
                if is_ignored(name) {
                    self.ignored = self.ignored.saturating_sub(1);
                    return Ok(());
                }
                if self.ignored > 0 {
                    return Ok(());
                }
                match *name {
                    "p" => {
                        let (role, text) = self.paragraphs.pop().unwrap_or_default();
                        self.markdown.paragraph(role, &text, budget)?;
                    }
                    "t" => self.in_text = false,
                    "tbl" => self.markdown.close_table(),
                    "tr" => self.markdown.close_row(budget)?,
                    _ => {}
                }
            }
            Piece::Text(text) => {
                if self.in_text && self.ignored == 0 {
                    self.push(text);
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, text: &str) {
        if let Some((_, paragraph)) = self.paragraphs.last_mut() {
            paragraph.push_str(text);
        }
    }

    fn set_role(&mut self, role: Option<Role>) {
        if let (Some(role), Some((current, _))) = (role, self.paragraphs.last_mut()) {
            *current = role;
        }
    }

    /// A numbered heading stays a heading.
    fn set_item(&mut self) {
        if let Some((role, _)) = self.paragraphs.last_mut()
            && *role == Role::Text
        {
            *role = Role::Item;
        }
    }
}

/// Elements without text for readers: properties of earlier versions, removed text, and the second
/// form of a drawing, which repeats its text.
fn is_ignored(name: &str) -> bool {
    matches!(
        name,
        "Fallback" | "del" | "moveFrom" | "pPrChange" | "rPrChange"
    )
}
