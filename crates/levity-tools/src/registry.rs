use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{LinkedTool, Tool, ToolSource, ToolSpec, Toolbox, estimate_tokens};

use crate::entry::{Entry, Renamed};
use crate::error::Error;
use crate::folder::FolderTools;
use crate::registry::snapshot::Snapshot;

mod search;
mod snapshot;
mod suggest;

/// The tools of an agent, in the order in which they were added; cheap to clone.
///
/// The order never changes by itself, so that providers can cache the prompt that begins with it.
///
/// ```
/// # use std::sync::Arc;
/// # use levity_core::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
/// # struct Noop(ToolSpec);
/// # #[async_trait::async_trait]
/// # impl Tool for Noop {
/// #     fn spec(&self) -> &ToolSpec { &self.0 }
/// #     async fn call(&self, _: serde_json::Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
/// #         Ok(ToolOutput::text("done"))
/// #     }
/// # }
/// # fn weather() -> Noop { Noop(ToolSpec::new("weather", "Tells the weather.")) }
/// use levity_tools::{Error, Registry};
///
/// let registry = Registry::builder().tool(weather()).tool_as("old_weather", weather()).build()?;
/// assert_eq!(registry.specs()[1].name, "old_weather");
/// assert_eq!(registry.suggest("Weathr"), ["weather", "old_weather"]);
///
/// let error = Registry::builder().tool(weather()).tool(weather()).build().unwrap_err();
/// assert_eq!(error.to_string(), "two tools are named `weather`; rename one with `.tool_as(..)`");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    fixed: Arc<Snapshot>,
    sources: Vec<Arc<dyn ToolSource>>,
    /// The fixed tools and what the sources last had; untouched when there are no sources.
    latest: Mutex<Arc<Snapshot>>,
}

impl Registry {
    /// Begins an empty set.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::default()
    }

    /// Every tool linked into this program, and no other.
    ///
    /// # Errors
    /// When two of them have one name, or one has an impossible name or schema.
    pub fn linked() -> Result<Self, Error> {
        Self::builder().linked().build()
    }

    /// The tools of a folder, and no others; see [`FolderTools`](crate::FolderTools).
    ///
    /// # Errors
    /// When the folder cannot be read, or commands cannot be run at all.
    pub fn folder(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().source(FolderTools::open(path)?).build()
    }

    /// What a model is told: fixed tools first, then each source's. The same `Arc` until something
    /// changes.
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.snapshot().specs.clone()
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.entry(name).map(|entry| entry.tool.clone())
    }

    /// Names that somebody who wrote `name` may have meant, the nearest first; at most three.
    pub fn suggest(&self, name: &str) -> Vec<String> {
        suggest::nearest(name, self.specs().iter().map(|spec| &*spec.name))
    }

    /// What the sources offer and the registry had to leave out.
    pub fn problems(&self) -> Vec<ToolProblem> {
        self.snapshot().problems.clone()
    }

    /// The tools of sources that fit a question in words best, the best first.
    ///
    /// Names count most, then names of arguments, then descriptions; `readFile`, `read_file` and
    /// "read files" are the same words. Tools that were added one by one are not among them: models
    /// are told of those anyway.
    pub fn find(&self, query: &str, limit: usize) -> Vec<Arc<ToolSpec>> {
        let snapshot = self.snapshot();
        let best = snapshot.index().best(query, limit);
        best.into_iter()
            .filter_map(|at| snapshot.source_specs().get(at).cloned())
            .collect()
    }

    /// About how many tokens a model is told for the tools of each source, or of each of its parts,
    /// as often as it is called.
    pub fn cost(&self) -> Vec<Cost> {
        let snapshot = self.snapshot();
        let cost = |(source, specs): (&str, &[Arc<ToolSpec>])| Cost {
            source: source.to_owned(),
            tools: specs.len(),
            tokens: specs.iter().map(|spec| tokens(spec)).sum(),
        };
        snapshot.parts().map(cost).collect()
    }

    /// How many tools there are, and how many of them are of sources.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let snapshot = self.snapshot();
        (snapshot.specs.len(), snapshot.source_specs().len())
    }

    /// Whether tools may come from somewhere.
    pub(crate) fn has_sources(&self) -> bool {
        !self.0.sources.is_empty()
    }

    /// The tools that never change.
    pub(crate) fn fixed(&self) -> Vec<Arc<ToolSpec>> {
        self.snapshot().fixed_specs().to_vec()
    }

    /// The tool of this name, if it is one of a source's.
    pub(crate) fn of_source(&self, name: &str) -> Option<Arc<ToolSpec>> {
        let snapshot = self.snapshot();
        snapshot
            .get(name)
            .filter(|_| snapshot.is_from_source(name))
            .map(|entry| entry.spec.clone())
    }

    pub(crate) fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.snapshot().get(name).cloned()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        let Inner { fixed, sources, .. } = &*self.0;
        if sources.is_empty() {
            return fixed.clone();
        }
        let latest = self.latest().clone();
        if latest.is_current(sources) {
            return latest;
        }
        // Sources are foreign code, so no lock is held while they are asked.
        let next = Arc::new(Snapshot::new(fixed, sources, &latest));
        let mut slot = self.latest();
        if !slot.is_as_new_as(&next) {
            *slot = next;
        }
        slot.clone()
    }

    fn latest(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let specs = self.specs();
        f.debug_tuple("Registry")
            .field(&specs.iter().map(|spec| &spec.name).collect::<Vec<_>>())
            .finish()
    }
}

