//! The roles of the ready-made workers.
//!
//! Texts and settings per role: the prompt, the description for routers, the keywords for routing
//! without a model, and the turns. The long parts of the prompts are Markdown files next to this
//! module; the lines about tools are here, because they depend on the [`Equipment`].

/// The role of a ready-made worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Researcher,
    Coder,
    Reviewer,
}

/// The tools that are available to a ready-made worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Equipment {
    pub(super) reads_files: bool,
    pub(super) writes_files: bool,
    pub(super) commands: bool,
    pub(super) web: bool,
    pub(super) search: bool,
}

/// The instructions for the final report, which all roles share.
const REPORT: &str = include_str!("report.md");

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Researcher => "researcher",
            Self::Coder => "coder",
            Self::Reviewer => "reviewer",
        }
    }

    /// Returns `true` if the role must not change anything.
    pub(super) fn only_reads(self) -> bool {
        self != Self::Coder
    }

    /// Returns the maximum number of turns for a task.
    pub(super) fn turns(self) -> u64 {
        if self == Self::Coder { 40 } else { 20 }
    }

    /// Returns the system prompt, which mentions only available tools.
    pub(super) fn prompt(self, has: Equipment) -> String {
        let role = match self {
            Self::Researcher => include_str!("researcher.md"),
            Self::Coder => include_str!("coder.md"),
            Self::Reviewer => include_str!("reviewer.md"),
        };
        let tools: String = self
            .tools(has)
            .iter()
            .map(|line| format!("- {line}\n"))
            .collect();
        format!("{role}\n# What you have\n{tools}\n{REPORT}")
    }

    /// Returns one sentence per kind of tool. A worker without any gets an honest sentence about
    /// that.
    fn tools(self, has: Equipment) -> Vec<&'static str> {
        let mut lines = Vec::new();
        match (has.reads_files, has.writes_files) {
            (_, true) => lines.push(
                "You read, search, write and edit the files of a workspace. Read a file before you \
                    change it, and what \
                 you changed once more when you are done. Reports and other files for the user go \
                    below `artifacts/`, unless the task names another place.",
            ),
            (true, false) => lines.push(
                "You read and search the files of a workspace; you cannot write them. Name files \
                    and lines that you \
                 speak of.",
            ),
            (false, false) => {}
        }
        if has.commands {
            lines.push(
                "You run commands in the workspace. Build and test what you changed. What may \
                    destroy something is \
                 asked about first; when the answer is no, take another way.",
            );
        }
        match (has.web, has.search) {
            (true, true) => {
                lines
                    .push("You search the web and fetch pages. Give the address of what you used.");
            }
            (true, false) => {
                lines.push("You fetch pages from the web. Give the address of what you used.");
            }
            (false, true) => lines.push("You search the web. Give the address of what you used."),
            (false, false) => {}
        }
        if lines.is_empty() {
            lines.push(self.prompt_without_tools());
        }
        lines
    }

    /// Returns the prompt text for a worker without tools for files or the web.
    fn prompt_without_tools(self) -> &'static str {
        match self {
            Self::Researcher => {
                "You can look nothing up: you have what the task gives you and what you know. Say \
                    of each statement \
                 how sure you are, and where it should be checked."
            }
            Self::Coder => {
                "You see no files but what the task gives you, and can run nothing. Give the whole \
                    code in your report, \
                 each file under its name, and say that it was not run."
            }
            Self::Reviewer => {
                "You see no files but what the task gives you. Say what you could not see."
            }
        }
    }

    /// Returns the description for routers. Without a router, its words select the worker, so it
    /// contains no words that occur in every goal.
    pub(super) fn description(self, has: Equipment) -> String {
        let looks_up = has.web || has.search;
        match self {
            Self::Researcher => join(
                "Researches facts, investigates, compares; names its sources.",
                &[
                    (looks_up, "Uses the web."),
                    (has.reads_files, "Reads the workspace."),
                    (!looks_up && !has.reads_files, "Cannot look anything up."),
                ],
            ),
            Self::Coder => join(
                "Writes code and tests, implements, fixes, refactors.",
                &[
                    (has.writes_files, "Edits the workspace directly."),
                    (has.reads_files && !has.writes_files, "Reads the workspace."),
                    (has.commands, "Runs commands and builds."),
                    (!has.writes_files, "Returns code as text."),
                ],
            ),
            Self::Reviewer => join(
                "Reviews and verifies; reports faults without touching anything.",
                &[
                    (has.reads_files, "Reads the workspace."),
                    (!has.reads_files, "Sees nothing beyond its task."),
                ],
            ),
        }
    }

    /// Returns the words that select the role for a goal if there is no router.
    pub(super) fn keywords(self) -> &'static [&'static str] {
        match self {
            Self::Researcher => &[
                "research",
                "find out",
                "investigate",
                "compare",
                "explain",
                "learn",
            ],
            Self::Coder => &[
                "code",
                "write",
                "implement",
                "fix",
                "bug",
                "build",
                "program",
                "refactor",
                "function",
                "script",
                "test",
                "add",
                "create",
                "change",
                "rename",
                "port",
            ],
            Self::Reviewer => &[
                "review",
                "check",
                "audit",
                "critique",
                "verify",
                "inspect",
                "assess",
                "proofread",
            ],
        }
    }
}

/// Returns the first sentence, followed by those whose condition holds.
fn join(first: &str, more: &[(bool, &str)]) -> String {
    let more = more
        .iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, text)| *text);
    std::iter::once(first)
        .chain(more)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Role; 3] = [Role::Researcher, Role::Coder, Role::Reviewer];

    #[test]
    fn prompts_mention_only_available_tools() {
        for role in ALL {
            let prompt_without_tools = role.prompt(Equipment::default());
            for promise in [
                "You read",
                "You run",
                "You fetch",
                "You search",
                "workspace",
                "artifacts",
            ] {
                assert!(
                    !prompt_without_tools.contains(promise),
                    "{prompt_without_tools}"
                );
            }
        }
        let whole = Equipment {
            reads_files: true,
            writes_files: true,
            commands: true,
            web: true,
            search: true,
        };
        let prompt = Role::Coder.prompt(whole);
        assert!(
            prompt.contains("write and edit the files") && prompt.contains("You run commands"),
            "{prompt}"
        );
        assert!(
            prompt.contains("for the user go below `artifacts/`"),
            "{prompt}"
        );
        let reads = Equipment {
            reads_files: true,
            ..Equipment::default()
        };
        assert!(
            Role::Reviewer
                .prompt(reads)
                .contains("you cannot write them")
        );
        let web = Equipment {
            web: true,
            ..Equipment::default()
        };
        assert!(Role::Researcher.prompt(web).contains("You fetch pages"));
        assert!(!Role::Researcher.prompt(web).contains("You search the web"));
    }
}
