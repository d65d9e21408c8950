//! What a policy makes of the programs in a command.

use std::collections::BTreeSet;

use super::git::{Git, Shows};
use super::read_only::{
    Reach, heeds_options_of_patterns, may_compute_names, only_reads, reach, reads_named_by_file,
};
use super::repository::Inspected;
use super::shell::{self, Simple, Word};
use super::{CommandPolicy, Permit, ReadScope};

/// How deep shells and wrappers may be nested.
const MAX_DEPTH: usize = 8;

/// Shells whose `-c` takes a line.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];

/// How many folders a line may go through by `cd`.
const MAX_FOLDERS: usize = 16;

/// Where the commands of a line may run, and what those need that are allowed.
#[derive(Debug)]
pub(super) struct Scene {
    /// Folders, relative to the workspace, in which a command of the line may begin.
    folders: Vec<String>,
    /// Whether there are more folders than are followed.
    lost: bool,
    /// Whether repositories are looked at. What a command needs does not depend on files.
    looks: bool,
    names: bool,
    files: bool,
    git: bool,
    /// Whether a rule allows a program, which then has all rights of the sandbox.
    rule: bool,
    /// Names of programs that no rule allows, and that are taken to be what the system has under these names.
    pub(super) readers: BTreeSet<String>,
    /// What was found out about repositories.
    pub(super) inspected: Inspected,
}

impl Scene {
    pub(super) fn new(dir: &str, looks: bool) -> Self {
        let dir = if dir == "." { "" } else { dir };
        let folders = vec![dir.to_owned()];
        let (readers, inspected) = (BTreeSet::new(), Inspected::default());
        let [names, files, git, rule] = [false; 4];
        Self { folders, lost: false, looks, names, files, git, rule, readers, inspected }
    }

    /// Takes note of a `cd`. Earlier folders stay possible: it may fail, or run in a shell of its own.
    fn enter(&mut self, args: &[Word]) {
        // A pattern may become an option, or nothing.
        self.lost |= args.iter().any(|word| !word.is_known());
        let end = args.iter().position(|word| word.text == "--");
        let (options, rest) = args.split_at(end.unwrap_or(args.len()));
        let options = options.iter().filter(|word| !word.text.starts_with('-'));
        let mut dirs = options.chain(rest.iter().skip(1));
        let Some(dir) = dirs.next() else { return };
        // With two, some shells replace a part of the folder's name.
        self.lost |= dirs.next().is_some();
        if self.lost {
            return;
        }
        let below: Vec<String> = self.folders.iter().map(|folder| join(folder, &dir.text)).collect();
        for folder in below {
            if !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
        self.lost |= self.folders.len() > MAX_FOLDERS;
    }

    fn add(&mut self, reach: Reach) {
        self.names |= reach == Reach::Names;
        self.files |= reach == Reach::Files;
    }

    /// Why programs that are allowed cannot stand in one line: each line runs with one set of rights.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        match self {
            Self { rule: true, files: true, .. } | Self { rule: true, git: true, .. } => {
                Some("it reads files beside a command with more rights; run them one by one")
            }
            Self { git: true, files: true, .. } => Some(
                "it reads files beside git, which can read all that was ever committed; run them one by one",
            ),
            _ => None,
        }
    }

    /// What the line reads, if it is allowed only because it reads.
    pub(super) fn scope(&self) -> Option<ReadScope> {
        match self {
            Self { rule: true, .. } => None,
            Self { git: true, .. } => Some(ReadScope::Repository),
            Self { names: true, .. } | Self { files: true, .. } => Some(ReadScope::Files),
            _ => Some(ReadScope::Nothing),
        }
    }
}

/// A path below a folder of the workspace.
pub(super) fn join(folder: &str, name: &str) -> String {
    match (folder.is_empty(), name) {
        (_, ".") => folder.to_owned(),
        (true, _) => name.to_owned(),
        (false, _) => format!("{folder}/{name}"),
    }
}

