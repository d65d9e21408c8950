//! Workbooks (`.xlsx`, `.xlsb`, `.xls`, `.ods`): each sheet is a text with tabs between cells. Line
//! N is row N.

use std::io::Cursor;

use calamine::{Data, DataRef, ExcelDateTime, Ods, Range, Reader, Xls, Xlsb, Xlsx};

use crate::limits::Budget;
use crate::output::name_within;
use crate::{FileTexts, FormatError, Text, TextLayout};

/// The format of a workbook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Xlsx,
    Xlsb,
    Xls,
    Ods,
}

pub(crate) fn read(
    name: &str,
    bytes: &[u8],
    kind: Kind,
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let reader = Cursor::new(bytes);
    match kind {
        Kind::Xlsx => read_xlsx(name, reader, budget, output)?,
        Kind::Xlsb => read_ranges(name, Xlsb::new(reader), budget, output)?,
        Kind::Xls => read_ranges(name, Xls::new(reader), budget, output)?,
        Kind::Ods => read_ranges(name, Ods::new(reader), budget, output)?,
    }
    match output.texts.is_empty() && output.left_out.is_empty() {
        true => Err(FormatError::no_text()),
        false => Ok(()),
    }
}

fn damaged<E>(_: E) -> FormatError {
    FormatError::damaged("the workbook")
}

/// Reads cell by cell, because two cells can span a table that does not fit into the memory.
fn read_xlsx(
    name: &str,
    reader: Cursor<&[u8]>,
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let mut workbook = Xlsx::new(reader).map_err(damaged)?;
    let sheets = workbook.sheet_names();
    budget.check_pages(sheets.len())?;
    for sheet in sheets {
        let Some(within) = name_within(name, &sheet) else {
            continue;
        };
        let mut rows = Rows::default();
        // A sheet may also be a chart.
        let Ok(mut cells) = workbook.worksheet_cells_reader(&sheet) else {
            continue;
        };
        while let Some(cell) = cells.next_cell().map_err(damaged)? {
            let (row, column) = cell.get_position();
            rows.add(row, column, &shown_ref(cell.get_value()), budget)?;
        }
        rows.finish(&within, budget, output)?;
    }
    Ok(())
}

/// Reads whole sheets, one after the other.
fn read_ranges<'a, R, E>(
    name: &str,
    workbook: Result<R, E>,
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError>
where
    R: Reader<Cursor<&'a [u8]>>,
{
    let mut workbook = workbook.map_err(damaged)?;
    let sheets = workbook.sheet_names();
    budget.check_pages(sheets.len())?;
    for sheet in sheets {
        let Some(within) = name_within(name, &sheet) else {
            continue;
        };
        let range: Range<Data> = workbook.worksheet_range(&sheet).map_err(damaged)?;
        let (first_row, first_column) = range.start().unwrap_or_default();
        let mut rows = Rows::default();
        for (row, column, value) in range.used_cells() {
            let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            let row = first_row.saturating_add(number(row));
            let column = first_column.saturating_add(number(column));
            rows.add(row, column, &shown(value), budget)?;
        }
        rows.finish(&within, budget, output)?;
    }
    Ok(())
}

/// The rows of a sheet as lines.
#[derive(Default)]
struct Rows {
    text: String,
    row: u32,
    column: u32,
}

impl Rows {
    fn add(
        &mut self,
        row: u32,
        column: u32,
        value: &str,
        budget: &Budget,
    ) -> Result<(), FormatError> {
        if value.is_empty() {
            return Ok(());
        }
        // Cells come in order; those of a damaged file that do not are left out.
        if row < self.row || (row == self.row && column < self.column) {
            return Ok(());
        }
        if row > self.row {
            let lines = usize::try_from(row - self.row).unwrap_or(usize::MAX);
            budget.check_text(self.text.len().saturating_add(lines))?;
            self.text.extend(std::iter::repeat_n('\n', lines));
            (self.row, self.column) = (row, 0);
        }
        let tabs = usize::try_from(column - self.column).unwrap_or(usize::MAX);
        let size = self.text.len().saturating_add(tabs);
        budget.check_text(size.saturating_add(value.len()))?;
        self.text.extend(std::iter::repeat_n('\t', tabs));
        let one_line = value.chars().map(|sign| match sign {
            '\n' | '\r' | '\t' => ' ',
            sign => sign,
        });
        self.text.extend(one_line);
        self.column = column;
        Ok(())
    }

    fn finish(
        mut self,
        name: &str,
        budget: &mut Budget,
        output: &mut FileTexts,
    ) -> Result<(), FormatError> {
        if self.text.trim().is_empty() {
            return Ok(());
        }
        self.text.push('\n');
        output.add(Text::new(name, self.text, TextLayout::Table))?;
        budget.spend_texts(output)
    }
}

fn shown_ref(value: &DataRef<'_>) -> String {
    match value {
        DataRef::SharedString(text) => (*text).to_owned(),
        other => shown(&Data::from(other.clone())),
    }
}

fn shown(value: &Data) -> String {
    match value {
        Data::Empty => String::new(),
        Data::DateTime(time) => shown_time(time),
        other => other.to_string(),
    }
}

fn shown_time(time: &ExcelDateTime) -> String {
    if !time.is_datetime() {
        let minutes = (time.as_f64() * 24.0 * 60.0).round();
        return format!(
            "{}:{:02}",
            (minutes / 60.0).floor(),
            minutes.rem_euclid(60.0)
        );
    }
    let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
    let date = format!("{year:04}-{month:02}-{day:02}");
    match (hour, minute, second) {
        (0, 0, 0) => date,
        (hour, minute, 0) => format!("{date} {hour:02}:{minute:02}"),
        (hour, minute, second) => format!("{date} {hour:02}:{minute:02}:{second:02}"),
    }
}
