//! Decisions of a policy on the programs in a command.
//!
//! One line may contain many programs. Each is judged separately and the strictest decision counts.
//! A [`LineContext`] collects facts about the whole line: the folders that it enters, the programs
//! in it, and a rule that gives more rights than reading. All programs of a line share one set of
//! rights, so mixing is limited to plain words and filters.

use std::collections::BTreeSet;

use super::inner::{Inner, WRAPPERS, inner, is_shell, xargs_replaces};
use super::literal;
use super::read_only::{
    is_filter, is_unsafe_with_glob, only_reads, reads_named_by_file, shows_files,
};
use super::restrict::git_command;
use super::shell::{self, Simple, Word};
use super::{CommandLine, CommandPolicy, Permit, ReadScope};

/// The maximum nesting depth of shells and wrappers.
pub(super) const MAX_DEPTH: usize = 8;

/// The maximum number of folders that a line may enter by `cd`.
const MAX_FOLDERS: usize = 16;

/// The folders in which the commands of a line may run, and the rights that the allowed ones need.
#[derive(Debug)]
pub(super) struct LineContext {
    /// Folders, relative to the workspace, in which a command of the line may start.
    folders: Vec<String>,
    /// `true` if a program lists names of files.
    lists: bool,
    /// The rule that allows a program, which then has all rights of the sandbox.
    rule: Option<String>,
    /// A program that is not a filter. In a line with a program that has more rights, it would have
    /// them as well.
    non_filter: Option<String>,
    /// The first token that is more than plain words.
    not_plain: Option<String>,
    /// Names of programs that no rule allows, and that are assumed to be the system's programs of
    /// these names.
    pub(super) readers: BTreeSet<String>,
}

impl LineContext {
    pub(super) fn new(dir: &str) -> Self {
        let dir = if dir == "." { "" } else { dir };
        let [rule, non_filter, not_plain] = [const { None }; 3];
        let (folders, readers) = (vec![dir.to_owned()], BTreeSet::new());
        Self {
            folders,
            lists: false,
            rule,
            non_filter,
            not_plain,
            readers,
        }
    }

    /// Records a `cd`. Earlier folders stay possible: `cd` may fail, or run in a subshell. A folder
    /// that is not literal leads to a home or an earlier folder, or is not known yet.
    fn enter(&mut self, args: &[Word]) {
        let [dir] = args else { return };
        if !dir.is_known() || dir.text.starts_with('-') || self.folders.len() > MAX_FOLDERS {
            return;
        }
        let below: Vec<String> = self
            .folders
            .iter()
            .map(|folder| join(folder, &dir.text))
            .collect();
        for folder in below {
            if !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
    }

    /// Returns the reason why the line must not run with the rights of the rule that allows one of
    /// its programs. Each line runs with one set of rights. A line with more than read rights must
    /// be plain words, since shells differ in everything else.
    fn excess(&self) -> Option<String> {
        let rule = self.rule.as_deref()?;
        if let Some(token) = &self.not_plain {
            return Some(not_plain(token, rule));
        }
        let non_filter = self.non_filter.as_deref()?;
        Some(format!(
            "it mixes `{rule}`, which a rule allows, with `{non_filter}`; run them one by one"
        ))
    }

    /// Returns the read scope of the line, if all its programs are allowed only because they read.
    pub(super) fn scope(&self, ruling: &Permit) -> Option<ReadScope> {
        match self {
            _ if *ruling != Permit::Allow => None,
            Self { rule: Some(_), .. } => None,
            Self {
                lists: false,
                non_filter: None,
                not_plain: None,
                ..
            } => Some(ReadScope::Nothing),
            _ => Some(ReadScope::Files),
        }
    }
}

/// The reason why git needs approval. Only the folder's owner knows whether its repositories can be
/// trusted.
const GIT: &str = "`git` runs programs that a repository's settings name, and can show every file \
    that was ever committed; \
    if you trust the folder, allow it by a rule such as `git status`";

fn not_plain(token: &str, rule: &str) -> String {
    format!(
        "it combines {token} with `{}`, which a rule allows; write it as plain words",
        short(rule)
    )
}

/// Joins a folder of the workspace and a path below it.
fn join(folder: &str, name: &str) -> String {
    match (folder.is_empty(), name) {
        (_, ".") => folder.to_owned(),
        (true, _) => name.to_owned(),
        (false, _) => format!("{folder}/{name}"),
    }
}

impl CommandPolicy {
    /// Decides on the folder that a command starts in.
    pub(super) fn judge_folder(&self, dir: &str) -> Permit {
        let is_denied = self
            .workspace
            .as_ref()
            .is_some_and(|space| dir != "." && space.denies(dir));
        match may_leave_workspace(&Word::literal(dir)) || is_denied {
            true => self.otherwise_ask(
                "it starts in a folder that is denied or may be outside the workspace",
            ),
            false => Permit::Allow,
        }
    }

