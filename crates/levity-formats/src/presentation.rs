//! Presentations (`.pptx`): each slide is a page.

use std::collections::HashMap;

use crate::container::{Container, resolve};
use crate::limits::Budget;
use crate::markdown::{Markdown, Role};
use crate::xml::{Piece, walk};
use crate::{FormatError, Text, TextLayout};

const MAIN: &str = "ppt/presentation.xml";

pub(crate) fn read(name: &str, bytes: &[u8], budget: &mut Budget) -> Result<Text, FormatError> {
    let mut container = Container::open(bytes)?;
    let order = slide_ids(&container.text(MAIN, budget)?)?;
    budget.check_pages(order.len())?;
    let targets = relations(&mut container, MAIN, budget)?;
    let (mut pages, mut size) = (Vec::new(), 0);
    for id in order {
        let Some((target, _)) = targets.get(&id) else {
            continue;
        };
        let slide = resolve(MAIN, target);
        if !container.has(&slide) {
            continue;
        }
        let mut text = slide_text(&container.text(&slide, budget)?, budget)?;
        let notes = notes_of(&mut container, &slide, budget)?;
        if !notes.trim().is_empty() {
            text.push_str("\nNotes:\n\n");
            text.push_str(&notes);
        }
        size += text.len() + 1;
        budget.check_text(size)?;
        pages.push(text);
    }
    Ok(Text::of_pages(name, pages, TextLayout::Markdown))
}

/// Returns the references to the slides, in the order of the presentation.
fn slide_ids(xml: &str) -> Result<Vec<String>, FormatError> {
    let mut ids = Vec::new();
    walk(xml, |piece| {
        if let Piece::Open(element) = piece
            && element.name == "sldId"
        {
            ids.extend(element.whole_attr("r:id"));
        }
        Ok(())
    })?;
    Ok(ids)
}

/// Returns the targets and the types of a part's references, by their ids.
fn relations(
    container: &mut Container<'_>,
    part: &str,
    budget: &mut Budget,
) -> Result<HashMap<String, (String, String)>, FormatError> {
    let (folder, file) = part.rsplit_once('/').unwrap_or(("", part));
    let mut found = HashMap::new();
    let path = format!("{folder}/_rels/{file}.rels");
    let Some(xml) = container.text_if_any(&path, budget)? else {
        return Ok(found);
    };
    walk(&xml, |piece| {
        if let Piece::Open(element) = piece
            && element.name == "Relationship"
        {
            let attr = |name| element.attr(name).unwrap_or_default();
            found.insert(attr("Id"), (attr("Target"), attr("Type")));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the notes for the speaker.
fn notes_of(
    container: &mut Container<'_>,
    slide: &str,
    budget: &mut Budget,
) -> Result<String, FormatError> {
    let relations = relations(container, slide, budget)?;
    let notes = relations
        .values()
        .find(|(_, kind)| kind.ends_with("/notesSlide"));
    let Some((target, _)) = notes else {
        return Ok(String::new());
    };
    let path = resolve(slide, target);
    match container.text_if_any(&path, budget)? {
        Some(xml) => slide_text(&xml, budget),
        None => Ok(String::new()),
    }
}

/// Returns the text of a slide; its title is a heading.
fn slide_text(xml: &str, budget: &Budget) -> Result<String, FormatError> {
    let mut markdown = Markdown::default();
    let (mut paragraph, mut in_text, mut role) = (String::new(), false, Role::Text);
    // The number of a slide is no text of its author.
    let mut is_number = false;
    walk(xml, |piece| {
        match piece {
            Piece::Open(element) => match element.name {
                "sp" => (role, is_number) = (Role::Text, false),
                "ph" => match element.attr("type").as_deref() {
                    Some("title" | "ctrTitle") => role = Role::Heading(2),
                    Some("sldNum" | "dt" | "ftr") => is_number = true,
                    _ => {}
                },
                "p" => paragraph.clear(),
                "t" => in_text = true,
                "br" => paragraph.push('\n'),
                "tab" => paragraph.push('\t'),
                "tbl" => {
                    role = Role::Text;
                    markdown.open_table();
                }
                "tr" => markdown.open_row(),
                "tc" => markdown.open_cell(),
                _ => {}
            },
            Piece::Close(name) => match name {
                "t" => in_text = false,
                "p" if !is_number => markdown.paragraph(role, &paragraph, budget)?,
                "tr" => markdown.close_row(budget)?,
                "tbl" => markdown.close_table(),
                _ => {}
            },
            Piece::Text(text) if in_text => paragraph.push_str(text),
            Piece::Text(_) => {}
        }
        Ok(())
    })?;
    Ok(markdown.finish())
}
