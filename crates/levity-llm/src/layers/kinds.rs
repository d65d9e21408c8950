use std::sync::Arc;

use levity_core::ModelErrorKind;

/// Some kinds of errors.
#[derive(Clone)]
pub(super) struct Kinds(Arc<dyn Fn(ModelErrorKind) -> bool + Send + Sync>);

impl Kinds {
    pub(super) fn new(contains: impl Fn(ModelErrorKind) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(contains))
    }

    pub(super) fn contains(&self, kind: ModelErrorKind) -> bool {
        (self.0)(kind)
    }
}
