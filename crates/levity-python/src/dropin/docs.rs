//! Parsing of the docstrings of Python functions.
//!
//! The first paragraph describes the tool; parameter sections describe its arguments. Other
//! sections, such as `Returns:`, are skipped. A docstring in no known style has a description and
//! no parameters.

use std::collections::BTreeMap;

/// The parts of a docstring.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Docs {
    /// The first paragraph, joined into one line.
    pub(super) description: String,
    /// The description of each parameter.
    pub(super) params: BTreeMap<String, String>,
}

impl Docs {
    /// Parses a docstring in Google, NumPy or reStructuredText style.
    pub(super) fn of(text: impl AsRef<str>) -> Self {
        let lines: Vec<&str> = text.as_ref().lines().map(str::trim_end).collect();
        let is_text = |line: &&&str| !line.trim().is_empty() && !begins_section(line);
        let first = lines.iter().skip_while(|line| line.trim().is_empty());
        let description: Vec<&str> = first.take_while(is_text).map(|line| line.trim()).collect();
        let mut params = rest(&lines);
        params.extend(sections(&lines));
        Self {
            description: description.join(" "),
            params,
        }
    }
}

fn begins_section(line: &str) -> bool {
    line.trim_start().starts_with(":param") || is_section(line)
}

const PARAMS: [&str; 4] = ["args:", "arguments:", "parameters:", "params:"];
/// The headings that end a parameter section, in lower case.
const OTHERS: [&str; 8] = [
    "returns:",
    "return:",
    "raises:",
    "yields:",
    "example:",
    "examples:",
    "note:",
    "notes:",
];

fn is_section(line: &str) -> bool {
    let line = line.trim().to_lowercase();
    PARAMS.contains(&&*line) || OTHERS.contains(&&*line)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Parses `:param name: text` entries and their indented lines.
fn rest(lines: &[&str]) -> BTreeMap<String, String> {
    let mut params = BTreeMap::new();
    let mut at: Option<(String, usize)> = None;
    for line in lines {
        if let Some((head, text)) = line
            .trim_start()
            .strip_prefix(":param ")
            .and_then(|line| line.split_once(':'))
        {
            let name = head
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned();
            params.insert(name.clone(), text.trim().to_owned());
            at = Some((name, indent(line)));
        } else if let Some((name, outer)) = &at {
            if line.trim().is_empty() || indent(line) <= *outer {
                at = None;
            } else if let Some(text) = params.get_mut(name) {
                add(text, line);
            }
        }
    }
    params
}

/// Parses the parameter section in Google or NumPy style.
fn sections(lines: &[&str]) -> BTreeMap<String, String> {
    let google = |line: &&str| PARAMS.contains(&&*line.trim().to_lowercase());
    if let Some(at) = lines.iter().position(google) {
        return entries(&lines[at + 1..], indent(lines[at]) + 1, |line| {
            line.split_once(':')
        });
    }
    let numpy = |pair: &[&str]| {
        pair[0].trim().eq_ignore_ascii_case("parameters") && pair[1].trim().starts_with("---")
    };
    match lines.windows(2).position(numpy) {
        Some(at) => entries(&lines[at + 2..], indent(lines[at]), |line| {
            Some((line.split_once(':').map_or(line, |(name, _)| name), ""))
        }),
        None => BTreeMap::new(),
    }
}

/// Parses entries at one indentation, each with its further indented lines, up to the next section.
fn entries(
    lines: &[&str],
    min_indent: usize,
    head: impl for<'a> Fn(&'a str) -> Option<(&'a str, &'a str)>,
) -> BTreeMap<String, String> {
    let mut params = BTreeMap::new();
    let (mut level, mut last) = (None, None::<String>);
    for (at, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let ruled = lines
            .get(at + 1)
            .is_some_and(|next| next.trim().starts_with("---"));
        if indent(line) < min_indent || is_section(line) || ruled {
            break;
        }
        if indent(line) > *level.get_or_insert(indent(line)) {
            if let Some(text) = last.as_ref().and_then(|name| params.get_mut(name)) {
                add(text, line);
            }
        } else if let Some((name, text)) = head(line.trim()) {
            // The name may be followed by a type and preceded by stars.
            let name = name
                .split(['(', ',', ' '])
                .next()
                .unwrap_or_default()
                .trim_start_matches('*');
            params.insert(name.to_owned(), text.trim().to_owned());
            last = Some(name.to_owned());
        }
    }
    params.retain(|_, text| !text.is_empty());
    params
}

/// Joins a continuation line to a text, with one space between them.
fn add(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line.trim());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, description: &str, params: &[(&str, &str)]) {
        let docs = Docs::of(text);
        assert_eq!(docs.description, description);
        let expected = params
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        assert_eq!(docs.params, expected.collect());
    }

    #[test]
    fn docstrings_of_three_styles_are_parsed() {
        check("Adds.", "Adds.", &[]);
        check("", "", &[]);
        check(
            "\n    Adds\n    numbers.\n\n    More.\n",
            "Adds numbers.",
            &[],
        );
        check(
            "Adds.\n\n    Args:\n        a (int): The first,\n            of two.\n        *b: The \
                second: it is.\n\n    Returns:\n        c: no\n",
            "Adds.",
            &[("a", "The first, of two."), ("b", "The second: it is.")],
        );
        check(
            "Adds.\n\n    Parameters\n    ----------\n    a : int\n        The first.\n    \
                b\n        The second,\n        too.\n\n    Returns\n    -------\n    int\n        \
                The sum.\n",
            "Adds.",
            &[("a", "The first."), ("b", "The second, too.")],
        );
        check(
            "Adds.\n    :param int a: The first\n        of two.\n    :param b: The second.\n    \
                :returns: The sum.",
            "Adds.",
            &[("a", "The first of two."), ("b", "The second.")],
        );
    }
}
