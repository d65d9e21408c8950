//! Deny and ask rules for commands that are nested in a line. These rules filter what a person has
//! to review, and apply to every line.

use super::inner::{Inner, inner};
use super::judge::{LineContext, MAX_DEPTH, name, short};
use super::read_only::{may_run_program, only_reads};
use super::shell::Word;
use super::{CommandPolicy, CommandRule, Permit};

/// The reason to ask for approval of a program that may run others.
const NOT_KNOWN: &str = "the program it runs is not known in advance";

impl CommandPolicy {
    /// Returns `true` if a deny rule, or an ask rule before the matching rule, may match the
    /// command when its unknown words are what the rule names.
    pub(super) fn may_be_restricted(
        &self,
        name: &str,
        words: &[Word],
        fitting: Option<usize>,
    ) -> bool {
        let texts: Vec<_> = words
            .iter()
            .map(|word| word.is_known().then_some(&*word.text))
            .collect();
        let by_name: Vec<_> = std::iter::once(Some(name))
            .chain(texts[1..].iter().copied())
            .collect();
        let of_git = git_command(&by_name);
        self.rules.iter().enumerate().any(|(at, rule)| {
            let counts = match rule.ruling {
                Permit::Deny { .. } => true,
                Permit::Allow => false,
                _ => fitting.is_none_or(|fitting| at < fitting),
            };
            counts
                && [&*by_name, &*texts, &*of_git]
                    .iter()
                    .any(|words| rule.command.may_match(words))
        })
    }

    /// Applies deny and ask rules to programs which another program runs. The name and arguments of
    /// that other program decide separately whether it may run any.
    pub(super) fn judge_executed(&self, words: &[Word], depth: usize) -> Permit {
        let restrictions = Self {
            otherwise: Some(Permit::Allow),
            workspace: None,
            ..self.restrictions()
        };
        if restrictions.rules.is_empty() || depth >= MAX_DEPTH {
            return Permit::Allow;
        }
        let (program, args) = (name(&words[0].text), &words[1..]);
        let texts: Vec<&str> = args.iter().map(|word| &*word.text).collect();
        let options: &[&str] = match program {
            "find" => &["-exec", "-execdir", "-ok", "-okdir"],
            "fd" | "fdfind" => &["-x", "-X", "--exec", "--exec-batch"],
            _ if args.iter().any(|word| may_run_program(program, word))
                && only_reads(program, &texts) =>
            {
                return Permit::ask(NOT_KNOWN);
            }
            _ if only_reads(program, &texts) => return Permit::Allow,
            _ => return self.judge_suspected(words),
        };
        let is_option = |word: &&Word| options.contains(&&*word.text);
        // `fd` accepts these options with the command attached, and grouped with other letters.
        let has_attached = |word: &Word| {
            let short = word.text.starts_with('-') && !word.text.starts_with("--");
            !is_option(&word)
                && (word.text.starts_with("--exec") || (short && word.text.contains(['x', 'X'])))
        };
        let may_execute = args.iter().any(Word::may_be_option)
            || (program != "find"
                && (args.iter().any(has_attached)
                    || (!only_reads(program, &texts)
                        && !args.iter().any(|word| is_option(&word)))));
        if may_execute {
            return Permit::ask(NOT_KNOWN);
        }
        // The name of a file replaces the braces.
        let found = |word: &Word| {
            if word.text.contains(['{', '}']) {
                Word::default()
            } else {
                word.clone()
            }
        };
        let executed = args.iter().enumerate().filter(|(_, word)| is_option(word));
        let each = executed.map(|(at, _)| {
            let words: Vec<Word> = args[at + 1..].iter().map(found).collect();
            restrictions.judge_program(&words, depth + 1, &mut LineContext::new("."))
        });
        each.fold(Permit::Allow, Permit::and)
    }

