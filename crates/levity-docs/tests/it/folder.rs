//! Tests of an index of the files of a folder.

use std::fs;
use std::path::Path;

use levity_docs::{Document, DocumentIndex, FolderReport, FolderUpdate, SearchOptions};
use levity_sandbox::Workspace;

fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn workspace(folder: &Path) -> Workspace {
    Workspace::builder(folder).read_only().build().unwrap()
}

async fn update(index: &DocumentIndex, folder: &Path) -> FolderReport {
    FolderUpdate::new(index, &workspace(folder))
        .run()
        .await
        .unwrap()
}

async fn names(index: &DocumentIndex) -> Vec<String> {
    let documents = index.documents("", 100).await.unwrap();
    documents.into_iter().map(|info| info.name).collect()
}

#[tokio::test]
async fn update_adds_changed_and_removes_missing_files() {
    let folder = tempfile::tempdir().unwrap();
    let index = DocumentIndex::in_memory().unwrap();
    put(folder.path(), "a.md", "# Tides\n\nHigh water is at six.");
    put(folder.path(), "deep/b.rs", "fn tide() {}\n");
    index.add(Document::new("by-hand", "Stays.")).await.unwrap();

    let first = update(&index, folder.path()).await;
    assert_eq!((first.added, first.unchanged, first.removed), (2, 0, 0));
    let again = update(&index, folder.path()).await;
    assert_eq!((again.added, again.unchanged, again.removed), (0, 2, 0));

    put(folder.path(), "a.md", "# Tides\n\nHigh water is at seven.");
    fs::remove_file(folder.path().join("deep/b.rs")).unwrap();
    let third = update(&index, folder.path()).await;
    assert_eq!((third.added, third.unchanged, third.removed), (1, 0, 1));
    assert_eq!(names(&index).await, ["a.md", "by-hand"]);
    let found = index
        .search("When is high water?", &SearchOptions::new())
        .await
        .unwrap();
    assert!(found.passages[0].contains_quote("at seven"));
    assert_eq!(found.passages.len(), 1, "the old text is gone");
}

#[tokio::test]
async fn ignored_denied_large_and_binary_files_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let index = DocumentIndex::in_memory().unwrap();
    put(folder.path(), ".gitignore", "target/\n");
    put(folder.path(), "target/out.txt", "generated");
    put(folder.path(), ".env", "KEY=secret");
    put(folder.path(), "good.txt", "text");
    put(folder.path(), "picture.png", [0x89, b'P', 0, 1, 2]);
    put(folder.path(), "latin.txt", [b'M', 0xfc, b'n']);
    put(folder.path(), "large.txt", "x".repeat(2_000));
    put(folder.path(), " ", "a file without a visible name");
    let report = FolderUpdate::new(&index, &workspace(folder.path())).max_file_bytes(1_000);
    let report = report.run().await.unwrap();
    assert_eq!(report.added, names(&index).await.len());
    let names = names(&index).await;
    assert!(names.contains(&"good.txt".to_owned()), "{names:?}");
    for left_out in [
        "target/out.txt",
        ".env",
        "picture.png",
        "latin.txt",
        "large.txt",
    ] {
        assert!(!names.contains(&left_out.to_owned()), "{names:?}");
    }
    let reason = |path: &str| {
        let skipped = report.skipped.iter().find(|skipped| skipped.path == path);
        skipped.map(|skipped| skipped.reason.clone()).unwrap()
    };
    assert_eq!(
        reason("large.txt"),
        "it has 2000 bytes, but the limit is 1000"
    );
    assert_eq!(reason(" "), "a document must have a name");
    assert!(reason("latin.txt").starts_with("it is not text in UTF-8"));
    assert!(reason("picture.png").starts_with("it is not text in UTF-8"));
}

#[tokio::test]
async fn incomplete_list_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let index = DocumentIndex::in_memory().unwrap();
    for n in 0..5 {
        put(folder.path(), &format!("{n}.txt"), format!("text {n}"));
    }
    update(&index, folder.path()).await;
    let seen = std::sync::Mutex::new(Vec::new());
    let report = FolderUpdate::new(&index, &workspace(folder.path()))
        .max_files(2)
        .on_progress(|progress| seen.lock().unwrap().push((progress.done, progress.files)))
        .run()
        .await
        .unwrap();
    assert!(report.incomplete);
    assert_eq!(names(&index).await.len(), 5);
    assert_eq!(*seen.lock().unwrap(), [(2, 2)]);
}
