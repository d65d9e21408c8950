//! Answer schemas that OpenAI does not accept: those of anything but an object.
//!
//! OpenAI rejects a list, a number or a union as the schema of an answer. The request then asks in
//! words, and the reply is validated as any other.

use std::borrow::Cow;

use levity_core::Request;
use serde_json::Value;

/// Returns a request that describes the answer in words, if its schema is not that of an object.
///
/// The words follow the instructions of the request. Requests without a schema, or with that of an
/// object, are borrowed.
pub(crate) fn of_object(request: &Request) -> Cow<'_, Request> {
    let Some(output) = request
        .output
        .as_ref()
        .filter(|output| !is_object(&output.schema))
    else {
        return Cow::Borrowed(request);
    };
    let asked = format!(
        "Give your final answer as JSON, with nothing around it, that matches this JSON \
            Schema:\n{}",
        output.schema
    );
    let mut request = request.clone();
    request.output = None;
    let system = request
        .system
        .as_ref()
        .map(|system| format!("{system}\n\n{asked}"));
    Cow::Owned(request.with_system(system.unwrap_or(asked)))
}

/// Returns `true` if the schema has exactly the type `object`.
fn is_object(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}
