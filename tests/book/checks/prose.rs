//! Rates of the documentation, by crate.

use std::collections::BTreeMap;

use crate::sources::{Text, doc_comments, prose_of_page, sentences, sources};

/// Words that begin a sentence whose subject is a clause.
const CLAUSES: [&str; 8] = [
    "What", "How", "Whether", "Where", "Why", "Which", "Who", "Whoever",
];

/// Sentences of a hundred that may begin so.
const MAX_CLAUSES: f64 = 5.0;

/// Doc lines for each line of code: in every crate, and in `levity-core`.
const MIN_DOC_LINES: (f64, f64) = (0.25, 0.35);

/// Doc tests for each thousand lines of code: in every library, and in `levity-core` and `levity`.
const MIN_DOC_TESTS: (f64, f64) = (4.0, 10.0);

/// Crates with much code behind a few functions, which only levity's crates use. Each of these
/// functions has an example.
const FEW_ITEMS: [&str; 2] = ["levity-formats", "levity-html"];

/// Lines that are wider than 100 columns: output, commands and data in pages. Sources have none.
const MAX_WIDE_LINES: usize = 41;

const WIDTH: usize = 100;

fn begins_with_clause(sentence: &str) -> bool {
    let first = sentence
        .trim_start_matches(['"', '(', '*'])
        .split([' ', ','])
        .next()
        .unwrap_or("");
    // A question is none.
    CLAUSES.contains(&first) && !sentence.ends_with('?')
}

#[test]
fn sentences_begin_with_a_subject() {
    let mut texts: Vec<Text> = Vec::new();
    for source in sources(&["crates", "examples"], ".rs") {
        texts.extend(doc_comments(&source));
    }
    for source in sources(&["docs"], ".md") {
        texts.push(prose_of_page(&source));
    }
    let (mut all, mut clauses) = (0, Vec::new());
    for text in &texts {
        for sentence in sentences(&text.text) {
            all += 1;
            if begins_with_clause(&sentence) {
                clauses.push(format!("{}: {sentence}", text.place));
            }
        }
    }
    let rate = 100.0 * clauses.len() as f64 / f64::from(all);
    println!(
        "{} of {all} sentences begin with a clause: {rate:.1} %",
        clauses.len()
    );
    let shown = clauses
        .iter()
        .step_by(clauses.len() / 40 + 1)
        .cloned()
        .collect::<Vec<_>>();
    assert!(
        rate <= MAX_CLAUSES,
        "{rate:.1} %, for example:\n{}",
        shown.join("\n")
    );
}

#[derive(Default)]
struct Rates {
    code: usize,
    docs: usize,
    tests: usize,
}

#[test]
fn every_crate_is_documented() {
    let mut crates: BTreeMap<String, Rates> = BTreeMap::new();
    for source in sources(&["crates"], ".rs")
        .iter()
        .filter(|source| source.is_product())
    {
        let rates = crates.entry(source.package().to_owned()).or_default();
        let mut in_code = false;
        for line in source.product_lines().map(str::trim_start) {
            if line.starts_with("///") || line.starts_with("//!") {
                rates.docs += 1;
                if let Some(tags) = line[3..].trim_start().strip_prefix("```") {
                    let is_rust = ![
                        "ignore", "text", "console", "json", "toml", "python", "bash",
                    ]
                    .iter()
                    .any(|tag| tags.contains(tag));
                    rates.tests += usize::from(!in_code && is_rust);
                    in_code = !in_code;
                }
            } else if !line.is_empty() && !line.starts_with("//") {
                rates.code += 1;
            }
        }
    }
    let mut short = Vec::new();
    for (name, rates) in &crates {
        if FEW_ITEMS.contains(&name.as_str()) {
            continue;
        }
        let docs = rates.docs as f64 / rates.code as f64;
        let tests = 1000.0 * rates.tests as f64 / rates.code as f64;
        println!("{name}: {docs:.2} doc lines for a line of code, {tests:.1} doc tests for 1,000");
        let min_docs = if name == "levity-core" {
            MIN_DOC_LINES.1
        } else {
            MIN_DOC_LINES.0
        };
        let min_tests = match name.as_str() {
            "levity" | "levity-core" => MIN_DOC_TESTS.1,
            // A program has no doc tests.
            "levity-cli" => 0.0,
            _ => MIN_DOC_TESTS.0,
        };
        if docs < min_docs || tests < min_tests {
            short.push(format!("{name}: {docs:.2} doc lines, {tests:.1} doc tests"));
        }
    }
    assert!(
        short.is_empty(),
        "too little documentation:\n{}",
        short.join("\n")
    );
}

#[test]
fn doc_comments_have_four_words() {
    let mut short = Vec::new();
    for source in sources(&["crates"], ".rs")
        .iter()
        .filter(|source| source.is_product())
    {
        for comment in doc_comments(source) {
            let words = comment.text.split_whitespace().count();
            if (1..4).contains(&words) {
                short.push(format!("{}: {}", comment.place, comment.text.trim()));
            }
        }
    }
    println!("{} doc comments have fewer than four words", short.len());
    assert!(short.is_empty(), "{}", short.join("\n"));
}

#[test]
fn lines_are_narrow() {
    let mut wide = Vec::new();
    for source in sources(&["crates", "examples", "benches", "tests"], ".rs") {
        for (at, line) in source.text.lines().enumerate() {
            if line.chars().count() > WIDTH {
                wide.push(format!("{}:{}", source.path, at + 1));
            }
        }
    }
    for source in sources(&["docs"], ".md") {
        for (at, line) in source.text.lines().enumerate() {
            let is_table = line.trim_start().starts_with('|');
            if line.chars().count() > WIDTH && !is_table && !line.contains("](") {
                wide.push(format!("{}:{}", source.path, at + 1));
            }
        }
    }
    println!("{} lines are wider than {WIDTH} columns", wide.len());
    assert!(
        wide.len() <= MAX_WIDE_LINES,
        "{} lines:\n{}",
        wide.len(),
        wide.join("\n")
    );
}
