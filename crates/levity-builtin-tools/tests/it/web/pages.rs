//! Tests with pages of many kinds, against expected texts and a reference reader.

use std::collections::HashMap;
use std::path::PathBuf;

use levity_builtin_tools::WebFetch;
use serde_json::json;

use super::server::{Answer, Server};
use super::{call, dispatcher};

/// The minimum share of words in common with the reference reader, by page: twice the common words,
/// divided by the words of both. The difference to 1 is mostly additional text on our side: image
/// texts, headings that repeat the title, and the last entry of the listing, which the other reader
/// omits. The reference reader finds nothing in a page made by scripts.
const PAGES: &[(&str, f64)] = &[
    ("news", 0.92),
    ("docs", 0.97),
    ("forum", 0.97),
    ("wiki", 0.95),
    ("blog", 0.97),
    ("recipe", 0.93),
    ("product", 0.95),
    ("listing", 0.85),
    ("spa", 0.0),
    ("windows-1252", 0.95),
    ("shift-jis", 0.98),
    ("utf-16", 0.98),
];

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/web")
        .join(name)
}

fn words(text: &str) -> HashMap<String, usize> {
    let mut words = HashMap::new();
    let is_wide = |c: char| ('\u{2e80}'..='\u{9fff}').contains(&c);
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        // Without spaces, every character is a word.
        let parts: Vec<String> = match word.chars().any(is_wide) {
            true => word.chars().map(String::from).collect(),
            false => vec![word.to_lowercase()],
        };
        parts
            .into_iter()
            .for_each(|part| *words.entry(part).or_default() += 1);
    }
    words
}

/// Returns the Markdown of a page without the addresses of its links.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + " " + part.split_once(')').map_or("", |(_, rest)| rest)
    })
}

fn similarity(ours: &str, theirs: &str) -> f64 {
    let (ours, theirs) = (words(&without_addresses(ours)), words(theirs));
    let both: usize = ours
        .iter()
        .map(|(word, count)| *count.min(theirs.get(word).unwrap_or(&0)))
        .sum();
    let all = ours.values().sum::<usize>() + theirs.values().sum::<usize>();
    2.0 * both as f64 / all.max(1) as f64
}

async fn text_of(name: &str) -> String {
    let page = std::fs::read(fixture(&format!("{name}.html"))).unwrap();
    let server = Server::start(&[("/dir/page", Answer::html(page))]).await;
    let tool = WebFetch::builder()
        .guard(server.guard().build().unwrap())
        .build();
    let result = call(
        &dispatcher(tool).0,
        "web_fetch",
        json!({"url": server.url("/dir/page")}),
    )
    .await;
    let value = result.value.unwrap_or_else(|| panic!("{name}: no value"));
    let title = value["title"].as_str().unwrap_or_default();
    let text = value["text"]
        .as_str()
        .unwrap_or_default()
        .replace(&server.url("/"), "https://example.org/");
    format!("Title: {title}\n\n{text}\n")
}

/// Set `LEVITY_WRITE_PAGES=1` to write the expected texts anew; review the difference before
/// committing it.
#[tokio::test]
async fn pages_match_expected_texts() {
    for (name, _) in PAGES {
        let (found, file) = (text_of(name).await, fixture(&format!("{name}.md")));
        if std::env::var_os("LEVITY_WRITE_PAGES").is_some() {
            std::fs::write(&file, &found).unwrap();
        }
        assert_eq!(
            found,
            std::fs::read_to_string(&file).unwrap_or_default(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn pages_agree_with_reference_reader() {
    let mut report = Vec::new();
    for (name, bound) in PAGES {
        let theirs = std::fs::read_to_string(fixture(&format!("{name}.reference.txt"))).unwrap();
        let ours = text_of(name).await;
        let ours = ours.split_once("\n\n").map_or("", |(_, text)| text);
        let similarity = similarity(ours, &theirs);
        report.push(format!(
            "{name}: {similarity:.3} of {bound}{}",
            if similarity < *bound {
                " TOO LITTLE"
            } else {
                ""
            }
        ));
    }
    assert!(
        report.iter().all(|line| !line.ends_with("LITTLE")),
        "{}",
        report.join("\n")
    );
}
