//! A process that is killed while it adds documents, and two processes on one index.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use levity_docs::{Document, DocumentIndex, SearchOptions};

/// The variable that names the file of the index to a process that adds documents.
const FILE: &str = "LEVITY_TEST_INDEX";
const DOCUMENTS: usize = 300;

fn document(n: usize) -> Document {
    let paragraph = format!("Paragraph {n} about harbours.\n\n").repeat(40);
    Document::new(
        format!("{n}.md"),
        format!("# Title {n}\n\nunique{n}x\n\n{paragraph}"),
    )
}

/// Adds documents if another test starts it in a process of its own.
#[tokio::test]
async fn add_documents_in_own_process() {
    let Some(file) = std::env::var_os(FILE) else {
        return;
    };
    let index = DocumentIndex::open(file).unwrap();
    for n in 0..DOCUMENTS {
        index.add(document(n)).await.unwrap();
    }
}

fn start(file: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::add_documents_in_own_process"])
        .env(FILE, file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Checks that the index contains a prefix of the documents, each complete and once.
async fn check(index: &DocumentIndex) -> usize {
    let documents = index.documents("", 1_000).await.unwrap();
    let options = SearchOptions::new().limit(1_000);
    for info in &documents {
        let n: usize = info.name.trim_end_matches(".md").parse().unwrap();
        let passages = index.passages(&info.name, 0, 1_000).await.unwrap();
        assert_eq!(passages.len() as u64, info.passages);
        let numbers: Vec<_> = passages
            .iter()
            .map(|passage| passage.number as usize)
            .collect();
        assert_eq!(numbers, (0..passages.len()).collect::<Vec<_>>());
        let found = index
            .search(&format!("unique{n}x"), &options)
            .await
            .unwrap()
            .passages;
        assert_eq!(found.len(), 1, "{n} is found once");
        assert_eq!(found[0].document, info.name);
    }
    documents.len()
}

#[tokio::test]
async fn killed_process_leaves_whole_documents_once() {
    let mut total = 0;
    for round in 0..20_u64 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("documents.db");
        let mut child = start(&file);
        // A different moment in each round; the first ones are while the file is created.
        std::thread::sleep(Duration::from_millis(5 + round * 13));
        child.kill().unwrap();
        child.wait().unwrap();
        let index = DocumentIndex::open(&file).unwrap();
        let added = check(&index).await;
        total += added;
        for n in 0..added + 2 {
            index.add(document(n)).await.unwrap();
        }
        assert_eq!(check(&index).await, added + 2);
    }
    assert!(total > 0, "some documents were added before a kill");
}

#[tokio::test]
async fn two_processes_add_to_one_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("documents.db");
    let mut children = [start(&file), start(&file)];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let index = DocumentIndex::open(&file).unwrap();
    assert_eq!(check(&index).await, DOCUMENTS);
}
