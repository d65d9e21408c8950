//! Advice for errors of a missing Ollama server or model.

use levity_core::{ModelError, ModelErrorKind};

use crate::http::Endpoint;

/// Adds advice to an error; `model` is the requested model.
pub(super) fn explain(error: ModelError, model: Option<&str>, endpoint: &Endpoint) -> ModelError {
    if error.is_unreachable() && model.is_some() {
        let message = error
            .message()
            .replace("is the server running?", "run `ollama serve`");
        return error.with_message(message);
    }
    if error.is_unreachable() {
        let message = format!(
            "no Ollama server responds at `{}`; run `ollama serve`",
            endpoint.shown()
        );
        return ModelError::new(error.kind(), message).with_source(error);
    }
    if error.status() != Some(404) {
        return error;
    }
    let message = error.message();
    let advice = match model.filter(|_| message.contains("model")) {
        Some(model) => format!("run `ollama pull {model}`"),
        None => "the server's address must be the part before `/api`".to_owned(),
    };
    let explained = ModelError::new(
        ModelErrorKind::BadRequest,
        format!(
            "{message}; \
            {advice}"
        ),
    )
    .with_status(404);
    match error.request_id() {
        Some(id) => explained.with_request_id(id),
        None => explained,
    }
}