    /// Asks for approval of a program that may run others, if its arguments look like a command
    /// that a rule denies or asks for.
    fn judge_suspected(&self, words: &[Word]) -> Permit {
        let texts: Vec<&str> = words.iter().map(|word| &*word.text).collect();
        let allows = |rule: &CommandRule| {
            rule.ruling == Permit::Allow
                && !rule.command.words.is_empty()
                && rule.command.matches(&texts)
        };
        // A program inside a known one was judged separately.
        if !matches!(inner(&texts), Inner::None) {
            return Permit::Allow;
        }
        let is_allowed = self.rules.iter().any(allows);
        if words.iter().any(Word::has_braces) && !is_allowed {
            return Permit::ask("its braces may expand to a program that a rule restricts");
        }
        let known: Vec<_> = words
            .iter()
            .map(|word| word.is_known().then_some(&*word.text))
            .collect();
        let restricts = |at: usize| {
            let by_name: Vec<_> = known[at]
                .map(name)
                .into_iter()
                .map(Some)
                .chain(known[at + 1..].iter().copied())
                .collect();
            let matches = |rule: &CommandRule| {
                rule.ruling != Permit::Allow
                    && !rule.command.words.is_empty()
                    && rule.command.may_match(&by_name)
            };
            known[at].is_some() && self.rules.iter().any(matches)
        };
        // An argument may be a line for a shell, also after an option: `--exec='git push'`.
        let has_line = |at: usize| {
            let text = known[at].unwrap_or_default();
            let behind = text
                .split_once('=')
                .map(|(_, line)| line)
                .filter(|_| text.starts_with('-'));
            let attached = text
                .get(2..)
                .filter(|_| text.starts_with('-') && !text.starts_with("--"));
            [Some(text), behind, attached]
                .into_iter()
                .flatten()
                .any(|line| self.may_restrict_line(line))
        };
        match (1..words.len()).find(|at| (!is_allowed && restricts(*at)) || has_line(*at)) {
            Some(at) => Permit::ask(format!(
                "`{}` may run `{}`, which a rule restricts",
                short(&words[0].text),
                short(&words[at].text)
            )),
            None => Permit::Allow,
        }
    }
}

impl CommandPolicy {
    /// Returns `true` if a text of several words begins like a command that a rule denies or asks
    /// for.
    ///
    /// A text of one word is too common to suspect: `push` may be anything.
    fn may_restrict_line(&self, line: &str) -> bool {
        let mut words: Vec<_> = line.split_whitespace().map(Some).collect();
        if let Some(first) = words.first_mut() {
            *first = first.map(name);
        }
        let of_git = git_command(&words);
        let matches = |rule: &CommandRule| {
            let speaks = |words: &[Option<&str>]| rule.command.may_match(words);
            rule.ruling != Permit::Allow
                && !rule.command.words.is_empty()
                && (speaks(&words) || speaks(&of_git))
        };
        words.len() > 1 && self.rules.iter().any(matches)
    }
}

/// Git's own options that do not change which command runs, and take no value in the next word.
const GIT_FLAGS: &str = "-p --paginate -P --no-pager --bare --no-replace-objects --no-lazy-fetch \
    --no-optional-locks --no-advice \
    --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs";

/// Git's own options that take the next word as a value.
const GIT_VALUED: &str = "-C -c --config-env --git-dir --work-tree --namespace --super-prefix \
    --attr-source --shallow-file";

/// Returns a git command in the form that rules use, without the options before it: `git push` for
/// `git -C . push` and `git-push`. Other commands are returned unchanged. The result ends with an
/// unknown word if an option may change which command runs, such as `-c alias.p=push`.
pub(super) fn git_command<'a>(words: &[impl Into<Option<&'a str>> + Copy]) -> Vec<Option<&'a str>> {
    let mut words: Vec<Option<&'a str>> = words.iter().map(|word| (*word).into()).collect();
    if let Some(command) = words
        .first()
        .copied()
        .flatten()
        .and_then(|first| first.strip_prefix("git-"))
    {
        words.splice(..1, [Some("git"), Some(command)]);
    }
    if words.first() != Some(&Some("git")) {
        return words;
    }
    let is_one_of = |list: &str, option: &str| list.split_whitespace().any(|name| name == option);
    // An alias may be any command.
    let is_alias = |setting: &str| {
        setting
            .get(..6)
            .is_some_and(|name| name.eq_ignore_ascii_case("alias."))
    };
    while let Some(option) = words
        .get(1)
        .copied()
        .flatten()
        .filter(|option| option.starts_with('-'))
    {
        let (name, attached) = option.split_once('=').unwrap_or((option, ""));
        let value = if attached.is_empty() {
            words.get(2).copied().flatten()
        } else {
            Some(attached)
        };
        let count = match value {
            _ if is_one_of(GIT_FLAGS, option) => 1,
            Some(value) if is_one_of(GIT_VALUED, name) && !is_alias(value) => {
                1 + usize::from(attached.is_empty())
            }
            _ => {
                words.truncate(1);
                words.push(None);
                break;
            }
        };
        words.drain(1..=count);
    }
    words
}
