use std::fs;
use std::sync::{Arc, Mutex};

use levity_context::ContextFiles;
use levity_core::{ContextLifetime, ContextRequest, ContextSource};
use levity_sandbox::{PathError, Workspace};
use levity_test::conformance;

use crate::{TestFolder, assert_texts, blocks, texts};

const ENOUGH: usize = 100_000;

fn files(place: &TestFolder) -> ContextFiles {
    ContextFiles::open(place.path()).unwrap()
}

#[tokio::test]
async fn folder_files_are_ordered_by_name() {
    let place = TestFolder::with(&[
        (".context/b.md", "two\n"),
        (".context/a.md", "one"),
        (".context/B.md", ""),
        (".context/notes.txt", "not this"),
        (".context/.hidden.md", "nor this"),
        (".context/deep/c.md", "nor that"),
        ("d.md", "nor what is elsewhere"),
    ]);
    let found = texts(&files(&place), ENOUGH).await;
    assert_texts(&found, &[("B.md", ""), ("a.md", "one"), ("b.md", "two\n")]);
    assert!(
        blocks(&files(&place), ENOUGH)
            .await
            .iter()
            .all(|block| block.lasts == ContextLifetime::Long)
    );
}

#[tokio::test]
async fn nested_files_are_included_by_path_on_request() {
    let place = TestFolder::with(&[
        (".context/b.md", "2"),
        (".context/a/z.md", "1"),
        (".context/c/d/e.md", "3"),
        (".context/.git/x.md", "hidden"),
    ]);
    let found = texts(&files(&place).nested(), ENOUGH).await;
    assert_texts(&found, &[("a/z.md", "1"), ("b.md", "2"), ("c/d/e.md", "3")]);
}

#[tokio::test]
async fn agents_files_are_read_from_root_to_working_folder() {
    let place = TestFolder::with(&[
        ("AGENTS.md", "root"),
        ("a/AGENTS.md", "a"),
        ("a/b/c/AGENTS.md", "c"),
        ("a/b/c/d/AGENTS.md", "below"),
        ("x/AGENTS.md", "beside"),
        (".context/z.md", "z"),
    ]);
    let chain = [
        ("z.md", "z"),
        ("AGENTS.md", "root"),
        ("a/AGENTS.md", "a"),
        ("a/b/c/AGENTS.md", "c"),
    ];
    let here = place.path().canonicalize().unwrap().join("a/b/c");
    for working_dir in ["a/b/c", "./a/x/../b/c/", here.to_str().unwrap()] {
        assert_texts(
            &texts(&files(&place).working_dir(working_dir), ENOUGH).await,
            &chain,
        );
    }
    assert_texts(&texts(&files(&place), ENOUGH).await, &chain[..2]);
    assert_texts(
        &texts(&files(&place).without_folder(), ENOUGH).await,
        &chain[1..2],
    );
    assert_texts(
        &texts(&files(&place).without_agents(), ENOUGH).await,
        &chain[..1],
    );
    assert_texts(
        &texts(&files(&place).without_agents().folder("a"), ENOUGH).await,
        &[("AGENTS.md", "a")],
    );
}

#[tokio::test]
async fn block_names_are_unique() {
    let place = TestFolder::with(&[
        ("AGENTS.md", "1"),
        (".context/AGENTS.md", "2"),
        (".context/a.md", "3"),
    ]);
    let found = texts(&files(&place), ENOUGH).await;
    assert_texts(
        &found,
        &[
            (".context/AGENTS.md", "2"),
            ("a.md", "3"),
            ("AGENTS.md", "1"),
        ],
    );
    let found = texts(&files(&place).working_dir(".context"), ENOUGH).await;
    assert_texts(
        &found,
        &[
            ("a.md", "3"),
            ("AGENTS.md", "1"),
            (".context/AGENTS.md", "2"),
        ],
    );
}

#[tokio::test]
async fn user_file_comes_first_from_any_location() {
    let (place, home) = (
        TestFolder::with(&[(".context/a.md", "a")]),
        TestFolder::with(&[("real.md", "mine")]),
    );
    home.link("AGENTS.md", "real.md");
    let of_the_user = |name: &str| files(&place).user_file(home.path().join(name));
    let found = texts(&of_the_user("AGENTS.md"), ENOUGH).await;
    assert_texts(
        &found,
        &[("AGENTS.md (of the user)", "mine"), ("a.md", "a")],
    );
    assert_texts(
        &texts(&of_the_user("nowhere.md"), ENOUGH).await,
        &[("a.md", "a")],
    );
    let found = texts(&of_the_user("."), ENOUGH).await;
    assert!(found[0].1.contains("it is not a regular file"), "{found:?}");
}

