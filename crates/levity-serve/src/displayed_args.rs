//! Renders tool calls for the person who approves them.
//!
//! A person must see all of what they approve. Arguments that are longer than
//! [`MAX_DISPLAYED_ARGS`] are shown in part, and such a call can only be denied. Invisible and
//! direction-changing characters are escaped, so that a call cannot look like another one.

use levity_core::text::{head, is_blank};
use serde_json::Value;

/// The maximum number of bytes of arguments that are displayed.
pub(crate) const MAX_DISPLAYED_ARGS: usize = 8 << 10;

/// The arguments of a call, for the person who approves it.
pub(crate) struct DisplayedArgs {
    /// All arguments, or their beginning and end with the number of omitted bytes.
    pub(crate) text: String,
    /// `true` if nothing is omitted. A call that is not displayed in full must not be approved.
    pub(crate) is_complete: bool,
}

impl DisplayedArgs {
    /// The result is compact JSON. A longer one keeps its first and last 4 KiB, cut at whole
    /// characters.
    pub(crate) fn new(args: &Value) -> Self {
        let args = visible(&args.to_string());
        if args.len() <= MAX_DISPLAYED_ARGS {
            return Self {
                text: args,
                is_complete: true,
            };
        }
        let head = head(&args, MAX_DISPLAYED_ARGS / 2);
        let from = args.len() - MAX_DISPLAYED_ARGS / 2;
        let from = (from..)
            .find(|at| args.is_char_boundary(*at))
            .unwrap_or(args.len());
        let text = format!(
            "{head} [.. {} bytes omitted ..] {}",
            from - head.len(),
            &args[from..]
        );
        Self {
            text,
            is_complete: false,
        }
    }
}

/// Escapes invisible characters and those that change the direction of text. The result is
/// equivalent as JSON.
///
/// A right-to-left override, for example, becomes `\u202e`. Spaces and line breaks stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ' ' | '\n') || !is_blank(c.encode_utf8(&mut [0; 4])) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn displayed_args_are_complete_up_to_the_limit_and_visible() {
        for (args, shown, whole) in [
            (json!({}), "{}", true),
            (json!({"a": "b c"}), r#"{"a":"b c"}"#, true),
            (
                json!({"a": "\u{202e}x\u{200b}"}),
                r#"{"a":"\u202ex\u200b"}"#,
                true,
            ),
            (
                json!({"a": "\u{e0041}\u{7f}\n\u{a0}"}),
                r#"{"a":"\udb40\udc41\u007f\n\u00a0"}"#,
                true,
            ),
        ] {
            let found = DisplayedArgs::new(&args);
            assert_eq!((&*found.text, found.is_complete), (shown, whole), "{args}");
            assert_eq!(serde_json::from_str::<Value>(&found.text).unwrap(), args);
        }
        for (text, whole) in [
            ("x".repeat(MAX_DISPLAYED_ARGS - 2), true),
            ("x".repeat(MAX_DISPLAYED_ARGS - 1), false),
            ("\u{200b}".repeat(MAX_DISPLAYED_ARGS / 6 + 1), false),
            ("é".repeat(MAX_DISPLAYED_ARGS), false),
        ] {
            let found = DisplayedArgs::new(&json!(text));
            assert_eq!(found.is_complete, whole, "{}", text.len());
            assert!(found.text.len() <= MAX_DISPLAYED_ARGS + 50);
            assert_eq!(found.text.contains("bytes omitted"), !whole);
        }
    }
}
