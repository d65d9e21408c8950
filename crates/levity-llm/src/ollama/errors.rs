//! Advice for errors of a missing Ollama server or model.
//!
//! A local server is under the user's control, so each error can name the command that fixes it.

use levity_core::{ModelError, ModelErrorKind};

use crate::http::Endpoint;

/// Adds advice to an error; `model` is the requested model.
///
/// Without a model (a list of models was requested), an unreachable server gets a message of its
/// own. A 404 that does not mention a model means a wrong address.
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
        return error.with_message(message);
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
