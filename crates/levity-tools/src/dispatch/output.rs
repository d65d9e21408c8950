use std::io;

use levity_core::{Content, MediaSource, ToolError, ToolErrorKind, ToolOutput, ToolResult};
use serde_json::Value;

use super::Dispatcher;
use super::builder::MIN_OUTPUT;
use super::reader::Reader;
use crate::aside::MAX_ITEM;
use crate::entry::Entry;
use crate::schema::{MAX_DEPTH, nodes};
use crate::text::{ceil, floor};

/// Room for the words around a text that was cut.
pub(super) const MARKER: usize = 256;

impl Dispatcher {
    /// Refuses an output that the model must not see.
    pub(super) fn check(&self, entry: &Entry, output: &ToolOutput) -> Result<(), ToolError> {
        let invalid = |text: String| Err(ToolError::new(ToolErrorKind::InvalidOutput, text));
        let media = media_bytes(&output.content);
        if media > self.0.max_media {
            let max = self.0.max_media;
            return invalid(format!(
                "the tool ran and returned {media} bytes of media; at most {max} are shown"
            ));
        }
        match (&entry.output, &output.value) {
            (None, Some(value)) if nodes(value, MAX_DEPTH).is_none() => {
                invalid(format!("the tool ran, but its output is nested deeper than {MAX_DEPTH} levels"))
            }
            (None, _) => Ok(()),
            (Some(_), None) => {
                invalid("the tool ran, but it returned no value, which its output schema asks for".into())
            }
            (Some(schema), Some(value)) => match schema.problems(value) {
                None => Ok(()),
                Some(problems) => {
                    invalid(format!("the tool ran, but its output does not match its schema:\n{problems}"))
                }
            },
        }
    }

    /// Makes a result short enough to be shown, and puts the whole aside.
    pub(super) fn fit(&self, result: &mut ToolResult, hint: Option<usize>) {
        let max = hint.map_or(self.0.max_output, |bytes| bytes.max(MIN_OUTPUT));
        if let Some(value) = result.value.take_if(|value| is_longer(value, max)) {
            let text = value.to_string();
            drop(value);
            match result.content.is_empty() {
                // The value is what the model would see.
                true => result.content.push(Content::Text(text)),
                false => result.content.push(Content::Text(self.left_out(text))),
            }
        }
        if text_bytes(&result.content) > max {
            let whole = take_text(&mut result.content);
            result.content.insert(0, Content::Text(self.cut(whole, max)));
        }
    }

    /// Head and tail of `whole`, with word of what is missing between them.
    fn cut(&self, whole: String, max: usize) -> String {
        let (total, room) = (whole.len(), max - MARKER);
        let head = floor(&whole, room / 3 * 2);
        let tail = ceil(&whole, total - room / 3);
        let (start, end) = (whole[..head].to_owned(), whole[tail..].to_owned());
        let missing = tail - head;
        let way = self.put_aside(whole, head);
        format!("{start}\n[{missing} of {total} bytes are left out here; {way}]\n{end}")
    }

    /// What stands in place of a value that is not shown.
    fn left_out(&self, json: String) -> String {
        let total = json.len();
        let way = self.put_aside(json, 0);
        format!("\n[the value of this result, {total} bytes of JSON, is left out; {way}]")
    }

    /// Keeps `whole` and says how to read it from `offset` on.
    fn put_aside(&self, whole: String, offset: usize) -> String {
        let is_cut = whole.len() > MAX_ITEM;
        let kept = if is_cut { format!(" (only the first {MAX_ITEM} are kept)") } else { String::new() };
        let name = Reader::name(&self.0.registry.specs());
        let id = self.0.reader.aside().put(whole, self.0.world.random());
        format!("read them with `{name}` {{\"id\": \"{id}\", \"offset\": {offset}}}{kept}")
    }
}

/// How many bytes of media there are.
fn media_bytes(content: &[Content]) -> usize {
    let bytes = |content: &Content| match content {
        Content::Media(media) => match &media.source {
            MediaSource::Bytes(bytes) => bytes.as_slice().len(),
            MediaSource::Url(url) => url.len(),
            _ => 0,
        },
        _ => 0,
    };
    content.iter().map(bytes).sum()
}

fn text_bytes(content: &[Content]) -> usize {
    content.iter().map(|content| if let Content::Text(text) = content { text.len() } else { 0 }).sum()
}

/// Takes all text out of `content`; a single text is moved, not copied.
fn take_text(content: &mut Vec<Content>) -> String {
    let mut whole = String::new();
    content.retain_mut(|content| {
        let Content::Text(text) = content else { return true };
        match whole.is_empty() {
            true => whole = std::mem::take(text),
            false => whole.push_str(text),
        }
        false
    });
    whole
}

/// Whether `value` takes more than `max` bytes of JSON; no more than that are looked at.
fn is_longer(value: &Value, max: usize) -> bool {
    serde_json::to_writer(Room(max), value).is_err()
}

struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
