//! A parser for shell lines, as far as they can be parsed without running them.
//!
//! Anything that the parser does not know is an error, never a guess: the line then needs approval.
//!
//! Shells differ: `sh`, `bash` and `zsh` disagree about `&>`, `{a,b}`, `=ls` and `<1-9>`. A
//! construct is accepted only if all of them read it in a way that the result covers. The parser
//! does not decide which programs run: both sides of `||`, and commands in `$(..)`, are all part of
//! the result.

/// The maximum nesting depth of substitutions.
const MAX_DEPTH: usize = 8;

/// The maximum length of a line that is parsed.
pub(super) const MAX_LINE: usize = 16 << 10;

/// The error for a longer line.
pub(super) const TOO_LONG: &str = "it is too long to be analyzed";

/// One program with its arguments, from a line that may contain many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Simple {
    /// The program and its arguments.
    pub(super) words: Vec<Word>,
    /// `true` if variables are set for it.
    pub(super) sets: bool,
    /// `true` if it writes to anything other than the pipe, the terminal or `/dev/null`.
    pub(super) writes: bool,
    /// The files that it reads by `<`.
    pub(super) reads: Vec<Word>,
}

/// A word after quote removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The text, as far as it is known.
    pub(super) text: String,
    /// `true` if the text is complete: no variable, no substitution.
    pub(super) literal: bool,
    /// `true` if the shell expands it to file names: a glob, a `~`, braces.
    pub(super) expands: bool,
}

impl Word {
    pub(super) fn literal(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            literal: true,
            expands: false,
        }
    }

    /// Returns `true` if the text is exactly the one word that a program gets.
    pub(super) fn is_known(&self) -> bool {
        self.literal && !self.expands
    }

    /// Returns `true` if the shell may expand it to an option, or to another word that begins
    /// differently.
    pub(super) fn may_be_option(&self) -> bool {
        !self.literal
            || self.has_braces()
            || (self.expands && self.text.starts_with(['*', '?', '[', '-', '~', '=']))
    }

    /// Returns `true` if it has braces that become several words. `{}` is unchanged.
    pub(super) fn has_braces(&self) -> bool {
        self.expands && self.text.contains('{') && self.text != "{}"
    }

    /// Returns `true` if it certainly names `/dev/null`.
    pub(super) fn is_dev_null(&self) -> bool {
        self.is_known() && self.text == "/dev/null"
    }
}

/// Parses a line into all programs that it may run, whichever of them it does.
pub(super) fn parse(line: &str) -> Result<Vec<Simple>, &'static str> {
    if line.len() > MAX_LINE {
        return Err(TOO_LONG);
    }
    parse_nested(line, 0)
}

fn parse_nested(line: &str, depth: usize) -> Result<Vec<Simple>, &'static str> {
    if depth > MAX_DEPTH {
        return Err("it is nested too deeply to be analyzed");
    }
    // A shell joins such lines before it parses them: a `$` and a `(` on two lines become one
    // token.
    if line.contains("\\\n") || line.contains("\\\r") {
        return Err("it continues on another line after a backslash");
    }
    let mut parser = Parser {
        chars: line.chars().collect(),
        at: 0,
        depth,
        found: Vec::new(),
    };
    parser.line()?;
    Ok(parser.found)
}