impl CommandPolicy {
    /// What is said of the folder that a command begins in.
    pub(super) fn judge_folder(&self, dir: &str) -> Permit {
        let is_denied = self.workspace.as_ref().is_some_and(|space| dir != "." && space.denies(dir));
        match leaves(&Word::literal(dir)) || is_denied {
            true => self.otherwise_ask("it begins in a folder that may lie elsewhere, or is kept apart"),
            false => Permit::Allow,
        }
    }

    pub(super) fn judge_words(&self, words: &[String], scene: &mut Scene) -> Permit {
        let words: Vec<Word> = words.iter().map(Word::literal).collect();
        if words.is_empty() {
            return Permit::deny("there is no program in it; name one");
        }
        if words.iter().map(|word| word.text.len()).sum::<usize>() > shell::MAX_LINE {
            return self.unclear(shell::TOO_LONG, scene);
        }
        self.judge_simple(&Simple { words, ..Simple::default() }, 0, scene)
    }

    pub(super) fn judge_line(&self, line: &str, depth: usize, scene: &mut Scene) -> Permit {
        if depth > MAX_DEPTH {
            return self.unclear("it is nested too deeply to be looked into", scene);
        }
        match shell::parse(line) {
            Ok(commands) if commands.is_empty() => Permit::deny("there is no program in it; name one"),
            Ok(commands) => {
                let each = commands.iter().map(|command| self.judge_simple(command, depth, scene));
                each.fold(Permit::Allow, Permit::and)
            }
            Err(problem) => self.unclear(problem, scene),
        }
    }

    /// A line that could not be looked into may hold anything.
    fn unclear(&self, problem: &str, scene: &mut Scene) -> Permit {
        match &self.otherwise {
            Some(Permit::Allow) if self.rules.is_empty() => {
                scene.rule = true;
                Permit::Allow
            }
            Some(deny @ Permit::Deny { .. }) => deny.clone(),
            _ => Permit::ask(problem),
        }
    }

    fn judge_simple(&self, command: &Simple, depth: usize, scene: &mut Scene) -> Permit {
        let mut ruling = self.judge_program(&command.words, depth, scene);
        if command.writes {
            ruling = ruling.and(self.otherwise_ask("it writes to a file"));
        }
        if command.sets {
            ruling =
                ruling.and(self.otherwise_ask("it sets variables, which can change what a program does"));
        }
        if command.reads.iter().any(leaves) {
            ruling = ruling.and(self.otherwise_ask("it reads a file elsewhere"));
        }
        if self.otherwise.is_none() && !command.reads.iter().all(Word::is_dev_null) {
            scene.files = true;
            ruling = ruling.and(self.judge_denied(&command.reads, scene));
        }
        ruling
    }

    fn judge_program(&self, words: &[Word], depth: usize, scene: &mut Scene) -> Permit {
        let Some(program) = words.first() else { return Permit::Allow };
        if !program.is_known() {
            return self.unclear("which program it runs is not known before it runs", scene);
        }
        let texts: Vec<&str> = words.iter().map(|word| &*word.text).collect();
        let mut ruling = self.judge_named(&texts, words, scene);
        if name(texts[0]) == "cd" {
            scene.enter(&words[1..]);
        }
        // A value that is expanded may become several words, and the last of them the program.
        let is_known = |words: &[Word]| words.iter().all(Word::is_known);
        match inner(&texts) {
            Inner::None => {}
            // A pattern in the line itself becomes the name of a file, which may hold any line. One behind it may become nothing.
            Inner::Line(at) if is_known(words) => {
                ruling = ruling.and(self.judge_line(texts[at], depth + 1, scene));
            }
            Inner::Words(at) if at < words.len() && depth < MAX_DEPTH && is_known(&words[..at]) => {
                let mut inner = words[at..].to_vec();
                // What `xargs` reads becomes arguments, and nobody knows them yet.
                inner.extend((name(texts[0]) == "xargs").then(Word::default));
                ruling = ruling.and(self.judge_program(&inner, depth + 1, scene));
            }
            Inner::Line(_) | Inner::Words(_) | Inner::Unclear => {
                ruling = ruling.and(self.unclear("which program it runs is not known before it runs", scene));
            }
        }
        ruling.and(self.judge_executed(words, depth))
    }

