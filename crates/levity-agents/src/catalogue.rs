//! The catalogue: agents as data.
//!
//! Entries come from the embedded defaults, from a folder or from code. All of them go through the
//! same [`Patch`], so a folder can change a single setting of a default agent. Lookups use a
//! normalised [`key`]; messages and runs use the name as it was first written. Building is in
//! `build`, parsing in `read` and `node`, and files in `files`.

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

pub(crate) use build::description_with_tools;
pub use entry::{CatalogueEntry, NamedPart, Requirement};
pub use error::{AgentPart, CatalogueError, ConfigLocation, MissingPart};
pub use node::yaml_to_json;

use files::Folder;
use read::{Patch, Prompt};

/// A catalogue of agents by name, with their prompts, models, tools and limits.
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
/// Names are case-insensitive, and the suffix `Agent` is optional: `Coder`, `coder` and
/// `CoderAgent` are the same agent. Settings for any of these names apply to that agent, which
/// keeps its first name.
///
/// A catalogue never changes in place: each method returns a changed one, and clones share their
/// entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    /// The entries by key; see [`key`].
    entries: BTreeMap<String, Arc<CatalogueEntry>>,
    /// The keys, in the order in which the agents were added.
    order: Vec<String>,
}

impl Catalogue {
    /// The name of the agent that makes plans; it performs no steps itself.
    pub const PLANNER: &'static str = "Planner";
    /// The maximum size of a config: 256 KiB.
    pub const MAX_CONFIG: u64 = 256 << 10;
    /// The maximum size of a prompt: 256 KiB.
    pub const MAX_PROMPT: u64 = 256 << 10;

    /// Returns the ten default agents: Planner, Browser, Coder, Retriever, Summarizer, Distiller,
    /// Thinker, Formatter, Clarification and QA.
    ///
    /// ```
    /// use levity_agents::Catalogue;
    ///
    /// let agents = Catalogue::defaults();
    /// assert_eq!(agents.entries().count(), 10);
    /// assert!(agents.find("ClarificationAgent").unwrap().ask_user);
    /// ```
    pub fn defaults() -> Self {
        static DEFAULTS: LazyLock<Catalogue> = LazyLock::new(|| {
            let read = node::yaml(defaults::CONFIG)
                .ok()
                .and_then(|root| read::patches(root, None).ok());
            let embedded = |path: &str| defaults::prompt(path).ok_or_else(|| path.to_owned());
            // A test ensures that all ten are read.
            read.and_then(|patches| {
                Catalogue::empty()
                    .with_patches(patches, None, &embedded)
                    .ok()
            })
            .unwrap_or_default()
        });
        DEFAULTS.clone()
    }

    /// Creates a catalogue without agents.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Loads the default agents with the changes of a folder: [`defaults`](Self::defaults) and
    /// [`with_folder`](Self::with_folder).
    ///
    /// ```
    /// use levity_agents::Catalogue;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(
    ///     folder.path().join("agent_config.yaml"),
    ///     "Coder:\n  max_turns: 30\nPoet:\n  prompt: Write poems.\n",
    /// )?;
    /// let agents = Catalogue::load(folder.path())?;
    /// assert_eq!(agents.find("Coder").unwrap().max_turns, 30);
    /// assert_eq!(agents.entries().count(), 11);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails under the same conditions as [`with_folder`](Self::with_folder).
    pub fn load(dir: impl AsRef<Path>) -> Result<Self, CatalogueError> {
        Self::defaults().with_folder(dir)
    }

    /// Applies the config of a folder: its `agent_config.yaml` (or `.yml`, or `.json`) and the
    /// prompt files that it names.
    ///
    /// Settings of an existing agent replace the old ones, setting by setting; other agents are
    /// added. This reads files on the calling thread.
    ///
    /// ```
    /// use levity_agents::Catalogue;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("agent_config.yaml"), "Poet:\n  max_turn: 3\n")?;
    /// let error = Catalogue::empty().with_folder(folder.path()).unwrap_err().to_string();
    /// assert!(error.contains("line 2: agent `Poet`: unknown setting `max_turn`"), "{error}");
    /// assert!(error.contains("did you mean `max_turns`?"), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a file cannot be read or is outside the folder, or if the config is invalid. The
    /// error names the file, line and agent.
    pub fn with_folder(self, dir: impl AsRef<Path>) -> Result<Self, CatalogueError> {
        let folder = Folder::open(dir.as_ref())?;
        let (path, root) = folder.config(Self::MAX_CONFIG)?;
        let patches = read::patches(root, Some(&path))?;
        self.with_patches(patches, Some(&path), &|file| {
            folder.prompt(file, Self::MAX_PROMPT)
        })
    }

