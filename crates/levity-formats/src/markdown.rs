//! Writes the paragraphs, headings, lists and tables of a document as Markdown.

use crate::FormatError;
use crate::limits::Budget;

/// The deepest level of a heading.
const MAX_LEVEL: usize = 6;

/// The role of a paragraph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Text,
    Heading(usize),
    Item,
}

/// A document that is being written. Paragraphs within a table become parts of its cells.
#[derive(Default)]
pub(crate) struct Markdown {
    text: String,
    /// The cells of the current row; tables within tables belong to the outer one.
    row: Option<Vec<String>>,
    tables: usize,
    rows: usize,
    after_item: bool,
}

impl Markdown {
    /// Adds a paragraph with its role.
    pub(crate) fn paragraph(
        &mut self,
        role: Role,
        text: &str,
        budget: &Budget,
    ) -> Result<(), FormatError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        budget.check_text(self.text.len() + text.len() + 10)?;
        if let Some(row) = &mut self.row {
            let cell = match row.last_mut() {
                Some(cell) => cell,
                None => return Ok(()),
            };
            if !cell.is_empty() {
                cell.push(' ');
            }
            cell.extend(text.chars().map(|c| if c == '\n' { ' ' } else { c }));
            return Ok(());
        }
        let is_item = role == Role::Item;
        if !self.text.is_empty() {
            self.text.push_str(if is_item && self.after_item {
                "\n"
            } else {
                "\n\n"
            });
        }
        match role {
            Role::Text => {}
            Role::Item => self.text.push_str("- "),
            Role::Heading(level) => {
                let level = level.clamp(1, MAX_LEVEL);
                self.text.extend(std::iter::repeat_n('#', level));
                self.text.push(' ');
            }
        }
        match role {
            // A heading is one line.
            Role::Heading(_) => self.text.push_str(&text.replace('\n', " ")),
            _ => self.text.push_str(text),
        }
        self.after_item = is_item;
        Ok(())
    }

    pub(crate) fn open_table(&mut self) {
        self.tables += 1;
        if self.tables == 1 {
            self.rows = 0;
        }
    }

    pub(crate) fn close_table(&mut self) {
        self.tables = self.tables.saturating_sub(1);
        if self.tables == 0 {
            self.row = None;
            self.after_item = false;
        }
    }

    pub(crate) fn open_row(&mut self) {
        if self.tables == 1 {
            self.row = Some(Vec::new());
        }
    }

    pub(crate) fn open_cell(&mut self) {
        if self.tables == 1
            && let Some(row) = &mut self.row
        {
            row.push(String::new());
        }
    }

    pub(crate) fn close_row(&mut self, budget: &Budget) -> Result<(), FormatError> {
        if self.tables != 1 {
            return Ok(());
        }
        let Some(row) = self.row.take() else {
            return Ok(());
        };
        if row.iter().all(String::is_empty) {
            return Ok(());
        }
        let line = format!("| {} |", row.join(" | "));
        budget.check_text(self.text.len() + line.len() + 6 * row.len() + 10)?;
        if !self.text.is_empty() {
            self.text
                .push_str(if self.rows == 0 { "\n\n" } else { "\n" });
        }
        self.text.push_str(&line);
        if self.rows == 0 {
            self.text.push_str("\n|");
            self.text.push_str(&" --- |".repeat(row.len()));
        }
        self.rows += 1;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> String {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text
    }
}
