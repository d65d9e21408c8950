use std::sync::Arc;

use levity_builtin_tools::SearchFiles;
use levity_core::{Tool, ToolCx, ToolErrorKind};
use levity_sandbox::Workspace;
use serde_json::{Value, json};

use super::Desk;

async fn found(desk: &Desk, args: Value) -> String {
    let value = desk.value("search_files", args).await;
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
async fn matches_are_shown_by_file() {
    let desk = Desk::holding(&[
        ("b.rs", "fn one() {}\n\nfn two() {}\n"),
        ("a/c.rs", "let x;\nfn three() {}"),
    ]);
    let result = desk
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
    let none = desk
        .text("search_files", json!({"pattern": "struct"}))
        .await;
    assert_eq!(
        none,
        "[no match in 2 files; hidden, ignored and binary files are left out]"
    );
}

#[tokio::test]
async fn options_are_heard() {
    let desk = Desk::holding(&[
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
        assert_eq!(found(&desk, args.clone()).await, expected, "{args}");
    }
}

#[tokio::test]
async fn lines_around_are_shown() {
    let desk = Desk::holding(&[("a", "1\n2\nhit\n4\n5\n6\n7\nhit\n")]);
    let text = desk
        .text("search_files", json!({"pattern": "hit", "context": 1}))
        .await;
    assert_eq!(
        text,
        "a\n2- 2\n3: hit\n4- 4\n--\n7- 7\n8: hit\n\n[2 matches, in 1 file]"
    );
}

#[tokio::test]
async fn a_bad_pattern_is_told() {
    let desk = Desk::holding(&[("a", "x")]);
    let (kind, text) = desk.error("search_files", json!({"pattern": "a(b"})).await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
    assert!(
        text.contains("the pattern cannot be used") && text.contains("unclosed group"),
        "{text}"
    );
    let (kind, _) = desk.error("search_files", json!({"pattern": "a\nb"})).await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
    let (kind, _) = desk
        .error("search_files", json!({"pattern": "(\\w{500}){500}"}))
        .await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
}

#[tokio::test]
async fn binary_and_long_lines_are_bounded() {
    let desk = Desk::new();
    desk.put("a.bin", b"needle\0needle");
    desk.put(
        "min.js",
        "x".repeat(500_000) + "needle" + &"y".repeat(500_000),
    );
    let text = desk
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
    desk.put("wide.txt", wide);
    assert_eq!(
        found(&desk, json!({"pattern": "needle"})).await,
        "min.js:1 wide.txt:1"
    );
}

#[tokio::test]
async fn the_first_matches_are_always_the_same() {
    let desk = Desk::new();
    for n in 0..400 {
        desk.put(&format!("d{:02}/f{n:03}", n % 40), "hit\nhit\nhit\n");
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
                found(&desk, json!({"pattern": "hit", "max": max})).await,
                expected[..max].join(" ")
            );
        }
    }
    for (max, complete) in [(1199, false), (1200, true), (1201, true)] {
        let value = desk
            .value("search_files", json!({"pattern": "hit", "max": max}))
            .await;
        assert_eq!(value["complete"], complete, "{max}");
    }
    let text = desk
        .text("search_files", json!({"pattern": "hit", "max": 5}))
        .await;
    assert!(
        text.ends_with("[the first 5 matches; there are more: narrow `pattern`, `path` or `glob`]"),
        "{text}"
    );
    let few = desk
        .value(
            "search_files",
            json!({"pattern": "hit", "max": 30, "path": "d00"}),
        )
        .await;
    assert_eq!(few["complete"], true);
}

#[tokio::test]
async fn long_results_are_bounded_and_always_the_same() {
    let desk = Desk::new();
    for n in 0..300 {
        desk.put(
            &format!("f{n:03}"),
            format!("hit {}\n", "x".repeat(250)).repeat(2),
        );
    }
    let first = desk
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
            desk.call("search_files", json!({"pattern": "hit", "max": 2000}))
                .await,
            first
        );
    }
}

#[tokio::test]
async fn a_search_that_nobody_waits_for_stops() {
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
async fn a_folder_that_becomes_a_link_during_a_search_leads_nowhere() {
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

    /// Puts `door` in the place of `sub` and back, until it is dropped.
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
