//! Links between the pages of the book, and from READMEs to the pages.

use std::collections::BTreeSet;
use std::fs;

use crate::sources::{Source, root, sources};

/// Prefixes of absolute links to files and folders of this repository. READMEs use such links,
/// because a registry shows a README without the repository around it.
const OUR_FILES: [&str; 3] = [
    "https://github.com/levity-rs/levity/blob/main/",
    "https://github.com/levity-rs/levity/tree/main/",
    "https://raw.githubusercontent.com/levity-rs/levity/main/",
];

/// The page of the repository itself.
const OUR_PAGE: &str = "https://github.com/levity-rs/levity";

/// Returns the path of an absolute link to a file of this repository, relative to the root.
fn own_path(link: &str) -> Option<&str> {
    OUR_FILES
        .iter()
        .find_map(|prefix| link.strip_prefix(prefix))
}

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
        // A definition: `[name]: target`.
        if line.starts_with('[')
            && let Some((_, target)) = line.split_once("]: ")
        {
            found.push(target.trim().to_owned());
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
    pages.extend(readmes_of_crates());
    let mut own = 0;
    for page in &pages {
        for link in links(page) {
            own += usize::from(own_path(&link).is_some());
            if is_broken(page, &link) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(own > 60, "only {own} absolute links to this repository");
}

/// Returns `true` if a link does not lead to a file of this repository, or to no heading of it.
/// Links to other sites are never broken.
fn is_broken(page: &Source, link: &str) -> bool {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match own_path(file) {
        Some(path) => root().join(path),
        None if file == OUR_PAGE => return false,
        // A page of the repository that is no file, such as a list of issues, may not exist.
        None if file.starts_with(OUR_PAGE) => return true,
        None if link.contains("://") || link.starts_with("mailto:") => return false,
        None if file.is_empty() => root().join(&page.path),
        None => root().join(folder).join(file),
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
    !is_there || in_book && file.ends_with("README.md")
}

/// Returns the READMEs of the crates. The facade has the README of the repository.
fn readmes_of_crates() -> Vec<Source> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let path = format!("crates/{name}/README.md");
        let text = fs::read_to_string(root().join(&path))
            .unwrap_or_else(|error| panic!("{path}: {error}; each crate has a README"));
        found.push(Source { path, text });
    }
    found
}

#[test]
fn readmes_of_packages_have_absolute_links_only() {
    let mut relative = Vec::new();
    for page in readmes_of_crates() {
        for link in links(&page) {
            if !link.contains("://") && !link.starts_with('#') {
                relative.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(
        relative.is_empty(),
        "a registry cannot resolve these links:\n{}",
        relative.join("\n")
    );
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
