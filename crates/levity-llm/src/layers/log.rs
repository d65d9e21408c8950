//! Log events of layers; empty without the feature `tracing`.

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
