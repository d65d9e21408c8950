//! What a policy makes of the programs in a command.

use super::git;
use super::reach::Scene;
use super::read_only::{is_harmless, only_reads};
use super::shell::{self, Simple, Word};
use super::{CommandPolicy, Ruling};

/// How deep shells and wrappers may be nested.
const MAX_DEPTH: usize = 8;

/// Shells whose `-c` takes a line.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];

impl CommandPolicy {
    /// What is said of the folder that a command begins in.
    pub(super) fn judge_folder(&self, dir: &str) -> Ruling {
        let denied = |space| Scene::new(".").check_path(space, dir, None).is_err();
        match leaves(&Word::literal(dir)) || self.workspace.as_ref().is_some_and(denied) {
            true => self.otherwise_ask("it begins in a folder that may lie elsewhere, or is kept apart"),
            false => Ruling::Allow,
        }
    }

    pub(super) fn judge_words(&self, words: &[String], scene: &mut Scene) -> Ruling {
        let words: Vec<Word> = words.iter().map(Word::literal).collect();
        if words.is_empty() {
            return Ruling::deny("there is no program in it; name one");
        }
        self.judge_simple(&Simple { words, ..Simple::default() }, 0, scene)
    }

    pub(super) fn judge_line(&self, line: &str, depth: usize, scene: &mut Scene) -> Ruling {
        if depth > MAX_DEPTH {
            return self.unclear("it is nested too deeply to be looked into");
        }
        match shell::parse(line) {
            Ok(commands) if commands.is_empty() => Ruling::deny("there is no program in it; name one"),
            Ok(commands) => {
                let each = commands.iter().map(|command| self.judge_simple(command, depth, scene));
                each.fold(Ruling::Allow, Ruling::and)
            }
            Err(problem) => self.unclear(problem),
        }
    }

    /// A line that could not be looked into may hold anything.
    fn unclear(&self, problem: &str) -> Ruling {
        match &self.otherwise {
            Some(Ruling::Allow) if self.rules.is_empty() => Ruling::Allow,
            Some(deny @ Ruling::Deny { .. }) => deny.clone(),
            _ => Ruling::ask(problem),
        }
    }

    fn judge_simple(&self, command: &Simple, depth: usize, scene: &mut Scene) -> Ruling {
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
        if let (Some(space), None) = (&self.workspace, &self.otherwise) {
            let mut checks = command.reads.iter().map(|word| scene.check_word(space, word, None));
            if let Some(Err(reason)) = checks.find(Result::is_err) {
                ruling = ruling.and(Ruling::ask(reason));
            }
        }
        ruling
    }

    fn judge_program(&self, words: &[Word], depth: usize, scene: &mut Scene) -> Ruling {
        let Some(program) = words.first() else { return Ruling::Allow };
        if !program.literal || program.expands {
            return self.unclear("which program it runs is not known before it runs");
        }
        let texts: Vec<&str> = words.iter().map(|word| &*word.text).collect();
        let mut ruling = self.judge_named(&texts, words, scene);
        if name(texts[0]) == "cd" {
            scene.enter(&words[1..]);
        }
        match inner(&texts) {
            Inner::None => {}
            Inner::Line(at) if words[at].literal => {
                ruling = ruling.and(self.judge_line(texts[at], depth + 1, scene));
            }
            Inner::Words(at) if at < words.len() && depth < MAX_DEPTH => {
                let mut inner = words[at..].to_vec();
                // What `xargs` reads becomes arguments, and nobody knows them yet.
                inner.extend((name(texts[0]) == "xargs").then(Word::default));
                ruling = ruling.and(self.judge_program(&inner, depth + 1, scene));
            }
            Inner::Line(_) | Inner::Words(_) | Inner::Unclear => {
                ruling = ruling.and(self.unclear("which program it runs is not known before it runs"));
            }
        }
        ruling
    }

