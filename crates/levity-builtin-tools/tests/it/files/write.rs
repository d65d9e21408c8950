use std::sync::{Arc, Mutex};

use levity_sandbox::Workspace;
use serde_json::json;

use super::Desk;

#[tokio::test]
async fn a_file_is_made_or_replaced_and_the_change_is_told() {
    let desk = Desk::new();
    let text = desk
        .text(
            "write_file",
            json!({"path": "./a/b.txt", "content": "x\ny\n"}),
        )
        .await;
    assert_eq!(text, "made `a/b.txt`: 2 lines, 4 bytes");
    let value = desk
        .value("write_file", json!({"path": "a/b.txt", "content": ""}))
        .await;
    assert_eq!(
        value,
        json!({"path": "a/b.txt", "created": false, "lines": 0, "bytes": 0})
    );
    assert_eq!(desk.get("a/b.txt"), b"");
    assert_eq!(
        *desk.changed.lock().unwrap(),
        ["a/b.txt written", "a/b.txt written"]
    );
}

#[tokio::test]
async fn what_failed_is_not_told_as_a_change() {
    let desk = Desk::holding(&[("dir/a", "x")]);
    desk.error("write_file", json!({"path": "dir", "content": "x"}))
        .await;
    desk.error(
        "edit_file",
        json!({"path": "dir/a", "old": "y", "new": "x"}),
    )
    .await;
    assert!(desk.changed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_host_hears_of_changes_from_the_workspace() {
    use levity_builtin_tools::WriteFile;
    use levity_core::{Tool, ToolCx};

    let temp = tempfile::tempdir().unwrap();
    let space = Workspace::open(temp.path()).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = heard.clone();
    space.on_change(move |change| listener.lock().unwrap().push(change.path.clone()));
    let args = json!({"path": "a.txt", "content": "x"});
    WriteFile::new(space)
        .call(args, &ToolCx::detached())
        .await
        .unwrap();
    assert_eq!(*heard.lock().unwrap(), ["a.txt"]);
}
