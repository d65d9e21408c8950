use levity_context::{Error, WorkspaceFiles};
use levity_core::{ContextAsk, ContextSource};
use levity_sandbox::{PathError, Workspace};
use levity_test::conformance;

use crate::{Place, blocks};

fn files(place: &Place) -> WorkspaceFiles {
    WorkspaceFiles::open(place.path()).unwrap()
}

#[tokio::test]
async fn what_git_ignores_and_what_is_hidden_is_not_listed() {
    let place = Place::with(&[
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
async fn braces_are_no_choice_and_a_mark_alone_takes_nothing_back() {
    let place = Place::with(&[
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
async fn rules_without_end_are_read_in_part_and_by_whole_lines() {
    // The 64 KiB that are read end in the middle of a rule, of which `x.*` alone would name every
    // file.
    let long = format!("{}x.*keep\n", "first.txt\n".repeat(6_553));
    assert_eq!(&long[..64 << 10].lines().last(), &Some("x.*kee"));
    let place = Place::with(&[(".gitignore", &long), ("first.txt", ""), ("x.kee", "")]);
    assert_eq!(files(&place).view().await.unwrap().files, ["x.kee"]);

    // Folders after the eighth of such a length have no say any more.
    let place = Place::new();
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
async fn links_are_listed_only_if_they_stay_inside() {
    let (place, outside) = (
        Place::with(&[("a/b.txt", "")]),
        Place::with(&[("c.txt", ""), ("d/e.txt", "")]),
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
async fn the_nearest_files_are_listed_and_it_is_said_how_many_are_missing() {
    let place = Place::with(&[
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
async fn a_tree_without_end_is_not_followed_for_ever() {
    let place = Place::new();
    place.write(&format!("{}deep.txt", "d/".repeat(70)), "");
    let listed = files(&place).list().await.unwrap();
    assert!(listed.view.files.is_empty() && listed.has_more);
    assert_eq!(listed.note().as_deref(), Some("[there may be more files]"));
}

#[tokio::test]
async fn names_that_are_no_text_are_counted() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::with(&[("a.txt", "")]);
    std::fs::write(
        place.path().join(std::ffi::OsStr::from_bytes(b"\xff.txt")),
        "",
    )
    .unwrap();
    let listed = files(&place).list().await.unwrap();
    assert_eq!((listed.view.files.len(), listed.missing), (1, 1));
}

#[tokio::test]
async fn what_is_asked_for_is_what_is_there_now() {
    let place = Place::new();
    let files = files(&place);
    assert!(files.view().await.unwrap().files.is_empty());
    assert!(
        files
            .blocks(&ContextAsk::new(100))
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
async fn the_promises_of_a_source_hold() {
    let names: Vec<_> = (0..300).map(|n| format!("{}/{n}.txt", n % 7)).collect();
    let place = Place::with(
        &names
            .iter()
            .map(|name| (name.as_str(), ""))
            .collect::<Vec<_>>(),
    );
    conformance::context_source(|| files(&place)).await;
    conformance::context_source(|| files(&place).max_files(10)).await;
}
