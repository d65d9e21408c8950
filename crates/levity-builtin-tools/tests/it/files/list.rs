#[cfg(target_os = "linux")]
use levity_builtin_tools::ListFiles;
use levity_core::ToolErrorKind;
#[cfg(target_os = "linux")]
use levity_sandbox::Workspace;
use serde_json::{Value, json};

use super::Fixture;
#[cfg(target_os = "linux")]
use super::{call_without_privileges, set_mode};

async fn list(fixture: &Fixture, args: Value) -> String {
    let value = fixture.value("list_files", args).await;
    let paths: Vec<_> = value["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    paths.join(" ")
}

#[tokio::test]
async fn list_shows_files_and_folders() {
    let fixture = Fixture::with_files(&[("b.txt", "12345"), ("a/c.txt", ""), (".hidden", "")]);
    assert_eq!(
        fixture.text("list_files", json!({})).await,
        "a/\nb.txt (5)\n"
    );
    assert_eq!(
        list(&fixture, json!({"hidden": true})).await,
        ".hidden a b.txt"
    );
    assert_eq!(
        list(&fixture, json!({"recursive": true})).await,
        "a a/c.txt b.txt"
    );
    assert_eq!(list(&fixture, json!({"path": "a"})).await, "a/c.txt");
    let text = fixture.text("list_files", json!({"glob": "*.rs"})).await;
    assert_eq!(
        text,
        "[nothing to list; hidden and ignored files are omitted by default]\n"
    );
}

#[tokio::test]
async fn glob_matches_names_or_paths() {
    let fixture = Fixture::with_files(&[
        ("a.rs", ""),
        ("src/b.rs", ""),
        ("src/deep/c.rs", ""),
        ("src/d.txt", ""),
    ]);
    for (args, expected) in [
        (json!({"glob": "*.rs"}), "a.rs src/b.rs src/deep/c.rs"),
        (json!({"glob": "src/**/*.rs"}), "src/b.rs src/deep/c.rs"),
        (json!({"glob": "src/*.rs"}), "src/b.rs"),
        (
            json!({"glob": "**/*.{rs,txt}", "path": "src"}),
            "src/b.rs src/d.txt src/deep/c.rs",
        ),
        (json!({"glob": "deep/*", "path": "src"}), "src/deep/c.rs"),
        (json!({"glob": "*.rs", "recursive": false}), "a.rs"),
        (
            json!({"glob": "!*.rs", "path": "src", "recursive": false}),
            "src/d.txt src/deep",
        ),
    ] {
        assert_eq!(list(&fixture, args.clone()).await, expected, "{args}");
    }
    let (_, text) = fixture.error("list_files", json!({"glob": "a["})).await;
    assert!(
        text.starts_with("the glob `a[` is invalid; try one like `*.rs`"),
        "{text}"
    );
}

#[tokio::test]
async fn list_applies_gitignore_rules() {
    let fixture = Fixture::with_files(&[
        (
            ".gitignore",
            "# rules\n*.log\n!keep.log\n/only-here\nbuild/\n\
                docs/*.tmp\n**/cache/**\n\\#odd\ntrail \n",
        ),
        ("a.log", ""),
        ("keep.log", ""),
        ("only-here", ""),
        ("sub/only-here", ""),
        ("build/x", ""),
        ("sub/build/x", ""),
        ("other/build", "a file, so it stays"),
        ("docs/a.tmp", ""),
        ("docs/sub/a.tmp", ""),
        ("x/cache/y", ""),
        ("#odd", ""),
        ("trail", ""),
        ("sub/.gitignore", "!a.log\n*.txt\n/anchored\n"),
        ("sub/a.log", ""),
        ("sub/b.log", ""),
        ("sub/c.txt", ""),
        ("sub/anchored", ""),
        ("sub/deep/anchored", ""),
        ("sub/deep/.gitignore", "!c.txt\n"),
        ("sub/deep/c.txt", ""),
        ("top.txt", ""),
    ]);
    let expected = "docs docs/sub docs/sub/a.tmp keep.log other other/build sub sub/a.log sub/deep \
        sub/deep/anchored \
                    sub/deep/c.txt sub/only-here top.txt x x/cache";
    assert_eq!(list(&fixture, json!({"recursive": true})).await, expected);
    // Rules of parent folders apply in the folder too.
    assert_eq!(
        list(&fixture, json!({"path": "sub/deep"})).await,
        "sub/deep/anchored sub/deep/c.txt"
    );
    assert_eq!(
        list(&fixture, json!({"path": "sub"})).await,
        "sub/a.log sub/deep sub/only-here"
    );
    let all = list(&fixture, json!({"recursive": true, "ignored": true})).await;
    assert!(
        all.contains("sub/b.log") && all.contains("build/x"),
        "{all}"
    );
}

#[tokio::test]
async fn ignore_file_takes_precedence_over_gitignore() {
    let fixture = Fixture::with_files(&[
        (".gitignore", "*.gen\n"),
        (".ignore", "!a.gen\nsecret\n"),
        ("a.gen", ""),
        ("b.gen", ""),
        ("secret", ""),
    ]);
    assert_eq!(list(&fixture, json!({})).await, "a.gen");
}

#[tokio::test]
async fn linked_rules_file_is_ignored() {
    let fixture = Fixture::with_files(&[("a.txt", ""), ("b.txt", "")]);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("rules"), "a.txt\n").unwrap();
    std::os::unix::fs::symlink(
        outside.path().join("rules"),
        fixture.path().join(".gitignore"),
    )
    .unwrap();
    assert_eq!(list(&fixture, json!({})).await, "a.txt b.txt");
}

