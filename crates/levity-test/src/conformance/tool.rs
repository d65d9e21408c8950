//! The suite for tools, and the check of a tool's spec that sources of tools share.

use levity_core::{Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use super::check::{abandon, expect_ok, no_panic, same};

/// Checks a [`Tool`] against its contract.
///
/// `make` returns a tool that can be called with `args`, and succeeds.
///
/// The suite checks:
/// - `spec` always returns the same, and survives JSON;
/// - the name has 1 to 64 letters, digits, `_` and `-`; there is a description; the input schema is
///   an object schema;
/// - `call` succeeds with `args`, and returns a value of the right type if there is an output
///   schema;
/// - arguments that are not an object may make it fail, but never panic;
/// - a failure has a message, and does not report an unknown outcome or a cancellation: only a
///   dispatcher knows that;
/// - dropping a call, polled or not, is harmless;
/// - a tool with a compensable class can undo: a call that was made, one that was not, one that was
///   dropped half-way, and one that was undone before; and it can be called again after that.
///
/// Not checked: that a dropped call is cancelled, that nothing remains of an undone call, and that
/// values match the schemas in detail; the dispatcher validates that on every call.
///
/// ```
/// use levity_core::ToolOutput;
/// use levity_test::{RecordingTool, conformance};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let echo = || RecordingTool::new("echo", |args| Ok(ToolOutput::value(args.clone())));
/// conformance::tool(echo, json!({"text": "hi"})).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn tool<T: Tool>(make: impl Fn() -> T, args: Value) {
    let tool = make();
    check_spec(tool.spec());
    same(
        tool.spec(),
        make().spec(),
        "tool: `spec` always returns the same",
    );

    let output = no_panic(
        tool.call(args.clone(), &ToolCx::detached()),
        "tool: a failure is an `Err`",
    )
    .await;
    check_output(
        tool.spec(),
        &expect_ok(
            output,
            "tool: `make` returns a tool that succeeds with `args`",
        ),
    );
    for junk in [json!("junk"), json!([1, null]), json!(7), json!(true)] {
        let cx = ToolCx::detached();
        let output = no_panic(tool.call(junk, &cx), "tool: no arguments make it panic").await;
        output.err().iter().for_each(check_error);
    }

    let (other, cx) = (make(), ToolCx::detached());
    drop(other.call(args.clone(), &cx));
    no_panic(
        async { drop(abandon(other.call(args.clone(), &cx))) },
        "tool: dropping a call is harmless",
    )
    .await;
    let output = no_panic(
        make().call(args.clone(), &cx),
        "tool: a failure is an `Err`",
    )
    .await;
    expect_ok(output, "tool: a dropped call does not disturb the next");
    if tool.spec().hints.class.needs_undo() {
        check_undo(&make, &args).await;
    }
    same(
        tool.spec(),
        make().spec(),
        "tool: `spec` always returns the same",
    );
}

/// Checks that `undo` is idempotent. After a crash, a runtime undoes calls without knowing if they
/// were made.
async fn check_undo<T: Tool>(make: &impl Fn() -> T, args: &Value) {
    let cx = ToolCx::detached();
    let undo = async |tool: &T, promise: &str| {
        let undone = no_panic(
            tool.undo(args.clone(), &cx),
            "tool: a failure to undo is an `Err`",
        )
        .await;
        expect_ok(undone, promise);
    };
    let call = async |tool: &T, promise: &str| {
        expect_ok(
            no_panic(tool.call(args.clone(), &cx), "tool: a failure is an `Err`").await,
            promise,
        );
    };
    undo(&make(), "tool: a call that was never made can be undone").await;

    let tool = make();
    call(
        &tool,
        "tool: `make` returns a tool that succeeds with `args`",
    )
    .await;
    undo(&tool, "tool: a call can be undone").await;
    undo(&tool, "tool: a call can be undone twice").await;
    call(&tool, "tool: a call that was undone can be made again").await;

    let tool = make();
    no_panic(
        async { drop(abandon(tool.call(args.clone(), &cx))) },
        "tool: dropping a call is harmless",
    )
    .await;
    undo(&tool, "tool: a call that was dropped can be undone").await;
    call(&tool, "tool: a call that was undone can be made again").await;
}

/// Checks the contract of a spec; shared with the suite for sources of tools.
pub(super) fn check_spec(spec: &ToolSpec) {
    let name = &spec.name;
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let well_named = (1..=64).contains(&name.len()) && name.chars().all(known);
    assert!(
        well_named,
        "tool: a name has 1 to 64 letters, digits, `_` and `-`\nfound: {name:?}"
    );
    assert!(
        !spec.description.trim().is_empty(),
        "tool: `{name}` has a description"
    );
    same(
        &spec.input["type"],
        &json!("object"),
        "tool: the input schema is an object schema",
    );
    let output = spec
        .output
        .as_ref()
        .is_none_or(|schema| schema.is_object() || schema.is_boolean());
    assert!(
        output,
        "tool: the output schema of `{name}` is a JSON Schema"
    );
    let json = expect_ok(serde_json::to_string(spec), "tool: the spec survives JSON");
    let read: ToolSpec = expect_ok(serde_json::from_str(&json), "tool: the spec survives JSON");
    same(&read, spec, "tool: the spec survives JSON");
}

fn check_output(spec: &ToolSpec, output: &ToolOutput) {
    let Some(schema) = &spec.output else { return };
    let value = output.value.as_ref().unwrap_or(&Value::Null);
    let matches = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        Some("integer") => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    assert!(
        matches,
        "tool: the output has the type of the output schema\nfound: {value}"
    );
    let required = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    for field in required {
        assert!(
            value.get(field).is_some(),
            "tool: the output has the field that its schema requires: `{field}`"
        );
    }
}

fn check_error(error: &ToolError) {
    assert!(
        !error.explain().trim().is_empty(),
        "tool: a failure describes the problem"
    );
    let theirs = matches!(
        error.kind(),
        ToolErrorKind::Cancelled | ToolErrorKind::Unknown | ToolErrorKind::NotFound
    );
    assert!(
        !theirs,
        "tool: a failure is of a kind that a tool can know\nfound: {:?}",
        error.kind()
    );
}
