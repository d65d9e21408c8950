//! Runners for the models that clients may choose.
//!
//! The operator of a server offers models under names, and a client chooses a name. It cannot send
//! an address or a key. The name is recorded among the setup of the run in its journal, so a
//! resumed run continues with the same model, and a fork uses it unless the client chooses another.
//! A journal may come from a stranger, but it can only name what the operator offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::text::one_line;
use levity_core::{ArgumentProblem, Ask, Entry, Event, RunId};
use levity_runtime::{Runtime, Watcher};
use serde_json::Value;

use super::offered::model_of;
use super::{ForkSetup, RunSetup, Runner, StartedRun};
use crate::error::{Error, Result};

/// The maximum number of characters of a name in an error.
const SHOWN_NAME: usize = 100;

/// A model that clients may choose; see [`Runs::models`](crate::Runs::models).
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::Runs;
/// use levity_test::ScriptedModel;
///
/// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?)
///     .default_model("openai:small")
///     .offer_model("openai:large", Agent::builder(ScriptedModel::new()).build()?);
/// let models = runs.models();
/// assert_eq!((&*models[0].name, models[0].is_default), ("openai:small", true));
/// assert_eq!((&*models[1].name, models[1].is_default), ("openai:large", false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OfferedModel {
    /// The name that clients send.
    pub name: Arc<str>,
    /// `true` for the model of runs whose client chooses none.
    pub is_default: bool,
}

/// A runner with others for the same kind of run, each with another model.
#[derive(Clone)]
pub(crate) struct ModelRunner {
    default: Arc<dyn Runner>,
    default_name: Option<Arc<str>>,
    others: BTreeMap<Arc<str>, Arc<dyn Runner>>,
}

impl ModelRunner {
    pub(crate) fn new(default: Arc<dyn Runner>) -> Self {
        Self {
            default,
            default_name: None,
            others: BTreeMap::new(),
        }
    }

    pub(crate) fn with_default_name(mut self, name: Arc<str>) -> Self {
        self.default_name = Some(name);
        self
    }

    pub(crate) fn with_model(mut self, name: Arc<str>, runner: Arc<dyn Runner>) -> Self {
        self.others.insert(name, runner);
        self
    }

    /// Returns the models, the default first.
    pub(crate) fn models(&self) -> Vec<OfferedModel> {
        let model = |name: &Arc<str>, is_default| OfferedModel {
            name: name.clone(),
            is_default,
        };
        let is_default = |name: &&Arc<str>| Some(*name) == self.default_name.as_ref();
        let others = self.others.keys().filter(|name| !is_default(name));
        let default = self.default_name.iter().map(|name| model(name, true));
        default
            .chain(others.map(|name| model(name, false)))
            .collect()
    }

    /// Returns the runner of a model.
    fn find(&self, name: &str) -> Option<&Arc<dyn Runner>> {
        if self.default_name.as_deref() == Some(name) {
            return Some(&self.default);
        }
        self.others.get(name)
    }

    /// Fails if a client chose a model that is not offered.
    pub(crate) fn check(&self, name: Option<&str>) -> Result<()> {
        match name {
            Some(name) if self.find(name).is_none() => {
                let offered = self.models().into_iter().map(|model| model.name).collect();
                Err(Error::UnknownModel { offered })
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of the model that a stored run was started with, if its client chose one.
    async fn stored_model(&self, run: &RunId) -> Result<Option<Arc<str>>> {
        let root = run.as_str().split('.').next().unwrap_or_default();
        let records = self.runtime().journal().read(&RunId::from(root)).await?;
        Ok(match records.first().map(|record| &record.entry) {
            Some(Entry::Opened(header)) => model_of(&header.setup),
            _ => None,
        })
    }

    /// Returns the runner that continues a run with this model.
    fn to_continue(&self, run: &RunId, model: Option<&str>) -> Result<&Arc<dyn Runner>> {
        let Some(model) = model else {
            return Ok(&self.default);
        };
        self.find(model).ok_or_else(|| Error::ModelNotOffered {
            run: run.clone(),
            model: one_line(model, SHOWN_NAME),
        })
    }

    /// Returns the runner that reads a stored run: that of its model, or the default one.
    async fn to_read(&self, run: &RunId) -> Result<&Arc<dyn Runner>> {
        if self.others.is_empty() {
            return Ok(&self.default);
        }
        let model = self.stored_model(run).await?;
        let runner = model.and_then(|model| self.find(&model));
        Ok(runner.unwrap_or(&self.default))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Runner for ModelRunner {
    fn runtime(&self) -> &Runtime {
        self.default.runtime()
    }

    fn supports_conversations(&self) -> bool {
        self.default.supports_conversations()
    }

    fn start(&self, goal: &str, setup: RunSetup) -> Result<StartedRun> {
        self.check(setup.model.as_deref())?;
        let runner = setup.model.as_ref().and_then(|model| self.find(model));
        runner.unwrap_or(&self.default).start(goal, setup)
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<StartedRun> {
        let model = self.stored_model(run).await?;
        let runner = self.to_continue(run, model.as_deref())?;
        runner.resume(run, watcher).await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        self.to_read(run).await?.history(run).await
    }

    async fn history_with_children(&self, run: &RunId) -> Result<Vec<Event>> {
        self.to_read(run).await?.history_with_children(run).await
    }

    async fn fork(&self, mut fork: ForkSetup) -> Result<StartedRun> {
        self.check(fork.model.as_deref())?;
        if fork.model.is_none() {
            fork.model = self.stored_model(&fork.from).await?;
        }
        let runner = self.to_continue(&fork.from, fork.model.as_deref())?;
        runner.fork(fork).await
    }

    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        self.to_read(run).await?.asks(run).await
    }

    async fn check_edit(
        &self,
        run: &RunId,
        ask: &Ask,
        args: &Value,
    ) -> Result<Vec<ArgumentProblem>> {
        self.to_read(run).await?.check_edit(run, ask, args).await
    }
}
