//! Tests of a watch: the index follows the files of a folder.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use levity_docs::{DocumentIndex, FolderWatch, SearchOptions};
use levity_sandbox::Workspace;

#[tokio::test]
async fn index_follows_changes_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.md"), "High water is at six.").unwrap();
    let workspace = Workspace::builder(folder.path())
        .read_only()
        .build()
        .unwrap();
    let index = DocumentIndex::in_memory().unwrap();
    let changes = Mutex::new(Vec::new());
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let watch = FolderWatch::new(&index, &workspace)
        .interval(Duration::from_millis(20))
        .on_change(|report| {
            changes.lock().unwrap().push((report.added, report.removed));
            sender.send(()).unwrap();
        })
        .run();
    let script = async {
        receiver.recv().await.unwrap();
        fs::write(path("a.md"), "High water is at two.").unwrap();
        receiver.recv().await.unwrap();
        fs::write(path("b.md"), "Low water is at noon.").unwrap();
        receiver.recv().await.unwrap();
        fs::remove_file(path("a.md")).unwrap();
        receiver.recv().await.unwrap();
    };
    tokio::select! {
        ended = watch => panic!("the watch ended: {ended:?}"),
        () = script => {}
    }
    assert_eq!(*changes.lock().unwrap(), [(1, 0), (1, 0), (1, 0), (0, 1)]);
    let found = index.search("water", &SearchOptions::new()).await.unwrap();
    assert_eq!(found.passages[0].document, "b.md");
    assert_eq!(found.passages.len(), 1);
}
