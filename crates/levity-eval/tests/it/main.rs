//! Tests of evaluations through the public API.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bfcl;
mod check;
mod evaluation;
mod package;
mod report;
mod results;
mod subject;
mod turns;

use levity_eval::{Case, Expectation, ExpectedCall, OfferedTool};
use serde_json::json;

/// Returns a case with a tool `add`, which must be called with 2 and 5.
fn add_case(id: &str) -> Case {
    let add = OfferedTool::new("add", "Adds two numbers.").with_parameters(json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }));
    let call = ExpectedCall::new("add")
        .with_argument("a", [2])
        .with_argument("b", [5]);
    Case::new(id, "What is 2 + 5?", Expectation::calls([call]))
        .with_category("sums")
        .with_tool(add)
}
