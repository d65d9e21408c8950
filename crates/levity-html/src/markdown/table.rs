//! Rendering of HTML tables as Markdown.
//!
//! Many pages use tables for layout. A table counts as data if it has two rows or more, short
//! cells, no other table in it, and nothing large such as a heading, a quote or code. Each cell is
//! written on one line, by a writer of its own.

use super::super::names::Name;
use super::super::output::MarkdownOutput;
use super::super::tree::Id;
use super::{EndAction, MAX_CELL, Writer};

/// The maximum number of cells in a row.
const MAX_COLUMNS: usize = 30;

impl Writer<'_, '_> {
    /// Renders a table with short cells as a Markdown table. Any other table is layout, and its
    /// cells are rendered in sequence.
    pub(super) fn table(&mut self, id: Id) -> Id {
        let end = self.doc.end(id);
        if self.shapes.tables[id] || self.shapes.large[id] || self.out.is_one_line() {
            return self.layout(id);
        }
        let rows: Vec<_> = (id..end)
            .filter(|id| self.doc.name(*id) == Name::Tr)
            .collect();
        // Leading rows with one cell are headings or images.
        let lone = rows
            .iter()
            .take_while(|row| self.cells(**row).take(2).count() < 2)
            .count();
        if rows.len() < 2 || lone == rows.len() {
            return self.layout(id);
        }
        if let Some(caption) = self
            .doc
            .children(id)
            .find(|child| self.doc.name(*child) == Name::Caption)
        {
            let caption = self.cell(caption);
            self.out.block(2);
            self.out.flow(&caption);
        }
        for row in &rows[..lone] {
            let text: Vec<_> = self.cells(*row).map(|cell| self.cell(cell)).collect();
            self.out.block(2);
            self.out.flow(&text.concat());
        }
        self.rows(&rows[lone..]);
        end
    }

    /// Only direct children count, so cells of an inner table are not mixed in.
    fn cells(&self, row: Id) -> impl Iterator<Item = Id> {
        self.doc
            .children(row)
            .filter(|id| matches!(self.doc.name(*id), Name::Td | Name::Th))
    }

    /// The first row becomes the header, which Markdown requires. At most 30 cells of a row are
    /// shown.
    fn rows(&mut self, rows: &[Id]) {
        self.out.block(2);
        for (at, row) in rows.iter().enumerate() {
            let cells = self.cells(*row).take(MAX_COLUMNS);
            let cells: Vec<_> = cells
                .map(|cell| self.cell(cell).replace('|', "\\|"))
                .collect();
            if self.out.is_full() {
                break;
            }
            self.out.raw_line(&format!("| {} |", cells.join(" | ")));
            if at == 0 {
                self.out
                    .raw_line(&format!("|{}", " --- |".repeat(cells.len().max(1))));
            }
        }
        self.out.block(2);
    }

    /// Treats the table as a block, and continues with its content.
    fn layout(&mut self, id: Id) -> Id {
        self.out.block(2);
        self.then(id, EndAction::Block(2));
        id + 1
    }

    /// Renders the content of a cell on one line.
    fn cell(&self, id: Id) -> String {
        if self.content.excludes(id) {
            return String::new();
        }
        let out = MarkdownOutput::line(self.out.room().min(8 * MAX_CELL));
        let Self {
            doc,
            content,
            base,
            shapes,
            ..
        } = *self;
        let mut writer = Writer {
            doc,
            content,
            base,
            shapes,
            out,
            end_action: Vec::new(),
            lists: Vec::new(),
        };
        writer.range(id + 1, doc.end(id));
        writer.out.finish().0
    }
}
