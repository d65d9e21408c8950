//! PDF files, page by page.

use pdfboss_core::{Document, Error};
use pdfboss_output::{FontCache, ReadingOrder, extract_text_reporting_cached};

use crate::limits::Budget;
use crate::{FormatError, Text, TextLayout};

/// Reads page by page. A page that cannot be read is empty, so that the numbers of the others stay
/// right.
pub(crate) fn read(name: &str, bytes: &[u8], budget: &Budget) -> Result<Text, FormatError> {
    let document = Document::load(bytes.to_vec()).map_err(|error| match error {
        Error::Encrypted => FormatError::encrypted(),
        _ => FormatError::damaged("the PDF"),
    })?;
    let count = document.page_count();
    budget.check_pages(count)?;
    let fonts = FontCache::default();
    let (mut pages, mut size, mut failed) = (Vec::new(), 0, 0);
    for number in 0..count {
        let text = document.page(number).ok().and_then(|page| {
            let order = ReadingOrder::Content;
            extract_text_reporting_cached(&document, &page, &fonts, order).ok()
        });
        failed += usize::from(text.is_none());
        let text = text.map(|(text, _)| text).unwrap_or_default();
        size += text.len() + 1;
        budget.check_text(size)?;
        pages.push(text);
    }
    if failed == count {
        return Err(FormatError::damaged("the PDF"));
    }
    Ok(Text::of_pages(name, pages, TextLayout::Prose))
}
