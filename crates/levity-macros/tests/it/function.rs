use levity_core::{CancelToken, Deadline, Progress, RunId, Tool, ToolCx, ToolErrorKind};
use levity_macros::tool;
use serde_json::json;

use super::{run, text};

/// Adds two numbers.
#[tool]
async fn add(
    /** left */
    a: f64,
    /** right */
    b: f64,
) -> f64 {
    a + b
}

#[test]
fn function_becomes_tool_of_same_name() {
    let tools: Vec<Box<dyn Tool>> = vec![Box::new(add)];
    assert_eq!(tools[0].spec().name, "add");
    assert_eq!(
        run(&*tools[0], json!({"a": 2, "b": 5})).unwrap().value,
        Some(json!(7.0))
    );
    let copy = add;
    assert_eq!(format!("{copy:?} {add:?}"), "add add");
}

#[tokio::test]
async fn tool_function_remains_callable() {
    assert_eq!(add::invoke(2.0, 5.0).await, 7.0);
    assert_eq!(factorial::invoke(5), 120);
}

/// Multiplies all numbers up to one.
#[tool(inline)]
fn factorial(n: u64) -> u64 {
    if n == 0 {
        1
    } else {
        n * factorial::invoke(n - 1)
    }
}

#[test]
fn spec_is_created_once() {
    assert!(std::ptr::eq(add.spec(), Clone::clone(&add).spec()));
}

/// First line,
/// second line.
///
/// - Another paragraph.
///   Indented.
#[tool]
async fn documented() {}

/**
 * A block
 * of text.
 */
#[tool]
async fn block_documented() {}

/// For people.
#[tool(name = "other-name", description = "For the model.")]
async fn described() {}

#[doc = include_str!("function/description.md")]
#[tool]
async fn included() {}

#[test]
fn doc_comment_becomes_description() {
    assert_eq!(
        documented.spec().description,
        "First line,\nsecond line.\n\n- Another paragraph.\n  Indented."
    );
    assert_eq!(block_documented.spec().description, "A block\nof text.");
    assert_eq!(
        (&*described.spec().name, &*described.spec().description),
        ("other-name", "For the model.")
    );
    assert_eq!(included.spec().description.trim(), "From a file.");
}

#[test]
fn call_without_arguments_accepts_object_and_null() {
    assert_eq!(text(&documented, json!({})), "done");
    assert_eq!(text(&documented, json!(null)), "done");
    assert_eq!(
        documented.spec().input,
        json!({"type": "object", "properties": {}, "additionalProperties": false})
    );
}

#[track_caller]
fn refused(tool: &dyn Tool, args: serde_json::Value, expected: &str) {
    let error = run(tool, args).unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::InvalidArgs);
    assert_eq!(error.explain(), expected);
}

#[test]
fn call_error_names_bad_argument() {
    refused(&add, json!({"a": 2}), "`b` is missing");
    refused(
        &add,
        json!({"a": 2, "b": 5, "c": 1}),
        "unknown argument `c`; there are `a`, `b`",
    );
    refused(
        &documented,
        json!({"c": 1}),
        "unknown argument `c`; there are none",
    );
    refused(
        &add,
        json!({"a": "two", "b": 5}),
        "`a` could not be read: invalid type: string \"two\", expected f64",
    );
    refused(&add, json!([2, 5]), "the arguments are not an object");
    refused(
        &route,
        json!({"number": 3}),
        "the arguments could not be read: missing field `street`",
    );
}

/// Is named like variables that derives write.
#[tool]
async fn schema(value: Option<String>) -> Option<String> {
    value
}

#[test]
fn tool_accepts_common_name() {
    assert_eq!(text(&schema, json!({"value": "x"})), "\"x\"");
}

