//! Lines of plain words, which every shell reads in the same way.
//!
//! A line whose programs have more rights than read-only ones must be of this kind. This module
//! works with lists of what is allowed. A line with any other character is left to the `shell`
//! module.

use super::shell::{RESERVED, Simple, Word};

/// Shell builtins that compute, set something or run a line, so that later words may change their
/// meaning.
const BUILTINS: &str = ". alias bg bind break builtin compgen complete continue declare \
    enable eval exec exit export fc \
    fg getopts hash let local logout mapfile printf read readarray readonly return set shift shopt \
    source test trap typeset umask unalias unset";

/// Redirections that write nowhere and read nothing.
const REDIRECTIONS: [&str; 12] = [
    "2>&1",
    "1>&2",
    ">&2",
    ">/dev/null",
    "> /dev/null",
    "1>/dev/null",
    "1> /dev/null",
    "2>/dev/null",
    "2> /dev/null",
    "</dev/null",
    "< /dev/null",
    "0</dev/null",
];

/// Parses a line of plain words, joined by `&&`, `||`, `|`, `;` and line ends.
///
/// # Errors
/// Returns a description of the first token that is not plain, for a message.
pub(super) fn parse(line: &str) -> Result<Vec<Simple>, String> {
    let (mut rest, mut found, mut current) = (line, Vec::new(), Command::default());
    // `true` after an operator that must be followed by a command.
    let mut needs_more = false;
    while let Some(char) = rest.chars().next() {
        if let ' ' | '\t' = char {
            rest = &rest[1..];
        } else if let Some(operator) = ["&&", "||", "|", ";", "\n"]
            .iter()
            .find(|it| rest.starts_with(**it))
        {
            rest = &rest[operator.len()..];
            // Some shells read these as other operators: `|&`, `;;`, `;&`.
            if *operator != "\n" && rest.starts_with(['&', '|', ';']) {
                return Err(format!("`{operator}` beside another operator"));
            }
            if !current.words.is_empty() {
                found.push(std::mem::take(&mut current).into());
                needs_more = matches!(*operator, "&&" | "||" | "|");
            } else if *operator != "\n" {
                return Err(format!("`{operator}` without a command before it"));
            }
        } else if char == '&' {
            return Err("`&`".to_owned());
        } else if let Some(behind) = redirection(rest) {
            rest = behind;
            current.is_redirected = true;
            if current.words.is_empty() {
                return Err("a redirection before a program".to_owned());
            }
        } else if current.is_redirected {
            return Err("words after a redirection".to_owned());
        } else {
            rest = current.word(rest)?;
        }
    }
    if !current.words.is_empty() {
        found.push(current.into());
    } else if needs_more {
        return Err("an operator at its end".to_owned());
    }
    Ok(found)
}

/// Returns the rest of a line after a redirection, if it begins with one.
fn redirection(rest: &str) -> Option<&str> {
    let behind = REDIRECTIONS.iter().find_map(|it| rest.strip_prefix(it));
    behind
        .filter(|behind| behind.is_empty() || behind.starts_with([' ', '\t', '\n', ';', '|', '&']))
}

#[derive(Default)]
struct Command {
    words: Vec<Word>,
    is_redirected: bool,
}

impl From<Command> for Simple {
    fn from(command: Command) -> Self {
        Self {
            words: command.words,
            ..Self::default()
        }
    }
}

impl Command {
    /// Parses the next word of a line. The first word, which is the program, must not be quoted.
    ///
    /// # Errors
    /// Returns the character or construct that is not plain.
    fn word<'a>(&mut self, line: &'a str) -> Result<&'a str, String> {
        let (mut rest, mut text) = (line, String::new());
        let is_program = self.words.is_empty();
        while let Some(char) = rest.chars().next() {
            match char {
                ' ' | '\t' | '\n' | ';' | '|' | '&' => break,
                '\'' | '"' if !is_program => {
                    let (quoted, behind) = rest[1..]
                        .split_once(char)
                        .ok_or("a quote that is not closed")?;
                    check_quoted(quoted, char)?;
                    text.push_str(quoted);
                    rest = behind;
                    continue;
                }
                'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | '/' | '+' => {}
                ',' | ':' | '@' | '%' | '^' if !is_program => {}
                // In zsh, `=ls` is a path. In every shell, `a=b` before a program sets a variable.
                '=' if !is_program && rest.len() < line.len() => {}
                // Allows `HEAD~2`; in other places `~` is a home folder.
                '~' if !is_program
                    && text.ends_with(|c: char| c.is_ascii_alphanumeric() || "^~".contains(c)) => {}
                _ => return Err(format!("`{}` outside of quotes", char.escape_debug())),
            }
            text.push(char);
            rest = &rest[1..];
        }
        if is_program
            && (RESERVED.contains(&&*text) || BUILTINS.split(' ').any(|part| part == text))
        {
            return Err(format!("`{text}`, which is a shell builtin,"));
        }
        self.words.push(Word::literal(text));
        Ok(rest)
    }
}

/// Checks that every shell reads the quoted text literally.
fn check_quoted(text: &str, quote: char) -> Result<(), String> {
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let is_plain = match char {
            '\n' | '\t' => true,
            '$' | '`' => quote == '\'',
            // The backslash is retained before most characters: `"a\|b"`.
            '\\' => {
                quote == '\''
                    || chars.peek().is_some_and(|next| {
                        next.is_ascii_alphanumeric() || "|.()[]{}+*?<>/-".contains(*next)
                    })
            }
            _ => !char.is_control(),
        };
        if !is_plain {
            return Err(format!("`{}` in quotes", char.escape_debug()));
        }
    }
    Ok(())
}
