use std::error::Error;
use std::fmt;

use levity_core::{Content, Tool, ToolError, ToolErrorKind, ToolOutput};
use levity_macros::tool;
use serde::Serialize;
use serde_json::{Value, json};

use super::run;

#[derive(Serialize, schemars::JsonSchema)]
struct Point {
    /// From the left.
    x: i32,
    y: i32,
}

type Renamed<T> = Result<T, Oops>;

/// An error with a cause.
#[derive(Debug)]
struct Oops(std::num::ParseIntError);

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no number")
    }
}

impl Error for Oops {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

fn oops() -> Oops {
    Oops("x".parse::<i32>().unwrap_err())
}

/// Returns text.
#[tool]
async fn _string() -> String {
    "text".to_owned()
}

/// Returns text.
#[tool]
async fn _str() -> Result<&'static str, ToolError> {
    Ok("text")
}

/// Returns nothing.
#[tool]
async fn _unit() -> anyhow::Result<()> {
    Ok(())
}

/// Returns an output.
#[tool]
async fn _output() -> Renamed<ToolOutput> {
    Ok(ToolOutput::text("mine"))
}

/// Returns a struct.
#[tool]
async fn _point() -> anyhow::Result<Point> {
    Ok(Point { x: 1, y: 2 })
}

/// Returns an opaque type.
#[tool]
async fn _opaque() -> impl Serialize {
    [1, 2]
}

/// Returns a value.
#[tool]
async fn _option() -> Option<u8> {
    None
}

#[track_caller]
fn check_text(tool: &dyn Tool, expected: &str) {
    assert_eq!(run(tool, json!({})).unwrap(), ToolOutput::text(expected));
}

#[track_caller]
fn check_value(tool: &dyn Tool, expected: Value) {
    assert_eq!(run(tool, json!({})).unwrap(), ToolOutput::value(expected));
}

#[test]
fn return_value_becomes_output_by_type() {
    check_text(&_string, "text");
    check_text(&_str, "text");
    check_text(&_unit, "done");
    check_text(&_output, "mine");
    check_value(&_point, json!({"x": 1, "y": 2}));
    check_value(&_opaque, json!([1, 2]));
    check_value(&_option, json!(null));
}

/// Fails with a tool error.
#[tool]
async fn _tool_error() -> Result<(), ToolError> {
    Err(ToolError::transient("try again"))
}

/// Fails with an error.
#[tool]
async fn _std_error() -> Renamed<u8> {
    Err(oops())
}

/// Fails with an error that has no cause.
#[tool]
async fn _leaf_error() -> Result<u8, std::num::ParseIntError> {
    "x".parse()
}

/// Fails with an error of `anyhow`.
#[tool]
async fn _anyhow() -> anyhow::Result<u8> {
    Err(anyhow::Error::new(oops()).context("no port"))
}

/// Fails with a box.
#[tool]
async fn _boxed() -> Result<u8, Box<dyn Error + Send + Sync>> {
    Err(oops().into())
}

/// Fails with a tool error in a box.
#[tool]
async fn _boxed_tool_error() -> Result<u8, Box<dyn Error + Send + Sync>> {
    Err(ToolError::transient("try again"))?
}

/// Fails with a box that cannot be sent.
#[tool]
async fn _local_box() -> Result<u8, Box<dyn Error>> {
    Err("local".into())
}

/// Fails with text.
#[tool]
async fn _text_error() -> Result<u8, String> {
    Err("just text".to_owned())
}

#[track_caller]
fn check_error(tool: &dyn Tool, explained: &str) -> ToolError {
    let error = run(tool, json!({})).unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Failed);
    assert_eq!(error.explain(), explained);
    error
}

#[test]
fn returned_error_keeps_message_and_causes_once() {
    check_error(&_std_error, "no number: invalid digit found in string");
    check_error(&_leaf_error, "invalid digit found in string");
    check_error(
        &_anyhow,
        "no port: no number: invalid digit found in string",
    );
    check_error(&_boxed, "no number: invalid digit found in string");
    check_error(&_local_box, "local");
    check_error(&_text_error, "just text");
    assert_eq!(
        run(&_std_error, json!({})).unwrap_err().to_string(),
        "no number"
    );
}

#[test]
fn returned_tool_error_is_unchanged() {
    assert!(check_error(&_tool_error, "try again").is_retryable());
    assert!(check_error(&_boxed_tool_error, "try again").is_retryable());
}

/// Has keys that JSON does not have.
#[tool]
async fn _unwritable() -> std::collections::BTreeMap<(u8, u8), u8> {
    [((1, 2), 3)].into()
}

#[test]
fn output_that_json_cannot_represent_is_error() {
    assert_eq!(
        run(&_unwritable, json!({})).unwrap_err().kind(),
        ToolErrorKind::InvalidOutput
    );
}

/// Includes its output schema.
#[tool(output_schema)]
async fn _with_schema() -> Renamed<Point> {
    Ok(Point { x: 1, y: 2 })
}

/// Includes the schema of its text.
#[tool(output_schema)]
async fn _text_with_schema() -> String {
    "text".to_owned()
}

#[test]
fn output_schema_describes_return_value() {
    assert_eq!(_point.spec().output, None);
    let schema = _with_schema.spec().output.as_ref().unwrap();
    assert_eq!(
        schema["properties"]["x"],
        json!({"description": "From the left.", "type": "integer"})
    );
    check_value(&_with_schema, json!({"x": 1, "y": 2}));
    assert_eq!(
        _text_with_schema.spec().output,
        Some(json!({"type": "string"}))
    );
    check_value(&_text_with_schema, json!("text"));
}

/// Returns a mix.
#[tool]
async fn _content() -> ToolOutput {
    let mut output = ToolOutput::text("a");
    output.content.push(Content::Text("b".to_owned()));
    output
}

#[test]
fn returned_tool_output_is_unchanged() {
    assert_eq!(run(&_content, json!({})).unwrap().content.len(), 2);
}
