//! Log lines of layers; nothing without the feature `tracing`.

use std::time::Duration;

use levity_core::{ModelCard, ModelError};

/// A request is sent again after some time.
pub(super) fn waits(card: &ModelCard, failed: u64, error: &ModelError, time: Duration) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "levity::model", model = card.id, failed, %error, ?time, "model is called again");
    #[cfg(not(feature = "tracing"))]
    let _ = (card, failed, error, time);
}

/// A request is sent to another model.
pub(super) fn falls_back(from: &ModelCard, to: &ModelCard, error: &ModelError) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "levity::model", model = from.id, next = to.id, %error, "another model \
        is called");
    #[cfg(not(feature = "tracing"))]
    let _ = (from, to, error);
}