    /// Judges a program with literal arguments, as no shell reads them.
    fn judge_words(&self, words: &[String], context: &mut LineContext) -> Permit {
        let words: Vec<Word> = words.iter().map(Word::literal).collect();
        if words.is_empty() {
            return Permit::deny("it names no program; add one");
        }
        if words.iter().map(|word| word.text.len()).sum::<usize>() > shell::MAX_LINE {
            return self.unclear(shell::TOO_LONG);
        }
        self.judge_simple(
            &Simple {
                words,
                ..Simple::default()
            },
            0,
            context,
        )
    }

    /// Decides on a line. A line whose programs have more than read rights is allowed only as plain
    /// words.
    pub(super) fn judge_in_context(
        &self,
        line: CommandLine<'_>,
        context: &mut LineContext,
    ) -> Permit {
        let ruling = match line {
            CommandLine::Argv(words) => self.judge_words(words, context),
            CommandLine::Shell(line) => match literal::parse(line) {
                Ok(commands) if line.len() <= shell::MAX_LINE => {
                    self.judge_commands(&commands, 0, context)
                }
                Ok(_) => self.unclear(shell::TOO_LONG),
                Err(token) => {
                    context.not_plain = Some(token);
                    self.judge_line(line, 0, context)
                }
            },
        };
        let reason = match (&ruling, &self.otherwise) {
            (Permit::Allow, None | Some(Permit::Ask { .. } | Permit::Deny { .. })) => {
                context.excess()
            }
            _ => None,
        };
        let Some(reason) = reason else { return ruling };
        // A rule never removes a right: without the allow rules, the line may be one that only
        // reads.
        if context.rule.is_some() && self.otherwise.is_none() {
            let mut again = LineContext::new(&context.folders[0]);
            if self.restrictions().judge_in_context(line, &mut again) == Permit::Allow {
                *context = again;
                return Permit::Allow;
            }
        }
        match &self.otherwise {
            Some(Permit::Deny { .. }) => Permit::deny(reason),
            _ => Permit::ask(reason),
        }
    }

    /// Returns the same policy without its allow rules.
    pub(super) fn restrictions(&self) -> Self {
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.ruling != Permit::Allow)
            .cloned()
            .collect();
        Self {
            rules,
            ..self.clone()
        }
    }

    fn judge_line(&self, line: &str, depth: usize, context: &mut LineContext) -> Permit {
        if depth > MAX_DEPTH {
            return self.unclear("it is nested too deeply to be analyzed");
        }
        match shell::parse(line) {
            Ok(commands) => self.judge_commands(&commands, depth, context),
            Err(problem) => self.unclear(problem),
        }
    }

    fn judge_commands(
        &self,
        commands: &[Simple],
        depth: usize,
        context: &mut LineContext,
    ) -> Permit {
        if commands.is_empty() {
            return Permit::deny("it names no program; add one");
        }
        let each = commands
            .iter()
            .map(|command| self.judge_simple(command, depth, context));
        each.fold(Permit::Allow, Permit::and)
    }

    /// Decides on a line that cannot be analyzed, which may contain anything.
    fn unclear(&self, problem: &str) -> Permit {
        match &self.otherwise {
            Some(Permit::Allow) if self.rules.is_empty() => Permit::Allow,
            Some(deny @ Permit::Deny { .. }) => deny.clone(),
            _ => Permit::ask(problem),
        }
    }

    /// Judges a program together with its redirections and its variables.
    fn judge_simple(&self, command: &Simple, depth: usize, context: &mut LineContext) -> Permit {
        let mut ruling = self.judge_program(&command.words, depth, context);
        if command.writes {
            ruling = ruling.and(self.otherwise_ask("it writes to a file"));
        }
        if command.sets {
            ruling = ruling
                .and(self.otherwise_ask("it sets variables, which can change what a program does"));
            let is_shell = command
                .words
                .first()
                .is_some_and(|word| is_shell(name(&word.text)));
            if is_shell && !self.restrictions().rules.is_empty() {
                ruling = ruling.and(Permit::ask(
                    "it sets variables for a shell, which may run their values",
                ));
            }
        }
        if command.reads.iter().any(may_leave_workspace) {
            ruling = ruling.and(self.otherwise_ask("it reads a file outside the workspace"));
        }
        if self.otherwise.is_none() && !command.reads.iter().all(Word::is_dev_null) {
            ruling = ruling.and(self.judge_denied(&command.reads, context));
        }
        ruling
    }

