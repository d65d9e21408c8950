//! Tables.

use super::super::names::Name;
use super::super::out::Out;
use super::super::tree::Id;
use super::{Leave, MAX_CELL, Writer};

/// The most cells of a table that are shown side by side.
const MAX_COLUMNS: usize = 30;

impl Writer<'_, '_> {
    /// A table of short cells is one; any other is there for the layout, and its cells are shown in
    /// turn.
    pub(super) fn table(&mut self, id: Id) -> Id {
        let end = self.doc.end(id);
        if self.shapes.tables[id] || self.shapes.large[id] || self.out.is_one_line() {
            return self.layout(id);
        }
        let rows: Vec<_> = (id..end)
            .filter(|id| self.doc.name(*id) == Name::Tr)
            .collect();
        // Rows of one cell that come first are headings or pictures.
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

    fn cells(&self, row: Id) -> impl Iterator<Item = Id> {
        self.doc
            .children(row)
            .filter(|id| matches!(self.doc.name(*id), Name::Td | Name::Th))
    }

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

    fn layout(&mut self, id: Id) -> Id {
        self.out.block(2);
        self.then(id, Leave::Block(2));
        id + 1
    }

    /// What is in a cell, on one line.
    fn cell(&self, id: Id) -> String {
        if self.content.leaves_out(id) {
            return String::new();
        }
        let out = Out::line(self.out.room().min(8 * MAX_CELL));
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
            leave: Vec::new(),
            lists: Vec::new(),
        };
        writer.range(id + 1, doc.end(id));
        writer.out.finish().0
    }
}
