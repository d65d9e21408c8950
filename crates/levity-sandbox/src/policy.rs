//! Decisions on commands before they run.
//!
//! A command passes through these modules:
//!
//! - `literal` recognizes lines of plain words, and `shell` parses everything else.
//! - `inner` finds programs that other programs run.
//! - `read_only` knows programs that only read, and which files they reach.
//! - `restrict` applies deny and ask rules to nested commands.
//! - `judge` combines them to one decision.
//!
//! Every module returns the stricter answer if in doubt. An unknown construct is never skipped.

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

use judge::LineContext;

use crate::workspace::Workspace;

/// Rules that decide which commands run, which need approval, and which are denied.
///
/// Without rules, commands that only read are allowed, and all others need a person's approval. Run
/// a command that is allowed in this way read-only (`Command::read_only`): the kernel, not the
/// policy, blocks changes and denied files.
///
/// The policy parses a shell line first. It checks every program in the line, including those
/// behind pipes, `&&`, `$(..)`, `sh -c`, `xargs` and the like, and applies the strictest decision.
/// Lines that it cannot parse need approval.
///
/// A command that a rule allows runs with all rights of the sandbox. A line with such a command is
/// therefore allowed only as plain words: literal or quoted words, joined by `&&`, `||`, `|`, `;`
/// and line ends, with `2>&1` and redirections to `/dev/null`. The line may also contain `cd DIR`,
/// `ls` and filters such as `head`. Wrappers, inner shells, expansions and builtins that set
/// variables need approval.
///
/// A rule names the first words of a command; `*` matches anything within a word. Among the
/// matching rules, a deny rule wins; otherwise the first rule decides.
///
/// Git commands need approval: git runs programs that a repository's settings name, and can show
/// every file that was ever committed. If you trust the folder, allow the commands that you need,
/// such as `allow("git status")`. A program that a repository names then runs with all rights of
/// the sandbox, even if the model created that repository. `git -C DIR status` and
/// `git -c NAME=VALUE status` still need approval.
///
/// ```
/// use levity_sandbox::{CommandPolicy, CommandLine, Permit};
///
/// let policy = CommandPolicy::new()
///     .allow("cargo test")
///     .deny("git push", "nothing leaves this machine");
/// assert_eq!(policy.judge(CommandLine::Shell("ls -l src | head -3")), Permit::Allow);
/// assert_eq!(
///     policy.judge(CommandLine::Shell(
///         "cd core && cargo test --quiet 2>&1 | tail -20"
///     )),
///     Permit::Allow
/// );
/// assert!(matches!(
///     policy.judge(CommandLine::Shell("timeout 60 cargo test")),
///     Permit::Ask { .. }
/// ));
/// assert_eq!(
///     policy.judge(CommandLine::Shell("rm notes.txt")),
///     Permit::ask("`rm` may change something")
/// );
/// let push = policy.judge(CommandLine::Shell("cargo test && sh -c 'git push'"));
/// assert_eq!(push, Permit::deny("nothing leaves this machine"));
/// ```
///
/// The policy filters what a person has to review; it is not a security boundary. The sandbox
/// limits what a command can do.
///
/// A policy can be stored as JSON or TOML; the workspace is not a part of it.
///
/// ```
/// use levity_sandbox::{CommandLine, CommandPolicy, Permit};
///
/// let policy: CommandPolicy = serde_json::from_str(
///     r#"{ "rules": [{ "command": "cargo *", "ruling": "allow" }] }"#,
/// )?;
/// assert_eq!(policy.judge(CommandLine::Shell("cargo build")), Permit::Allow);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandPolicy {
    rules: Vec<CommandRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    otherwise: Option<Permit>,
    #[serde(skip)]
    workspace: Option<Workspace>,
}

/// A rule as it was added, in the order of the calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandRule {
    command: Pattern,
    ruling: Permit,
}

/// A command line as a model wrote it.
///
/// The policy judges both forms in the same way, but an argument of [`Argv`](Self::Argv) is always
/// literal: no shell expands it.
///
/// ```
/// use levity_sandbox::{CommandLine, CommandPolicy, Permit};
///
/// let policy = CommandPolicy::new();
/// let argv = ["echo".to_owned(), "$(rm notes.txt)".to_owned()];
/// assert_eq!(policy.judge(CommandLine::Argv(&argv)), Permit::Allow);
/// assert_ne!(policy.judge(CommandLine::Shell("echo $(rm notes.txt)")), Permit::Allow);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLine<'a> {
    /// A program and its arguments.
    Argv(&'a [String]),
    /// A line for the shell.
    Shell(&'a str),
}

/// The files that a read-only command may read.
///
/// ```
/// use levity_sandbox::{CommandLine, CommandPolicy, ReadScope};
///
/// let policy = CommandPolicy::new();
/// let scope = |line| policy.read_scope(CommandLine::Shell(line));
/// assert_eq!(scope("echo hello | tr a-z A-Z"), Some(ReadScope::Nothing));
/// assert_eq!(scope("cat notes.txt"), Some(ReadScope::Files));
/// assert_eq!(scope("rm notes.txt"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadScope {
    /// No file: the command uses only its arguments and its input.
    Nothing,
    /// Files of the workspace, except denied ones and everything in `.git`.
    Files,
}

