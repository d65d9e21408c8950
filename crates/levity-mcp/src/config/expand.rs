//! Expansion of `${VAR}` in settings.
//!
//! The syntax is the one that other programs share, plus defaults as in a shell:
//!
//! ```text
//! ${TOKEN}             the value; a problem if it is not set
//! ${env:TOKEN}         the same
//! ${TOKEN:-none}       the value, or `none` if it is not set or empty
//! $${TOKEN}            the text `${TOKEN}` itself
//! ```
//!
//! A value is inserted as it is and not expanded again, so a variable cannot read another one. The
//! values in use are recorded: their names are shown to a person, and secrets among them are
//! masked.

use std::collections::BTreeMap;

/// The maximum number of bytes that one configuration may expand to. A file could name a large
/// variable any number of times.
const MAX_BYTES: usize = 4 << 20;
/// The maximum number of variables in one value. No setting needs as many, and each one takes part
/// in the display of the value.
const MAX_VARIABLES: usize = 100;
/// The start of a placeholder; its number and its end follow. All are letters, which may be part of
/// a host or a path.
const PLACEHOLDER: &str = "levityvariable";
/// The end of a placeholder, which occurs in no number.
const PLACEHOLDER_END: char = 'x';

/// Expands variables with values from a lookup function.
pub(super) struct Expander<'a> {
    vars: &'a dyn Fn(&str) -> Option<String>,
    remaining: usize,
    /// The expanded variables with their values.
    used: BTreeMap<String, String>,
}

impl<'a> Expander<'a> {
    /// Creates an expander for one configuration, with a budget of 4 MiB for all values.
    pub(super) fn new(vars: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            vars,
            remaining: MAX_BYTES,
            used: BTreeMap::new(),
        }
    }

    /// Replaces `${VAR}`, `${env:VAR}` and `${VAR:-default}` with values; `$${` produces `${`
    /// itself. Values of variables are not expanded again.
    ///
    /// # Errors
    /// Returns every reason why the expansion failed; none contains the text around the variables.
    pub(super) fn expand(&mut self, text: &str) -> Result<String, Vec<String>> {
        let mut whole = String::with_capacity(text.len());
        let mut problems = Vec::new();
        let (mut rest, mut count) = (text, 0);
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
                problems.push("a `${` has no `}`; write `$${` for a literal `${`".to_owned());
                return Err(problems);
            };
            rest = after;
            count += 1;
            if count > MAX_VARIABLES {
                problems.push(format!(
                    "it contains more than {MAX_VARIABLES} variables; use fewer"
                ));
                return Err(problems);
            }
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

    /// Remembers the variable with its value.
    fn record_use(&mut self, name: &str, value: String) -> String {
        self.used.insert(name.to_owned(), value.clone());
        value
    }

    /// Returns the variables expanded since the last call, with their values.
    pub(super) fn take_used(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.used)
    }

    /// Returns the value for the text between the braces.
    fn variable(&mut self, inside: &str) -> Result<String, String> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if name.starts_with("input:") {
            return Err(
                "it asks for an input, which only an editor supports; use `${VAR}`".to_owned(),
            );
        }
        if !is_name(name) {
            return Err("the text between `${` and `}` is not a variable name".to_owned());
        }
        let value = match ((self.vars)(name), default) {
            (Some(value), None) => self.record_use(name, value),
            (Some(value), Some(_)) if !value.is_empty() => self.record_use(name, value),
            (_, Some(default)) if default.contains("${") => {
                return Err(format!(
                    "the default of `{name}` contains another variable, which is not expanded"
                ));
            }
            (_, Some(default)) => default.to_owned(),
            (None, None) => {
                return Err(format!(
                    "`{name}` is not set; set it, or write `${{{name}:-default}}`"
                ));
            }
        };
        self.remaining = self.remaining.checked_sub(value.len()).ok_or_else(|| {
            format!(
                "the variables expand to more than {MAX_BYTES} bytes in total at `{name}`; use \
                shorter values"
            )
        })?;
        Ok(value)
    }
}

