//! Names of tests.

use crate::sources::{Source, sources};

/// Words that do not occur in the name of a test: it names a unit, a condition and a result.
const UNCLEAR: [&str; 20] = [
    "told",
    "tell",
    "tells",
    "said",
    "says",
    "heard",
    "hears",
    "nobody",
    "somebody",
    "everybody",
    "whoever",
    "mend",
    "mended",
    "mends",
    "gone",
    "stands",
    "stand",
    "had",
    "anybody",
    "whatever",
];

fn is_unclear(name: &str) -> bool {
    let mut words = name.split('_');
    let first = words.next().unwrap_or("");
    let article = matches!(
        first,
        "a" | "an" | "the" | "what" | "how" | "whether" | "who"
    );
    article || name.split('_').any(|word| UNCLEAR.contains(&word))
}

fn tests_of(source: &Source) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ")
            && is_test
        {
            let name = rest.split(['(', '<']).next().unwrap_or("");
            names.push(name.to_owned());
            is_test = false;
        }
    }
    names
}

#[test]
fn test_names_have_unit_condition_and_result() {
    let mut all = 0;
    let mut unclear = Vec::new();
    for source in sources(&["crates", "tests", "examples"], ".rs") {
        for name in tests_of(&source) {
            all += 1;
            if is_unclear(&name) {
                unclear.push(format!("{}: {name}", source.path));
            }
        }
    }
    println!("{} of {all} names of tests are unclear", unclear.len());
    assert!(
        unclear.is_empty(),
        "{}:\n{}",
        unclear.len(),
        unclear.join("\n")
    );
}