    pub(super) fn judge_program(
        &self,
        words: &[Word],
        depth: usize,
        context: &mut LineContext,
    ) -> Permit {
        let Some(program) = words.first() else {
            return Permit::Allow;
        };
        if !program.is_known() {
            return self.unclear("the program it runs is not known in advance");
        }
        let texts: Vec<&str> = words.iter().map(|word| &*word.text).collect();
        let mut ruling = self.judge_named(&texts, words, context);
        if name(texts[0]) == "cd" {
            context.enter(&words[1..]);
        }
        // An expanded value may become several words, and the last of them the program.
        let is_known = |words: &[Word]| words.iter().all(Word::is_known);
        let inner = inner(&texts);
        if !matches!(inner, Inner::None) {
            let token = || format!("`{}`, which runs another program,", short(texts[0]));
            context.not_plain.get_or_insert_with(token);
        }
        match inner {
            Inner::None => {}
            // A glob in the line itself becomes the name of a file, which may contain any line. A
            // glob after it may become nothing.
            Inner::Line(at) if is_known(words) => {
                ruling = ruling.and(self.judge_line(texts[at], depth + 1, context));
            }
            Inner::Words(at) if at < words.len() && depth < MAX_DEPTH && is_known(&words[..at]) => {
                let mut inner = words[at..].to_vec();
                // The input of `xargs` becomes arguments, or parts of them, and is not known yet.
                if name(texts[0]) == "xargs" {
                    let replaced = xargs_replaces(&texts[1..at]);
                    let is_replaced =
                        |word: &&mut Word| replaced.iter().any(|part| word.text.contains(part));
                    inner
                        .iter_mut()
                        .filter(is_replaced)
                        .for_each(|word| *word = Word::default());
                    inner.push(Word::default());
                }
                ruling = ruling.and(self.judge_program(&inner, depth + 1, context));
            }
            Inner::Line(_) | Inner::Words(_) | Inner::Unclear => {
                ruling = ruling.and(self.unclear("the program it runs is not known in advance"));
            }
        }
        ruling.and(self.judge_executed(words, depth))
    }

    /// Decides on a program by its name and arguments.
    fn judge_named(&self, texts: &[&str], words: &[Word], context: &mut LineContext) -> Permit {
        let name = name(texts[0]);
        let by_name: Vec<&str> = std::iter::once(name)
            .chain(texts[1..].iter().copied())
            .collect();
        // Deny and ask rules also apply to `git -C . push` and `git-push`; an allow rule for
        // `git push` does not.
        let of_git = git_command(&by_name);
        let of_git: Vec<&str> = of_git.iter().map_while(|word| *word).collect();
        let speaks = |rule: &super::CommandRule| {
            [&*by_name, texts, &*of_git]
                .iter()
                .any(|texts| rule.command.matches(texts))
        };
        let denies =
            |rule: &&super::CommandRule| matches!(rule.ruling, Permit::Deny { .. }) && speaks(rule);
        if let Some(rule) = self.rules.iter().find(denies) {
            return rule.ruling.clone();
        }
        // A program with a known name in another folder may be a different program.
        let known = is_plain(texts[0]).then_some(&by_name);
        let matches = |rule: &super::CommandRule| {
            known
                .as_ref()
                .is_some_and(|words| rule.command.matches(words))
                || rule.command.matches(texts)
        };
        let allows = |rule: &super::CommandRule| {
            rule.ruling == Permit::Allow && !rule.command.words.is_empty() && matches(rule)
        };
        let fits = |rule: &super::CommandRule| match rule.ruling {
            Permit::Allow => allows(rule) && words.iter().all(Word::is_known),
            _ => {
                (matches(rule) || rule.command.matches(&of_git))
                    && words.iter().all(|word| word.literal)
            }
        };
        let fitting = self.rules.iter().position(fits);
        let ruling = match (fitting, &self.otherwise) {
            (Some(at), _) => {
                let rule = &self.rules[at];
                if rule.ruling == Permit::Allow {
                    context
                        .rule
                        .get_or_insert_with(|| short(&rule.command.text));
                }
                rule.ruling.clone()
            }
            (None, Some(otherwise)) => otherwise.clone(),
            (None, None) => {
                match (
                    self.judge_reading(texts, words, context),
                    self.rules.iter().find(|it| allows(it)),
                ) {
                    (Permit::Ask { .. }, Some(rule)) => {
                        let token = context
                            .not_plain
                            .as_deref()
                            .unwrap_or("words that are not known in advance");
                        Permit::ask(not_plain(token, &rule.command.text))
                    }
                    (ruling, _) => ruling,
                }
            }
        };
        match self.may_be_restricted(name, words, fitting) {
            true => ruling.and(Permit::ask(
                "its expansion is not known in advance, and may be denied",
            )),
            false => ruling,
        }
    }