    /// Adds an agent, or replaces the one with the same name.
    ///
    /// The replaced entry keeps its place in the order.
    #[must_use]
    pub fn with(mut self, entry: CatalogueEntry) -> Self {
        self.insert(entry);
        self
    }

    /// Writes the default agents into a folder for editing, and returns the written files. Existing
    /// files are not changed. No config is written if there is one under any of its names.
    ///
    /// ```
    /// use levity_agents::Catalogue;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// assert_eq!(Catalogue::write_defaults(folder.path())?.len(), 11); // a config and ten prompts
    /// assert!(Catalogue::write_defaults(folder.path())?.is_empty()); // nothing is overwritten
    /// assert_eq!(Catalogue::empty().with_folder(folder.path())?, Catalogue::defaults());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the folder or a file cannot be written.
    pub fn write_defaults(dir: impl AsRef<Path>) -> Result<Vec<PathBuf>, CatalogueError> {
        files::write(dir.as_ref(), defaults::CONFIG, &defaults::PROMPTS)
    }

    /// Returns the agent with this name, even if it is disabled.
    ///
    /// ```
    /// use levity_agents::Catalogue;
    ///
    /// let agents = Catalogue::defaults();
    /// assert_eq!(agents.find("coder_agent"), agents.find("Coder"));
    /// assert!(agents.find("Painter").is_none());
    /// ```
    pub fn find(&self, name: &str) -> Option<&CatalogueEntry> {
        self.entries.get(&key(name)).map(|entry| &**entry)
    }

    /// Iterates over all agents, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = &CatalogueEntry> {
        self.order
            .iter()
            .filter_map(|key| self.entries.get(key))
            .map(|entry| &**entry)
    }

    /// Iterates over the agents that can perform steps: all but the planner and disabled agents.
    ///
    /// ```
    /// use levity_agents::Catalogue;
    ///
    /// let agents = Catalogue::defaults();
    /// let names: Vec<_> = agents.performers().map(|(name, _)| name).collect();
    /// assert!(names.iter().any(|name| &**name == "Coder"));
    /// assert!(names.iter().all(|name| &**name != Catalogue::PLANNER));
    /// ```
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

    /// Adds an entry at the end of the order, or replaces one at its place.
    fn insert(&mut self, entry: CatalogueEntry) {
        let key = key(&entry.name);
        if !self.entries.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.entries.insert(key, Arc::new(entry));
    }

    /// `prompt` reads a prompt file: from the folder, or from the embedded defaults. Two names of
    /// the same agent in one config are an error, because one of them would silently win.
    fn with_patches(
        mut self,
        patches: Vec<Patch>,
        file: Option<&Path>,
        prompt: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, CatalogueError> {
        let mut seen: BTreeMap<String, Arc<str>> = BTreeMap::new();
        for mut patch in patches {
            let at = ConfigLocation::of(file)
                .line(patch.line)
                .agent(patch.name.clone());
            if let Some(other) = seen.insert(key(&patch.name), patch.name.clone()) {
                let problem = format!("it names the same agent as `{other}`; remove one of them");
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
            self.apply_patch(patch, text, at)?;
        }
        Ok(self)
    }

    /// A new agent needs a prompt. Without one, the name is probably misspelt, so the error
    /// suggests a similar one.
    fn apply_patch(
        &mut self,
        patch: Patch,
        prompt: Option<Arc<str>>,
        at: ConfigLocation,
    ) -> Result<(), CatalogueError> {
        let mut entry = match (self.find(&patch.name), prompt) {
            (Some(entry), Some(prompt)) => CatalogueEntry {
                prompt,
                ..entry.clone()
            },
            (Some(entry), None) => entry.clone(),
            (None, Some(prompt)) => CatalogueEntry::new(patch.name.clone(), prompt),
            (None, None) => {
                let near = levity_dag::__private::near(
                    &patch.name,
                    self.entries().map(|entry| &*entry.name),
                );
                let near = near
                    .first()
                    .map_or_else(String::new, |near| format!(", or did you mean `{near}`?"));
                let problem = format!(
                    "the agent is new and has no prompt; add `prompt_file: ..` or `prompt: \
                        ..`{near}"
                );
                return Err(CatalogueError::Entry { at, problem });
            }
        };
        patch.apply(&mut entry);
        self.insert(entry);
        Ok(())
    }
}

/// Returns the lookup key of an agent: its name in lower case, without the suffix `agent`.
///
/// `Coder`, `coder_agent` and `CODER-AGENT` have the key `coder`. A name that is only `agent` keeps
/// it.
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
