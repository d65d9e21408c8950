//! The set of tools of an agent, fixed ones and those of sources.
//!
//! Readers get a snapshot, which never changes. A new snapshot is made when a source reports
//! another version, and reuses the compiled schemas of unchanged tools. The list of specs stays the
//! same `Arc` as long as nothing changed, so that callers can cache by identity.

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
/// The order never changes, so that providers can cache the prompt that begins with it.
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
    /// The fixed tools and the last tools of the sources; unused if there are no sources.
    latest: Mutex<Arc<Snapshot>>,
}

impl Registry {
    /// Starts building a registry.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::default()
    }

    /// Returns every tool linked into this program, and no other.
    ///
    /// # Errors
    /// Returns an error if two of them have the same name, or one has an invalid name or schema.
    pub fn linked() -> Result<Self, Error> {
        Self::builder().linked().build()
    }

    /// Returns the tools of a folder, and no others; see [`FolderTools`](crate::FolderTools).
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read, or commands cannot be run at all.
    pub fn folder(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().source(FolderTools::open(path)?).build()
    }

    /// Returns the specs for a request: fixed tools first, then each source's. The same `Arc` until
    /// something changes.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_test::RecordingTool;
    /// use levity_tools::Registry;
    ///
    /// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")));
    /// let registry = Registry::builder().tool(look).build()?;
    /// assert_eq!(registry.specs()[0].name, "look");
    /// # Ok::<(), levity_tools::Error>(())
    /// ```
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.snapshot().specs.clone()
    }

    /// Returns the tool of this name.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_test::RecordingTool;
    /// use levity_tools::Registry;
    ///
    /// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")));
    /// let registry = Registry::builder().tool(look).build()?;
    /// assert!(registry.get("look").is_some());
    /// assert!(registry.get("Look").is_none()); // names match exactly
    /// # Ok::<(), levity_tools::Error>(())
    /// ```
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.entry(name).map(|entry| entry.tool.clone())
    }

    /// Returns names that `name` may have been meant for, the nearest first; at most three.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_test::RecordingTool;
    /// use levity_tools::Registry;
    ///
    /// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")));
    /// let registry = Registry::builder().tool(look).build()?;
    /// assert_eq!(registry.suggest("lok"), ["look"]);
    /// # Ok::<(), levity_tools::Error>(())
    /// ```
    pub fn suggest(&self, name: &str) -> Vec<String> {
        suggest::nearest(name, self.specs().iter().map(|spec| &*spec.name))
    }

    /// Returns the problems with tools of sources that the registry had to leave out.
    pub fn problems(&self) -> Vec<ToolProblem> {
        self.snapshot().problems.clone()
    }

    /// Returns the tools of sources that match a query in words best, the best first.
    ///
    /// Names count most, then names of arguments, then descriptions; `readFile`, `read_file` and
    /// "read files" are the same words. Tools that were added one by one are not included: models
    /// see those anyway.
    pub fn find(&self, query: &str, limit: usize) -> Vec<Arc<ToolSpec>> {
        let snapshot = self.snapshot();
        let best = snapshot.index().best(query, limit);
        best.into_iter()
            .filter_map(|at| snapshot.source_specs().get(at).cloned())
            .collect()
    }

    /// Returns the approximate number of tokens that each request spends on the tools of each
    /// source, or of each of its parts.
    pub fn cost(&self) -> Vec<ToolCost> {
        let snapshot = self.snapshot();
        let cost = |(source, specs): (&str, &[Arc<ToolSpec>])| ToolCost {
            source: source.to_owned(),
            tools: specs.len(),
            tokens: specs.iter().map(|spec| tokens(spec)).sum(),
        };
        snapshot.parts().map(cost).collect()
    }

    /// Returns the number of tools, and the number of those from sources.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let snapshot = self.snapshot();
        (snapshot.specs.len(), snapshot.source_specs().len())
    }

    /// Returns `true` if there are sources of tools.
    pub(crate) fn has_sources(&self) -> bool {
        !self.0.sources.is_empty()
    }

    /// Returns the tools that never change.
    pub(crate) fn fixed(&self) -> Vec<Arc<ToolSpec>> {
        self.snapshot().fixed_specs().to_vec()
    }

    /// Returns the tool of this name, if it comes from a source.
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
        // Sources are foreign code, so no lock is held while they are called.
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

/// The cost of the tools of a source, or of a part of one.
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
pub struct ToolCost {
    /// The source, or the part of it, such as a server.
    pub source: String,
    /// The number of its tools.
    pub tools: usize,
    /// The approximate number of tokens of their names, descriptions and input schemas.
    pub tokens: u64,
}

/// Returns the approximate number of tokens of a tool in a request.
pub(crate) fn tokens(spec: &ToolSpec) -> u64 {
    let schema = estimate_tokens(&spec.input.to_string());
    estimate_tokens(&spec.name) + estimate_tokens(&spec.description) + schema
}

/// A tool of a source that was left out, or another problem of a source; its other tools are
/// available.
///
/// ```
/// # use levity_tools::Registry;
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("hello.py"), "")?;
/// let registry = Registry::folder(folder.path())?;
/// assert!(registry.problems()[0].to_string().contains("`hello.py`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolProblem {
    /// The name of the source.
    pub source: String,
    /// The reason for which the tool was left out, with its name.
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

/// A builder of a [`Registry`]. A clone has the same tools and sources, not copies of them.
///
/// ```
/// use levity_core::ToolOutput;
/// use levity_test::RecordingTool;
/// use levity_tools::Registry;
///
/// let look = || RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")));
/// let registry = Registry::builder().tool(look()).tool_as("look_again", look()).build()?;
/// assert!(registry.get("look_again").is_some() && registry.get("see").is_none());
/// # Ok::<(), levity_tools::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct RegistryBuilder {
    tools: Vec<Arc<dyn Tool>>,
    sources: Vec<Arc<dyn ToolSource>>,
}

impl RegistryBuilder {
    /// Adds a tool to the registry.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared(Arc::new(tool))
    }

    /// Adds a tool under another name.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_test::RecordingTool;
    /// use levity_tools::Registry;
    ///
    /// let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("a shed")));
    /// let registry = Registry::builder().tool_as("inspect", look).build()?;
    /// assert_eq!(registry.specs()[0].name, "inspect");
    /// # Ok::<(), levity_tools::Error>(())
    /// ```
    pub fn tool_as(self, name: impl Into<String>, tool: impl Tool + 'static) -> Self {
        self.tool(Renamed::new(name.into(), tool))
    }

    /// Adds several tools that belong together.
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.tools.extend(tools.into_tools());
        self
    }

    /// Adds a tool that is shared with other owners.
    pub fn shared(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a source of tools, which may change; its tools follow all others, in the order of the
    /// sources.
    ///
    /// A tool that cannot be offered is left out and reported by [`Registry::problems`].
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Adds every tool linked into this program, sorted by name.
    pub fn linked(self) -> Self {
        self.tools(LinkedTool::all())
    }

    /// Compiles the schemas and builds the registry.
    ///
    /// # Errors
    /// Returns an error if two tools have the same name, or one has an invalid name or schema.
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
