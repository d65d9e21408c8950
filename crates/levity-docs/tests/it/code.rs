//! Parts of words in code.

use levity_docs::{Document, DocumentIndex, SearchOptions, TextKind};

use crate::found;

async fn sources() -> DocumentIndex {
    let index = DocumentIndex::in_memory().unwrap();
    for (name, text) in [
        ("a.rs", "fn tokio_parse_config() {}\n"),
        ("b.ts", "function getUserName() {}\n"),
        ("c.md", "The reconfiguration of the usernames.\n"),
        ("d.rs", "fn xabcax() { cabdx(); }\n"),
    ] {
        index.add(Document::new(name, text)).await.unwrap();
    }
    // Otherwise, a word in two documents would be a frequent one.
    let more = (0..40).map(|n| Document::new(format!("{n}.txt"), "Nothing of interest."));
    index.add_all(more.collect()).await.unwrap();
    index
}

#[tokio::test]
async fn parts_of_words_find_code() {
    let index = sources().await;
    let options = SearchOptions::new();
    for (question, expected) in [
        ("parse_conf", &["a.rs"][..]),
        ("kio_par", &["a.rs"]),
        ("conf", &["a.rs"]),
        ("CONF", &["a.rs"]),
        ("what is the user name", &["b.ts"]),
        ("serName", &["b.ts"]),
        ("getUserName", &["b.ts"]),
        // Parts of fewer than four letters say too little, and prose has only words.
        ("rse", &[]),
        ("figuration", &[]),
        // All trigrams are in the text, and the word is not.
        ("abcabd", &[]),
        ("parse nothing\" OR \"conf", &["a.rs"]),
    ] {
        let names = found(&index, question, &options).await;
        let names: Vec<_> = names
            .iter()
            .filter(|name| !name.ends_with(".txt"))
            .collect();
        assert_eq!(names, expected, "{question}");
    }
    let none = options.clone().kind(TextKind::Markdown);
    assert!(found(&index, "conf", &none).await.is_empty());
}

#[tokio::test]
async fn removed_and_changed_code_leaves_no_parts() {
    let index = sources().await;
    let options = SearchOptions::new();
    index
        .add(Document::new("a.rs", "fn tokio_read_setting() {}\n"))
        .await
        .unwrap();
    assert!(found(&index, "parse_conf", &options).await.is_empty());
    assert_eq!(found(&index, "ettin", &options).await, ["a.rs"]);
    // The same text as prose has no parts.
    let prose = Document::new("a.rs", "fn tokio_read_setting() {}\n").kind(TextKind::Prose);
    index.add(prose).await.unwrap();
    assert!(found(&index, "ettin", &options).await.is_empty());
    assert!(index.remove("b.ts").await.unwrap());
    assert!(found(&index, "serName", &options).await.is_empty());
    index.wipe().await.unwrap();
}

#[tokio::test]
async fn words_are_better_matches_than_parts() {
    let index = sources().await;
    index
        .add(Document::new("e.md", "The weather of the user.\n"))
        .await
        .unwrap();
    index
        .add(Document::new("f.md", "A name for the config.\n"))
        .await
        .unwrap();
    let options = SearchOptions::new();
    let names = found(&index, "config of user", &options).await;
    assert_eq!(names.last().map(String::as_str), Some("b.ts"), "{names:?}");
    let names = found(&index, "the name", &options).await;
    assert_eq!(names, ["f.md", "b.ts"]);
}

#[tokio::test]
async fn removed_code_leaves_no_trigrams_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("documents.db");
    let index = DocumentIndex::open(&path).unwrap();
    let add = async |text: &str| index.add(Document::new("a.rs", text)).await.unwrap();
    let found = |trigram: &str| {
        let file = rusqlite::Connection::open(&path).unwrap();
        let count = "SELECT count(*) FROM parts WHERE parts MATCH ?1";
        let count = file.query_row(count, [trigram], |row| row.get::<_, i64>(0));
        count.unwrap()
    };
    add("fn quux() {}").await;
    assert_eq!((found("quu"), found("zyx")), (1, 0));
    add("fn zyxw() {}").await;
    assert_eq!((found("quu"), found("zyx")), (0, 1));
    index.remove("a.rs").await.unwrap();
    assert_eq!((found("quu"), found("zyx")), (0, 0));
}