impl CommandPolicy {
    /// Creates a policy that allows commands that only read, and asks for approval of all others.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a policy that allows every command that no rule denies.
    ///
    /// Use this only in a sandbox that you trust to contain every command.
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy, Permit};
    ///
    /// let policy = CommandPolicy::allow_all().deny("git push", "nothing leaves this machine");
    /// assert_eq!(policy.judge(CommandLine::Shell("make install")), Permit::Allow);
    /// assert!(matches!(policy.judge(CommandLine::Shell("git push")), Permit::Deny { .. }));
    /// ```
    pub fn allow_all() -> Self {
        Self {
            otherwise: Some(Permit::Allow),
            ..Self::default()
        }
    }

    /// Creates a policy that asks for approval of every command that no rule allows.
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy, Permit};
    ///
    /// let policy = CommandPolicy::ask_all().allow("cargo check");
    /// assert!(matches!(policy.judge(CommandLine::Shell("ls")), Permit::Ask { .. }));
    /// assert_eq!(policy.judge(CommandLine::Shell("cargo check")), Permit::Allow);
    /// ```
    pub fn ask_all() -> Self {
        Self {
            otherwise: Some(Permit::ask("every command needs approval")),
            ..Self::default()
        }
    }

    /// Creates a policy that denies every command that no rule allows.
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy, Permit};
    ///
    /// let policy = CommandPolicy::deny_all().allow("cargo check");
    /// assert!(matches!(policy.judge(CommandLine::Shell("ls")), Permit::Deny { .. }));
    /// assert_eq!(policy.judge(CommandLine::Shell("cargo check")), Permit::Allow);
    /// ```
    pub fn deny_all() -> Self {
        let reason = "only commands that the policy allows may run";
        Self {
            otherwise: Some(Permit::deny(reason)),
            ..Self::default()
        }
    }

    /// Allows commands that begin with these words. An empty text allows no command.
    ///
    /// The words `cargo test` match `cargo test --all`, but not `cargo build` or `cargo`. The
    /// program may have a folder of the system, as in `/usr/bin/cargo`; `./cargo test` needs its
    /// own rule.
    #[must_use]
    pub fn allow(self, command: &str) -> Self {
        self.rule(command, Permit::Allow)
    }

    /// Asks for approval of commands that begin with these words.
    ///
    /// The reason is shown to the person who decides. Ask rules also apply to commands inside other
    /// commands.
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy, Permit};
    ///
    /// let policy = CommandPolicy::allow_all().ask("npm publish", "this is visible to everyone");
    /// let permit = policy.judge(CommandLine::Shell("npm publish --dry-run"));
    /// assert_eq!(permit, Permit::ask("this is visible to everyone"));
    /// ```
    #[must_use]
    pub fn ask(self, command: &str, reason: impl Into<String>) -> Self {
        self.rule(command, Permit::ask(reason))
    }

    /// Denies commands that begin with these words.
    ///
    /// The reason is shown to the model. A deny rule wins over every other rule, in any order, and
    /// also matches `git -C . push` and `/usr/bin/git push`.
    #[must_use]
    pub fn deny(self, command: &str, reason: impl Into<String>) -> Self {
        self.rule(command, Permit::deny(reason))
    }

    /// Asks for approval of commands that name a file which this workspace denies, even if they
    /// only read. The policy assumes that commands run in the workspace.
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy, Permit, Workspace};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let policy = CommandPolicy::new().with_workspace(&Workspace::open(folder.path())?);
    /// assert_eq!(policy.judge(CommandLine::Shell("cat notes.txt")), Permit::Allow);
    /// assert_eq!(
    ///     policy.judge(CommandLine::Shell("cat .env")),
    ///     Permit::ask("`.env` is denied by the workspace")
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_workspace(mut self, workspace: &Workspace) -> Self {
        self.workspace = Some(workspace.clone());
        self
    }

    /// Returns the workspace whose denied files need approval.
    pub fn workspace(&self) -> Option<&Workspace> {
        self.workspace.as_ref()
    }

    /// Decides on a command. A command that is allowed and has a [`read_scope`](Self::read_scope)
    /// must run read-only.
    pub fn judge(&self, line: CommandLine<'_>) -> Permit {
        self.judge_at(".", line)
    }

    /// Decides on a command that starts in a folder of the working directory.
    ///
    /// `dir` is relative to the working directory, with `/` between the names. A folder outside, or
    /// one that the workspace denies, needs approval.
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy, Permit};
    ///
    /// let policy = CommandPolicy::new();
    /// assert_eq!(policy.judge_in("src", CommandLine::Shell("ls")), Permit::Allow);
    /// let outside = policy.judge_in("../other", CommandLine::Shell("ls"));
    /// assert!(matches!(outside, Permit::Ask { .. }));
    /// ```
    pub fn judge_in(&self, dir: &str, line: CommandLine<'_>) -> Permit {
        self.judge_folder(dir).and(self.judge_at(dir, line))
    }

    /// Returns the read scope of a command that is allowed only because its programs just read;
    /// `None` for all others. The result depends on the command and the rules alone, not on files.
    /// So it is the same at the decision and at the run.
    pub fn read_scope(&self, line: CommandLine<'_>) -> Option<ReadScope> {
        self.read_scope_in(".", line)
    }

    /// Returns the read scope of a command that starts in a folder of the working directory.
    pub fn read_scope_in(&self, dir: &str, line: CommandLine<'_>) -> Option<ReadScope> {
        if self.otherwise.is_some() || self.judge_folder(dir) != Permit::Allow {
            return None;
        }
        let mut context = LineContext::new(dir);
        let ruling = self.judge_in_context(line, &mut context);
        context.scope(&ruling)
    }

    /// Returns the programs of a command that no rule names and that only read, or run another
    /// program. The command starts in the folder `dir`.
    ///
    /// The policy knows these programs by their names alone. If you run the command without
    /// [`read_scope`](Self::read_scope), prevent it from running other programs with these names
    /// (`Command::use_system_programs`).
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy};
    ///
    /// let policy = CommandPolicy::new().allow("cargo test");
    /// let line = CommandLine::Shell("cargo test 2>&1 | tail -5");
    /// assert_eq!(policy.reading_programs_in(".", line), ["tail"]);
    /// ```
    pub fn reading_programs_in(&self, dir: &str, line: CommandLine<'_>) -> Vec<String> {
        let mut context = LineContext::new(dir);
        self.judge_in_context(line, &mut context);
        context.readers.into_iter().collect()
    }

    /// Returns the reason why a command that starts in a folder is denied, even if a person
    /// approves it; `None` for all others. Like [`read_scope`](Self::read_scope), this reads no
    /// file.
    ///
    /// ```
    /// use levity_sandbox::{CommandLine, CommandPolicy};
    ///
    /// let policy = CommandPolicy::new().deny("git push", "nothing leaves this machine");
    /// let reason = |line| policy.denial_reason_in(".", CommandLine::Shell(line));
    /// assert_eq!(reason("git push").as_deref(), Some("nothing leaves this machine"));
    /// assert_eq!(reason("rm notes.txt"), None);
    /// ```
    pub fn denial_reason_in(&self, dir: &str, line: CommandLine<'_>) -> Option<String> {
        match self
            .judge_folder(dir)
            .and(self.judge_in_context(line, &mut LineContext::new(dir)))
        {
            Permit::Deny { reason } => Some(reason),
            _ => None,
        }
    }

    fn judge_at(&self, dir: &str, line: CommandLine<'_>) -> Permit {
        self.judge_in_context(line, &mut LineContext::new(dir))
    }

    fn rule(mut self, command: &str, ruling: Permit) -> Self {
        self.rules.push(CommandRule {
            command: Pattern::new(command),
            ruling,
        });
        self
    }
}

/// The first words of a command, each of them a pattern.
///
/// `text` is retained so that a stored policy is written as it was read.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
struct Pattern {
    text: String,
    words: Vec<Option<GlobMatcher>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        // A word that is not a valid pattern matches only itself, so a stray bracket does no harm.
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

    /// Returns `true` if a command begins with this pattern. A pattern without words matches every
    /// command, and allows none.
    fn matches(&self, words: &[&str]) -> bool {
        let fits = |(pattern, word): (&Option<GlobMatcher>, &&str)| {
            pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(word))
        };
        self.words.len() <= words.len() && self.words.iter().zip(words).all(fits)
    }

    /// Returns `true` if the pattern matches when each unknown word (`None`) may be any word, or
    /// several words.
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
