//! The default agents of levity.
//!
//! The config and the prompts are ordinary files in `agents/` of this crate, embedded at compile
//! time. [`Catalogue::write_defaults`](super::Catalogue::write_defaults) writes the same files, so
//! a user edits exactly what levity uses.

/// The config of the ten default agents.
pub(super) const CONFIG: &str = include_str!("../../agents/agent_config.yaml");

macro_rules! prompts {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../agents/prompts/", $name)))),*]
    };
}

/// The prompts with the names of their files.
pub(super) const PROMPTS: [(&str, &str); 10] = prompts![
    "planner.md",
    "browser.md",
    "coder.md",
    "retriever.md",
    "summarizer.md",
    "distiller.md",
    "thinker.md",
    "formatter.md",
    "clarification.md",
    "qa.md",
];

/// Returns the prompt that a config names.
pub(super) fn prompt(path: &str) -> Option<String> {
    let name = path.strip_prefix("prompts/")?;
    PROMPTS
        .iter()
        .find(|(file, _)| *file == name)
        .map(|(_, text)| (*text).to_owned())
}
