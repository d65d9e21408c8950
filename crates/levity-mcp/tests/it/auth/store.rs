//! Tests of the file store of logins.

use levity_mcp::{FileTokenStore, TokenStore};

#[tokio::test]
async fn file_store_separates_logins_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/tokens.json");
    let (one, other) = (FileTokenStore::new(&path), FileTokenStore::new(&path));
    assert_eq!(one.load("a").await.unwrap(), None);
    one.save("a", "first").await.unwrap();
    other.save("b", "second").await.unwrap();
    one.save("a", "third").await.unwrap();
    assert_eq!(other.load("a").await.unwrap().as_deref(), Some("third"));
    other.remove("a").await.unwrap();
    assert_eq!(one.load("a").await.unwrap(), None);
    assert_eq!(one.load("b").await.unwrap().as_deref(), Some("second"));
}

#[tokio::test]
async fn concurrent_saves_lose_no_login() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.json");
    let saves = (0..20).map(|n| {
        let store = FileTokenStore::new(&path);
        async move { store.save(&format!("key {n}"), &"x".repeat(n)).await }
    });
    for saved in futures_util::future::join_all(saves).await {
        saved.unwrap();
    }
    for n in 0..20 {
        let login = FileTokenStore::new(&path)
            .load(&format!("key {n}"))
            .await
            .unwrap();
        assert_eq!(login.unwrap().len(), n);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_only_by_owner() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own/tokens.json");
    let store = FileTokenStore::new(&path);
    store.save("a", "hush").await.unwrap();
    // A file that was made readable becomes private again with the next save.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    store.save("a", "hush").await.unwrap();
    let _lock = store.try_lock("a").await.unwrap().unwrap();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        assert!(
            path.extension().is_some_and(|end| end != "new"),
            "{}",
            path.display()
        );
    }
}

#[tokio::test]
async fn try_lock_is_exclusive_per_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.json");
    let (one, other) = (FileTokenStore::new(&path), FileTokenStore::new(&path));
    let lock = one.try_lock("a").await.unwrap();
    assert!(lock.is_some() && other.try_lock("a").await.unwrap().is_none());
    assert!(other.try_lock("b").await.unwrap().is_some());
    drop(lock);
    assert!(other.try_lock("a").await.unwrap().is_some());
}

#[tokio::test]
async fn damaged_file_error_hides_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.json");
    std::fs::write(&path, r#"{"a": hush}"#).unwrap();
    let error = FileTokenStore::new(&path).load("a").await.unwrap_err();
    assert!(
        error.to_string().contains("damaged") && !format!("{error:?}").contains("hush"),
        "{error:?}"
    );
}
