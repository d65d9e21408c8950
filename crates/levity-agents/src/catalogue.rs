use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use levity_dag::{StepRunner, StepRunnerKind};

mod build;
mod defaults;
mod entry;
mod error;
mod files;
mod hint;
mod node;
mod read;

pub(crate) use build::described;
pub use entry::{CatalogEntry, NamedPart, Requirement};
pub use error::{AgentPart, CatalogueError, Missing, Place};

use files::Folder;
use read::{Patch, Prompt};

/// Agents by name: what each is told, which model and tools it has, what it may use.
///
/// ```
/// use levity_agents::{Catalogue, AgentParts};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agents = Catalogue::defaults();
/// let parts = AgentParts::new(ScriptedModel::new().reply(r#"{"summary": "It rains."}"#));
/// let summarizer = agents.build("Summarizer", &parts)?;
/// assert_eq!(summarizer.run("Sum up the forecast.").await?.text(), r#"{"summary": "It rains."}"#);
/// # Ok(())
/// # }
/// ```
///
/// An agent is found by its name in any case, and with or without `Agent` at its end: `Coder`,
/// `coder` and `CoderAgent` are the same. What is said of an agent by any of these names is said of
/// that one; it keeps the name that it had first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    /// By key; see [`key`].
    entries: BTreeMap<String, Arc<CatalogEntry>>,
    /// The keys, in the order in which the agents were added.
    order: Vec<String>,
}

impl Catalogue {
    /// The name of the agent that makes plans; it does no steps itself.
    pub const PLANNER: &'static str = "Planner";
    /// How many bytes a config may have: 256 KiB.
    pub const MAX_CONFIG: u64 = 256 << 10;
    /// How many bytes a prompt may have: 256 KiB.
    pub const MAX_PROMPT: u64 = 256 << 10;

    /// The ten agents that come with levity: Planner, Browser, Coder, Retriever, Summarizer,
    /// Distiller, Thinker, Formatter, Clarification and QA.
    pub fn defaults() -> Self {
        static DEFAULTS: LazyLock<Catalogue> = LazyLock::new(|| {
            let read = node::yaml(defaults::CONFIG)
                .ok()
                .and_then(|root| read::patches(root, None).ok());
            let embedded = |path: &str| defaults::prompt(path).ok_or_else(|| path.to_owned());
            // A test sees to it that all ten are read.
            read.and_then(|patches| Catalogue::empty().patched(patches, None, &embedded).ok())
                .unwrap_or_default()
        });
        DEFAULTS.clone()
    }

    /// No agents.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The default agents with what a folder says on top: [`defaults`](Self::defaults) and
    /// [`with_folder`](Self::with_folder).
    ///
    /// # Errors
    /// As for [`with_folder`](Self::with_folder).
    pub fn load(dir: impl AsRef<Path>) -> Result<Self, CatalogueError> {
        Self::defaults().with_folder(dir)
    }

    /// Adds what a folder says: its `agent_config.yaml` (or `.yml`, or `.json`) and the prompt
    /// files that it names.
    ///
    /// What is said of an agent that is there already replaces what it had, setting by setting;
    /// other agents are new. Files are read on the calling thread.
    ///
    /// # Errors
    /// When a file cannot be read or lies outside the folder, or when something in the config is
    /// wrong: file, line and agent are named.
    pub fn with_folder(self, dir: impl AsRef<Path>) -> Result<Self, CatalogueError> {
        let folder = Folder::open(dir.as_ref())?;
        let (path, root) = folder.config(Self::MAX_CONFIG)?;
        let patches = read::patches(root, Some(&path))?;
        self.patched(patches, Some(&path), &|file| {
            folder.prompt(file, Self::MAX_PROMPT)
        })
    }

    /// Adds an agent, in place of the one that has its name.
    #[must_use]
    pub fn with(mut self, entry: CatalogEntry) -> Self {
        self.put(entry);
        self
    }

