//! E-mails (`.eml`): the header and the body as one text, and the attachments as further files.

use mail_parser::{Address, Message, MessageParser, MimeHeaders};

use crate::limits::Budget;
use crate::output::name_within;
use crate::{FileTexts, FormatError, Text, TextLayout, read_into};

/// The maximum number of addresses that are shown of one field.
const MAX_ADDRESSES: usize = 50;

pub(crate) fn read(
    name: &str,
    bytes: &[u8],
    budget: &mut Budget,
    output: &mut FileTexts,
) -> Result<(), FormatError> {
    let message = MessageParser::default().parse(bytes);
    let message = message.ok_or_else(|| FormatError::damaged("the e-mail"))?;
    output.add(Text::new(name, text(&message, budget)?, TextLayout::Prose))?;
    budget.spend_texts(output)?;
    for (number, part) in message.attachments().enumerate() {
        budget.count_file()?;
        let own = part.attachment_name().map(str::to_owned);
        let ending = if part.is_message() { "eml" } else { "txt" };
        let own = own.unwrap_or_else(|| format!("attachment {}.{ending}", number + 1));
        let Some(within) = name_within(name, &own) else {
            continue;
        };
        let bytes = part.contents();
        let read = budget.nested(|budget| read_into(&within, bytes, budget, output));
        if let Err(error) = read {
            output.leave_out(&within, error);
        }
    }
    Ok(())
}

/// Returns the fields that people read, and the body.
fn text(message: &Message<'_>, budget: &Budget) -> Result<String, FormatError> {
    let mut text = String::new();
    let mut field = |name: &str, value: String| {
        if !value.is_empty() {
            text.push_str(&format!("{name}: {}\n", value.replace(['\r', '\n'], " ")));
        }
    };
    field("Subject", message.subject().unwrap_or_default().to_owned());
    field("From", addresses(message.from()));
    field("To", addresses(message.to()));
    field("Cc", addresses(message.cc()));
    let date = message.date().filter(|date| date.is_valid());
    field("Date", date.map(ToString::to_string).unwrap_or_default());
    for number in 0..message.text_body_count() {
        let part = message.text_part(u32::try_from(number).unwrap_or(u32::MAX));
        let html = part.filter(|part| part.is_text_html());
        let body = match html.and_then(|part| part.text_contents()) {
            Some(html) => {
                let left = budget.text_left().saturating_sub(text.len());
                levity_html::extract(html, "", left).text
            }
            None => message.body_text(number).unwrap_or_default().into_owned(),
        };
        let body = body.replace("\r\n", "\n");
        budget.check_text(text.len() + body.len() + 2)?;
        text.push('\n');
        text.push_str(body.trim_end());
        text.push('\n');
    }
    Ok(text)
}

fn addresses(address: Option<&Address<'_>>) -> String {
    let Some(address) = address else {
        return String::new();
    };
    let shown = address.iter().take(MAX_ADDRESSES).map(|address| {
        match (address.name(), address.address()) {
            (Some(name), Some(address)) => format!("{name} <{address}>"),
            (name, address) => name.or(address).unwrap_or_default().to_owned(),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}
