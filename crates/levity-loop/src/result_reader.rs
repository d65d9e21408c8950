//! The tool by which a model reads earlier results in pieces.
//!
//! A long result is cut for the model, and its full text is retained beside it. The model reads on
//! with offsets. The pieces are cut between characters, and consecutive offsets give the whole
//! text.

use std::fmt::Write as _;

use levity_core::{CallId, Hints, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Map, Value, json};

/// The name that the loop reserves for the tool, whatever the tools of an agent are called.
pub(crate) const RESERVED_NAME: &str = "levity_read_result";

/// The maximum bytes of long results that a run retains; beyond it, the oldest are dropped.
pub(crate) const MAX_RETAINED: usize = 64 << 20;

/// The room for the text after a piece.
pub(crate) const MARKER: usize = 256;

/// The minimum length of a piece: at least one character, so that reading makes progress.
const MIN_PIECE: usize = 4;

const ARGS: [&str; 3] = ["id", "offset", "length"];

pub(crate) fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(
        name,
        "Reads a part of an earlier tool result that was too long to be shown \
        whole.",
    )
    .with_hints(Hints::new().read_only())
    .with_input(json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id named where the result was cut."},
            "offset": {"type": "integer", "minimum": 0, "description": "The first byte to \
                read; 0 by default."},
            "length": {"type": "integer", "minimum": MIN_PIECE, "description": "How many bytes; \
                as many as fit by default."},
        },
        "required": ["id"],
        "additionalProperties": false,
    }))
}

/// The piece that a call requests.
pub(crate) struct ReadRequest {
    pub(crate) id: CallId,
    offset: usize,
    length: Option<usize>,
}

impl ReadRequest {
    /// Parses the arguments of a call.
    pub(crate) fn of(call: &ToolCall) -> Result<Self, ToolError> {
        let wrong = |text: String| ToolError::new(ToolErrorKind::InvalidArgs, text);
        let empty = Map::new();
        let args = match &call.args {
            _ if call.raw.is_some() => {
                return Err(wrong("the arguments are not valid JSON".into()));
            }
            // Some models send `null` for no arguments.
            Value::Null => &empty,
            Value::Object(args) => args,
            _ => return Err(wrong("the arguments must be an object with an `id`".into())),
        };
        if let Some(other) = args.keys().find(|name| !ARGS.contains(&name.as_str())) {
            let other: String = other.chars().take(64).collect();
            return Err(wrong(format!(
                "there is no argument `{other}`; there are `id`, `offset` and `length`"
            )));
        }
        let Some(id) = args.get("id").and_then(Value::as_str) else {
            return Err(wrong(
                "`id` must be a text: the id named where the result was cut".into(),
            ));
        };
        let number = |name: &str, least: usize| match args.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => whole_number(value)
                .filter(|number| *number >= least)
                .map(Some)
                .ok_or_else(|| wrong(format!("`{name}` must be a whole number, {least} or more"))),
        };
        Ok(Self {
            id: id.into(),
            offset: number("offset", 0)?.unwrap_or(0),
            length: number("length", MIN_PIECE)?,
        })
    }

    /// Returns the requested piece of `text`, of at most `max` bytes, with its position and the
    /// next offset. Consecutive pieces give the whole text, whatever their offsets.
    pub(crate) fn piece(&self, text: &str, max: usize) -> ToolOutput {
        let length = self.length.unwrap_or(max).min(max);
        let (start, end) = (
            floor(text, self.offset),
            floor(text, self.offset.saturating_add(length)),
        );
        let mut note = format!("\n[bytes {start} to {end} of {}; ", text.len());
        // Writing to a string does not fail.
        let _ = match end < text.len() {
            true => write!(note, "read on at {end}]"),
            false => write!(note, "this is the end]"),
        };
        let mut output = ToolOutput::text(&text[start..end]);
        output.content.extend(ToolOutput::text(note).content);
        output
    }

    /// Returns the error for a result that never existed.
    pub(crate) fn unknown(&self) -> ToolError {
        let id = self.short_id();
        ToolError::failed(format!(
            "nothing is kept under `{id}`; use the id named where the result was cut"
        ))
    }

    /// Returns the error for a call that has no result yet.
    pub(crate) fn too_early(&self) -> ToolError {
        let id = self.short_id();
        ToolError::failed(format!(
            "the call `{id}` has no result yet; read it in a later turn"
        ))
    }

    /// Returns the error for a result that was dropped.
    pub(crate) fn dropped(&self) -> ToolError {
        let id = self.short_id();
        ToolError::failed(format!(
            "nothing is kept under `{id}` any more; make the call that returned it again"
        ))
    }

    fn short_id(&self) -> String {
        self.id.as_str().chars().take(64).collect()
    }
}

