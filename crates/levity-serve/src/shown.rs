//! Calls as they are shown to whoever decides about them.

use levity_core::text::{head, is_blank};
use serde_json::Value;

/// How many bytes of a call's arguments are shown.
pub(crate) const SHOWN_ARGS: usize = 8 << 10;

/// The arguments of a call for somebody who decides about it.
pub(crate) struct ShownArgs {
    /// All of them, or the beginning and the end with how much is missing.
    pub(crate) text: String,
    /// Whether nothing is missing; what is not shown must not be allowed.
    pub(crate) is_whole: bool,
}

impl ShownArgs {
    pub(crate) fn new(args: &Value) -> Self {
        let args = visible(&args.to_string());
        if args.len() <= SHOWN_ARGS {
            return Self {
                text: args,
                is_whole: true,
            };
        }
        let head = head(&args, SHOWN_ARGS / 2);
        let from = args.len() - SHOWN_ARGS / 2;
        let from = (from..)
            .find(|at| args.is_char_boundary(*at))
            .unwrap_or(args.len());
        let text = format!(
            "{head} [.. {} bytes are not shown ..] {}",
            from - head.len(),
            &args[from..]
        );
        Self {
            text,
            is_whole: false,
        }
    }
}

/// A text with escapes in place of characters that are not seen, or turn the direction of others.
/// JSON means the same with them.
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
    fn shown_args_are_whole_up_to_their_limit_and_hide_nothing() {
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
            let found = ShownArgs::new(&args);
            assert_eq!((&*found.text, found.is_whole), (shown, whole), "{args}");
            assert_eq!(serde_json::from_str::<Value>(&found.text).unwrap(), args);
        }
        for (text, whole) in [
            ("x".repeat(SHOWN_ARGS - 2), true),
            ("x".repeat(SHOWN_ARGS - 1), false),
            ("\u{200b}".repeat(SHOWN_ARGS / 6 + 1), false),
            ("é".repeat(SHOWN_ARGS), false),
        ] {
            let found = ShownArgs::new(&json!(text));
            assert_eq!(found.is_whole, whole, "{}", text.len());
            assert!(found.text.len() <= SHOWN_ARGS + 50);
            assert_eq!(found.text.contains("bytes are not shown"), !whole);
        }
    }
}
