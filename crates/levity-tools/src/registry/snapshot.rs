//! The tools at one moment: compiled, in order, with their problems.

use std::collections::HashMap;
use std::error::Error as _;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use levity_core::{Tool, ToolSource, ToolSpec};

use super::ToolProblem;
use super::search::Index;
use crate::entry::Entry;
use crate::error::Error;

/// The tools at one moment.
#[derive(Default)]
pub(super) struct Snapshot {
    entries: Vec<Arc<Entry>>,
    places: HashMap<String, usize>,
    pub(super) specs: Arc<[Arc<ToolSpec>]>,
    pub(super) problems: Vec<ToolProblem>,
    versions: Vec<u64>,
    /// The number of tools that never change; they are the first.
    fixed: usize,
    /// The sources of the others.
    parts: Vec<(String, Range<usize>)>,
    /// The search index of the others.
    index: OnceLock<Index>,
}

impl Snapshot {
    /// Creates a snapshot of the tools that never change.
    pub(super) fn fixed(tools: Vec<Arc<dyn Tool>>) -> Result<Self, Error> {
        let mut snapshot = Self::default();
        for tool in tools {
            snapshot.add(Entry::new(tool)?)?;
        }
        snapshot.fixed = snapshot.entries.len();
        snapshot.specs = snapshot
            .entries
            .iter()
            .map(|entry| entry.spec.clone())
            .collect();
        Ok(snapshot)
    }

    /// Creates a snapshot of the fixed tools and the current tools of the sources, reusing the
    /// compiled entries of `last`.
    pub(super) fn new(fixed: &Self, sources: &[Arc<dyn ToolSource>], last: &Self) -> Self {
        let mut snapshot = Self {
            entries: fixed.entries.clone(),
            places: fixed.places.clone(),
            fixed: fixed.fixed,
            ..Self::default()
        };
        for source in sources {
            // A change between the two calls is noticed next time, as the version is the older one.
            snapshot.versions.push(source.version());
            for tool in source.tools() {
                snapshot.add_from(source.as_ref(), tool, last);
            }
            let problem = |text| ToolProblem {
                source: source.name().to_owned(),
                error: Error::Source(text),
            };
            snapshot
                .problems
                .extend(source.problems().into_iter().map(problem));
        }
        snapshot.specs = last.same_specs(&snapshot.entries);
        snapshot
    }

    /// Adds a tool of a source, or records the problem.
    fn add_from(&mut self, source: &dyn ToolSource, tool: Arc<dyn Tool>, last: &Self) {
        let name = tool.spec().name.clone();
        let mut problem = |error| {
            self.problems.push(ToolProblem {
                source: source.name().to_owned(),
                error,
            });
        };
        let entry = match last.compiled(tool) {
            Ok(entry) => entry,
            Err(error) => return problem(error),
        };
        if let Some(flaw) = &entry.flaw {
            problem(Error::Source(unchecked(&name, flaw)));
        }
        let at = self.entries.len();
        if let Err(error) = self.add(entry) {
            return self.problems.push(ToolProblem {
                source: source.name().to_owned(),
                error,
            });
        }
        let part = source
            .part(&name)
            .unwrap_or_else(|| source.name().to_owned());
        match self.parts.last_mut() {
            Some((last, range)) if *last == part => range.end = at + 1,
            _ => self.parts.push((part, at..at + 1)),
        }
    }

    /// Returns the tools that never change.
    pub(super) fn fixed_specs(&self) -> &[Arc<ToolSpec>] {
        self.specs.get(..self.fixed).unwrap_or_default()
    }

    /// Returns the tools of sources.
    pub(super) fn source_specs(&self) -> &[Arc<ToolSpec>] {
        self.specs.get(self.fixed..).unwrap_or_default()
    }

    /// Returns the sources of tools, each with its tools.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, &[Arc<ToolSpec>])> {
        let specs = |range: &Range<usize>| self.specs.get(range.clone()).unwrap_or_default();
        self.parts
            .iter()
            .map(move |(name, range)| (&**name, specs(range)))
    }

    /// Returns the search index of the tools of sources.
    pub(super) fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::new(self.source_specs()))
    }

    /// Returns `true` if a tool comes from a source.
    pub(super) fn is_from_source(&self, name: &str) -> bool {
        self.places
            .get(name)
            .is_some_and(|place| *place >= self.fixed)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.places
            .get(name)
            .and_then(|&place| self.entries.get(place))
    }

    /// Returns `true` if the sources have not changed.
    pub(super) fn is_current(&self, sources: &[Arc<dyn ToolSource>]) -> bool {
        self.versions.len() == sources.len()
            && self
                .versions
                .iter()
                .zip(sources)
                .all(|(version, source)| *version == source.version())
    }

    /// Returns `true` if both were made from the same versions.
    pub(super) fn is_as_new_as(&self, other: &Self) -> bool {
        self.versions == other.versions
    }

    fn add(&mut self, entry: Entry) -> Result<(), Error> {
        let name = entry.spec.name.clone();
        if self.places.contains_key(&name) {
            return Err(Error::DuplicateName(name));
        }
        self.places.insert(name, self.entries.len());
        self.entries.push(Arc::new(entry));
        Ok(())
    }

    fn compiled(&self, tool: Arc<dyn Tool>) -> Result<Entry, Error> {
        match self.get(&tool.spec().name) {
            Some(known) if *known.spec == *tool.spec() => Ok(known.with_tool(tool)),
            _ => Entry::lenient(tool),
        }
    }

    /// Returns the specs of `entries`; the existing list if it is identical.
    fn same_specs(&self, entries: &[Arc<Entry>]) -> Arc<[Arc<ToolSpec>]> {
        let same = self.specs.len() == entries.len()
            && self
                .specs
                .iter()
                .zip(entries)
                .all(|(spec, entry)| Arc::ptr_eq(spec, &entry.spec));
        if same {
            self.specs.clone()
        } else {
            entries.iter().map(|entry| entry.spec.clone()).collect()
        }
    }
}

/// Returns the message about a tool whose outputs cannot be validated.
fn unchecked(name: &str, flaw: &Error) -> String {
    let cause = flaw
        .source()
        .map(|cause| format!(": {cause}"))
        .unwrap_or_default();
    format!("the output of `{name}` is not validated, because {flaw}{cause}")
}
