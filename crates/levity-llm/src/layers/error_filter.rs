//! The predicate over error kinds that `Retry` and `Fallback` share.
//!
//! It sits behind an `Arc`, because a stream owns a copy of the policy and may outlive the layer.

use std::sync::Arc;

use levity_core::ModelErrorKind;

/// A predicate that selects kinds of errors.
#[derive(Clone)]
pub(super) struct ErrorFilter(Arc<dyn Fn(ModelErrorKind) -> bool + Send + Sync>);

impl ErrorFilter {
    pub(super) fn new(contains: impl Fn(ModelErrorKind) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(contains))
    }

    /// Returns `true` if the layer reacts to errors of this kind.
    pub(super) fn contains(&self, kind: ModelErrorKind) -> bool {
        (self.0)(kind)
    }
}
