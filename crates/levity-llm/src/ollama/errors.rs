//! What to do when Ollama, or the model, is not there.

use levity_core::{ModelError, ModelErrorKind};

use crate::http::Endpoint;

/// Says what to do about an error; `model` is the one that was asked for.
pub(super) fn explain(error: ModelError, model: Option<&str>, endpoint: &Endpoint) -> ModelError {
    if error.is_unreachable() && model.is_some() {
        let message = error
            .message()
            .replace("is the server running?", "run `ollama serve`");
        return error.with_message(message);
    }
    if error.is_unreachable() {
        let message = format!(
            "no Ollama answers at `{}`; run `ollama serve`",
            endpoint.shown()
        );
        return ModelError::new(error.kind(), message).with_source(error);
    }
    if error.status() != Some(404) {
        return error;
    }
    let said = error.message();
    let way = match model.filter(|_| said.contains("model")) {
        Some(model) => format!("run `ollama pull {model}`"),
        None => "the server's address must end where `/api` begins".to_owned(),
    };
    let told =
        ModelError::new(ModelErrorKind::BadRequest, format!("{said}; {way}")).with_status(404);
    match error.request_id() {
        Some(id) => told.with_request_id(id),
        None => told,
    }
}
