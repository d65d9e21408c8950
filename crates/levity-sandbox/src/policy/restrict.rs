//! Deny and ask rules applied to commands that a line hides. These rules are a filter for a person's attention, and look into every line.

use super::inner::{Inner, inner};
use super::judge::{MAX_DEPTH, Scene, name, short};
use super::read_only::only_reads;
use super::shell::Word;
use super::{CommandPolicy, CommandRule, Permit};

impl CommandPolicy {
    /// Returns whether a rule that denies, or one that asks and comes before the rule that fits, speaks of the command if what is not
    /// known of it is what the rule says.
    pub(super) fn may_be_restricted(&self, name: &str, words: &[Word], fitting: Option<usize>) -> bool {
        let texts: Vec<_> = words.iter().map(|word| word.is_known().then_some(&*word.text)).collect();
        let by_name: Vec<_> = std::iter::once(Some(name)).chain(texts[1..].iter().copied()).collect();
        let of_git = without_global_options(&by_name, |word| word);
        self.rules.iter().enumerate().any(|(at, rule)| {
            let counts = match rule.ruling {
                Permit::Deny { .. } => true,
                Permit::Allow => false,
                _ => fitting.is_none_or(|fitting| at < fitting),
            };
            counts && [&*by_name, &*texts, &*of_git].iter().any(|words| rule.command.may_match(words))
        })
    }

    /// What rules that deny or ask say of programs which another program runs. Whether that one may run any is said by its own name and
    /// arguments.
    pub(super) fn judge_executed(&self, words: &[Word], depth: usize) -> Permit {
        let restrictions = Self { otherwise: Some(Permit::Allow), workspace: None, ..self.restrictions() };
        if restrictions.rules.is_empty() || depth >= MAX_DEPTH {
            return Permit::Allow;
        }
        let (program, args) = (name(&words[0].text), &words[1..]);
        let texts: Vec<&str> = args.iter().map(|word| &*word.text).collect();
        let options: &[&str] = match program {
            "find" => &["-exec", "-execdir", "-ok", "-okdir"],
            "fd" | "fdfind" => &["-x", "-X", "--exec", "--exec-batch"],
            _ if only_reads(program, &texts) => return Permit::Allow,
            _ => return self.judge_suspected(words),
        };
        let is_option = |word: &&Word| options.contains(&&*word.text);
        // `fd` takes them with what they run attached, and among other letters.
        let has_attached = |word: &Word| {
            let short = word.text.starts_with('-') && !word.text.starts_with("--");
            !is_option(&word)
                && (word.text.starts_with("--exec") || (short && word.text.contains(['x', 'X'])))
        };
        let may_execute = args.iter().any(Word::may_be_option)
            || (program != "find"
                && (args.iter().any(has_attached)
                    || (!only_reads(program, &texts) && !args.iter().any(|word| is_option(&word)))));
        if may_execute {
            return Permit::ask("which program it runs is not known before it runs");
        }
        // The name of a file stands in for braces.
        let found = |word: &Word| if word.text.contains(['{', '}']) { Word::default() } else { word.clone() };
        let executed = args.iter().enumerate().filter(|(_, word)| is_option(word));
        let each = executed.map(|(at, _)| {
            let words: Vec<Word> = args[at + 1..].iter().map(found).collect();
            restrictions.judge_program(&words, depth + 1, &mut Scene::new(".", false))
        });
        each.fold(Permit::Allow, Permit::and)
    }

    /// Asks about a program that may run others, if its arguments look like a command that a rule denies or asks about.
    fn judge_suspected(&self, words: &[Word]) -> Permit {
        let texts: Vec<&str> = words.iter().map(|word| &*word.text).collect();
        let allows = |rule: &CommandRule| {
            rule.ruling == Permit::Allow && !rule.command.words.is_empty() && rule.command.matches(&texts)
        };
        // A program inside a known one was judged for itself.
        if !matches!(inner(&texts), Inner::None) || self.rules.iter().any(allows) {
            return Permit::Allow;
        }
        if words.iter().any(Word::has_braces) {
            return Permit::ask("braces in it may become a program that a rule speaks of");
        }
        let known: Vec<_> = words.iter().map(|word| word.is_known().then_some(&*word.text)).collect();
        let restricts = |at: usize| {
            let by_name: Vec<_> =
                known[at].map(name).into_iter().map(Some).chain(known[at + 1..].iter().copied()).collect();
            let matches = |rule: &CommandRule| {
                rule.ruling != Permit::Allow
                    && !rule.command.words.is_empty()
                    && rule.command.may_match(&by_name)
            };
            known[at].is_some() && self.rules.iter().any(matches)
        };
        // An argument may be a line for a shell.
        let has_line = |at: &usize| {
            let line: Vec<_> = known[*at].into_iter().flat_map(str::split_whitespace).map(Some).collect();
            let by_name: Vec<_> = line
                .first()
                .copied()
                .flatten()
                .map(name)
                .into_iter()
                .map(Some)
                .chain(line.iter().skip(1).copied())
                .collect();
            let matches = |rule: &CommandRule| {
                rule.ruling != Permit::Allow
                    && !rule.command.words.is_empty()
                    && rule.command.may_match(&by_name)
            };
            line.len() > 1 && self.rules.iter().any(matches)
        };
        match (1..words.len()).find(|at| restricts(*at) || has_line(at)) {
            Some(at) => Permit::ask(format!(
                "`{}` may run `{}`, which a rule speaks of",
                short(&words[0].text),
                short(&words[at].text)
            )),
            None => Permit::Allow,
        }
    }
}

/// Options of git itself that take the next word as a value.
const GLOBAL_VALUED: [&str; 8] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--config-env",
    "--super-prefix",
    "--attr-source",
];

/// A command of git without the options that stand before it, for rules that speak of the command; other commands as they are. Words without
/// a text are not known yet, and may be many.
pub(super) fn without_global_options<'a, W: Copy>(
    words: &[W],
    text: impl Fn(W) -> Option<&'a str>,
) -> Vec<W> {
    let Some((git, mut rest)) = words.split_first().filter(|(first, _)| text(**first) == Some("git")) else {
        return words.to_vec();
    };
    while let [option, after @ ..] = rest
        && let Some(option) = text(*option).filter(|option| option.starts_with('-'))
    {
        rest = match after {
            [value, behind @ ..] if GLOBAL_VALUED.contains(&option) && text(*value).is_some() => behind,
            _ => after,
        };
    }
    std::iter::once(git).chain(rest).copied().collect()
}