    /// What rules that deny or ask say of programs which a search runs on what it finds. Whether the search may run any is said by its
    /// own name and arguments.
    fn judge_executed(&self, words: &[Word], depth: usize) -> Permit {
        let options: &[&str] = match name(&words[0].text) {
            "find" => &["-exec", "-execdir", "-ok", "-okdir"],
            "fd" | "fdfind" => &["-x", "-X", "--exec", "--exec-batch"],
            _ => return Permit::Allow,
        };
        let rules: Vec<_> = self.rules.iter().filter(|rule| rule.ruling != Permit::Allow).cloned().collect();
        if rules.is_empty() || depth >= MAX_DEPTH {
            return Permit::Allow;
        }
        let restrictions = Self { rules, otherwise: Some(Permit::Allow), workspace: None };
        // The name of a file stands in for braces.
        let found = |word: &Word| if word.text.contains(['{', '}']) { Word::default() } else { word.clone() };
        let executed = words.iter().enumerate().filter(|(_, word)| options.contains(&&*word.text));
        let each = executed.map(|(at, _)| {
            let words: Vec<Word> = words[at + 1..].iter().map(found).collect();
            restrictions.judge_program(&words, depth + 1, &mut Scene::new(".", false))
        });
        each.fold(Permit::Allow, Permit::and)
    }

    /// What is said of a program by its name and arguments.
    fn judge_named(&self, texts: &[&str], words: &[Word], scene: &mut Scene) -> Permit {
        let name = name(texts[0]);
        let by_name: Vec<&str> = std::iter::once(name).chain(texts[1..].iter().copied()).collect();
        let denies = |rule: &&super::CommandRule| {
            matches!(rule.ruling, Permit::Deny { .. })
                && (rule.command.matches(&by_name) || rule.command.matches(texts))
        };
        if let Some(rule) = self.rules.iter().find(denies) {
            return rule.ruling.clone();
        }
        // What stands somewhere else under a known name may be another program.
        let known = is_plain(texts[0]).then_some(by_name);
        let literal = words.iter().all(|word| word.literal);
        let fits = |rule: &super::CommandRule| {
            let matches = known.as_ref().is_some_and(|words| rule.command.matches(words))
                || rule.command.matches(texts);
            matches && literal && (rule.ruling != Permit::Allow || rule.command.covers(words))
        };
        let fitting = self.rules.iter().position(fits);
        let ruling = match (fitting, &self.otherwise) {
            (Some(at), _) => {
                scene.rule = true;
                self.rules[at].ruling.clone()
            }
            (None, Some(otherwise)) => {
                scene.rule = true;
                otherwise.clone()
            }
            (None, None) => self.judge_reading(texts, words, scene),
        };
        match self.may_be_restricted(name, words, fitting) {
            true => ruling.and(Permit::ask("what it becomes is not known before it runs, and may be denied")),
            false => ruling,
        }
    }

    /// Returns whether a rule that denies, or one that asks and comes before the rule that fits, speaks of the command if what is not
    /// known of it is what the rule says.
    fn may_be_restricted(&self, name: &str, words: &[Word], fitting: Option<usize>) -> bool {
        let texts: Vec<_> = words.iter().map(|word| word.is_known().then_some(&*word.text)).collect();
        let by_name: Vec<_> = std::iter::once(Some(name)).chain(texts[1..].iter().copied()).collect();
        self.rules.iter().enumerate().any(|(at, rule)| {
            let counts = match rule.ruling {
                Permit::Deny { .. } => true,
                Permit::Allow => false,
                _ => fitting.is_none_or(|fitting| at < fitting),
            };
            counts && (rule.command.may_match(&by_name) || rule.command.may_match(&texts))
        })
    }

