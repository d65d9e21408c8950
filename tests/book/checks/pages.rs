//! Links between the pages of the book.

use std::collections::BTreeSet;
use std::fs;

use crate::sources::{Source, root, sources};

/// Returns the targets of the links of a page, outside of code.
fn links(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in source.text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        // Text between backticks is code and has no links.
        let line: String = line.split('`').step_by(2).collect();
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let target = after.split(')').next().unwrap_or("");
            found.push(target.to_owned());
            rest = after;
        }
    }
    found
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    let mut pages = sources(&["docs"], ".md");
    for name in [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "examples/README.md",
    ] {
        let text = fs::read_to_string(root().join(name)).unwrap();
        pages.push(Source {
            path: name.to_owned(),
            text,
        });
    }
    for page in &pages {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for link in links(page) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => root().join(&page.path),
                _ => root().join(folder).join(file),
            };
            let is_there = match (target.exists(), anchor) {
                (there, "") => there,
                (false, _) => false,
                (true, anchor) => {
                    fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor))
                }
            };
            // mdBook renders this page as `index.html` but does not change links to it.
            let in_book = page.path.starts_with("docs/");
            if !is_there || in_book && file.ends_with("README.md") {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn summary_lists_every_page_by_its_title() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut missing = Vec::new();
    for page in sources(&["docs"], ".md") {
        let path = page.path.strip_prefix("docs/").unwrap();
        let title = page
            .text
            .lines()
            .find_map(|line| line.strip_prefix("# "))
            .unwrap_or("");
        let title = if path == "decisions/index.md" {
            "Decisions"
        } else {
            title
        };
        if path != "SUMMARY.md" && !summary.contains(&format!("[{title}]({path})")) {
            missing.push(format!("[{title}]({path})"));
        }
    }
    assert!(
        missing.is_empty(),
        "docs/SUMMARY.md lacks:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_rust_block_is_compiled() {
    let mut problems = Vec::new();
    for page in sources(&["docs"], ".md") {
        let path = page.path.strip_prefix("docs/").unwrap();
        let blocks = || {
            page.text
                .lines()
                .map(str::trim_start)
                .filter(|l| l.starts_with("```rust"))
        };
        if path.starts_with("decisions/") {
            continue;
        }
        if blocks().next().is_some() && !levity_book::PAGES.contains(&path) {
            problems.push(format!("{path} is not in tests/book/src/lib.rs"));
        }
        if blocks().any(|block| block.contains("ignore")) {
            problems.push(format!("{path} has a block that is ignored"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
