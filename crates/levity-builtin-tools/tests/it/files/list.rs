use levity_core::ToolErrorKind;
use serde_json::{Value, json};

use super::Desk;

async fn list(desk: &Desk, args: Value) -> String {
    let value = desk.value("list_files", args).await;
    let paths: Vec<_> = value["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    paths.join(" ")
}

#[tokio::test]
async fn a_folder_is_listed() {
    let desk = Desk::holding(&[("b.txt", "12345"), ("a/c.txt", ""), (".hidden", "")]);
    assert_eq!(desk.text("list_files", json!({})).await, "a/\nb.txt (5)\n");
    assert_eq!(
        list(&desk, json!({"hidden": true})).await,
        ".hidden a b.txt"
    );
    assert_eq!(
        list(&desk, json!({"recursive": true})).await,
        "a a/c.txt b.txt"
    );
    assert_eq!(list(&desk, json!({"path": "a"})).await, "a/c.txt");
    let text = desk.text("list_files", json!({"glob": "*.rs"})).await;
    assert_eq!(
        text,
        "[nothing to list; hidden and ignored files are left out unless asked for]\n"
    );
}

#[tokio::test]
async fn globs_speak_of_names_or_paths() {
    let desk = Desk::holding(&[
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
        assert_eq!(list(&desk, args.clone()).await, expected, "{args}");
    }
    let (_, text) = desk.error("list_files", json!({"glob": "a["})).await;
    assert!(
        text.starts_with("the glob `a[` does not parse; try one like `*.rs`"),
        "{text}"
    );
}

#[tokio::test]
async fn git_rules_are_honoured() {
    let desk = Desk::holding(&[
        (
            ".gitignore",
            "# rules\n*.log\n!keep.log\n/only-here\nbuild/\ndocs/*.tmp\n**/cache/**\n\\#odd\ntrail \n",
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
    assert_eq!(list(&desk, json!({"recursive": true})).await, expected);
    // Rules above the folder hold in it, too.
    assert_eq!(
        list(&desk, json!({"path": "sub/deep"})).await,
        "sub/deep/anchored sub/deep/c.txt"
    );
    assert_eq!(
        list(&desk, json!({"path": "sub"})).await,
        "sub/a.log sub/deep sub/only-here"
    );
    let all = list(&desk, json!({"recursive": true, "ignored": true})).await;
    assert!(
        all.contains("sub/b.log") && all.contains("build/x"),
        "{all}"
    );
}

#[tokio::test]
async fn own_rules_come_before_those_of_git() {
    let desk = Desk::holding(&[
        (".gitignore", "*.gen\n"),
        (".ignore", "!a.gen\nsecret\n"),
        ("a.gen", ""),
        ("b.gen", ""),
        ("secret", ""),
    ]);
    assert_eq!(list(&desk, json!({})).await, "a.gen");
}

#[tokio::test]
async fn rules_behind_a_link_have_no_say() {
    let desk = Desk::holding(&[("a.txt", ""), ("b.txt", "")]);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("rules"), "a.txt\n").unwrap();
    std::os::unix::fs::symlink(outside.path().join("rules"), desk.path().join(".gitignore"))
        .unwrap();
    assert_eq!(list(&desk, json!({})).await, "a.txt b.txt");
}

/// Rules are compiled before anything is listed, so a folder from elsewhere could make a list take
/// minutes.
#[tokio::test]
async fn rules_beyond_the_limit_of_a_file_or_a_walk_are_left_out() {
    let filler = "# filler\n".repeat(8_000);
    let cut = 64 * 1024 - "first\n".len() - 2;
    let desk = Desk::holding(&[("first", ""), ("last", ""), ("la", "")]);
    desk.put(
        ".gitignore",
        format!("first\n{}\nlast\n", &filler[..cut - 1]),
    );
    assert_eq!(
        list(&desk, json!({})).await,
        "la last",
        "a rule that was cut is none"
    );
    desk.put(".gitignore", "");
    for n in 0..9 {
        desk.put(&format!("d{n}/.gitignore"), format!("first\n{filler}"));
        desk.put(&format!("d{n}/first"), "");
    }
    let found = list(&desk, json!({"recursive": true, "glob": "first"})).await;
    assert_eq!(
        found, "d8/first first",
        "the ninth file of rules is beyond the limit of a walk"
    );
}

/// A file of rules from elsewhere must not end the host.
#[tokio::test]
async fn heavy_rules_are_left_out_and_others_hold() {
    let nested = |open: &str, close: &str| open.repeat(10_000) + "a" + &close.repeat(10_000);
    let desk = Desk::holding(&[("first", "x"), ("last", "x"), ("a", "x")]);
    for heavy in [
        nested("{", "}"),
        nested("{a,", "}"),
        nested("{\\}", "}"),
        nested("{[}]", "}"),
        "?".repeat(60_000),
    ] {
        for name in [".gitignore", ".ignore"] {
            desk.put(name, format!("first\n{heavy}\nlast\n"));
            assert_eq!(list(&desk, json!({"recursive": true})).await, "a");
            let found = desk.text("search_files", json!({"pattern": "x"})).await;
            assert!(found.contains("[1 match, in 1 file]"), "{found}");
            desk.put(name, "");
        }
    }
}

#[tokio::test]
async fn a_list_is_bounded_and_always_the_same() {
    let desk = Desk::new();
    for n in 0..30 {
        desk.put(&format!("d{}/f{n:02}", n % 3), "");
    }
    let value = desk
        .value("list_files", json!({"recursive": true, "max": 5}))
        .await;
    assert_eq!(value["complete"], false);
    let text = desk
        .text("list_files", json!({"recursive": true, "max": 3}))
        .await;
    assert_eq!(
        text,
        "d0/\nd0/f00 (0)\nd0/f03 (0)\n[the first 3 entries; there are more: list a folder of them, \
            or use `glob`]\n"
    );
    assert_eq!(
        desk.value("list_files", json!({"recursive": true, "max": 33}))
            .await["complete"],
        true
    );
}

#[tokio::test]
async fn a_deep_tree_and_odd_names_do_no_harm() {
    let desk = Desk::new();
    desk.put(&format!("{}f", "d/".repeat(300)), "");
    desk.put("two\nlines", "");
    let text = desk.text("list_files", json!({"recursive": true})).await;
    assert!(text.contains("\"two\\nlines\" (0)\n"), "{text}");
    assert!(text.lines().count() > 50);
}

#[tokio::test]
async fn glob_that_is_too_heavy_is_refused() {
    let desk = Desk::holding(&[("a.rs", "")]);
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
            let (kind, text) = desk.error(tool, args).await;
            assert_eq!(kind, ToolErrorKind::InvalidArgs, "{text}");
            assert!(text.contains("too long or nested too deeply"), "{text}");
        }
    }
}
