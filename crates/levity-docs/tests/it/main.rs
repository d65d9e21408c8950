//! Tests of an index of documents: files, searches, removal, crashes and several processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "chroma")]
mod chroma;
mod code;
mod crash;
#[cfg(feature = "folder")]
mod folder;
#[cfg(all(feature = "formats", target_os = "linux"))]
mod formats;
mod ranking;
mod store;
mod tools;
#[cfg(feature = "folder")]
mod watch;

use levity_docs::{
    Document, DocumentErrorKind, DocumentIndex, Passage, QuoteCheck, SearchOptions, TextKind,
};
use levity_test::WordEmbedder;

fn names(passages: &[Passage]) -> Vec<&str> {
    passages
        .iter()
        .map(|passage| passage.document.as_str())
        .collect()
}

async fn found(index: &DocumentIndex, question: &str, options: &SearchOptions) -> Vec<String> {
    let result = index.search(question, options).await.unwrap();
    result
        .passages
        .into_iter()
        .map(|passage| passage.document)
        .collect()
}

#[tokio::test]
async fn passages_keep_their_places_and_neighbors() {
    let index = DocumentIndex::in_memory().unwrap();
    let paragraph = "Some words about the harbour and its boats. ".repeat(25);
    let text = format!("# Tides\n\n{paragraph}\n\n## High water\n\nIt is at six.\n{paragraph}\n");
    let report = index.add(Document::new("tides.md", &*text)).await.unwrap();
    assert_eq!((report.added, report.unchanged), (1, 0));

    let all = index.passages("tides.md", 0, 100).await.unwrap();
    assert_eq!(all.len(), report.passages);
    for passage in &all {
        let (first, last) = passage.lines;
        let lines: Vec<_> = text.lines().skip(first as usize - 1).collect();
        let lines = lines[..(last - first) as usize + 1].join("\n");
        assert_eq!(
            passage.text,
            lines.trim_end(),
            "the text is that of its lines"
        );
    }
    let result = index
        .search("When is high water?", &SearchOptions::new())
        .await
        .unwrap();
    let best = &result.passages[0];
    assert_eq!(best.context, "Tides > High water");
    assert!(
        best.contains_quote("It is  at\nsix."),
        "white space may differ"
    );
    assert!(!best.contains_quote("It is at seven."));
    assert!(!best.contains_quote("  "), "an empty quote proves nothing");

    let near = index.fetch(best.id, 1).await.unwrap();
    let numbers: Vec<_> = near.iter().map(|passage| passage.number).collect();
    assert!(near.len() > 1 && numbers.is_sorted());
    assert!(
        index
            .fetch("p999".parse().unwrap(), 1)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn document_is_replaced_and_equal_text_is_not_indexed_again() {
    let index = DocumentIndex::in_memory().unwrap();
    let old = index
        .add(Document::new("a.txt", "The old anchor."))
        .await
        .unwrap();
    let same = index
        .add(Document::new("a.txt", "The old anchor."))
        .await
        .unwrap();
    assert_eq!((old.added, same.added, same.unchanged), (1, 0, 1));
    let options = SearchOptions::new();
    let id = index.search("anchor", &options).await.unwrap().passages[0].id;

    index
        .add(Document::new("a.txt", "The new sail."))
        .await
        .unwrap();
    assert!(found(&index, "anchor", &options).await.is_empty());
    assert_eq!(found(&index, "sail", &options).await, ["a.txt"]);
    // The id of the old passage is not that of another text.
    let check = index.check_quote(id, "The old anchor.").await.unwrap();
    assert_eq!(check, QuoteCheck::NoPassage);

    assert!(index.remove("a.txt").await.unwrap());
    assert!(found(&index, "sail", &options).await.is_empty());
    assert_eq!(index.status().await.unwrap(), Default::default());
}

#[tokio::test]
async fn filters_limit_documents() {
    let embedder = WordEmbedder::new().synonyms(["boat", "vessel"]);
    for index in [
        DocumentIndex::in_memory().unwrap(),
        DocumentIndex::in_memory().unwrap().with_embedder(embedder),
    ] {
        let day = |day: u64| levity_core::Timestamp::from_millis(day * 86_400_000);
        for (name, time) in [("docs/a.md", 1), ("docs/deep/b.md", 2), ("src/c.rs", 3)] {
            let document = Document::new(name, "A boat.").changed(day(time));
            index.add(document).await.unwrap();
        }
        let check = async |options: SearchOptions, expected: &[&str]| {
            let mut names = found(&index, "boat", &options).await;
            names.sort();
            assert_eq!(names, expected, "{options:?}");
        };
        let all = SearchOptions::new;
        check(all(), &["docs/a.md", "docs/deep/b.md", "src/c.rs"]).await;
        check(all().path("docs/*"), &["docs/a.md", "docs/deep/b.md"]).await;
        check(all().path("docs/?.md"), &["docs/a.md"]).await;
        check(all().kind(TextKind::Code), &["src/c.rs"]).await;
        check(all().changed_after(day(2)), &["src/c.rs"]).await;
        check(
            all().changed_after(day(1)).kind(TextKind::Markdown),
            &["docs/deep/b.md"],
        )
        .await;
        check(all().limit(0), &[]).await;
        check(all().path("nothing*"), &[]).await;
    }
}

#[tokio::test]
async fn filter_finds_frequent_words_if_rare_ones_are_elsewhere() {
    let index = DocumentIndex::in_memory().unwrap();
    for n in 0..40 {
        let text = if n == 3 {
            "A zebra at low tide."
        } else {
            "The low tide."
        };
        index
            .add(Document::new(format!("{n}.txt"), text))
            .await
            .unwrap();
    }
    // A replaced document has new chunks after those of the others.
    index
        .add(Document::new("5.txt", "The low tide of May."))
        .await
        .unwrap();
    index.add(Document::new("empty.txt", "")).await.unwrap();
    index.remove("6.txt").await.unwrap();
    let options = SearchOptions::new().limit(40);
    for (path, expected) in [
        ("3.txt", &["3.txt"][..]),
        ("5.txt", &["5.txt"]),
        ("[567].txt", &["7.txt", "5.txt"]),
        ("6.txt", &[]),
        ("empty.txt", &[]),
    ] {
        let options = options.clone().path(path);
        assert_eq!(
            found(&index, "zebra tide", &options).await,
            expected,
            "{path}"
        );
    }
    let all = options.clone().path("*");
    assert_eq!(found(&index, "low tide", &all).await.len(), 39);
    // More ranges of chunks than are searched one by one.
    for n in 40..240 {
        index
            .add(Document::new(format!("{n}.txt"), "The low tide."))
            .await
            .unwrap();
    }
    let even = options.path("*[02468].txt").limit(1_000);
    let names = found(&index, "zebra tide", &even).await;
    assert_eq!(names.len(), 119);
    let documents = index.documents("", 1_000).await.unwrap();
    assert_eq!(
        documents
            .iter()
            .map(|document| document.passages)
            .sum::<u64>(),
        239
    );
}

#[tokio::test]
async fn search_by_meaning_finds_other_words_and_its_failure_leaves_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("documents.db");
    let index = DocumentIndex::open(&path).unwrap();
    index
        .add(Document::new("a.txt", "The vessel is blue."))
        .await
        .unwrap();
    index
        .add(Document::new("b.txt", "The cat is grey."))
        .await
        .unwrap();
    let options = SearchOptions::new();
    assert!(found(&index, "boat", &options).await.is_empty());

    let embedder = WordEmbedder::new().synonyms(["boat", "vessel"]);
    let index = index.with_embedder(embedder);
    assert!(
        found(&index, "boat", &options).await.is_empty(),
        "there are no vectors yet"
    );
    assert_eq!(index.embed_missing().await.unwrap().passages, 2);
    assert_eq!(index.embed_missing().await.unwrap().passages, 0);
    assert_eq!(found(&index, "boat", &options).await[0], "a.txt");
    assert_eq!(index.status().await.unwrap().vectors, 2);

    // The index of another process sees new vectors.
    let other = DocumentIndex::open(&path).unwrap();
    let other = other.with_embedder(WordEmbedder::new().synonyms(["boat", "vessel"]));
    assert_eq!(found(&other, "boat", &options).await[0], "a.txt");
    index.add(Document::new("c.txt", "vessel")).await.unwrap();
    assert_eq!(found(&other, "boat", &options).await[0], "c.txt");
    index.remove("c.txt").await.unwrap();
    assert_eq!(found(&other, "boat", &options).await[0], "a.txt");
}

#[tokio::test]
async fn diversity_moves_copies_behind_other_passages() {
    let embedder = WordEmbedder::new();
    let index = DocumentIndex::in_memory().unwrap().with_embedder(embedder);
    for (name, text) in [
        ("a.txt", "The blue boat sails fast today"),
        ("copy.txt", "The blue boat sails fast today again"),
        ("other.txt", "A boat needs paint"),
    ] {
        index.add(Document::new(name, text)).await.unwrap();
    }
    let plain = index
        .search("blue boat sails", &SearchOptions::new())
        .await
        .unwrap();
    assert_eq!(names(&plain.passages)[2], "other.txt");
    let options = SearchOptions::new().diversity(0.7);
    let spread = index.search("blue boat sails", &options).await.unwrap();
    assert_eq!(names(&spread.passages)[1], "other.txt");
}

#[tokio::test]
async fn question_is_never_search_syntax() {
    let index = DocumentIndex::in_memory().unwrap();
    index
        .add(Document::new("a.txt", "tea AND coffee"))
        .await
        .unwrap();
    for question in [
        "\"",
        "tea\" OR \"x",
        "text:*",
        "NEAR(",
        "\0",
        "' ; DROP TABLE words",
        "AND",
        "",
    ] {
        index.search(question, &SearchOptions::new()).await.unwrap();
        index
            .search("tea", &SearchOptions::new().path(question))
            .await
            .unwrap();
    }
    assert_eq!(
        found(&index, "\"tea\" (", &SearchOptions::new()).await,
        ["a.txt"]
    );
}

#[tokio::test]
async fn invalid_documents_and_files_are_refused() {
    let index = DocumentIndex::in_memory().unwrap();
    for name in [String::new(), "  ".into(), "x".repeat(2_000)] {
        let error = index.add(Document::new(name, "text")).await.unwrap_err();
        assert_eq!(error.kind(), DocumentErrorKind::Refused, "{error}");
    }
    let large = index
        .add(Document::new("a.txt", "x".repeat((64 << 20) + 1)))
        .await;
    assert_eq!(large.unwrap_err().kind(), DocumentErrorKind::Refused);
    assert_eq!(index.status().await.unwrap().documents, 0);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.db");
    std::fs::write(&path, "This is a letter, and no index at all. ".repeat(9)).unwrap();
    let error = DocumentIndex::open(&path).unwrap_err();
    assert_eq!(error.kind(), DocumentErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("letter.db"));
}

#[tokio::test]
async fn removed_text_is_in_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let index = DocumentIndex::open(folder.path().join("documents.db")).unwrap();
    for n in 0..50 {
        let text = format!("Number {n} of the ordinary texts. ").repeat(40);
        index
            .add(Document::new(format!("{n}.txt"), text))
            .await
            .unwrap();
    }
    index
        .add(Document::new("secret.txt", "xyzzyplugh is the word"))
        .await
        .unwrap();
    index
        .add(Document::new("changed.txt", "frotzozmoo was the word"))
        .await
        .unwrap();
    index
        .add(Document::new("changed.txt", "another word"))
        .await
        .unwrap();
    index.remove("secret.txt").await.unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for word in ["xyzzyplugh", "frotzozmoo"] {
            let found = bytes
                .windows(word.len())
                .any(|part| part == word.as_bytes());
            assert!(!found, "{word} is in {}", path.display());
        }
    }
}

#[tokio::test]
async fn documents_are_listed_in_pages() {
    let index = DocumentIndex::in_memory().unwrap();
    let all = (0..25).map(|n| Document::new(format!("{n:02}.txt"), format!("Text {n}.")));
    assert_eq!(index.add_all(all.collect()).await.unwrap().added, 25);
    let first = index.documents("", 10).await.unwrap();
    let next = index.documents(&first[9].name, 100).await.unwrap();
    assert_eq!((first.len(), next.len()), (10, 15));
    assert_eq!(next[0].name, "10.txt");
    assert_eq!(next[0].passages, 1);
}
