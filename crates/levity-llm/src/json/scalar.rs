//! Values without quotes: numbers, literals of several languages, calls, and bare words.
//!
//! A number or literal must end as a value does. `12 apples` is a bare string, not 12 followed by
//! stray text. Values that JSON cannot represent, such as `NaN` and `undefined`, become null. Words
//! that are nothing else become a string up to the end of the line or the next separator.

use serde_json::{Number, Value};

use super::cursor::Cursor;
use super::lookahead::Role;
use super::repairs::Repair;

/// The maximum length of a call's name.
const MAX_NAME_BYTES: usize = 64;

/// The result of parsing a value that is not quoted.
pub(super) enum Scalar {
    Value(Value),
    /// A call has started, and its arguments follow.
    Call,
    /// No meaningful text was found.
    Nothing,
}

impl Cursor<'_> {
    /// Parses a number, a literal, or unquoted words.
    ///
    /// Bare words count only inside of a list or object. Alone, they are prose.
    pub(super) fn scalar(&mut self, role: Role) -> Scalar {
        if let Some(value) = self.atom(role) {
            return Scalar::Value(value);
        }
        match role {
            Role::Alone => Scalar::Nothing,
            _ => self.bare(role),
        }
    }

    /// Parses a number or a literal.
    fn atom(&mut self, role: Role) -> Option<Value> {
        let (value, repair, after) = self.atom_at(self.at, role)?;
        let (value, repair, after) = self
            .thousands(role, after)
            .unwrap_or((value, repair, after));
        self.mends.0 |= repair.map_or(0, |repair| 1 << repair as u32);
        self.at = after;
        Some(value)
    }

    /// Returns the end of the number or literal at `at`, if it is a separate value.
    pub(super) fn atom_end(&self, at: usize, role: Role) -> Option<usize> {
        self.atom_at(at, role).map(|(_, _, after)| after)
    }

    /// Returns the number or literal at `at`, and its end.
    ///
    /// It moves nothing, so that lookahead can use it. The repair is `None` for valid JSON.
    fn atom_at(&self, at: usize, role: Role) -> Option<(Value, Option<Repair>, usize)> {
        let rest = self.text.as_bytes().get(at..self.end)?;
        let part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_');
        let after = at + rest.iter().take_while(|byte| part(byte)).count();
        let word = &self.text[at..after];
        let first = *rest.first()?;
        let found = if first.is_ascii_alphabetic() {
            None
        } else {
            number(word)
        };
        let (value, repair) = match found {
            Some(found) => found,
            None => literal(word, after == self.end && role != Role::Alone)?,
        };
        self.atom_ends(after, role)
            .then_some((value, repair, after))
    }

    /// Returns `true` if a number or literal ends at `after` and does not start a phrase.
    ///
    /// `role` decides which tokens may follow. An element may be followed by another one without a
    /// comma; the value of a member only by the next key.
    fn atom_ends(&self, after: usize, role: Role) -> bool {
        let blanks = self
            .text
            .as_bytes()
            .get(after..self.end)
            .unwrap_or_default();
        let next = after
            + blanks
                .iter()
                .take_while(|byte| matches!(byte, b' ' | b'\t'))
                .count();
        let Some(byte) = self.byte(next) else {
            return true;
        };
        let apart = next > after;
        if role == Role::Alone {
            return byte == b'\n' && self.past_space(next) == self.end;
        }
        match byte {
            b'\n' | b'\r' | b',' | b'}' | b']' | b')' | b';' => true,
            b'{' | b'[' | b':' => role == Role::Element,
            b'-' | b'0'..=b'9' => role == Role::Element && apart,
            b'\\' if self.past_space(next) > next => true,
            _ if self.comment(next) || self.is(next, "```") => true,
            _ if self.quote(next).is_some() => apart || self.quoted_colon(next),
            _ if role == Role::Element => apart && self.literal(next),
            _ => apart && self.bare_key(next),
        }
    }

    /// Parses `1,234,567` as the value of a member; in a list it is three numbers.
    ///
    /// Groups of exactly three digits must follow up to the end of the value. `{"n": 1,234}` is
    /// 1234, whereas `{"n": 1,2}` is not.
    fn thousands(&self, role: Role, after: usize) -> Option<(Value, Option<Repair>, usize)> {
        let digits =
            |at: usize| (at..).take_while(|&at| self.byte(at).is_some_and(|b| b.is_ascii_digit()));
        let sign = usize::from(self.byte(self.at) == Some(b'-'));
        let short = (1..=3).contains(&(after - self.at - sign))
            && digits(self.at + sign).take(3).count() > 0;
        if role != Role::Member || !short || self.byte(after) != Some(b',') {
            return None;
        }
        let mut end = after;
        while self.byte(end) == Some(b',') && digits(end + 1).take(4).count() == 3 {
            end += 4;
        }
        let next = self.byte(self.past_space(end));
        let whole = end > after && matches!(next, None | Some(b',' | b'}'));
        let plain = self.text[self.at..end].replace(',', "");
        let (value, _) = number(&plain).filter(|_| whole)?;
        Some((value, Some(Repair::Number), end))
    }

    /// Parses words without quotes.
    ///
    /// A name before a round bracket is a call, and up to two letters before a quote are the prefix
    /// of a Python string: `f"..."`.
    fn bare(&mut self, role: Role) -> Scalar {
        let start = self.at;
        while let Some(byte) = self.peek() {
            if byte == b'('
                && self.at - start <= MAX_NAME_BYTES
                && callable(&self.text[start..self.at])
            {
                self.at += 1;
                self.mends.add(Repair::Call);
                return Scalar::Call;
            }
            if self.at - start <= 2
                && self.quote(self.at).is_some()
                && prefix(&self.text[start..self.at])
            {
                self.mends.add(Repair::Quotes);
                return self
                    .string(role)
                    .map_or(Scalar::Nothing, |text| Scalar::Value(Value::String(text)));
            }
            if self.bare_ends(role, start, byte) {
                break;
            }
            self.at += 1;
        }
        self.words(start)
    }

    /// Inside of a member, a comma belongs to the words unless a key follows it: `city: Paris,
    /// France`.
    fn bare_ends(&self, role: Role, start: usize, byte: u8) -> bool {
        let blank_before =
            || self.at > start && self.text.as_bytes()[self.at - 1].is_ascii_whitespace();
        match byte {
            b'\n' => true,
            b',' | b';' if role == Role::Member => self.comma_ends_member(self.at + 1),
            b',' => true,
            b'}' => self.open.objects > 0,
            b']' => self.open.lists > 0,
            b')' => self.open.calls > 0,
            b':' => {
                role == Role::Element
                    && matches!(
                        self.byte(self.at + 1),
                        Some(b' ' | b'"' | b'\'' | b'{' | b'[')
                    )
            }
            b'/' | b'#' | b'<' => blank_before() && self.comment(self.at),
            b'`' => self.is(self.at, "```"),
            _ => false,
        }
    }

    /// Returns the meaning of the words from `start` to the current position.
    ///
    /// An ellipsis and a lone dash replace omitted items and are dropped. A closing quote without
    /// an opening one is removed.
    fn words(&mut self, start: usize) -> Scalar {
        let words = self.text[start..self.at].trim();
        if words.is_empty() {
            self.bump();
        }
        if words.is_empty() || words.starts_with("...") || words.starts_with('…') || words == "-"
        {
            self.mends.add(Repair::Dropped);
            return Scalar::Nothing;
        }
        self.mends.add(Repair::BareValue);
        self.loose |= words.contains(' ');
        let unquoted = words
            .strip_suffix(['"', '\'', '”', '’', '`'])
            .unwrap_or(words);
        Scalar::Value(Value::String(unquoted.to_owned()))
    }
}

