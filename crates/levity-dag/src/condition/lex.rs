//! Splits a condition into tokens with byte positions.

use super::Compare;

/// A syntax error: its byte position and a description.
pub(super) type Fault = (usize, String);

/// A token of the condition language.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Text(String),
    Number(serde_json::Number),
    Compare(Compare),
    And,
    Or,
    Not,
    True,
    False,
    Null,
    /// One of the punctuation characters `( ) [ ] , .`
    Mark(char),
}

/// Returns the tokens of a text, each with the byte position of its start.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            return Ok(tokens);
        };
        let (token, len) = token(rest, first).map_err(|(off, what)| (at + off, what))?;
        tokens.push((at, token));
        rest = &rest[len..];
    }
}

fn token(rest: &str, first: char) -> Result<(Token, usize), Fault> {
    match first {
        '(' | ')' | '[' | ']' | ',' | '.' => Ok((Token::Mark(first), 1)),
        '"' | '\'' => quoted(rest, first),
        '`' => match rest[1..].find('`') {
            Some(end) => Ok((Token::Name(rest[1..=end].to_owned()), end + 2)),
            None => Err((0, "a name in backticks has no closing backtick".into())),
        },
        '0'..='9' | '-' => number(rest),
        _ if first.is_alphabetic() || first == '_' => Ok(name_or_keyword(rest)),
        _ => operator(rest, first),
    }
}

fn operator(rest: &str, first: char) -> Result<(Token, usize), Fault> {
    let two = rest.get(..2).unwrap_or_default();
    Ok(match (two, first) {
        ("==", _) => (Token::Compare(Compare::Equal), 2),
        ("!=", _) => (Token::Compare(Compare::Unequal), 2),
        ("<=", _) => (Token::Compare(Compare::LessOrEqual), 2),
        (">=", _) => (Token::Compare(Compare::GreaterOrEqual), 2),
        ("&&", _) => (Token::And, 2),
        ("||", _) => (Token::Or, 2),
        (_, '<') => (Token::Compare(Compare::Less), 1),
        (_, '>') => (Token::Compare(Compare::Greater), 1),
        (_, '!') => (Token::Not, 1),
        (_, '=') => return Err((0, "`=` is not an operator; use `==`".into())),
        _ => return Err((0, format!("`{first}` is not valid"))),
    })
}

fn name_or_keyword(rest: &str) -> (Token, usize) {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let len = rest.find(|c| !inside(c)).unwrap_or(rest.len());
    let name = rest[..len].trim_end_matches('-');
    let token = match name {
        "and" => Token::And,
        "or" => Token::Or,
        "not" => Token::Not,
        "in" => Token::Compare(Compare::In),
        "contains" => Token::Compare(Compare::Contains),
        "true" | "True" => Token::True,
        "false" | "False" => Token::False,
        "null" | "None" => Token::Null,
        _ => Token::Name(name.to_owned()),
    };
    (token, name.len())
}

fn number(rest: &str) -> Result<(Token, usize), Fault> {
    let mut len = 0;
    for (at, c) in rest.char_indices() {
        let exponent = rest[..at].ends_with(['e', 'E']);
        let continues = match c {
            '0'..='9' => true,
            '.' | 'e' | 'E' => at > 0,
            '+' | '-' => at == 0 || exponent,
            _ => false,
        };
        if !continues {
            break;
        }
        len = at + 1;
    }
    match serde_json::from_str(&rest[..len]) {
        Ok(number) => Ok((Token::Number(number), len)),
        Err(_) => Err((0, "this is not a number".into())),
    }
}

fn quoted(rest: &str, quote: char) -> Result<(Token, usize), Fault> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((Token::Text(text), at + 1)),
            '\\' => match chars.next().and_then(|(_, c)| escaped(c, &mut chars)) {
                Some(c) => text.push(c),
                None => return Err((at, "this is not a valid escape".into())),
            },
            _ => text.push(c),
        }
    }
    Err((0, "a text in quotes has no closing quote".into()))
}

fn escaped(c: char, chars: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    match c {
        '"' | '\'' | '\\' | '/' => Some(c),
        'n' => Some('\n'),
        't' => Some('\t'),
        'r' => Some('\r'),
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'u' => {
            let code =
                (0..4).try_fold(0, |code, _| Some(code * 16 + chars.next()?.1.to_digit(16)?))?;
            char::from_u32(code)
        }
        _ => None,
    }
}
