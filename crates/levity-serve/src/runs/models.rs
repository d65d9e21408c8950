//! The models that clients may choose for a run.

use std::sync::Arc;

use super::Runs;
use crate::runner::{OfferedModel, Runner};

impl Runs {
    /// Sets the name under which clients see the model of this set of runs. Without a name, they
    /// cannot choose it. Call it before the first run.
    #[must_use]
    pub fn default_model(self, name: impl Into<Arc<str>>) -> Self {
        let runner = (*self.inner.runner).clone().with_default_name(name.into());
        let settings = self.inner.settings.clone();
        Self::from_parts(Arc::new(runner), settings, self.inner.boot.clone())
    }

    /// Offers clients a model under a name. `runner` is usually the same agent with another model.
    /// Call it before the first run.
    ///
    /// Clients choose among these names only, so they can neither make the server send its key to
    /// another address nor use a model that is not offered. The name is recorded in the journal: a
    /// resumed run continues with its model, and fails with
    /// [`Error::ModelNotOffered`](crate::Error::ModelNotOffered) if the model is no longer offered.
    /// The runner must use the same [`Runtime`](levity_runtime::Runtime) as that of
    /// [`new`](Self::new).
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::Runs;
    /// use levity_test::ScriptedModel;
    ///
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let large = agent.to_builder().model(ScriptedModel::new()).build()?;
    /// let runs = Runs::new(agent).default_model("small").offer_model("large", large);
    /// assert_eq!(runs.models().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn offer_model(self, name: impl Into<Arc<str>>, runner: impl Runner + 'static) -> Self {
        let offered = (*self.inner.runner).clone();
        let runner = offered.with_model(name.into(), Arc::new(runner));
        let settings = self.inner.settings.clone();
        Self::from_parts(Arc::new(runner), settings, self.inner.boot.clone())
    }

    /// Returns the models that clients may choose, the default first if it has a name.
    pub fn models(&self) -> Vec<OfferedModel> {
        self.inner.runner.models()
    }
}