/// What the tools of a source, or of a part of one, cost.
///
/// ```
/// # use levity_tools::Registry;
/// let registry = Registry::builder().build()?;
/// let all: u64 = registry.cost().iter().map(|cost| cost.tokens).sum();
/// assert_eq!(all, 0);
/// # Ok::<(), levity_tools::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// The source, or the part of it: a server.
    pub source: String,
    /// How many tools it has.
    pub tools: usize,
    /// About how many tokens their names, descriptions and input schemas are.
    pub tokens: u64,
}

/// About how many tokens a model is told for a tool.
pub(crate) fn tokens(spec: &ToolSpec) -> u64 {
    let schema = estimate_tokens(&spec.input.to_string());
    estimate_tokens(&spec.name) + estimate_tokens(&spec.description) + schema
}

/// A tool of a source that was left out, or something else that its source has to say; the others
/// are there.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolProblem {
    /// The source's name.
    pub source: String,
    /// Why the tool was left out; it names the tool.
    pub error: Error,
}

impl fmt::Display for ToolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Error::Source(text) = &self.error {
            return write!(f, "in `{}`: {text}", self.source);
        }
        write!(f, "a tool of `{}` is left out: {}", self.source, self.error)?;
        match std::error::Error::source(&self.error) {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// Collects the tools of a [`Registry`]. A clone has the same tools and sources, not copies of
/// them.
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct RegistryBuilder {
    tools: Vec<Arc<dyn Tool>>,
    sources: Vec<Arc<dyn ToolSource>>,
}

impl RegistryBuilder {
    /// Adds a tool.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared(Arc::new(tool))
    }

    /// Adds a tool under another name.
    pub fn tool_as(self, name: impl Into<String>, tool: impl Tool + 'static) -> Self {
        self.tool(Renamed::new(name.into(), tool))
    }

    /// Adds several tools that belong together.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.tools.extend(tools.into_tools());
        self
    }

    /// Adds a tool that somebody else holds too.
    pub fn shared(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds tools that may change; they come after all others, in the order of their sources.
    ///
    /// One that cannot be offered is left out and told by [`Registry::problems`].
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Adds every tool linked into this program, sorted by name.
    pub fn linked(self) -> Self {
        self.tools(LinkedTool::all())
    }

    /// Compiles the schemas.
    ///
    /// # Errors
    /// When two tools have one name, or one has an impossible name or schema.
    pub fn build(self) -> Result<Registry, Error> {
        let fixed = Arc::new(Snapshot::fixed(self.tools)?);
        let latest = Arc::new(Snapshot::new(&fixed, &self.sources, &fixed));
        Ok(Registry(Arc::new(Inner {
            fixed,
            sources: self.sources,
            latest: Mutex::new(latest),
        })))
    }
}

impl fmt::Debug for RegistryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<_> = self.tools.iter().map(|tool| &tool.spec().name).collect();
        let sources: Vec<_> = self.sources.iter().map(ToolSource::name).collect();
        f.debug_struct("RegistryBuilder")
            .field("tools", &tools)
            .field("sources", &sources)
            .finish()
    }
}

#[cfg(test)]
mod tests;
