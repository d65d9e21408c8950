use crate::response::json_size;
use crate::{Content, Message, Part, ToolResult};

/// The tokens that surround each message.
const MESSAGE: u64 = 4;
/// The typical size in tokens of an image or another media part.
const MEDIA: u64 = 1_500;

/// Estimates the number of tokens in a text without a tokenizer.
///
/// The estimate is a quarter of the ASCII bytes plus one token for each other character. For
/// English and code it is within about 20%; for other scripts it tends to be too high.
///
/// ```
/// # use levity_core::estimate_tokens;
/// assert_eq!(estimate_tokens("four bytes make a token"), 6);
/// assert_eq!(estimate_tokens("東京"), 2);
/// ```
pub fn estimate_tokens(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let ascii = bytes.iter().filter(|byte| byte.is_ascii()).count() as u64;
    // Count characters outside ASCII by their first bytes: continuation bytes are not counted.
    let others = bytes.iter().filter(|byte| **byte >= 0xc0).count() as u64;
    ascii.div_ceil(4) + others
}

impl Message {
    /// Estimates the number of tokens in this message; see [`estimate_tokens`].
    pub fn tokens(&self) -> u64 {
        self.parts
            .iter()
            .map(part_tokens)
            .fold(MESSAGE, u64::saturating_add)
    }
}

fn part_tokens(part: &Part) -> u64 {
    let opaque = part
        .opaque()
        .map_or(0, |opaque| json_size(&opaque.data) as u64 / 4);
    let own = match part {
        Part::Text(text) => estimate_tokens(&text.text),
        Part::Thinking(thinking) => estimate_tokens(&thinking.text),
        Part::ToolCall(call) => {
            let raw = call.raw.as_ref().map_or(0, |raw| estimate_tokens(raw));
            estimate_tokens(&call.name) + (json_size(&call.args) as u64).div_ceil(4) + raw + MESSAGE
        }
        Part::ToolResult(result) => result_tokens(result),
        Part::Media(_) => MEDIA,
        Part::Opaque(_) => 0,
    };
    own.saturating_add(opaque)
}

fn result_tokens(result: &ToolResult) -> u64 {
    let content = result.content.iter().map(|content| match content {
        Content::Text(text) => estimate_tokens(text),
        Content::Media(_) => MEDIA,
    });
    let shown: u64 = content.sum();
    let value = if shown == 0 {
        result.value.as_ref().map_or(0, json_size)
    } else {
        0
    };
    shown + (value as u64).div_ceil(4) + MESSAGE
}
