//! The default agents of levity.

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