/// Returns a number without a fraction; some models write `5.0`. A number that is too large lies
/// beyond every end.
fn whole_number(value: &Value) -> Option<usize> {
    if let Some(number) = value.as_u64() {
        return Some(usize::try_from(number).unwrap_or(usize::MAX));
    }
    let number = value
        .as_f64()
        .filter(|number| *number >= 0.0 && number.fract() == 0.0)?;
    // The cast saturates, which is intended.
    Some(number as usize)
}

/// Returns the last char boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use levity_core::Content;

    use super::*;

    fn wanted(args: Value) -> Result<ReadRequest, String> {
        let call = ToolCall::new("c9", "read_result", args);
        ReadRequest::of(&call).map_err(|error| error.explain())
    }

    fn piece(text: &str, offset: usize, length: usize) -> (String, String) {
        let wanted = ReadRequest {
            id: "c1".into(),
            offset,
            length: Some(length),
        };
        match &wanted.piece(text, 1_000).content[..] {
            [Content::Text(text), Content::Text(note)] => (text.clone(), note.clone()),
            [Content::Text(note)] => (String::new(), note.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn consecutive_pieces_give_whole_text_at_any_length() {
        let whole = "aé😀\n€".repeat(50);
        for length in 1..40 {
            let pieces = (0..=whole.len())
                .step_by(length)
                .map(|at| piece(&whole, at, length).0);
            assert_eq!(pieces.collect::<String>(), whole, "{length}");
        }
    }

    #[test]
    fn piece_reports_its_position() {
        assert_eq!(
            piece("abcdef", 1, 4),
            ("bcde".into(), "\n[bytes 1 to 5 of 6; read on at 5]".into())
        );
        assert_eq!(
            piece("abcdef", 4, 4),
            ("ef".into(), "\n[bytes 4 to 6 of 6; this is the end]".into())
        );
        assert_eq!(
            piece("abc", usize::MAX, usize::MAX).1,
            "\n[bytes 3 to 3 of 3; this is the end]"
        );
        assert_eq!(piece(&"x".repeat(5_000), 0, usize::MAX).0.len(), 1_000);
    }

    #[track_caller]
    fn check(args: Value, error: &str) {
        assert_eq!(wanted(args).err().as_deref(), Some(error));
    }

    #[test]
    fn invalid_arguments_are_named() {
        let id = "`id` must be a text: the id named where the result was cut";
        check(json!({}), id);
        check(json!(null), id);
        check(json!({"id": 5}), id);
        check(json!("c1"), "the arguments must be an object with an `id`");
        check(
            json!({"id": "a", "offset": -1}),
            "`offset` must be a whole number, 0 or more",
        );
        check(
            json!({"id": "a", "offset": "1"}),
            "`offset` must be a whole number, 0 or more",
        );
        check(
            json!({"id": "a", "offset": 1.5}),
            "`offset` must be a whole number, 0 or more",
        );
        check(
            json!({"id": "a", "length": 3}),
            "`length` must be a whole number, 4 or more",
        );
        check(
            json!({"id": "a", "from": 3}),
            "there is no argument `from`; there are `id`, `offset` and `length`",
        );
        let raw = ReadRequest::of(&ToolCall::from_text("c", "read_result", "{\"id\": "));
        assert_eq!(
            raw.err().map(|error| error.explain()).as_deref(),
            Some("the arguments are not valid JSON")
        );
    }

    #[test]
    fn numbers_are_parsed_as_models_write_them() {
        let args = json!({"id": "a", "offset": 5.0, "length": 1e300});
        let wanted = wanted(args).unwrap();
        assert_eq!((wanted.offset, wanted.length), (5, Some(usize::MAX)));
    }
}