#[tokio::test]
async fn links_out_of_workspace_are_noted_and_not_followed() {
    let outside = TestFolder::with(&[
        ("secret.md", "hush"),
        ("folder/x.md", "hush"),
        (".context/y.md", "hush"),
    ]);
    let place = TestFolder::with(&[("inside.md", "welcome"), (".context/real.md", "real")]);
    place.link(".context/in.md", "../inside.md");
    place.link(".context/out.md", outside.path().join("secret.md"));
    place.link(".context/up.md", "../../secret.md");
    place.link(".context/gone.md", "nowhere.md");
    place.link(".context/folder", outside.path().join("folder"));
    place.link(".context/itself", ".");
    place.link("AGENTS.md", outside.path().join("secret.md"));
    let found = texts(&files(&place).nested(), ENOUGH).await;
    let leads_out = "[not shown: it leads out of the workspace]";
    assert_texts(
        &found,
        &[
            (".context/folder", leads_out),
            (
                ".context/itself",
                "[not shown: links to folders are not followed]",
            ),
            ("gone.md", "[not shown: it does not exist]"),
            ("in.md", "welcome"),
            ("out.md", leads_out),
            ("real.md", "real"),
            ("up.md", leads_out),
            ("AGENTS.md", leads_out),
        ],
    );
    let place = TestFolder::new();
    place.link(".context", outside.path().join(".context"));
    assert_texts(
        &texts(&files(&place), ENOUGH).await,
        &[(".context", leads_out)],
    );
}

#[tokio::test]
async fn binary_files_are_noted() {
    let place = TestFolder::with(&[(".context/dir.md/x", "")]);
    place.write(".context/bytes.md", b"a\xffb");
    pipe(&place, ".context/pipe.md");
    let found = texts(&files(&place), ENOUGH).await;
    let lossy = "[this is not UTF-8; each `\u{fffd}` replaces invalid bytes]\na\u{fffd}b";
    assert_texts(
        &found,
        &[
            ("bytes.md", lossy),
            ("pipe.md", "[not shown: it is not a regular file]"),
        ],
    );
    let place = TestFolder::with(&[(".context", "a file")]);
    assert_texts(
        &texts(&files(&place), ENOUGH).await,
        &[(".context", "[not shown: it is not a folder]")],
    );
}

fn pipe(place: &TestFolder, path: &str) {
    assert!(
        std::process::Command::new("mkfifo")
            .arg(place.path().join(path))
            .status()
            .unwrap()
            .success()
    );
}

#[tokio::test]
async fn text_is_returned_unchanged() {
    let place = TestFolder::new();
    let text = "one\r\ntwo\0three\n--- a.md ---\n\u{2028}ä€😀\u{202e}  \n";
    place.write(".context/a.md", text);
    place.write(".context/b.md", format!("\u{feff}{text}"));
    assert_texts(
        &texts(&files(&place), ENOUGH).await,
        &[("a.md", text), ("b.md", text)],
    );
}

#[tokio::test]
async fn huge_file_is_cut_and_others_are_complete() {
    let place = TestFolder::with(&[
        (".context/a.md", &"0123456789\n".repeat(1_000_000)),
        (".context/b.md", "small"),
    ]);
    let found = blocks(&files(&place), 1_000).await;
    assert!(
        found
            .iter()
            .map(levity_core::ContextBlock::tokens)
            .sum::<usize>()
            <= 1_000
    );
    assert!(
        found[0]
            .text
            .ends_with("9\n[cut: these are the first 3905 of 11000000 bytes]"),
        "{}",
        found[0].text
    );
    assert_eq!(found[1].text, "small");
    let found = blocks(&files(&place).max_bytes(40_000), usize::MAX).await;
    assert!(
        (30_000..40_000).contains(&found[0].text.len()),
        "{}",
        found[0].text.len()
    );
    let found = blocks(&files(&place), usize::MAX).await;
    assert!(
        found[0].text.len() < ContextFiles::DEFAULT_MAX_BYTES,
        "{}",
        found[0].text.len()
    );
}

#[tokio::test]
async fn omitted_files_are_named() {
    let names: Vec<_> = (100..300).map(|n| format!(".context/{n}.md")).collect();
    let place = TestFolder::with(
        &names
            .iter()
            .map(|name| (name.as_str(), "text"))
            .collect::<Vec<_>>(),
    );
    let found = texts(&files(&place), ENOUGH).await;
    assert_eq!(found.len(), ContextFiles::DEFAULT_MAX_FILES + 1);
    let left_out = "[not shown for lack of room: `200.md`, `201.md`, `202.md`, `203.md`, `204.md`, \
        95 more files]";
    assert_eq!(
        found[100],
        ("files left out".to_owned(), left_out.to_owned())
    );
    let found = texts(&files(&place).max_files(2), ENOUGH).await;
    assert_eq!(
        (found.len(), found[0].0.as_str(), found[1].0.as_str()),
        (3, "100.md", "101.md")
    );
    assert!(
        found[2]
            .1
            .ends_with("`102.md`, `103.md`, `104.md`, `105.md`, `106.md`, 193 more files]"),
        "{found:?}"
    );
}

