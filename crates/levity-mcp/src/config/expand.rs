//! `${VAR}` in settings.

use std::collections::BTreeMap;

/// How many bytes all that is expanded in one config may have. A large variable could be named any
/// number of times.
const MOST: usize = 4 << 20;

/// Puts variables in, as somebody else knows them.
pub(super) struct Expand<'a> {
    vars: &'a dyn Fn(&str) -> Option<String>,
    left: usize,
    /// The variables whose values were put in, and these.
    used: BTreeMap<String, String>,
}

impl<'a> Expand<'a> {
    pub(super) fn new(vars: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            vars,
            left: MOST,
            used: BTreeMap::new(),
        }
    }

    /// The text with values in place of `${VAR}`, `${env:VAR}` and `${VAR:-default}`; `$${` stands
    /// for `${` itself. What a variable holds is not looked at again.
    ///
    /// # Errors
    /// Every reason why it cannot be done; none tells what stands around the variables.
    pub(super) fn expand(&mut self, text: &str) -> Result<String, Vec<String>> {
        let mut whole = String::with_capacity(text.len());
        let mut problems = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                whole.push_str(before);
                whole.push_str("${");
                rest = after;
                continue;
            }
            whole.push_str(before);
            let Some((inside, after)) = after.split_once('}') else {
                problems.push("a `${` has no `}`; write `$${` if none is meant".to_owned());
                return Err(problems);
            };
            rest = after;
            match self.variable(inside) {
                Ok(value) => whole.push_str(&value),
                Err(problem) => problems.push(problem),
            }
        }
        whole.push_str(rest);
        if problems.is_empty() {
            Ok(whole)
        } else {
            Err(problems)
        }
    }

    fn using(&mut self, name: &str, value: String) -> String {
        self.used.insert(name.to_owned(), value.clone());
        value
    }

    /// The variables whose values were put in since this was last asked, and these.
    pub(super) fn take_used(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.used)
    }

    /// The value for what stands between the braces.
    fn variable(&mut self, inside: &str) -> Result<String, String> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if name.starts_with("input:") {
            return Err("it asks for an input, which only an editor has; use `${VAR}`".to_owned());
        }
        if !is_name(name) {
            return Err("what stands between `${` and `}` is no name of a variable".to_owned());
        }
        let value = match ((self.vars)(name), default) {
            (Some(value), None) => self.using(name, value),
            (Some(value), Some(_)) if !value.is_empty() => self.using(name, value),
            (_, Some(default)) if default.contains("${") => {
                return Err(format!(
                    "the default of `{name}` holds another variable, which is not looked up"
                ));
            }
            (_, Some(default)) => default.to_owned(),
            (None, None) => {
                return Err(format!(
                    "`{name}` is not set; set it, or write `${{{name}:-default}}`"
                ));
            }
        };
        self.left = self.left.checked_sub(value.len()).ok_or_else(|| {
            format!("all that variables hold is more than {MOST} bytes together, with `{name}`")
        })?;
        Ok(value)
    }
}

/// The text with letters in place of each variable, and what they stand for. What shows an address
/// then takes them for a part of it.
pub(super) fn with_letters(text: &str) -> (String, Vec<(String, String)>) {
    let (mut whole, mut names, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, (inside, after))) = rest
        .split_once("${")
        .and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        let name = inside.split(":-").next().unwrap_or_default();
        let letters = format!("levityvariable{}x", "y".repeat(names.len()));
        whole.push_str(before);
        whole.push_str(&letters);
        names.push((letters, format!("${{{name}}}")));
        rest = after;
    }
    whole.push_str(rest);
    (whole, names)
}

fn is_name(name: &str) -> bool {
    const LONGEST: usize = 128;
    let mut bytes = name.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.len() <= LONGEST && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether a value looks as if a shell should have put a variable in: `$TOKEN`.
pub(super) fn looks_unexpanded(value: &str) -> bool {
    let upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    value
        .strip_prefix('$')
        .is_some_and(|name| name.len() > 2 && name.bytes().all(upper) && is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${A}".to_owned()),
            "BIG" => Some("x".repeat(MOST / 2)),
            _ => None,
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(
            Expand::new(&vars).expand(text).as_deref(),
            Ok(expected),
            "{text}"
        );
    }

    #[track_caller]
    fn fails(text: &str, expected: &[&str]) {
        let problems = Expand::new(&vars).expand(text).unwrap_err();
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn variables_are_put_in() {
        check("plain $A {A} $", "plain $A {A} $");
        check("a${A}b${env:A}", "a1b1");
        check("${NONE:-x y}${EMPTY:-z}${A:-w}", "x yz1");
        check("[${EMPTY}]${NONE:-}", "[]");
        check("$${A} $$${A}", "${A} $${A}");
        check("${TRICK}", "${A}");
    }

    #[test]
    fn what_cannot_be_put_in_is_named() {
        fails(
            "${NONE} and ${ALSO_NONE}",
            &["`NONE` is not set", "`ALSO_NONE` is not set"],
        );
        fails("hidden${A", &["no `}`"]);
        fails("${}", &["no name"]);
        fails("${a b}", &["no name"]);
        fails("${1}", &["no name"]);
        fails("${input:key}", &["an input"]);
        fails("${NONE:-${A}}", &["default of `NONE`"]);
        fails("${BIG}${BIG}${BIG}", &["more than"]);
    }

    #[test]
    fn shell_variables_are_noticed() {
        assert!(looks_unexpanded("$GITHUB_TOKEN"));
        for value in ["$", "$ecret", "$A1b", "x$TOKEN", "$TOKEN/x", "$1", "TOKEN"] {
            assert!(!looks_unexpanded(value), "{value}");
        }
    }
}