    /// What is said of a program by its name and arguments.
    fn judge_named(&self, texts: &[&str], words: &[Word], scene: &mut Scene) -> Ruling {
        let name = name(texts[0]);
        let by_name: Vec<&str> = std::iter::once(name).chain(texts[1..].iter().copied()).collect();
        let denies = |rule: &&super::CommandRule| {
            matches!(rule.ruling, Ruling::Deny { .. })
                && (rule.command.matches(&by_name) || rule.command.matches(texts))
        };
        if let Some(rule) = self.rules.iter().find(denies) {
            return rule.ruling.clone();
        }
        // What stands somewhere else under a known name may be another program.
        let known = is_plain(texts[0]).then_some(by_name);
        let fits = |rule: &&super::CommandRule| {
            known.as_ref().is_some_and(|words| rule.command.matches(words)) || rule.command.matches(texts)
        };
        let literal = words.iter().all(|word| word.literal);
        if let Some(rule) = self.rules.iter().find(fits).filter(|_| literal) {
            return rule.ruling.clone();
        }
        let ruling = match &self.otherwise {
            Some(otherwise) => otherwise.clone(),
            None => self.judge_reading(texts, words, scene),
        };
        match self.may_be_denied(name, words) {
            true => ruling.and(Ruling::ask("what it becomes is not known before it runs, and may be denied")),
            false => ruling,
        }
    }

    /// Whether a rule denies the command if what is not known of it is what the rule says.
    fn may_be_denied(&self, name: &str, words: &[Word]) -> bool {
        let known = words.iter().map(|word| (word.literal && !word.expands).then_some(&*word.text));
        let by_name: Vec<_> = std::iter::once(Some(name)).chain(known.skip(1)).collect();
        let denying = self.rules.iter().filter(|rule| matches!(rule.ruling, Ruling::Deny { .. }));
        denying.into_iter().any(|rule| rule.command.may_match(&by_name))
    }

    fn judge_reading(&self, texts: &[&str], words: &[Word], scene: &mut Scene) -> Ruling {
        let program = name(texts[0]);
        if !matches!(inner(texts), Inner::None) && WRAPPERS.contains(&program) && is_plain(texts[0]) {
            // The program inside is judged for itself.
            return Ruling::Allow;
        }
        if !is_plain(texts[0]) || !only_reads(program, &texts[1..]) {
            return Ruling::ask(format!("`{}` may change something", short(texts[0])));
        }
        if words[1..].iter().any(|word| !word.literal) {
            return Ruling::ask(format!("what `{program}` is given is not known before it runs"));
        }
        if let Some(word) = words[1..].iter().find(|word| leaves(word)) {
            return Ruling::ask(format!("`{}` may lie elsewhere, or is kept apart", short(&word.text)));
        }
        if let Some(word) = words[1..].iter().find(|word| may_be_option(program, word)) {
            let text = short(&word.text);
            return Ruling::ask(format!("files that `{text}` finds may be taken for options of `{program}`"));
        }
        match self.check_reading(program, &texts[1..], &words[1..], scene) {
            Err(reason) => Ruling::ask(reason),
            Ok(()) => Ruling::Allow,
        }
    }

    /// Checks which files a program reads, and what it runs because of them.
    fn check_reading(
        &self,
        program: &str,
        args: &[&str],
        words: &[Word],
        scene: &mut Scene,
    ) -> Result<(), String> {
        if let Some(space) = &self.workspace {
            scene.check_args(space, program, words)?;
        }
        if program != "git" {
            return Ok(());
        }
        if let (Some(space), ["-C", ..]) = (&self.workspace, args) {
            // Paths begin in the folder that is named.
            let mut below = scene.clone();
            below.enter(&words[1..2]);
            below.check_args(space, program, &words[2..])?;
        }
        git::check(self.workspace.as_ref(), scene, args)
    }

    /// Asks, unless all is allowed anyway.
    fn otherwise_ask(&self, reason: &str) -> Ruling {
        match &self.otherwise {
            Some(ruling @ (Ruling::Allow | Ruling::Deny { .. })) => ruling.clone(),
            _ => Ruling::ask(reason),
        }
    }
}

/// Whether a word may name a file outside the working directory.
fn leaves(word: &Word) -> bool {
    let text = &*word.text;
    if text == "/dev/null" {
        return false;
    }
    let outside = text.starts_with('/')
        || text.contains("=/")
        || (text.starts_with('-') && text.contains('/'))
        || text.split(['/', '=', ':']).any(|part| part == "..")
        || (word.expands && text.contains(['~', '{']))
        || !word.literal;
    // A pattern for hidden files would find those that are kept apart.
    let hidden = word.expands && text.split('/').any(|part| part.starts_with(['.', '[', '?']) && part != ".");
    outside || hidden
}

/// Whether a pattern may find a file whose name such a program takes for an option, or for one name too many.
fn may_be_option(program: &str, word: &Word) -> bool {
    let first = word.text.starts_with(['*', '?', '[', '-']);
    word.expands && !is_harmless(program) && (first || program == "uniq")
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
        Some(option) if takes_line(option) && texts.len() > 2 => Inner::Line(2),
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