    /// Writes the default agents into a folder, to be changed there, and returns the files that
    /// were written. A file that is there stays as it is; where there is a config under any name,
    /// none is written.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn write_defaults(dir: impl AsRef<Path>) -> Result<Vec<PathBuf>, CatalogueError> {
        files::write(dir.as_ref(), defaults::CONFIG, &defaults::PROMPTS)
    }

    /// The agent of this name, also if it is switched off.
    pub fn find(&self, name: &str) -> Option<&CatalogEntry> {
        self.entries.get(&key(name)).map(|entry| &**entry)
    }

    /// All agents, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = &CatalogEntry> {
        self.order
            .iter()
            .filter_map(|key| self.entries.get(key))
            .map(|entry| &**entry)
    }

    /// Those who can do steps: all but the planner and what is switched off.
    pub fn performers(&self) -> impl Iterator<Item = (Arc<str>, StepRunner)> + '_ {
        let planner = key(Self::PLANNER);
        let able = self
            .entries()
            .filter(move |entry| entry.enabled && key(&entry.name) != planner);
        able.map(|entry| {
            let mut performer = StepRunner::new(StepRunnerKind::Agent, entry.description.clone());
            (performer.budget, performer.judges) = (entry.budget, entry.judges);
            performer.code = entry.code.is_some();
            (entry.name.clone(), performer)
        })
    }

    fn put(&mut self, entry: CatalogEntry) {
        let key = key(&entry.name);
        if !self.entries.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.entries.insert(key, Arc::new(entry));
    }

    fn patched(
        mut self,
        patches: Vec<Patch>,
        file: Option<&Path>,
        prompt: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, CatalogueError> {
        let mut seen: BTreeMap<String, Arc<str>> = BTreeMap::new();
        for mut patch in patches {
            let at = Place::of(file).line(patch.line).agent(patch.name.clone());
            if let Some(other) = seen.insert(key(&patch.name), patch.name.clone()) {
                let problem = format!("it is the same agent as `{other}`; keep one of them");
                return Err(CatalogueError::Entry { at, problem });
            }
            let text = match patch.prompt.take() {
                Some(Prompt::Inline(text)) => Some(text),
                Some(Prompt::File { path, line }) => {
                    let at = at.clone().line(line);
                    let text =
                        prompt(&path).map_err(|problem| CatalogueError::Prompt { at, problem })?;
                    Some(text.into())
                }
                None => None,
            };
            self.change(patch, text, at)?;
        }
        Ok(self)
    }

    fn change(
        &mut self,
        patch: Patch,
        prompt: Option<Arc<str>>,
        at: Place,
    ) -> Result<(), CatalogueError> {
        let mut entry = match (self.find(&patch.name), prompt) {
            (Some(entry), Some(prompt)) => CatalogEntry {
                prompt,
                ..entry.clone()
            },
            (Some(entry), None) => entry.clone(),
            (None, Some(prompt)) => CatalogEntry::new(patch.name.clone(), prompt),
            (None, None) => {
                let near = levity_dag::__private::near(
                    &patch.name,
                    self.entries().map(|entry| &*entry.name),
                );
                let near = near
                    .first()
                    .map_or_else(String::new, |near| format!(", or is `{near}` meant?"));
                let problem = format!(
                    "it is new and has no prompt; add `prompt_file: ..` or `prompt: ..`{near}"
                );
                return Err(CatalogueError::Entry { at, problem });
            }
        };
        patch.apply(&mut entry);
        self.put(entry);
        Ok(())
    }
}

/// By which an agent is found: its name in small letters, without `agent` at the end.
fn key(name: &str) -> String {
    let mut key = name.to_lowercase();
    if let Some(rest) = key
        .strip_suffix("agent")
        .map(|rest| rest.trim_end_matches(['_', '-']))
        .filter(|rest| !rest.is_empty())
    {
        key.truncate(rest.len());
    }
    key
}

#[cfg(test)]
mod tests;