    fn judge_reading(&self, texts: &[&str], words: &[Word], scene: &mut Scene) -> Permit {
        let program = name(texts[0]);
        if !matches!(inner(texts), Inner::None) && WRAPPERS.contains(&program) && is_plain(texts[0]) {
            // The program inside is judged for itself.
            scene.readers.insert(program.to_owned());
            return Permit::Allow;
        }
        let args = &texts[1..];
        if !is_plain(texts[0]) || (program != "git" && !only_reads(program, args)) {
            return Permit::ask(format!("`{}` may change something", short(texts[0])));
        }
        scene.readers.insert(program.to_owned());
        if words[1..].iter().any(|word| !word.literal) {
            return Permit::ask(format!("what `{program}` is given is not known before it runs"));
        }
        if let Some(word) = words[1..].iter().find(|word| leaves(word)) {
            return Permit::ask(format!("`{}` may lie elsewhere", short(&word.text)));
        }
        let expands = words.iter().any(|word| word.expands);
        if program == "git" {
            return self.judge_git(args, expands, scene);
        }
        if expands && may_compute_names(program, args, &words[1..]) {
            return Permit::ask(format!(
                "`{program}` of some shells computes a number, and a pattern may become one that sets variables"
            ));
        }
        if reads_named_by_file(program, args) {
            return Permit::ask(format!(
                "which files `{program}` reads is said by a file, and they may lie elsewhere"
            ));
        }
        let reach = reach(program, args, expands);
        scene.add(reach);
        if heeds_options_of_patterns(program) && self.may_become_option(&words[1..], scene) {
            return Permit::ask(format!(
                "a pattern may become an option of `{program}`; write `./*` for `*`"
            ));
        }
        match reach {
            Reach::Files => self.judge_denied(&words[1..], scene),
            Reach::Nothing | Reach::Names => Permit::Allow,
        }
    }

    /// Returns whether a pattern stands for a file that a program takes for an option.
    fn may_become_option(&self, words: &[Word], scene: &mut Scene) -> bool {
        let is_pattern = |word: &&Word| word.expands && word.text.starts_with(['*', '?', '[', '-', '@']);
        if !words.iter().any(|word| is_pattern(&word)) {
            return false;
        }
        let Some(space) = self.workspace.as_ref().filter(|_| scene.looks) else { return false };
        let Scene { folders, inspected, .. } = scene;
        scene.lost || folders.iter().any(|folder| inspected.has_option(space.root(), folder))
    }

    /// Asks about words that are names of denied files. The kernel keeps commands from those that are not asked about.
    fn judge_denied(&self, words: &[Word], scene: &Scene) -> Permit {
        let Some(space) = &self.workspace else { return Permit::Allow };
        let is_denied = |word: &&Word| {
            let is_path = !word.text.is_empty() && !word.text.starts_with('-') && !word.is_dev_null();
            let paths = scene.folders.iter().map(|folder| join(folder, &word.text));
            is_path && paths.into_iter().any(|path| !path.is_empty() && space.denies(&path))
        };
        match words.iter().find(is_denied) {
            Some(word) => Permit::ask(format!("`{}` is kept apart", short(&word.text))),
            None => Permit::Allow,
        }
    }

    fn judge_git(&self, args: &[&str], expands: bool, scene: &mut Scene) -> Permit {
        let Some((git, shows)) = Git::of(args).and_then(|git| git.shows().map(|shows| (git, shows))) else {
            let command = args.first().map_or("", |command| command);
            return Permit::ask(format!(
                "`git {}` may change something, or show what is kept apart",
                short(command)
            ));
        };
        if shows == Shows::Nothing {
            return Permit::Allow;
        }
        let Some(space) = &self.workspace else {
            return Permit::ask("which programs the repository has git run is not known");
        };
        if expands || scene.lost {
            return Permit::ask("which files or folders git looks at is not known before it runs");
        }
        scene.git = true;
        if !scene.looks || space.denies_nothing() {
            return Permit::Allow;
        }
        let Scene { folders, inspected, .. } = scene;
        git.check(space, folders, shows, inspected).map_or_else(Permit::ask, |()| Permit::Allow)
    }

    /// Asks, unless all is allowed anyway.
    fn otherwise_ask(&self, reason: &str) -> Permit {
        match &self.otherwise {
            Some(ruling @ (Permit::Allow | Permit::Deny { .. })) => ruling.clone(),
            _ => Permit::ask(reason),
        }
    }
}