/// Uses names that need care.
#[tool]
async fn r#match(
    r#type: String,
    mut n: u32,
    _idle: Option<bool>,
    #[tool(rename = "camelCase")] other: u8,
) -> String {
    n += u32::from(other);
    format!("{} {n}", r#type)
}

#[test]
fn tool_accepts_raw_mutable_and_renamed_parameters() {
    assert_eq!(r#match.spec().name, "match");
    assert_eq!(
        text(&r#match, json!({"type": "x", "n": 1, "camelCase": 2})),
        "x 3"
    );
}

/// Greets.
#[tool]
async fn greet(
    name: Option<String>,
    #[tool(default = "Hello")] word: String,
    #[tool(default = 1 + 1)] times: usize,
    #[tool(default)] loud: bool,
) -> String {
    let text = format!("{word}, {}!", name.as_deref().unwrap_or("you")).repeat(times);
    if loud { text.to_uppercase() } else { text }
}

#[test]
fn omitted_argument_uses_default() {
    assert_eq!(text(&greet, json!({})), "Hello, you!Hello, you!");
    assert_eq!(
        text(
            &greet,
            json!({"name": "Ada", "word": "Hi", "times": 1, "loud": true})
        ),
        "HI, ADA!"
    );
    assert_eq!(
        text(&greet, json!({"name": null, "times": 1})),
        "Hello, you!"
    );
}

use target::Target;

// Apart from the tool `schema`, which would clash with the code that `JsonSchema` derives.
mod target {
    /// Where to.
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    pub(super) struct Target {
        /// The street.
        pub(super) street: String,
        #[serde(default)]
        pub(super) number: u32,
    }
}

/// Finds a way.
#[tool]
async fn route(cx: &ToolCx, #[tool(args)] target: Target) -> String {
    format!("{} {} for {}", target.street, target.number, cx.run)
}

#[test]
fn args_option_accepts_one_struct() {
    assert_eq!(
        text(&route, json!({"street": "Main", "number": 3})),
        "Main 3 for detached"
    );
    assert_eq!(
        route.spec().input["properties"]["street"]["description"],
        "The street."
    );
    assert_eq!(route.spec().input["required"], json!(["street"]));
}

/// Looks around.
#[tool]
async fn look(
    by_ref: &ToolCx,
    whole: ToolCx,
    cancel: CancelToken,
    progress: Progress,
    deadline: Deadline,
    run: RunId,
    run_ref: &RunId,
    depth: u8,
) -> String {
    progress.report("looking");
    format!(
        "{} {} {} {:?} {run} {run_ref} {depth}",
        by_ref.call,
        whole.key,
        cancel.is_cancelled(),
        deadline.at
    )
}

#[tokio::test]
async fn context_parameters_come_from_the_call() {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = heard.clone();
    let mut cx = ToolCx::detached();
    cx.progress = Progress::new(move |text| listener.lock().unwrap().push(text.to_owned()));
    cx.cancel.cancel();
    let output = look.call(json!({"depth": 3}), &cx).await.unwrap();
    assert_eq!(
        output.as_text(),
        "detached detached true None detached detached 3"
    );
    assert_eq!(*heard.lock().unwrap(), ["looking"]);
    assert_eq!(
        look.spec().input["properties"].as_object().unwrap().len(),
        1
    );
}

#[test]
fn tool_compiles_in_functions_and_modules() {
    /// Returns its location.
    #[tool]
    async fn _inside() -> &'static str {
        "inside a function"
    }
    assert_eq!(text(&_inside, json!({})), "inside a function");
    assert_eq!(text(&elsewhere::public, json!({})), "through `crate`");
}

/// A tool under a condition that is never met, with a parameter of an unknown type.
#[tool]
#[cfg(any())]
async fn never(x: MissingPart) {}

mod elsewhere {
    // None of these may change the meaning of the generated code.
    #[allow(dead_code)]
    struct Result;
    #[allow(dead_code)]
    struct Vec;
    #[allow(dead_code)]
    trait Clone {}

    mod base {
        pub(super) use levity_core::*;
    }

    /// Takes levity-core from another path.
    #[levity_macros::tool(crate = base)]
    pub(super) async fn public(_cx: base::ToolCx, _n: Option<u8>) -> &'static str {
        "through `crate`"
    }
}

macro_rules! made {
    ($name:ident, $text:literal) => {
        #[doc = $text]
        #[tool]
        async fn $name(value: String) -> String {
            value
        }
    };
}

made!(by_macro, "Comes from a macro.");

#[test]
fn tool_compiles_inside_macro() {
    assert_eq!(by_macro.spec().description, "Comes from a macro.");
    assert_eq!(text(&by_macro, json!({"value": "x"})), "x");
}
