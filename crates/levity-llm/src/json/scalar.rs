use serde_json::{Number, Value};

use super::ahead::Role;
use super::cursor::Cursor;
use super::mend::Repair;

/// How long the name of a call may be.
const NAME: usize = 64;

/// What stood where a value was expected.
pub(super) enum Scalar {
    Value(Value),
    /// A call has begun, and its arguments follow.
    Call,
    /// Nothing that means anything.
    Nothing,
}

impl Cursor<'_> {
    /// Reads a number, a literal, or words without quotes.
    pub(super) fn scalar(&mut self, role: Role) -> Scalar {
        if let Some(value) = self.atom(role) {
            return Scalar::Value(value);
        }
        match role {
            Role::Alone => Scalar::Nothing,
            _ => self.bare(role),
        }
    }

    /// A number or a literal.
    fn atom(&mut self, role: Role) -> Option<Value> {
        let (value, mend, after) = self.atom_at(self.at, role)?;
        let (value, mend, after) = self.thousands(role, after).unwrap_or((value, mend, after));
        self.mends.0 |= mend.map_or(0, |mend| 1 << mend as u32);
        self.at = after;
        Some(value)
    }

    /// Where the number or literal at `at` ends, if one stands there as a value of its own.
    pub(super) fn atom_end(&self, at: usize, role: Role) -> Option<usize> {
        self.atom_at(at, role).map(|(_, _, after)| after)
    }

    /// The number or literal at `at`, and where it ends.
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
        let (value, mend) = match found {
            Some(found) => found,
            None => literal(word, after == self.end && role != Role::Alone)?,
        };
        self.atom_ends(after, role).then_some((value, mend, after))
    }

    /// Whether a number or literal ends at `after`, rather than being the beginning of some words.
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

    /// `1,234,567` as the value of a member; in a list that is three numbers.
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

    /// Words without quotes.
    fn bare(&mut self, role: Role) -> Scalar {
        let start = self.at;
        while let Some(byte) = self.peek() {
            if byte == b'(' && self.at - start <= NAME && callable(&self.text[start..self.at]) {
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

    /// What the words from `start` to here mean.
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

/// Whether a bracket behind these words makes them a call.
fn callable(words: &str) -> bool {
    let name = words.strip_prefix("new ").unwrap_or(words);
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.');
    name.chars().all(part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether these letters before a quote say what kind of string it is, as in Python.
fn prefix(letters: &str) -> bool {
    matches!(
        letters,
        "f" | "r" | "b" | "u" | "rb" | "br" | "fr" | "rf" | "F" | "R" | "B" | "U"
    )
}

/// The literal that a word is, or the beginning of, if the text ends there.
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
    } else if is("null") || is("none") || begins(["null", "None"]) || nothing(word) {
        Value::Null
    } else {
        return None;
    };
    let mend = if cut && word.len() < 4 {
        Repair::Truncated
    } else {
        Repair::Literal
    };
    Some((found, Some(mend)))
}

/// Whether a word stands for what JSON cannot say.
fn nothing(word: &str) -> bool {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    matches!(
        unsigned,
        "undefined" | "nil" | "NaN" | "nan" | "Infinity" | "infinity" | "inf" | "Inf"
    )
}

/// The number that a word is, and whether it had to be mended.
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

/// `0x1F`, `0b101`, `0o17`.
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

/// A decimal number with a plus, leading zeros, underscores, or something missing around its point.
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
    // What is too big for a number keeps its digits as a string.
    Some(
        clean
            .parse::<Number>()
            .map_or_else(|_| Value::String(word.to_owned()), Value::Number),
    )
}
