use std::fs;
use std::path::Path;

use levity_builtin_tools::WriteArtifact;
use levity_core::{Tool, ToolCx, ToolError, ToolErrorKind};
use levity_sandbox::Workspace;
use serde_json::json;

async fn write(root: &Path, path: &str) -> Result<String, ToolError> {
    let tool = WriteArtifact::new(Workspace::open(root).unwrap());
    let args = json!({"path": path, "content": "new"});
    let output = tool.call(args, &ToolCx::detached()).await?;
    Ok(output.value.unwrap()["path"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn artifact_is_written_below_its_folder_only() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    fs::write(root.join("kept.md"), "old").unwrap();
    for (path, expected) in [
        ("report.md", "artifacts/report.md"),
        ("artifacts/report.md", "artifacts/report.md"),
        ("./a//b/c.csv", "artifacts/a/b/c.csv"),
        ("artifacts/artifacts/x", "artifacts/artifacts/x"),
    ] {
        assert_eq!(write(root, path).await.unwrap(), expected, "{path}");
        assert_eq!(fs::read(root.join(expected)).unwrap(), b"new", "{path}");
    }
    let absolute = root.join("kept.md").display().to_string();
    for path in [
        "../kept.md",
        "artifacts/../kept.md",
        "a/../../kept.md",
        &absolute,
        "/etc/x",
    ] {
        let error = write(root, path).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Denied, "{path}: {error}");
    }
    for path in ["", ".", "artifacts", "artifacts/"] {
        let error = write(root, path).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::InvalidArgs, "{path}: {error}");
    }
    // The rules of the workspace hold too.
    let error = write(root, "artifacts/.env").await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Denied, "{error}");
    assert_eq!(fs::read(root.join("kept.md")).unwrap(), b"old");
}

#[tokio::test]
async fn artifact_is_not_written_through_links() {
    use std::os::unix::fs::symlink;

    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    fs::create_dir_all(root.join("src")).unwrap();
    fs::create_dir_all(root.join("artifacts/real")).unwrap();
    fs::write(root.join("src/main.rs"), "old").unwrap();
    symlink("../src", root.join("artifacts/folder")).unwrap();
    symlink("../../src/main.rs", root.join("artifacts/real/file")).unwrap();
    for path in ["folder/main.rs", "folder/new.rs", "real/file"] {
        let error = write(root, path).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Denied, "{path}");
        assert!(error.to_string().contains("is a link"), "{path}: {error}");
    }
    assert_eq!(write(root, "real/new").await.unwrap(), "artifacts/real/new");

    // The folder itself may be a link, too.
    fs::remove_dir_all(root.join("artifacts")).unwrap();
    symlink("src", root.join("artifacts")).unwrap();
    assert!(write(root, "main.rs").await.is_err());
    assert_eq!(fs::read(root.join("src/main.rs")).unwrap(), b"old");
    assert_eq!(fs::read_dir(root.join("src")).unwrap().count(), 1);
}
