use std::collections::HashMap;
use std::sync::Arc;

use levity_core::{Tool, ToolSource, ToolSpec};

use super::Problem;
use crate::entry::Entry;
use crate::error::Error;

/// The tools there are at one moment.
#[derive(Default)]
pub(super) struct Snapshot {
    entries: Vec<Arc<Entry>>,
    places: HashMap<String, usize>,
    pub(super) specs: Arc<[Arc<ToolSpec>]>,
    pub(super) problems: Vec<Problem>,
    versions: Vec<u64>,
}

impl Snapshot {
    /// The tools that never change.
    pub(super) fn fixed(tools: Vec<Arc<dyn Tool>>) -> Result<Self, Error> {
        let mut snapshot = Self::default();
        for tool in tools {
            snapshot.add(Entry::new(tool)?)?;
        }
        snapshot.specs = snapshot.entries.iter().map(|entry| entry.spec.clone()).collect();
        Ok(snapshot)
    }

    /// The fixed tools and what the sources have now; what `last` has compiled is not compiled again.
    pub(super) fn new(fixed: &Self, sources: &[Arc<dyn ToolSource>], last: &Self) -> Self {
        let mut snapshot =
            Self { entries: fixed.entries.clone(), places: fixed.places.clone(), ..Self::default() };
        for source in sources {
            // A change between the two calls is seen next time, as the version is the older one.
            snapshot.versions.push(source.version());
            for tool in source.tools() {
                if let Err(error) = last.compiled(tool).and_then(|entry| snapshot.add(entry)) {
                    snapshot.problems.push(Problem { source: source.name().to_owned(), error });
                }
            }
            let problem = |text| Problem { source: source.name().to_owned(), error: Error::Source(text) };
            snapshot.problems.extend(source.problems().into_iter().map(problem));
        }
        snapshot.specs = last.same_specs(&snapshot.entries);
        snapshot
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.places.get(name).and_then(|&place| self.entries.get(place))
    }

    /// Whether the sources have nothing else by now.
    pub(super) fn is_current(&self, sources: &[Arc<dyn ToolSource>]) -> bool {
        self.versions.len() == sources.len()
            && self.versions.iter().zip(sources).all(|(version, source)| *version == source.version())
    }

    /// Whether both were made from the same.
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
            _ => Entry::new(tool),
        }
    }

    /// The specs of `entries`; those already here when they are the very same.
    fn same_specs(&self, entries: &[Arc<Entry>]) -> Arc<[Arc<ToolSpec>]> {
        let same = self.specs.len() == entries.len()
            && self.specs.iter().zip(entries).all(|(spec, entry)| Arc::ptr_eq(spec, &entry.spec));
        if same { self.specs.clone() } else { entries.iter().map(|entry| entry.spec.clone()).collect() }
    }
}
