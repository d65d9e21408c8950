use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use levity_core::Permit;
use serde::{Deserialize, Serialize};

mod inner;
mod judge;
mod literal;
mod read_only;
mod restrict;
mod shell;

use judge::Scene;

use crate::workspace::Workspace;

/// Which commands may run, which are asked about, and which may not.
///
/// Without rules, commands that only read are allowed, and all others are asked about. A command
/// that is allowed in this way must run read-only (`Command::read_only`): the kernel, and not the
/// policy, keeps it from changing something and from denied files.
///
/// A line of shell is taken apart first: every program in it is looked at, behind pipes, `&&`,
/// `$(..)`, `sh -c`, `xargs` and the like, and the strictest decision counts. Lines that are not
/// understood are asked about.
///
/// A command that a rule allows runs with all rights of the sandbox. So a line with one is allowed
/// only as plain words: literal or quoted words, joined by `&&`, `||`, `|`, `;` and line ends, with
/// `2>&1` and redirections to `/dev/null`. Beside it may stand `cd DIR`, `ls` and filters such as
/// `head`. Wrappers, inner shells, expansions and builtins that set variables are asked about.
///
/// A rule names the first words of a command; `*` stands for anything within a word. Of the rules
/// that match, one that denies wins, and else the first.
///
/// Commands of git are asked about: git runs programs that a repository's settings name, and can
/// show every file that was ever committed. If you trust the folder, allow those that you want,
/// such as `allow("git status")`. A program that a repository names then runs with all rights of
/// the sandbox, also one of a repository that the model made. `git -C DIR status` and
/// `git -c NAME=VALUE status` are still asked about.
///
/// ```
/// use levity_sandbox::{CommandPolicy, CommandLine, Permit};
///
/// let policy = CommandPolicy::new().allow("cargo test").deny("git push", "nothing leaves this machine");
/// assert_eq!(policy.judge(CommandLine::Shell("ls -l src | head -3")), Permit::Allow);
/// assert_eq!(policy.judge(CommandLine::Shell("cd core && cargo test --quiet 2>&1 | tail -20")), Permit::Allow);
/// assert!(matches!(policy.judge(CommandLine::Shell("timeout 60 cargo test")), Permit::Ask { .. }));
/// assert_eq!(policy.judge(CommandLine::Shell("rm notes.txt")), Permit::ask("`rm` may change something"));
/// let push = policy.judge(CommandLine::Shell("cargo test && sh -c 'git push'"));
/// assert_eq!(push, Permit::deny("nothing leaves this machine"));
/// ```
///
/// It is a filter for a person's attention, not a wall: what a command can really do is for the
/// sandbox to limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandPolicy {
    rules: Vec<CommandRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    otherwise: Option<Permit>,
    #[serde(skip)]
    workspace: Option<Workspace>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandRule {
    command: Pattern,
    ruling: Permit,
}

/// A command as a model wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLine<'a> {
    /// A program and its arguments.
    Argv(&'a [String]),
    /// A line for the shell.
    Shell(&'a str),
}

/// What a command may read that runs read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadScope {
    /// It asks for no file: it works on its arguments and its input.
    Nothing,
    /// Files of the workspace, but none that are denied, and nothing of `.git`.
    Files,
}

impl CommandPolicy {
    /// What only reads is allowed, the rest is asked about.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything is allowed that no rule forbids.
    pub fn allow_all() -> Self {
        Self {
            otherwise: Some(Permit::Allow),
            ..Self::default()
        }
    }

    /// Everything is asked about that no rule allows.
    pub fn ask_all() -> Self {
        Self {
            otherwise: Some(Permit::ask("every command is asked about")),
            ..Self::default()
        }
    }

    /// Nothing is allowed but what rules allow.
    pub fn deny_all() -> Self {
        let reason = "only commands that are named in the policy may run";
        Self {
            otherwise: Some(Permit::deny(reason)),
            ..Self::default()
        }
    }

    /// Allows commands that begin with these words; without words, none.
    #[must_use]
    pub fn allow(self, command: &str) -> Self {
        self.rule(command, Permit::Allow)
    }

    /// Has a person asked about commands that begin with these words.
    #[must_use]
    pub fn ask(self, command: &str, reason: impl Into<String>) -> Self {
        self.rule(command, Permit::ask(reason))
    }

    /// Forbids commands that begin with these words.
    #[must_use]
    pub fn deny(self, command: &str, reason: impl Into<String>) -> Self {
        self.rule(command, Permit::deny(reason))
    }