/// Replaces each variable with a placeholder of letters, and returns the variables by the numbers
/// of their placeholders. The display of a URL then treats them as part of it.
pub(super) fn with_placeholders(text: &str) -> (String, BTreeMap<String, String>) {
    let (mut whole, mut names, mut rest) = (String::new(), BTreeMap::new(), text);
    while let Some((before, (inside, after))) = rest
        .split_once("${")
        .and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        let name = inside.split(":-").next().unwrap_or_default();
        // A binary number in letters: with digits, a part of a path would look like a key.
        let number = format!("{:b}", names.len())
            .replace('0', "y")
            .replace('1', "z");
        whole.push_str(before);
        whole.push_str(PLACEHOLDER);
        whole.push_str(&number);
        whole.push(PLACEHOLDER_END);
        names.insert(number, format!("${{{name}}}"));
        rest = after;
    }
    whole.push_str(rest);
    (whole, names)
}

/// Replaces the placeholders that are left in a text with their variables, in one pass.
pub(super) fn restore_variables(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut parts = text.split(PLACEHOLDER);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let found = part
            .split_once(PLACEHOLDER_END)
            .and_then(|(number, after)| Some((names.get(number)?.as_str(), after)));
        let (name, after) = found.unwrap_or((PLACEHOLDER, part));
        whole.push_str(name);
        whole.push_str(after);
    }
    whole
}

/// Returns `true` for letters, digits and `_`, not starting with a digit, up to 128 bytes.
fn is_name(name: &str) -> bool {
    const MAX_LEN: usize = 128;
    let mut bytes = name.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.len() <= MAX_LEN && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns `true` if a value looks like a variable of a shell: `$TOKEN`.
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
            "BIG" => Some("x".repeat(MAX_BYTES / 2)),
            _ => None,
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(
            Expander::new(&vars).expand(text).as_deref(),
            Ok(expected),
            "{text}"
        );
    }

    #[track_caller]
    fn fails(text: &str, expected: &[&str]) {
        let problems = Expander::new(&vars).expand(text).unwrap_err();
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn expand_replaces_variables_and_defaults() {
        check("plain $A {A} $", "plain $A {A} $");
        check("a${A}b${env:A}", "a1b1");
        check("${NONE:-x y}${EMPTY:-z}${A:-w}", "x yz1");
        check("[${EMPTY}]${NONE:-}", "[]");
        check("$${A} $$${A}", "${A} $${A}");
        check("${TRICK}", "${A}");
    }

    #[test]
    fn expand_reports_every_invalid_variable() {
        fails(
            "${NONE} and ${ALSO_NONE}",
            &["`NONE` is not set", "`ALSO_NONE` is not set"],
        );
        fails("hidden${A", &["no `}`"]);
        fails("${}", &["not a variable name"]);
        fails("${a b}", &["not a variable name"]);
        fails("${1}", &["not a variable name"]);
        fails("${input:key}", &["an input"]);
        fails("${NONE:-${A}}", &["default of `NONE`"]);
        fails("${BIG}${BIG}${BIG}", &["more than"]);
    }

    #[test]
    fn expand_limits_number_of_variables() {
        check(&"${NONE:-}".repeat(MAX_VARIABLES), "");
        check(&"$${A}".repeat(1_000), &"${A}".repeat(1_000));
        fails(
            &"${A:-}".repeat(90_000),
            &["more than 100 variables; use fewer"],
        );
    }

    #[test]
    fn restore_variables_returns_original_names() {
        for text in [
            "",
            "plain",
            "${A}",
            "a${A}b${B}${A}c",
            "levityvariable${A}x",
        ] {
            let (placeholders, names) = with_placeholders(text);
            assert!(!placeholders.contains(['$', '{', '}']), "{placeholders}");
            assert_eq!(restore_variables(&placeholders, &names), text);
        }
        let (placeholders, names) = with_placeholders("${A:-b}/${C}");
        let (_, second) = placeholders.split_once('/').unwrap();
        assert_eq!(
            restore_variables(second, &names),
            "${C}",
            "the first one is hidden"
        );
    }

    #[test]
    fn with_placeholders_of_many_variables_stays_short() {
        const COUNT: usize = 90_000;
        let text = "${A}".repeat(COUNT);
        let (placeholders, names) = with_placeholders(&text);
        assert!(
            placeholders.len() < COUNT * 40,
            "{} bytes",
            placeholders.len()
        );
        // With one pass for each variable, more than 200 GB would be read.
        assert_eq!(restore_variables(&placeholders, &names), text);
    }

    #[test]
    fn looks_unexpanded_detects_shell_variables() {
        assert!(looks_unexpanded("$GITHUB_TOKEN"));
        for value in ["$", "$ecret", "$A1b", "x$TOKEN", "$TOKEN/x", "$1", "TOKEN"] {
            assert!(!looks_unexpanded(value), "{value}");
        }
    }
}
