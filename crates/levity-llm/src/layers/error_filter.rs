use std::sync::Arc;

use levity_core::ModelErrorKind;

/// A predicate that selects kinds of errors.
#[derive(Clone)]
pub(super) struct ErrorFilter(Arc<dyn Fn(ModelErrorKind) -> bool + Send + Sync>);

impl ErrorFilter {
    pub(super) fn new(contains: impl Fn(ModelErrorKind) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(contains))
    }

    pub(super) fn contains(&self, kind: ModelErrorKind) -> bool {
        (self.0)(kind)
    }
}
