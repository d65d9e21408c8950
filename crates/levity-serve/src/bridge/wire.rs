//! Parameters and responses of bridge messages.
//!
//! Unknown parameters are errors, so that a typo does not silently select a default.

use levity_core::text::json_problem;
use levity_rpc::RpcMessage;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{Error, Result};

/// Parses the parameters of a method.
pub(super) fn params<T: DeserializeOwned>(method: &str, params: Value) -> Result<T> {
    serde_json::from_value(params).map_err(|error| {
        Error::invalid(format!(
            "the parameters of `{method}` are invalid: {}",
            json_problem(&error)
        ))
    })
}

pub(super) fn answer(id: &Value, result: &Result<Value>) -> String {
    match result {
        Ok(value) => RpcMessage::answer(id, Ok(value)),
        Err(error) => RpcMessage::answer(id, Err(&error.to_json())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn param_errors_name_the_field_but_not_the_value() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its errors are checked")]
        struct Path {
            path: String,
        }
        let wrong = [
            json!({"path": 1, "hush-hush": 2}),
            json!({"path": ["hush"]}),
            json!({"hush`, expected x": 1}),
        ];
        for value in wrong {
            let error = params::<Path>("files/read", value.clone())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("expected") && !error.contains("hush`"),
                "{value}: {error}"
            );
            assert!(!error.contains("\"hush"), "{value}: {error}");
        }
    }
}
