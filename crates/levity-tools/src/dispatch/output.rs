//! Bounds the part of a result that the model sees.
//!
//! The head gets two thirds of the room and the tail one third, because errors and totals are often
//! at the end. The note between them says how to read the rest.

use std::io;
use std::sync::Arc;

use levity_core::{CallId, Content, MediaSource, ToolError, ToolErrorKind, ToolOutput, ToolResult};
use serde_json::Value;

use super::Dispatcher;
use super::builder::MIN_OUTPUT;
use crate::entry::Entry;
use crate::schema::{MAX_DEPTH, nodes};
use crate::text::{ceil, floor};

/// The maximum bytes that are retained of a result that is too long to be shown.
pub(super) const MAX_WHOLE: usize = 8 << 20;

/// The room for the note around a cut text.
pub(super) const MARKER: usize = 256;

impl Dispatcher {
    /// Rejects an output that the model must not see.
    pub(super) fn check(&self, entry: &Entry, output: &ToolOutput) -> Result<(), ToolError> {
        let invalid = |text: String| Err(ToolError::new(ToolErrorKind::InvalidOutput, text));
        let media = media_bytes(&output.content);
        if media > self.0.max_media {
            let max = self.0.max_media;
            return invalid(format!(
                "the tool ran, but returned {media} bytes of media; the limit is {max}"
            ));
        }
        match (&entry.output, &output.value) {
            (None, Some(value)) if nodes(value, MAX_DEPTH).is_none() => invalid(format!(
                "the tool ran, but its output is nested deeper than {MAX_DEPTH} levels"
            )),
            (None, _) => Ok(()),
            (Some(_), None) => invalid(
                "the tool ran, but returned no value, which its output schema requires".into(),
            ),
            (Some(schema), Some(value)) => match schema.problems(value) {
                None => Ok(()),
                Some(problems) => invalid(format!(
                    "the tool ran, but its output does not match its schema:\n{problems}"
                )),
            },
        }
    }

    /// Shortens a result so that it can be shown; the whole output stays with it.
    pub(super) fn fit(&self, result: &mut ToolResult, hint: Option<usize>) {
        let max = hint.map_or(self.0.max_output, |bytes| bytes.max(MIN_OUTPUT));
        let mut long = LongResult {
            reader: self.0.reader,
            call: result.call.clone(),
            whole: String::new(),
        };
        let value = result
            .value
            .take_if(|value| is_longer(value, max))
            .map(|value| value.to_string());
        let note = match value {
            // The value is the part that the model would see.
            Some(json) if result.content.is_empty() => {
                result.content.push(Content::Text(json));
                None
            }
            value => value.map(|json| long.left_out(json)),
        };
        let room = max - note.as_ref().map_or(0, String::len).min(max - MIN_OUTPUT);
        if text_bytes(&result.content) > room {
            let shown = long.cut(take_text(&mut result.content), room);
            result.content.insert(0, Content::Text(shown));
        }
        result.content.extend(note.map(Content::Text));
        result.whole = long.finish();
    }
}

/// Collects the parts of a result that are too long to be shown.
struct LongResult {
    /// The name of the tool that reads them.
    reader: &'static str,
    call: CallId,
    whole: String,
}

impl LongResult {
    /// Retains `text`, and returns its head and tail with a note about the missing part.
    fn cut(&mut self, text: String, max: usize) -> String {
        let total = text.len();
        let before = if self.whole.is_empty() {
            0
        } else {
            self.whole.len() + 1
        };
        // The numbers in the marker are not known yet; these are the longest.
        let marker = self.read_instruction(before + total, before + total).len() + MARKER / 2;
        let room = max
            .saturating_sub(marker.max(MARKER))
            .max(MIN_OUTPUT - MARKER);
        let (head, tail) = (floor(&text, room / 3 * 2), ceil(&text, total - room / 3));
        let (missing, read_instruction) = (
            tail - head,
            self.read_instruction(before + head, before + total),
        );
        let (start, end) = (&text[..head], &text[tail..]);
        let shown = format!(
            "{start}\n[{missing} of {total} bytes are left out here; {read_instruction}]\n{end}"
        );
        match before {
            0 => self.whole = text,
            _ => self.whole.extend(["\n", &text]),
        }
        shown
    }

    /// Retains a value, and returns the note that replaces it.
    fn left_out(&mut self, json: String) -> String {
        let total = json.len();
        let read_instruction = self.read_instruction(0, total);
        self.whole = json;
        format!(
            "\n[the value of this result, {total} bytes of JSON, is left out; {read_instruction}]"
        )
    }

    /// Returns the instruction to read from `offset` on, up to `end`.
    fn read_instruction(&self, offset: usize, end: usize) -> String {
        let kept = match end > MAX_WHOLE {
            true => format!(" (only the first {MAX_WHOLE} are stored)"),
            false => String::new(),
        };
        let (reader, id) = (self.reader, Value::from(self.call.as_str()));
        format!("read them with `{reader}` {{\"id\": {id}, \"offset\": {offset}}}{kept}")
    }

    fn finish(mut self) -> Option<Arc<str>> {
        self.whole.truncate(floor(&self.whole, MAX_WHOLE));
        (!self.whole.is_empty()).then(|| self.whole.into())
    }
}

/// Returns the number of bytes of media.
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
    content
        .iter()
        .map(|content| {
            if let Content::Text(text) = content {
                text.len()
            } else {
                0
            }
        })
        .sum()
}

/// Removes all text from `content`; a single text is moved, not copied.
fn take_text(content: &mut Vec<Content>) -> String {
    let mut whole = String::new();
    content.retain_mut(|content| {
        let Content::Text(text) = content else {
            return true;
        };
        match whole.is_empty() {
            true => whole = std::mem::take(text),
            false => whole.push_str(text),
        }
        false
    });
    whole
}

/// Returns `true` if `value` takes more than `max` bytes of JSON; it reads no more than that.
fn is_longer(value: &Value, max: usize) -> bool {
    serde_json::to_writer(LimitedWriter(max), value).is_err()
}

struct LimitedWriter(usize);

impl io::Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
