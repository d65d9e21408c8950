//! Log events of layers; empty without the feature `tracing`.
//!
//! Both functions compile to nothing without the feature, so the layers call them unconditionally.
//! The target of all lines is `levity::model` and their level is `warn`. They contain the model's
//! id and the error, which never holds a prompt or a key.

use std::time::Duration;

use levity_core::{ModelCard, ModelError};

/// Logs that a request is retried after a wait.
pub(super) fn retrying(card: &ModelCard, failed: u64, error: &ModelError, time: Duration) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "levity::model", model = card.id, failed, %error, ?time, "retrying the \
        model call");
    #[cfg(not(feature = "tracing"))]
    let _ = (card, failed, error, time);
}

/// Logs that a request is sent to another model.
pub(super) fn falling_back(from: &ModelCard, to: &ModelCard, error: &ModelError) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "levity::model", model = from.id, next = to.id, %error, "falling back \
        to another model");
    #[cfg(not(feature = "tracing"))]
    let _ = (from, to, error);
}