/// Returns `true` if a bracket after these words makes them a call.
fn callable(words: &str) -> bool {
    let name = words.strip_prefix("new ").unwrap_or(words);
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.');
    name.chars().all(part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns `true` if these letters before a quote are a string prefix, as in Python.
fn prefix(letters: &str) -> bool {
    matches!(
        letters,
        "f" | "r" | "b" | "u" | "rb" | "br" | "fr" | "rf" | "F" | "R" | "B" | "U"
    )
}

/// Returns the literal that a word is, or that it starts if the text ends there.
///
/// A truncated text may end with `tru` or `Non`; these are completed.
fn literal(word: &str, cut: bool) -> Option<(Value, Option<Repair>)> {
    match word {
        "true" => return Some((Value::Bool(true), None)),
        "false" => return Some((Value::Bool(false), None)),
        "null" => return Some((Value::Null, None)),
        "" => return None,
        _ => {}
    }
    let is = |name: &str| word.eq_ignore_ascii_case(name);
    let begins = |names: [&str; 2]| cut && names.iter().any(|name| name.starts_with(word));
    let found = if is("true") || begins(["true", "True"]) {
        Value::Bool(true)
    } else if is("false") || begins(["false", "False"]) {
        Value::Bool(false)
    } else if is("null") || is("none") || begins(["null", "None"]) || denotes_null(word) {
        Value::Null
    } else {
        return None;
    };
    let repair = if cut && word.len() < 4 {
        Repair::Truncated
    } else {
        Repair::Literal
    };
    Some((found, Some(repair)))
}

/// Returns `true` if a word denotes a value that JSON cannot represent.
fn denotes_null(word: &str) -> bool {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    matches!(
        unsigned,
        "undefined" | "nil" | "NaN" | "nan" | "Infinity" | "infinity" | "inf" | "Inf"
    )
}

/// Returns the number that a word denotes, and the repair that it needed.
///
/// The first check is a fast path for the common case of a plain integer.
fn number(word: &str) -> Option<(Value, Option<Repair>)> {
    if matches!(word.as_bytes(), [b'1'..=b'9', ..])
        && let Ok(whole) = word.parse::<u64>()
    {
        return Some((Value::Number(whole.into()), None));
    }
    if let Ok(number) = word.parse::<Number>() {
        return Some((Value::Number(number), None));
    }
    let number = radix(word).or_else(|| decimal(word))?;
    Some((number, Some(Repair::Number)))
}

/// Parses `0x1F`, `0b101` and `0o17`.
///
/// Underscores between digits are allowed. The result is `None` if the number exceeds 64 bits.
fn radix(word: &str) -> Option<Value> {
    let (negative, word) = match word.strip_prefix('-') {
        Some(word) => (true, word),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let radix = match word.get(..2)? {
        "0x" | "0X" => 16,
        "0b" | "0B" => 2,
        "0o" | "0O" => 8,
        _ => return None,
    };
    let digits = word[2..].replace('_', "");
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    if negative {
        return i64::from_str_radix(&format!("-{digits}"), radix)
            .ok()
            .map(Value::from);
    }
    u64::from_str_radix(&digits, radix).ok().map(Value::from)
}

/// Parses a decimal number with a plus, leading zeros, underscores, or a missing digit at its
/// point.
///
/// Examples: `+5`, `007`, `1_000`, `.5` and `5.` become 5, 7, 1000, 0.5 and 5.0.
fn decimal(word: &str) -> Option<Value> {
    let plain = word.replace('_', "");
    let (sign, rest) = match plain.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, ""));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (exponent_sign, power) = match exponent.strip_prefix('-') {
        Some(power) => ("-", power),
        None => ("", exponent.strip_prefix('+').unwrap_or(exponent)),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !(digits(whole) && digits(fraction) && digits(power)) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut clean = format!("{sign}{:0>1}", whole.trim_start_matches('0'));
    if mantissa.contains('.') {
        clean.push_str(&format!(".{fraction:0<1}"));
    }
    if !power.is_empty() {
        clean.push_str(&format!("e{exponent_sign}{power}"));
    }
    // A number that is too large keeps its digits as a string.
    Some(
        clean
            .parse::<Number>()
            .map_or_else(|_| Value::String(word.to_owned()), Value::Number),
    )
}
