//! Text tables: the first column is left-aligned, numbers are right-aligned.

/// The maximum number of characters in a cell: names of categories come from files, and one long
/// cell would widen all rows.
const MAX_CELL_CHARS: usize = 40;

pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned)],
        }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| short(&cell)));
    }

    pub(crate) fn to_text(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        let mut text = String::new();
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }
}

/// Returns the cell on one line, or its beginning and an ellipsis if it is too long. A name with a
/// line break could otherwise imitate another row.
fn short(cell: &str) -> String {
    let cell = on_one_line(cell);
    if cell.chars().nth(MAX_CELL_CHARS).is_none() {
        return cell;
    }
    let head: String = cell.chars().take(MAX_CELL_CHARS - 1).collect();
    format!("{head}…")
}

/// Replaces characters that would begin another line.
pub(crate) fn on_one_line(text: &str) -> String {
    let breaks_line = |char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}');
    text.replace(breaks_line, "\u{fffd}")
}