    /// Has a person asked about commands that name a file which this workspace denies, though they
    /// only read. Commands are taken to run in the workspace.
    #[must_use]
    pub fn within(mut self, workspace: &Workspace) -> Self {
        self.workspace = Some(workspace.clone());
        self
    }

    /// The workspace whose denied files are asked about.
    pub fn workspace(&self) -> Option<&Workspace> {
        self.workspace.as_ref()
    }

    /// Decides on a command. One that is allowed and has a [`read_scope`](Self::read_scope) must
    /// run read-only.
    pub fn judge(&self, line: CommandLine<'_>) -> Permit {
        self.judge_at(".", line)
    }

    /// Decides on a command that begins in a folder of the working directory.
    pub fn judge_in(&self, dir: &str, line: CommandLine<'_>) -> Permit {
        self.judge_folder(dir).and(self.judge_at(dir, line))
    }

    /// What a command reads whose programs are allowed only because they read; `None` for all
    /// others. It depends on the command and the rules alone, not on files, so it is the same when
    /// the command runs as when it was decided on.
    pub fn read_scope(&self, line: CommandLine<'_>) -> Option<ReadScope> {
        self.read_scope_in(".", line)
    }

    /// The same for a command that begins in a folder of the working directory.
    pub fn read_scope_in(&self, dir: &str, line: CommandLine<'_>) -> Option<ReadScope> {
        if self.otherwise.is_some() || self.judge_folder(dir) != Permit::Allow {
            return None;
        }
        let mut scene = Scene::new(dir);
        let ruling = self.judge_scene(line, &mut scene);
        scene.scope(&ruling)
    }

    /// The programs of a command, which begins in a folder, that no rule names and that only read,
    /// or run another program. They are known by their names alone. So whoever runs the command
    /// without [`read_scope`](Self::read_scope) must keep it from other programs with these names
    /// (`Command::take_from_system`).
    pub fn readers_in(&self, dir: &str, line: CommandLine<'_>) -> Vec<String> {
        let mut scene = Scene::new(dir);
        self.judge_scene(line, &mut scene);
        scene.readers.into_iter().collect()
    }

    /// Why a command that begins in a folder may not run, even if a person says so; `None` for all
    /// others. Like [`read_scope`](Self::read_scope), it looks at no file.
    pub fn denial_in(&self, dir: &str, line: CommandLine<'_>) -> Option<String> {
        match self
            .judge_folder(dir)
            .and(self.judge_scene(line, &mut Scene::new(dir)))
        {
            Permit::Deny { reason } => Some(reason),
            _ => None,
        }
    }

    fn judge_at(&self, dir: &str, line: CommandLine<'_>) -> Permit {
        self.judge_scene(line, &mut Scene::new(dir))
    }

    fn rule(mut self, command: &str, ruling: Permit) -> Self {
        self.rules.push(CommandRule {
            command: Pattern::new(command),
            ruling,
        });
        self
    }
}

/// The first words of a command, each a pattern.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
struct Pattern {
    text: String,
    words: Vec<Option<GlobMatcher>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        // What is no pattern matches nothing but itself, so a stray bracket does no harm.
        let word = |word: &str| {
            let glob = |text: &str| GlobBuilder::new(text).backslash_escape(true).build().ok();
            glob(word)
                .or_else(|| glob(&globset::escape(word)))
                .map(|glob| glob.compile_matcher())
        };
        Self {
            text: text.to_owned(),
            words: text.split_whitespace().map(word).collect(),
        }
    }

    /// Returns whether a command begins with it. One without words matches every command, and
    /// allows none.
    fn matches(&self, words: &[&str]) -> bool {
        let fits = |(pattern, word): (&Option<GlobMatcher>, &&str)| {
            pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(word))
        };
        self.words.len() <= words.len() && self.words.iter().zip(words).all(fits)
    }

    /// Returns whether it matches if each word that is not known is what it asks for, or many
    /// words.
    fn may_match(&self, words: &[Option<&str>]) -> bool {
        for (at, pattern) in self.words.iter().enumerate() {
            match words.get(at) {
                Some(None) => return true,
                Some(Some(word))
                    if pattern
                        .as_ref()
                        .is_some_and(|pattern| pattern.is_match(word)) => {}
                _ => return false,
            }
        }
        true
    }
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

#[cfg(test)]
mod tests;
