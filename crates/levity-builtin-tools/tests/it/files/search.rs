use std::sync::Arc;

use levity_builtin_tools::SearchFiles;
use levity_core::{Tool, ToolCx, ToolErrorKind};
use levity_sandbox::Workspace;
use serde_json::{Value, json};

use super::Fixture;
#[cfg(target_os = "linux")]
use super::{call_without_privileges, set_mode};

async fn found(fixture: &Fixture, args: Value) -> String {
    let value = fixture.value("search_files", args).await;
    let place = |found: &Value| format!("{}:{}", found["path"].as_str().unwrap(), found["line"]);
    value["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(place)
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test]
async fn search_groups_matches_by_file() {
    let fixture = Fixture::with_files(&[
        ("b.rs", "fn one() {}\n\nfn two() {}\n"),
        ("a/c.rs", "let x;\nfn three() {}"),
    ]);
    let result = fixture
        .call("search_files", json!({"pattern": r"fn \w+"}))
        .await;
    let text = "a/c.rs\n2: fn three() {}\n\nb.rs\n1: fn one() {}\n3: fn two() {}\n\n[3 matches, in \
        2 files]";
    assert_eq!(result.text(), text);
    let matches = json!([
        {"path": "a/c.rs", "line": 2, "text": "fn three() {}"},
        {"path": "b.rs", "line": 1, "text": "fn one() {}"},
        {"path": "b.rs", "line": 3, "text": "fn two() {}"},
    ]);
    assert_eq!(
        result.value,
        Some(json!({"matches": matches, "complete": true}))
    );
    let none = fixture
        .text("search_files", json!({"pattern": "struct"}))
        .await;
    assert_eq!(
        none,
        "[no match in 2 files; hidden, ignored and binary files are omitted]"
    );
}

#[tokio::test]
async fn search_applies_options() {
    let fixture = Fixture::with_files(&[
        ("a.rs", "Foo.bar\nfoo_bar\n"),
        ("b.txt", "foo.bar\n"),
        (".hidden", "foo.bar\n"),
        (".gitignore", "out/\n"),
        ("out/gen.rs", "foo.bar\n"),
    ]);
    for (args, expected) in [
        (json!({"pattern": "foo.bar"}), "a.rs:2 b.txt:1"),
        (json!({"pattern": "foo.bar", "literal": true}), "b.txt:1"),
        (
            json!({"pattern": "foo.bar", "ignore_case": true}),
            "a.rs:1 a.rs:2 b.txt:1",
        ),
        (json!({"pattern": "foo", "glob": "*.rs"}), "a.rs:2"),
        (json!({"pattern": "foo", "glob": "!*.rs"}), "b.txt:1"),
        (json!({"pattern": "foo", "path": "b.txt"}), "b.txt:1"),
        (
            json!({"pattern": "foo", "hidden": true}),
            ".hidden:1 a.rs:2 b.txt:1",
        ),
        (
            json!({"pattern": "foo", "ignored": true}),
            "a.rs:2 b.txt:1 out/gen.rs:1",
        ),
        (
            json!({"pattern": "^foo\\.bar$", "path": "out"}),
            "out/gen.rs:1",
        ),
    ] {
        assert_eq!(found(&fixture, args.clone()).await, expected, "{args}");
    }
}

#[tokio::test]
async fn search_shows_context_lines() {
    let fixture = Fixture::with_files(&[("a", "1\n2\nhit\n4\n5\n6\n7\nhit\n")]);
    let text = fixture
        .text("search_files", json!({"pattern": "hit", "context": 1}))
        .await;
    assert_eq!(
        text,
        "a\n2- 2\n3: hit\n4- 4\n--\n7- 7\n8: hit\n\n[2 matches, in 1 file]"
    );
}

#[tokio::test]
async fn invalid_pattern_returns_error() {
    let fixture = Fixture::with_files(&[("a", "x")]);
    let (kind, text) = fixture
        .error("search_files", json!({"pattern": "a(b"}))
        .await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
    assert!(
        text.contains("the pattern is invalid") && text.contains("unclosed group"),
        "{text}"
    );
    let (kind, _) = fixture
        .error("search_files", json!({"pattern": "a\nb"}))
        .await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
    let (kind, _) = fixture
        .error("search_files", json!({"pattern": "(\\w{500}){500}"}))
        .await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
}

#[tokio::test]
async fn search_skips_binary_files_and_cuts_long_lines() {
    let fixture = Fixture::new();
    fixture.put("a.bin", b"needle\0needle");
    fixture.put(
        "min.js",
        "x".repeat(500_000) + "needle" + &"y".repeat(500_000),
    );
    let text = fixture
        .text("search_files", json!({"pattern": "needle"}))
        .await;
    assert!(text.len() < 1_000 && text.contains("xneedley"), "{text}");
    assert!(
        text.starts_with("min.js\n1: …xxx") && text.ends_with("[1 match, in 1 file]"),
        "{text}"
    );
    let wide: Vec<u8> = "\u{feff}a needle\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    fixture.put("wide.txt", wide);
    assert_eq!(
        found(&fixture, json!({"pattern": "needle"})).await,
        "min.js:1 wide.txt:1"
    );
}

#[tokio::test]
async fn first_matches_are_deterministic() {
    let fixture = Fixture::new();
    for n in 0..400 {
        fixture.put(&format!("d{:02}/f{n:03}", n % 40), "hit\nhit\nhit\n");
    }
    let mut all: Vec<String> = (0..400)
        .map(|n| format!("d{:02}/f{n:03}", n % 40))
        .collect();
    all.sort();
    let expected: Vec<_> = all
        .iter()
        .flat_map(|path| (1..4).map(move |line| format!("{path}:{line}")))
        .collect();
    for max in [1, 2, 3, 10, 100, 301] {
        for _ in 0..5 {
            assert_eq!(
                found(&fixture, json!({"pattern": "hit", "max": max})).await,
                expected[..max].join(" ")
            );
        }
    }
    for (max, complete) in [(1199, false), (1200, true), (1201, true)] {
        let value = fixture
            .value("search_files", json!({"pattern": "hit", "max": max}))
            .await;
        assert_eq!(value["complete"], complete, "{max}");
    }
    let text = fixture
        .text("search_files", json!({"pattern": "hit", "max": 5}))
        .await;
    assert!(
        text.ends_with("[the first 5 matches; there are more: narrow `pattern`, `path` or `glob`]"),
        "{text}"
    );
    let few = fixture
        .value(
            "search_files",
            json!({"pattern": "hit", "max": 30, "path": "d00"}),
        )
        .await;
    assert_eq!(few["complete"], true);
}

#[tokio::test]
async fn long_results_are_limited_and_deterministic() {
    let fixture = Fixture::new();
    for n in 0..300 {
        fixture.put(
            &format!("f{n:03}"),
            format!("hit {}\n", "x".repeat(250)).repeat(2),
        );
    }
    let first = fixture
        .call("search_files", json!({"pattern": "hit", "max": 2000}))
        .await;
    assert!(
        first.text().len() < 60_000
            && first.text().contains("f000")
            && !first.text().contains("f250")
    );
    assert_eq!(first.value.as_ref().unwrap()["complete"], false);
    for _ in 0..5 {
        assert_eq!(
            fixture
                .call("search_files", json!({"pattern": "hit", "max": 2000}))
                .await,
            first
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn search_counts_folders_that_cannot_be_read() {
    let fixture = Fixture::with_files(&[("a.txt", "needle"), ("b/c.txt", "needle")]);
    let tool = SearchFiles::new(Workspace::open(fixture.path()).unwrap());
    set_mode(&fixture.path().join("b"), 0o000);
    let search = |args: Value| {
        let output = call_without_privileges(&tool, args);
        assert_eq!(output.value.as_ref().unwrap()["complete"], false);
        output.as_text().into_owned()
    };
    assert_eq!(
        search(json!({"pattern": "needle"})),
        "a.txt\n1: needle\n\n[1 match, in 1 file]\n[1 folder could not be read]"
    );
    set_mode(&fixture.path().join("b"), 0o755);
}

#[tokio::test]
async fn cancelled_search_stops() {
    let temp = tempfile::tempdir().unwrap();
    for n in 0..200 {
        std::fs::write(temp.path().join(format!("f{n}")), "hit\n".repeat(1000)).unwrap();
    }
    let search = SearchFiles::new(Workspace::open(temp.path()).unwrap());
    let cx = ToolCx::detached();
    cx.cancel.cancel();
    let error = search
        .call(json!({"pattern": "hit"}), &cx)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_swapped_for_link_during_search_is_not_followed() {
    use swap::Swapper;

    let temp = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("ws/sub/deep/a.txt", "needle inside"),
        ("out/deep/a.txt", "needle OUTSIDE"),
    ] {
        std::fs::create_dir_all(temp.path().join(path).parent().unwrap()).unwrap();
        std::fs::write(temp.path().join(path), text).unwrap();
    }
    std::os::unix::fs::symlink("../out", temp.path().join("ws/door")).unwrap();
    let swapper = Swapper::start(temp.path().join("ws"));
    let search = Arc::new(SearchFiles::new(
        Workspace::open(temp.path().join("ws")).unwrap(),
    ));
    let mut seen = 0;
    for _ in 0..300 {
        for args in [
            json!({"pattern": "needle"}),
            json!({"pattern": "needle", "path": "sub"}),
        ] {
            if let Ok(output) = search.call(args, &ToolCx::detached()).await {
                let text = output.as_text().into_owned();
                assert!(!text.contains("OUTSIDE"), "{text}");
                seen += usize::from(text.contains("inside"));
            }
        }
    }
    drop(swapper);
    assert!(seen > 0);
}

mod swap {
    use std::fs::rename;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;

    /// Swaps `door` and `sub` repeatedly until it is dropped.
    pub(super) struct Swapper(Arc<AtomicBool>, Option<JoinHandle<()>>);

    impl Swapper {
        pub(super) fn start(dir: PathBuf) -> Self {
            let stop = Arc::new(AtomicBool::new(false));
            let end = stop.clone();
            let step = move |from: &str, to: &str| rename(dir.join(from), dir.join(to)).unwrap();
            let thread = std::thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    step("sub", "real");
                    step("door", "sub");
                    step("sub", "door");
                    step("real", "sub");
                }
            });
            Self(stop, Some(thread))
        }
    }

    impl Drop for Swapper {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            self.1.take().unwrap().join().unwrap();
        }
    }
}