/// Whether a word may name a file outside the working directory.
fn leaves(word: &Word) -> bool {
    let text = &*word.text;
    if word.is_dev_null() {
        return false;
    }
    text.starts_with('/')
        || text.contains("=/")
        || (text.starts_with('-') && text.contains('/'))
        || text.split(['/', '=', ':']).any(|part| part == "..")
        || (word.expands && text.contains(['~', '{']))
        || !word.literal
}

/// What a program runs that it is given.
enum Inner {
    None,
    /// A line for a shell, in this word.
    Line(usize),
    /// A program, from this word on.
    Words(usize),
    Unclear,
}

/// Programs that do nothing but run another.
const WRAPPERS: [&str; 14] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "command", "env", "exec", "nice", "nohup", "stdbuf",
    "timeout", "xargs",
];

/// Finds what a program runs that is not itself.
fn inner(texts: &[&str]) -> Inner {
    let program = name(texts[0]);
    if SHELLS.contains(&program) {
        return shell_inner(texts);
    }
    match program {
        "command" | "exec" | "nohup" | "builtin" => after_options(texts, "", "", 0),
        "nice" => after_options(texts, "", "n", 0),
        "stdbuf" => after_options(texts, "", "ioe", 0),
        "timeout" => after_options(texts, "v", "ks", 1),
        "xargs" => xargs_inner(texts),
        "env" if texts.len() == 1 => Inner::None,
        "env" => match texts.get(1) {
            Some(text) if !text.starts_with('-') && !text.contains('=') => Inner::Words(1),
            _ => Inner::Unclear,
        },
        "eval" | "source" | "." | "sudo" | "doas" | "su" | "ssh" | "parallel" | "watch" | "setsid"
        | "busybox" => Inner::Unclear,
        _ => Inner::None,
    }
}

/// The program that `xargs` runs. What it reads may become a part of any argument, and so of a line for a shell; and of a file that it
/// is to read by `-a`, which the other checks do not see.
fn xargs_inner(texts: &[&str]) -> Inner {
    match after_options(texts, "0rtx", "InPLdEs", 0) {
        Inner::Words(at) if texts.get(at).is_some_and(|text| WRAPPERS.contains(&name(text))) => {
            Inner::Unclear
        }
        other => other,
    }
}

/// The program behind options, of which some take the next word as a value, and behind `skip` more words.
fn after_options(texts: &[&str], flags: &str, valued: &str, skip: usize) -> Inner {
    let mut at = 1;
    while let Some(option) = texts.get(at).and_then(|text| text.strip_prefix('-')) {
        match option.chars().next() {
            Some(first) if valued.contains(first) => at += 1 + usize::from(option.len() == 1),
            Some(_) if option.chars().all(|char| flags.contains(char)) => at += 1,
            // A value may follow that looks like a program.
            _ => return Inner::Unclear,
        }
    }
    Inner::Words(at + skip)
}

fn shell_inner(texts: &[&str]) -> Inner {
    // Other options take a word themselves, and the line comes after that.
    let takes_line = |text: &&str| {
        let flags = text.strip_prefix('-').and_then(|text| text.strip_suffix('c'));
        flags.is_some_and(|flags| flags.len() <= 2 && flags.chars().all(|flag| "elux".contains(flag)))
    };
    match texts.get(1) {
        // Options may follow it, and the line comes after them.
        Some(option) if takes_line(option) && texts.len() > 2 && !texts[2].starts_with(['-', '+']) => {
            Inner::Line(2)
        }
        _ => Inner::Unclear,
    }
}

/// The name of a program without the folder it is in.
fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a program is found by its name, or where the system keeps programs.
fn is_plain(program: &str) -> bool {
    let folder = program.strip_suffix(name(program)).unwrap_or("");
    matches!(folder, "" | "/bin/" | "/usr/bin/" | "/sbin/" | "/usr/sbin/" | "/usr/local/bin/")
}

/// A word for a message.
pub(super) fn short(text: &str) -> String {
    let mut short: String = text.chars().filter(|char| !char.is_control()).take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
