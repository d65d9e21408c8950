use std::sync::{Arc, Mutex};

use levity_sandbox::Workspace;
use serde_json::json;

use super::Fixture;

#[tokio::test]
async fn write_creates_or_replaces_file_and_reports_change() {
    let fixture = Fixture::new();
    let text = fixture
        .text(
            "write_file",
            json!({"path": "./a/b.txt", "content": "x\ny\n"}),
        )
        .await;
    assert_eq!(text, "created `a/b.txt`: 2 lines, 4 bytes");
    let value = fixture
        .value("write_file", json!({"path": "a/b.txt", "content": ""}))
        .await;
    assert_eq!(
        value,
        json!({"path": "a/b.txt", "created": false, "lines": 0, "bytes": 0})
    );
    assert_eq!(fixture.get("a/b.txt"), b"");
    assert_eq!(
        *fixture.changed.lock().unwrap(),
        ["a/b.txt written", "a/b.txt written"]
    );
}

#[tokio::test]
async fn failed_write_reports_no_change() {
    let fixture = Fixture::with_files(&[("dir/a", "x")]);
    fixture
        .error("write_file", json!({"path": "dir", "content": "x"}))
        .await;
    fixture
        .error(
            "edit_file",
            json!({"path": "dir/a", "old": "y", "new": "x"}),
        )
        .await;
    assert!(fixture.changed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn workspace_reports_written_file_to_host() {
    use levity_builtin_tools::WriteFile;
    use levity_core::{Tool, ToolCx};

    let temp = tempfile::tempdir().unwrap();
    let space = Workspace::open(temp.path()).unwrap();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let listener = changes.clone();
    space.on_change(move |change| listener.lock().unwrap().push(change.path.clone()));
    let args = json!({"path": "a.txt", "content": "x"});
    WriteFile::new(space)
        .call(args, &ToolCx::detached())
        .await
        .unwrap();
    assert_eq!(*changes.lock().unwrap(), ["a.txt"]);
}
