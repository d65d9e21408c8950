//! Help for a model whose text is not in the file.

use std::collections::HashMap;

use super::shown;

/// How many lines are compared, and how much of each.
const MAX_LINES: usize = 20_000;
const MAX_LINE: usize = 400;
/// How many lines are quoted.
const MAX_QUOTE: usize = 40;

/// Where something like `old` is, and what to do.
pub(super) fn help(text: &[u8], old: &str) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    if let Some((first, count)) = other_space(&lines, old) {
        let quote = quote(&lines[first..first + count]);
        let place = place(first, count);
        return format!(
            "it is there with other white space, in {place}; give it exactly as it is:\n{quote}"
        );
    }
    match closest(&lines, old) {
        Some(at) => {
            let line = shown::line(lines[at].as_bytes(), MAX_LINE);
            format!(
                "the closest line is {}: `{}`; read the file again and give the text exactly",
                at + 1,
                line.trim()
            )
        }
        None => "read the file again and give the text exactly".to_owned(),
    }
}

fn place(first: usize, count: usize) -> String {
    match count {
        1 => format!("line {}", first + 1),
        _ => format!("lines {}-{}", first + 1, first + count),
    }
}

fn quote(lines: &[&str]) -> String {
    let shown: Vec<_> = lines
        .iter()
        .take(MAX_QUOTE)
        .map(|line| shown::line(line.as_bytes(), MAX_LINE))
        .collect();
    let more = if lines.len() > MAX_QUOTE { "\n…" } else { "" };
    format!("{}{more}", shown.join("\n"))
}

/// The first lines that differ from `old` in white space only.
fn other_space(lines: &[&str], old: &str) -> Option<(usize, usize)> {
    let plain = |line: &str| line.split_whitespace().collect::<String>();
    let wanted: Vec<String> = old.trim().lines().map(plain).collect();
    let first = wanted.first().filter(|line| !line.is_empty())?;
    if wanted.len() == 1 {
        return lines
            .iter()
            .position(|line| plain(line).contains(first.as_str()))
            .map(|at| (at, 1));
    }
    if wanted.len() > lines.len() {
        return None;
    }
    // Equal lines get equal numbers: a long `old` is compared with many places.
    let mut numbers = HashMap::new();
    let mut number = |line: String| {
        let next = numbers.len();
        *numbers.entry(line).or_insert(next)
    };
    let wanted: Vec<usize> = wanted.into_iter().map(&mut number).collect();
    let here: Vec<usize> = lines.iter().map(|line| number(plain(line))).collect();
    here.windows(wanted.len())
        .position(|place| place == wanted)
        .map(|at| (at, wanted.len()))
}

/// The line most like the longest line of `old`, if it is like it at all.
fn closest(lines: &[&str], old: &str) -> Option<usize> {
    const LIKE: f64 = 0.6;
    let short = |line: &str| line.trim().chars().take(MAX_LINE).collect::<String>();
    let wanted = short(old.lines().max_by_key(|line| line.trim().len())?);
    let like = |line: &&str| strsim::sorensen_dice(&wanted, &short(line));
    let best = lines
        .iter()
        .map(like)
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
    (best.1 >= LIKE).then_some(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "fn main() {\n    let total = add(1, 2);\n\tprintln!(\"{total}\");\n}\n";

    #[track_caller]
    fn check(old: &str, expected: &str) {
        assert_eq!(help(FILE.as_bytes(), old), expected);
    }

    #[test]
    fn other_white_space_is_quoted() {
        check(
            "let total = add(1, 2);\nprintln!(\"{total}\");\n",
            "it is there with other white space, in lines 2-3; give it exactly as it is:\n    let \
                total = add(1, 2);\n\t\
             println!(\"{total}\");",
        );
        check(
            "let  total = add(1,2);",
            "it is there with other white space, in line 2; give it exactly as it is:\n    let \
                total = add(1, 2);",
        );
    }

    #[test]
    fn long_text_is_found_among_many_lines_that_are_alike() {
        let file = "  same\n".repeat(15_000) + "last\nend\n";
        let found = |old: &str| help(file.as_bytes(), old);
        assert!(found(&("same\n".repeat(9000) + "other")).starts_with("read the file again"));
        let text = found(&("same\n".repeat(9000) + "la st\nend"));
        assert!(
            text.starts_with("it is there with other white space, in lines 6001-15002;"),
            "{text}"
        );
    }

    #[test]
    fn the_closest_line_is_named() {
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