    /// Judges a program that no rule names: it is allowed if it only reads, and only inside the
    /// workspace.
    fn judge_reading(&self, texts: &[&str], words: &[Word], context: &mut LineContext) -> Permit {
        let program = name(texts[0]);
        if !matches!(inner(texts), Inner::None) && WRAPPERS.contains(&program) && is_plain(texts[0])
        {
            // The inner program is judged separately.
            context.readers.insert(program.to_owned());
            return Permit::Allow;
        }
        let args = &texts[1..];
        if !is_plain(texts[0]) || !only_reads(program, args) {
            return match program {
                "git" if is_plain(texts[0]) => Permit::ask(GIT),
                _ => Permit::ask(format!("`{}` may change something", short(texts[0]))),
            };
        }
        context.readers.insert(program.to_owned());
        if words[1..].iter().any(|word| !word.literal) {
            return Permit::ask(format!(
                "the arguments of `{program}` are not known in advance"
            ));
        }
        if let Some(word) = words[1..].iter().find(|word| may_leave_workspace(word)) {
            return Permit::ask(format!(
                "`{}` may be outside the workspace",
                short(&word.text)
            ));
        }
        let is_folder =
            |args: &[&str]| matches!(args, [dir] if !dir.is_empty() && !dir.starts_with('-'));
        match program {
            "ls" => context.lists = true,
            "cd" if is_folder(args) => {}
            _ if is_filter(program, args) => {}
            _ => drop(context.non_filter.get_or_insert_with(|| short(program))),
        }
        if reads_named_by_file(program, args) {
            return Permit::ask(format!(
                "a file names the files that `{program}` reads, and they may be outside the \
                    workspace"
            ));
        }
        if let Some(word) = words[1..]
            .iter()
            .find(|word| is_unsafe_with_glob(program, word))
        {
            return Permit::ask(format!(
                "`{}` may become an option of `{program}`, since files can have any name; write \
                    `./*` for `*`, or name the files",
                short(&word.text)
            ));
        }
        match shows_files(program, args, words.iter().any(|word| word.expands)) {
            true => self.judge_denied(&words[1..], context),
            false => Permit::Allow,
        }
    }

    /// Asks for approval of words that are names of denied files. The kernel blocks access to
    /// denied files that no word names.
    fn judge_denied(&self, words: &[Word], context: &LineContext) -> Permit {
        let Some(space) = &self.workspace else {
            return Permit::Allow;
        };
        let is_denied = |word: &&Word| {
            let is_path =
                !word.text.is_empty() && !word.text.starts_with('-') && !word.is_dev_null();
            let paths = context
                .folders
                .iter()
                .map(|folder| join(folder, &word.text));
            is_path
                && paths
                    .into_iter()
                    .any(|path| !path.is_empty() && space.denies(&path))
        };
        match words.iter().find(is_denied) {
            Some(word) => Permit::ask(format!(
                "`{}` is denied by the workspace",
                short(&word.text)
            )),
            None => Permit::Allow,
        }
    }

    /// Asks for approval, unless the policy allows everything.
    fn otherwise_ask(&self, reason: &str) -> Permit {
        match &self.otherwise {
            Some(ruling @ (Permit::Allow | Permit::Deny { .. })) => ruling.clone(),
            _ => Permit::ask(reason),
        }
    }
}

/// Returns `true` if a word may name a file outside the working directory.
///
/// The check is textual, so it has false alarms: the pattern of `grep /a` counts as a path.
fn may_leave_workspace(word: &Word) -> bool {
    let text = &*word.text;
    if word.is_dev_null() {
        return false;
    }
    text.starts_with('/')
        || text.contains("=/")
        || (text.starts_with('-') && text.contains('/'))
        || text
            .split(['/', '=', ':'])
            .any(|part| part == ".." || (word.expands && may_be_parent(part)))
        || (word.expands && text.contains(['~', '{']))
        || !word.literal
}

/// Returns `true` if a glob may become `..`.
fn may_be_parent(pattern: &str) -> bool {
    let is_glob = pattern.contains(['*', '?', '[']);
    is_glob && pattern.starts_with('.') && pattern[1..].starts_with(['*', '?', '[', '.'])
}

/// Returns the name of a program without its folder.
pub(super) fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Returns `true` if a program is given by its name alone, or is in a program folder of the system.
fn is_plain(program: &str) -> bool {
    let folder = program.strip_suffix(name(program)).unwrap_or("");
    matches!(
        folder,
        "" | "/bin/" | "/usr/bin/" | "/sbin/" | "/usr/sbin/" | "/usr/local/bin/"
    )
}

/// Shortens a word for a message.
///
/// Control characters are removed, since the message may be shown in a terminal.
pub(super) fn short(text: &str) -> String {
    let mut short: String = text
        .chars()
        .filter(|char| !char.is_control())
        .take(60)
        .collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
