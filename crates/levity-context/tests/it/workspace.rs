use levity_context::{Error, WorkspaceFiles};
use levity_core::{ContextRequest, ContextSource};
use levity_sandbox::{PathError, Workspace};
use levity_test::conformance;

use crate::{TestFolder, blocks};

fn files(place: &TestFolder) -> WorkspaceFiles {
    WorkspaceFiles::open(place.path()).unwrap()
}

#[tokio::test]
async fn ignored_and_hidden_files_are_not_listed() {
    let place = TestFolder::with(&[
        (".gitignore", "*.log\n/target/\n!keep.log\n[\n"),
        ("a.log", ""),
        ("keep.log", ""),
        ("target/x.rs", ""),
        ("sub/target/y.rs", ""),
        ("sub/.gitignore", "\u{feff}!b.log\r\ny*\n"),
        ("sub/b.log", ""),
        ("sub/y.rs", ""),
        ("sub/.ignore", "z.rs\n"),
        ("sub/z.rs", ""),
        (".git/config", ""),
        (".hidden", ""),
        (".env", ""),
        ("server.key", ""),
        ("src/main.rs", ""),
    ]);
    let listed = files(&place).list().await.unwrap();
    assert_eq!(listed.view.files, ["keep.log", "src/main.rs", "sub/b.log"]);
    assert_eq!(
        listed.view.root,
        place.path().canonicalize().unwrap().to_str().unwrap()
    );
    assert_eq!(
        (listed.missing, listed.has_more, listed.note()),
        (0, false, None)
    );
}

#[tokio::test]
async fn braces_are_literal_and_single_negation_is_ignored() {
    let place = TestFolder::with(&[
        (".gitignore", "*.log\n{a,b}.txt\nd\\{1\\}.txt\n"),
        ("sub/.gitignore", "!\n! \n"),
        ("a.txt", ""),
        ("b.txt", ""),
        ("{a,b}.txt", ""),
        ("d{1}.txt", ""),
        ("sub/c.log", ""),
    ]);
    assert_eq!(
        files(&place).view().await.unwrap().files,
        ["a.txt", "b.txt"]
    );
}

#[tokio::test]
async fn long_rules_files_are_read_partially_by_whole_lines() {
    // The 64 KiB limit cuts a rule in the middle, of which `x.*` alone would match every file.
    let long = format!("{}x.*keep\n", "first.txt\n".repeat(6_553));
    assert_eq!(&long[..64 << 10].lines().last(), &Some("x.*kee"));
    let place = TestFolder::with(&[(".gitignore", &long), ("first.txt", ""), ("x.kee", "")]);
    assert_eq!(files(&place).view().await.unwrap().files, ["x.kee"]);

    // After the eighth folder with such rules, the limit is reached and rules are skipped.
    let place = TestFolder::new();
    for n in 0..10 {
        place.write(&format!("d{n}/.gitignore"), "y.txt\n".repeat(20_000));
        place.write(&format!("d{n}/y.txt"), "");
    }
    assert_eq!(
        files(&place).view().await.unwrap().files,
        ["d8/y.txt", "d9/y.txt"]
    );
}

#[tokio::test]
async fn only_links_within_workspace_are_listed() {
    let (place, outside) = (
        TestFolder::with(&[("a/b.txt", "")]),
        TestFolder::with(&[("c.txt", ""), ("d/e.txt", "")]),
    );
    place.link("in.txt", "a/b.txt");
    place.link("out.txt", outside.path().join("c.txt"));
    place.link("gone.txt", "nowhere");
    place.link("folder", outside.path().join("d"));
    place.link("again", "a");
    place.link("a/loop", "..");
    assert_eq!(
        files(&place).view().await.unwrap().files,
        ["a/b.txt", "in.txt"]
    );
}

#[tokio::test]
async fn nearest_files_are_listed_with_number_of_missing() {
    let place = TestFolder::with(&[
        ("z.txt", ""),
        ("a/b/c.txt", ""),
        ("a/x.txt", ""),
        ("b/y.txt", ""),
        ("a/b/d.txt", ""),
    ]);
    let listed = files(&place).max_files(3).list().await.unwrap();
    assert_eq!(listed.view.files, ["a/x.txt", "b/y.txt", "z.txt"]);
    assert_eq!(
        (listed.missing, listed.note().as_deref()),
        (2, Some("[2 more files are not listed]"))
    );
    let found = blocks(&files(&place).max_files(3), 1_000).await;
    assert_eq!(
        found[0].text,
        "[2 more files are not listed]\na/x.txt\nb/y.txt\nz.txt"
    );
    assert_eq!(files(&place).max_files(0).list().await.unwrap().missing, 5);
}

#[tokio::test]
async fn walk_of_deep_tree_is_limited() {
    let place = TestFolder::new();
    place.write(&format!("{}deep.txt", "d/".repeat(70)), "");
    let listed = files(&place).list().await.unwrap();
    assert!(listed.view.files.is_empty() && listed.has_more);
    assert_eq!(listed.note().as_deref(), Some("[there may be more files]"));
}

#[tokio::test]
async fn non_utf8_names_are_counted_as_missing() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = TestFolder::with(&[("a.txt", "")]);
    std::fs::write(
        place.path().join(std::ffi::OsStr::from_bytes(b"\xff.txt")),
        "",
    )
    .unwrap();
    let listed = files(&place).list().await.unwrap();
    assert_eq!((listed.view.files.len(), listed.missing), (1, 1));
}

#[tokio::test]
async fn list_reflects_current_files() {
    let place = TestFolder::new();
    let files = files(&place);
    assert!(files.view().await.unwrap().files.is_empty());
    assert!(
        files
            .blocks(&ContextRequest::new(100))
            .await
            .unwrap()
            .is_empty()
    );
    place.write("new.txt", "");
    assert_eq!(files.view().await.unwrap().files, ["new.txt"]);
    let narrow = Workspace::builder(place.path())
        .deny("new.*")
        .build()
        .unwrap();
    assert!(
        WorkspaceFiles::new(&narrow)
            .view()
            .await
            .unwrap()
            .files
            .is_empty()
    );
    assert!(matches!(
        WorkspaceFiles::open(place.path().join("new.txt")),
        Err(PathError::NotADirectory(_))
    ));
    assert!(!Error::Mismatch(Vec::new()).is_retryable());
}

#[tokio::test]
async fn workspace_files_pass_source_conformance() {
    let names: Vec<_> = (0..300).map(|n| format!("{}/{n}.txt", n % 7)).collect();
    let place = TestFolder::with(
        &names
            .iter()
            .map(|name| (name.as_str(), ""))
            .collect::<Vec<_>>(),
    );
    conformance::context_source(|| files(&place)).await;
    conformance::context_source(|| files(&place).max_files(10)).await;
}
