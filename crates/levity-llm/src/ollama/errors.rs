//! What to do when Ollama, or the model, is not there.

use std::error::Error as _;

use levity_core::{ModelError, ModelErrorKind};

use crate::http::Endpoint;

/// Says what to do about an error; `model` is the one that was asked for.
pub(super) fn explain(error: ModelError, model: Option<&str>, endpoint: &Endpoint) -> ModelError {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<reqwest::Error>());
    if cause.is_some_and(reqwest::Error::is_connect) {
        let message = format!("no Ollama answers at `{}`; run `ollama serve`", endpoint.shown());
        return ModelError::new(error.kind(), message).with_source(error);
    }
    if error.status() != Some(404) {
        return error;
    }
    let said = error.to_string();
    let way = match model.filter(|_| said.contains("model")) {
        Some(model) => format!("run `ollama pull {model}`"),
        None => "the server's address must end where `/api` begins".to_owned(),
    };
    let told = ModelError::new(ModelErrorKind::BadRequest, format!("{said}; {way}")).with_status(404);
    match error.request_id() {
        Some(id) => told.with_request_id(id),
        None => told,
    }
}