/// `found` collects every command, also those inside substitutions.
struct Parser {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    found: Vec<Simple>,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += 1;
        next
    }

    fn consume(&mut self, wanted: &str) -> bool {
        let end = self.at + wanted.chars().count();
        let found = self
            .chars
            .get(self.at..end)
            .is_some_and(|found| wanted.chars().eq(found.iter().copied()));
        if found {
            self.at = end;
        }
        found
    }

    fn line(&mut self) -> Result<(), &'static str> {
        let mut current = Simple::default();
        while let Some(char) = self.peek() {
            match char {
                ' ' | '\t' => self.at += 1,
                '\\' if self.consume("\\\n") => {}
                '#' => {
                    while self.peek().is_some_and(|char| char != '\n') {
                        self.at += 1;
                    }
                }
                '\n' | ';' | '&' | '|' => self.operator(&mut current)?,
                '<' | '>' => self.redirect(&mut current)?,
                '(' | ')' => return Err("it groups commands, which is not analyzed"),
                _ => self.word_of(&mut current)?,
            }
        }
        self.end(&mut current)
    }

    /// Parses an operator between commands. All commands are checked, so it does not matter which
    /// run.
    fn operator(&mut self, current: &mut Simple) -> Result<(), &'static str> {
        if self.consume("&>") {
            // Some shells read it as a redirection. For others it ends a command, and the next one
            // follows.
            return Err("it has a redirection that is not analyzed");
        }
        if self.consume(";;") || self.consume(";&") {
            return Err("it has a shell construct that is not analyzed");
        }
        if !self.consume("&&") && !self.consume("||") && !self.consume("|&") {
            self.at += 1;
        }
        self.end(current)
    }

    fn end(&mut self, current: &mut Simple) -> Result<(), &'static str> {
        let done = std::mem::take(current);
        if done == Simple::default() {
            return Ok(());
        }
        let first = done.words.first();
        if first.is_some_and(|word| word.literal && RESERVED.contains(&word.text.as_str())) {
            return Err("it has a shell construct that is not analyzed");
        }
        self.found.push(done);
        Ok(())
    }

    /// Adds a word to the current command, unless it is an assignment or the descriptor of a
    /// redirection.
    fn word_of(&mut self, current: &mut Simple) -> Result<(), &'static str> {
        let start = self.at;
        let (word, _) = self.word()?;
        // The source counts, not the text: a substitution has none, and may become a program.
        let source = &self.chars[start..self.at];
        if matches!(self.peek(), Some('<' | '>')) && source.iter().all(char::is_ascii_digit) {
            return match source {
                [_] => self.redirect(current),
                // Some shells read it as a descriptor. For others it is an argument, before a
                // redirection without a descriptor.
                _ => Err(
                    "it has a number of several digits before a redirection; put a space between \
                        them",
                ),
            };
        }
        if matches!(self.peek(), Some('<' | '>'))
            && source.first() == Some(&'{')
            && source.last() == Some(&'}')
        {
            // Some shells choose a descriptor and assign it to the variable of that name:
            // `{PATH}>file`.
            return Err("it may set a variable by a redirection; put a space before `<` or `>`");
        }
        if self.peek() == Some('(') {
            return Err("it defines a function, or groups commands");
        }
        if current.words.is_empty() && is_assignment(source) {
            current.sets = true;
            return Ok(());
        }
        current.words.push(word);
        Ok(())
    }

    /// Parses a redirection. Only `/dev/null` and other descriptors count as harmless targets.
    fn redirect(&mut self, current: &mut Simple) -> Result<(), &'static str> {
        if self.consume("<<<") {
            let word = self.target()?;
            current.reads.extend((!word.literal).then_some(word));
            return Ok(());
        }
        if self.consume("<<") || self.consume("<>") || self.consume("<(") || self.consume(">(") {
            return Err("it has a shell construct that is not analyzed");
        }
        if self.consume("<&") {
            let word = self.target()?;
            return if is_handle(&word) {
                Ok(())
            } else {
                Err("it has a redirection that is not analyzed")
            };
        }
        if self.consume("<") {
            let start = self.at;
            let word = self.target()?;
            let is_range = self.chars[start..self.at]
                .iter()
                .all(|char| char.is_ascii_digit() || *char == '-');
            if is_range && self.peek() == Some('>') {
                // In zsh, `<1-9>` is a glob, which may become the name of a program.
                return Err("it has a redirection that is not analyzed");
            }
            current.reads.push(word);
            return Ok(());
        }
        let duplicates = self.consume(">&");
        let _ = duplicates || self.consume(">>") || self.consume(">|") || self.consume(">");
        let word = self.target()?;
        let harmless = (duplicates && is_handle(&word)) || word.is_dev_null();
        current.writes |= !harmless;
        Ok(())
    }

    /// Parses the word after a redirection; an empty one is an error.
    fn target(&mut self) -> Result<Word, &'static str> {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
        match self.word()? {
            (word, quoted) if quoted || !word.text.is_empty() || !word.literal => Ok(word),
            _ => Err("it has a redirection to nowhere"),
        }
    }

    /// Parses a word; the flag is set if any part of it was quoted.
    fn word(&mut self) -> Result<(Word, bool), &'static str> {
        let (mut word, mut quoted) = (Word::literal(""), false);
        while let Some(char) = self.peek() {
            match char {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    quoted = true;
                    self.at += 1;
                    self.single(&mut word)?;
                }
                '"' => {
                    quoted = true;
                    self.at += 1;
                    self.double(&mut word)?;
                }
                '\\' => {
                    quoted = true;
                    self.at += 1;
                    match self.next() {
                        Some('\n') => {}
                        Some(char) => word.text.push(char),
                        None => return Err("it ends in a backslash"),
                    }
                }
                '$' => self.dollar(&mut word)?,
                '`' => self.backquoted(&mut word)?,
                '\0' => return Err("it contains a NUL character"),
                _ => {
                    // In zsh, `=ls` is the path of `ls`; a comparison (`==`) is not.
                    let is_program =
                        char == '=' && word.text.is_empty() && !quoted && !self.ends_after('=');
                    word.expands |= is_program
                        || matches!(char, '*' | '?' | '[' | '{')
                        || (char == '~'
                            && (word.text.is_empty() || word.text.ends_with(['=', ':'])));
                    word.text.push(char);
                    self.at += 1;
                }
            }
        }
        Ok((word, quoted))
    }

    /// Returns `true` if a word ends after the next character, or continues with `same`.
    fn ends_after(&self, same: char) -> bool {
        let next = self.chars.get(self.at + 1).copied();
        next.is_none_or(|next| next == same || " \t\n;&|<>()".contains(next))
    }

    fn single(&mut self, word: &mut Word) -> Result<(), &'static str> {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some('\0') => return Err("it contains a NUL character"),
                Some(char) => word.text.push(char),
                None => return Err("a quote is not closed"),
            }
        }
    }

    fn double(&mut self, word: &mut Word) -> Result<(), &'static str> {
        loop {
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') => {}
                        Some(char @ ('$' | '`' | '"' | '\\')) => word.text.push(char),
                        Some(char) => word.text.extend(['\\', char]),
                        None => return Err("a quote is not closed"),
                    }
                }
                Some('$') => self.dollar(word)?,
                Some('`') => self.backquoted(word)?,
                Some('\0') => return Err("it contains a NUL character"),
                // Interactive shells replace it with earlier commands.
                Some(char) => {
                    word.text.push(char);
                    self.at += 1;
                }
                None => return Err("a quote is not closed"),
            }
        }
    }

    /// Parses a variable, a substitution or a plain dollar.
    fn dollar(&mut self, word: &mut Word) -> Result<(), &'static str> {
        self.at += 1;
        match self.peek() {
            Some('(') => {
                self.at += 1;
                if self.peek() == Some('(') {
                    return Err("it computes, which is not analyzed");
                }
                let inner = self.until_closed()?;
                self.found.extend(parse_nested(&inner, self.depth + 1)?);
                word.literal = false;
            }
            // Both may contain commands that run: `${a:=$(b)}`, `$'\x72\x6d'`.
            Some('{' | '\'' | '"' | '[') => {
                return Err("it has an expansion that is not analyzed");
            }
            Some(char) if char.is_ascii_alphanumeric() || "_@*#?-$!".contains(char) => {
                self.at += 1;
                while char != '@'
                    && self
                        .peek()
                        .is_some_and(|char| char.is_ascii_alphanumeric() || char == '_')
                {
                    self.at += 1;
                }
                word.literal = false;
            }
            _ => word.text.push('$'),
        }
        Ok(())
    }

    /// Returns the text up to the parenthesis that closes a substitution.
    fn until_closed(&mut self) -> Result<String, &'static str> {
        let (start, mut open) = (self.at, 1);
        while let Some(char) = self.next() {
            match char {
                '(' => open += 1,
                ')' => {
                    open -= 1;
                    if open == 0 {
                        return Ok(self.chars[start..self.at - 1].iter().collect());
                    }
                }
                // A quoted parenthesis closes nothing. Such lines are rare, and a person can
                // approve them.
                '\'' | '"' | '\\' | '`' | '#' => {
                    return Err("it has quotes in a substitution, which is not analyzed");
                }
                _ => {}
            }
        }
        Err("a substitution is not closed")
    }

    fn backquoted(&mut self, word: &mut Word) -> Result<(), &'static str> {
        self.at += 1;
        let start = self.at;
        while let Some(char) = self.next() {
            match char {
                '`' => {
                    let inner: String = self.chars[start..self.at - 1].iter().collect();
                    self.found.extend(parse_nested(&inner, self.depth + 1)?);
                    word.literal = false;
                    return Ok(());
                }
                '\\' => return Err("it has quotes in a substitution, which is not analyzed"),
                _ => {}
            }
        }
        Err("a substitution is not closed")
    }
}

/// Words that begin something other than a program.
pub(super) const RESERVED: [&str; 22] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "{", "}", "!", "[[", "]]", "time", "coproc", "in",
];

/// Returns `true` if the shell reads an unquoted beginning like this as an assignment.
fn is_assignment(word: &[char]) -> bool {
    let name = word
        .iter()
        .take_while(|char| char.is_ascii_alphanumeric() || **char == '_')
        .count();
    let is_name = name > 0 && !word[0].is_ascii_digit();
    is_name && matches!(word.get(name), Some('=' | '[' | '+')) && word[name..].contains(&'=')
}

fn is_handle(word: &Word) -> bool {
    word.literal && (word.text == "-" || matches!(&*word.text, "1" | "2"))
}