/// Rules are compiled before anything is listed, so a hostile folder could make a list take
/// minutes.
#[tokio::test]
async fn rules_beyond_size_limits_are_skipped() {
    let filler = "# filler\n".repeat(8_000);
    let cut = 64 * 1024 - "first\n".len() - 2;
    let fixture = Fixture::with_files(&[("first", ""), ("last", ""), ("la", "")]);
    fixture.put(
        ".gitignore",
        format!("first\n{}\nlast\n", &filler[..cut - 1]),
    );
    assert_eq!(
        list(&fixture, json!({})).await,
        "la last",
        "a rule that was cut is none"
    );
    fixture.put(".gitignore", "");
    for n in 0..9 {
        fixture.put(&format!("d{n}/.gitignore"), format!("first\n{filler}"));
        fixture.put(&format!("d{n}/first"), "");
    }
    let found = list(&fixture, json!({"recursive": true, "glob": "first"})).await;
    assert_eq!(
        found, "d8/first first",
        "the ninth file of rules is beyond the limit of a walk"
    );
}

/// A hostile rules file must not crash the host.
#[tokio::test]
async fn complex_rules_are_skipped_and_others_apply() {
    let nested = |open: &str, close: &str| open.repeat(10_000) + "a" + &close.repeat(10_000);
    let fixture = Fixture::with_files(&[("first", "x"), ("last", "x"), ("a", "x")]);
    for heavy in [
        nested("{", "}"),
        nested("{a,", "}"),
        nested("{\\}", "}"),
        nested("{[}]", "}"),
        "?".repeat(60_000),
    ] {
        for name in [".gitignore", ".ignore"] {
            fixture.put(name, format!("first\n{heavy}\nlast\n"));
            assert_eq!(list(&fixture, json!({"recursive": true})).await, "a");
            let found = fixture.text("search_files", json!({"pattern": "x"})).await;
            assert!(found.contains("[1 match, in 1 file]"), "{found}");
            fixture.put(name, "");
        }
    }
}

#[tokio::test]
async fn list_is_limited_and_deterministic() {
    let fixture = Fixture::new();
    for n in 0..30 {
        fixture.put(&format!("d{}/f{n:02}", n % 3), "");
    }
    let value = fixture
        .value("list_files", json!({"recursive": true, "max": 5}))
        .await;
    assert_eq!(value["complete"], false);
    let text = fixture
        .text("list_files", json!({"recursive": true, "max": 3}))
        .await;
    assert_eq!(
        text,
        "d0/\nd0/f00 (0)\nd0/f03 (0)\n[the first 3 entries; there are more: list a folder of them, \
            or use `glob`]\n"
    );
    assert_eq!(
        fixture
            .value("list_files", json!({"recursive": true, "max": 33}))
            .await["complete"],
        true
    );
}

#[tokio::test]
async fn list_handles_deep_tree_and_odd_names() {
    let fixture = Fixture::new();
    fixture.put(&format!("{}f", "d/".repeat(300)), "");
    fixture.put("two\nlines", "");
    let text = fixture.text("list_files", json!({"recursive": true})).await;
    assert!(text.contains("\"two\\nlines\" (0)\n"), "{text}");
    assert!(text.lines().count() > 50);
}

#[cfg(target_os = "linux")]
#[test]
fn list_names_folder_that_cannot_be_read() {
    let fixture = Fixture::with_files(&[("a.txt", ""), ("b/c.txt", ""), ("d/e.txt", "")]);
    let tool = ListFiles::new(Workspace::open(fixture.path()).unwrap());
    let list = |args: Value| {
        let output = call_without_privileges(&tool, args);
        let complete = output.value.as_ref().unwrap()["complete"].clone();
        (output.as_text().into_owned(), complete)
    };
    set_mode(&fixture.path().join("b"), 0o000);
    for (args, expected, complete) in [
        (json!({}), "a.txt (0)\nb/\nd/\n", true),
        (
            json!({"recursive": true}),
            "a.txt (0)\nb/\nd/\nd/e.txt (0)\n[could not be read: b/]\n",
            false,
        ),
        (
            json!({"glob": "e*"}),
            "d/e.txt (0)\n[could not be read: b/]\n",
            false,
        ),
    ] {
        assert_eq!(
            list(args.clone()),
            (expected.to_owned(), json!(complete)),
            "{args}"
        );
    }
    set_mode(&fixture.path().join("d"), 0o000);
    let (text, _) = list(json!({"recursive": true}));
    assert!(
        text.ends_with("[could not be read: b/ and 1 more folder]\n"),
        "{text}"
    );
    for folder in ["b", "d"] {
        set_mode(&fixture.path().join(folder), 0o755);
    }
}

#[tokio::test]
async fn complex_glob_returns_error() {
    let fixture = Fixture::with_files(&[("a.rs", "")]);
    for glob in [
        "{".repeat(300) + "a" + &"}".repeat(300),
        "?".repeat(2_000_000),
        "{a,".repeat(20) + "b",
        "{\\}".repeat(20) + &"}".repeat(20),
        "{[}]".repeat(20) + &"}".repeat(20),
        "{[]}]".repeat(20) + &"}".repeat(20),
    ] {
        for (tool, args) in [
            ("list_files", json!({"glob": glob})),
            ("search_files", json!({"glob": glob, "pattern": "x"})),
        ] {
            let (kind, text) = fixture.error(tool, args).await;
            assert_eq!(kind, ToolErrorKind::InvalidArgs, "{text}");
            assert!(text.contains("too long or nested too deeply"), "{text}");
        }
    }
}
