//! Suggestions for a model whose text is not in the file.
//!
//! An edit fails if its text is not in the file exactly. The error then contains what the model
//! needs for its next attempt: the same text with its real white space, or the most similar line.
//! Work is bounded: 20,000 lines, 400 characters of each.

use std::collections::HashMap;

use super::display;

/// The maximum number of lines compared, and of characters compared in each.
const MAX_LINES: usize = 20_000;
const MAX_LINE: usize = 400;
/// The maximum number of quoted lines.
const MAX_QUOTE: usize = 40;

/// Returns the place of the text most similar to `old`, and the next step.
pub(super) fn suggest(text: &[u8], old: &str) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    if let Some((first, count)) = find_ignoring_space(&lines, old) {
        let quote = quote(&lines[first..first + count]);
        let place = place(first, count);
        return format!(
            "it occurs with other white space in {place}; give it exactly as it is:\n{quote}"
        );
    }
    match closest(&lines, old) {
        Some(at) => {
            let line = display::line(lines[at].as_bytes(), MAX_LINE);
            format!(
                "the closest line is {}: `{}`; read the file again and give the text exactly",
                at + 1,
                line.trim()
            )
        }
        None => "read the file again and give the text exactly".to_owned(),
    }
}

/// Formats a range of lines, counted from 1.
fn place(first: usize, count: usize) -> String {
    match count {
        1 => format!("line {}", first + 1),
        _ => format!("lines {}-{}", first + 1, first + count),
    }
}

/// Quotes at most 40 lines, each shortened.
fn quote(lines: &[&str]) -> String {
    let display: Vec<_> = lines
        .iter()
        .take(MAX_QUOTE)
        .map(|line| display::line(line.as_bytes(), MAX_LINE))
        .collect();
    let more = if lines.len() > MAX_QUOTE { "\n…" } else { "" };
    format!("{}{more}", display.join("\n"))
}

/// Finds the first lines that differ from `old` only in white space.
fn find_ignoring_space(lines: &[&str], old: &str) -> Option<(usize, usize)> {
    let without_space = |line: &str| line.split_whitespace().collect::<String>();
    let searched: Vec<String> = old.trim().lines().map(without_space).collect();
    let first = searched.first().filter(|line| !line.is_empty())?;
    if searched.len() == 1 {
        return lines
            .iter()
            .position(|line| without_space(line).contains(first.as_str()))
            .map(|at| (at, 1));
    }
    if searched.len() > lines.len() {
        return None;
    }
    // Equal lines get equal numbers, because a long `old` is compared at many places.
    let mut numbers = HashMap::new();
    let mut number = |line: String| {
        let next = numbers.len();
        *numbers.entry(line).or_insert(next)
    };
    let searched: Vec<usize> = searched.into_iter().map(&mut number).collect();
    let numbered: Vec<usize> = lines
        .iter()
        .map(|line| number(without_space(line)))
        .collect();
    numbered
        .windows(searched.len())
        .position(|place| place == searched)
        .map(|at| (at, searched.len()))
}

/// Returns the line most similar to the longest line of `old`, if it is similar enough.
fn closest(lines: &[&str], old: &str) -> Option<usize> {
    const MIN_SIMILARITY: f64 = 0.6;
    let short = |line: &str| line.trim().chars().take(MAX_LINE).collect::<String>();
    let searched = short(old.lines().max_by_key(|line| line.trim().len())?);
    let similarity = |line: &&str| strsim::sorensen_dice(&searched, &short(line));
    let best = lines
        .iter()
        .map(similarity)
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
    (best.1 >= MIN_SIMILARITY).then_some(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "fn main() {\n    let total = add(1, 2);\n\tprintln!(\"{total}\");\n}\n";

    #[track_caller]
    fn check(old: &str, expected: &str) {
        assert_eq!(suggest(FILE.as_bytes(), old), expected);
    }

    #[test]
    fn suggestion_quotes_text_with_other_white_space() {
        check(
            "let total = add(1, 2);\nprintln!(\"{total}\");\n",
            "it occurs with other white space in lines 2-3; give it exactly as it is:\n    let \
                total = add(1, 2);\n\t\
             println!(\"{total}\");",
        );
        check(
            "let  total = add(1,2);",
            "it occurs with other white space in line 2; give it exactly as it is:\n    let \
                total = add(1, 2);",
        );
    }

    #[test]
    fn suggestion_finds_long_text_among_similar_lines() {
        let file = "  same\n".repeat(15_000) + "last\nend\n";
        let found = |old: &str| suggest(file.as_bytes(), old);
        assert!(found(&("same\n".repeat(9000) + "other")).starts_with("read the file again"));
        let text = found(&("same\n".repeat(9000) + "la st\nend"));
        assert!(
            text.starts_with("it occurs with other white space in lines 6001-15002;"),
            "{text}"
        );
    }

    #[test]
    fn suggestion_names_closest_line() {
        check(
            "    let totals = add(1, 2);",
            "the closest line is 2: `let total = add(1, 2);`; read the file again and give the \
                text exactly",
        );
        check(
            "struct Nothing;",
            "read the file again and give the text exactly",
        );
        check(" \n ", "read the file again and give the text exactly");
    }
}