#[tokio::test]
async fn changed_files_are_read_again() {
    let place = TestFolder::with(&[(".context/a.md", "one")]);
    let files = files(&place);
    assert_texts(&texts(&files, ENOUGH).await, &[("a.md", "one")]);
    place.write(".context/a.md", "two");
    place.write(".context/b.md", "new");
    assert_texts(
        &texts(&files, ENOUGH).await,
        &[("a.md", "two"), ("b.md", "new")],
    );
    fs::remove_dir_all(place.path().join(".context")).unwrap();
    assert_texts(&texts(&files, ENOUGH).await, &[]);
}

#[tokio::test]
async fn invalid_folder_returns_error() {
    let place = TestFolder::with(&[("file", "")]);
    assert!(matches!(
        ContextFiles::open(place.path().join("nowhere")),
        Err(PathError::NotFound(_))
    ));
    for (working_dir, cause) in [
        ("nowhere", "`nowhere` does not exist"),
        ("..", "leads out"),
        ("file", "not a folder"),
    ] {
        let error = files(&place)
            .working_dir(working_dir)
            .blocks(&ContextRequest::new(9))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "context source `context files` could not be read"
        );
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(cause), "{source}");
    }
}

#[tokio::test]
async fn watcher_receives_list_of_files() {
    let place = TestFolder::with(&[
        (".context/a.md", "one"),
        (".context/b.md", &"two\n".repeat(500)),
    ]);
    place.link(".context/c.md", "/etc/hosts");
    let received = Arc::new(Mutex::new(Vec::new()));
    let into = received.clone();
    let say = move |taken: &[levity_context::ContextFile]| {
        into.lock()
            .unwrap()
            .extend(taken.iter().map(ToString::to_string));
    };
    let files = files(&place).on_read(say);
    assert!(
        received.lock().unwrap().is_empty(),
        "nothing is read before it is asked for"
    );
    blocks(&files, 200).await;
    let expected = [
        "a.md",
        "b.md (cut)",
        "c.md (omitted: it leads out of the workspace)",
    ];
    assert_eq!(*received.lock().unwrap(), expected);
}

#[tokio::test]
async fn denied_files_and_hard_links_are_not_read() {
    let place = TestFolder::with(&[(".context/a.md", "one")]);
    fs::hard_link(place.path().join(".context/a.md"), place.path().join("b")).unwrap();
    let found = texts(&files(&place), ENOUGH).await;
    assert!(
        found[0]
            .1
            .starts_with("[not shown: it has several hard links"),
        "{found:?}"
    );
    place.write(".context/b.md", "long ".repeat(2_000));
    pipe(&place, ".context/c.md");
    let found = texts(&files(&place), 500).await;
    assert!(
        found[0]
            .1
            .starts_with("[not shown: it has several hard links"),
        "however little room there is"
    );
    assert_eq!(found[2].1, "[not shown: it is not a regular file]");
    fs::remove_file(place.path().join(".context/b.md")).unwrap();
    fs::remove_file(place.path().join(".context/c.md")).unwrap();
    let open = Workspace::builder(place.path())
        .allow_hard_links()
        .deny("a.md")
        .build()
        .unwrap();
    assert_texts(&texts(&ContextFiles::new(&open), ENOUGH).await, &[]);
}

#[tokio::test]
async fn context_files_pass_source_conformance() {
    let place = TestFolder::with(&[
        ("AGENTS.md", &"Run the tests.\n".repeat(40)),
        ("a/AGENTS.md", "ä".repeat(3_000).as_str()),
        (".context/a.md", "short"),
        (".context/b/c.md", &"x".repeat(50_000)),
    ]);
    place.write(".context/z.md", b"\xff".repeat(300));
    conformance::context_source(|| files(&place).nested().working_dir("a")).await;
    conformance::context_source(|| files(&place).max_files(1)).await;
    conformance::context_source(|| files(&place).folder("nowhere").without_agents()).await;
}

#[test]
fn files_are_read_outside_runtime() {
    let place = TestFolder::with(&[(".context/a.md", "one")]);
    let files = files(&place);
    let ask = ContextRequest::new(ENOUGH);
    let mut read = std::pin::pin!(files.blocks(&ask));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(found) = read.as_mut().poll(&mut cx) else {
        panic!("it waits")
    };
    assert_eq!(found.unwrap()[0].text, "one");
}
