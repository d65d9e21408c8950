use levity_core::ToolErrorKind;
use serde_json::json;

use super::Fixture;

#[tokio::test]
async fn read_returns_short_file_unchanged() {
    let fixture = Fixture::with_files(&[("a.txt", "one\ntwo\n"), ("empty", "")]);
    assert_eq!(
        fixture.text("read_file", json!({"path": "a.txt"})).await,
        "one\ntwo\n"
    );
    let value = fixture.value("read_file", json!({"path": "./a.txt"})).await;
    let expected = json!({
        "path": "a.txt", "content": "one\ntwo\n", "first_line": 1, "last_line": 2, "total_lines": 2,
        "bytes": 8,
        "complete": true, "binary": false,
    });
    assert_eq!(value, expected);
    assert_eq!(
        fixture.text("read_file", json!({"path": "empty"})).await,
        "[the file is empty]"
    );
    let numbered = fixture
        .text("read_file", json!({"path": "a.txt", "numbers": true}))
        .await;
    assert_eq!(numbered, "     1\tone\n     2\ttwo\n");
}

#[tokio::test]
async fn read_of_part_reports_range_and_next_line() {
    let fixture = Fixture::with_files(&[("a.txt", "1\n2\n3\n4\n5")]);
    let read = async |args| fixture.text("read_file", args).await;
    let middle = read(json!({"path": "a.txt", "start_line": 2, "lines": 2})).await;
    assert_eq!(
        middle,
        "2\n3\n[lines 2-3 of 5 (9 bytes); continue with start_line 4]"
    );
    let end = read(json!({"path": "a.txt", "start_line": 4, "lines": 9})).await;
    assert_eq!(end, "4\n5\n[lines 4-5 of 5 (9 bytes)]");
    let (kind, text) = fixture
        .error("read_file", json!({"path": "a.txt", "start_line": 6}))
        .await;
    assert_eq!(
        (kind, &*text),
        (
            ToolErrorKind::Failed,
            "`a.txt` has 5 lines; request lines within that range"
        )
    );
}

#[tokio::test]
async fn read_returns_100_kb_by_default() {
    let fixture = Fixture::new();
    let text: String = (0..30_000).map(|n| format!("{n:09}\n")).collect();
    fixture.put("long.txt", &text);
    let first = fixture.text("read_file", json!({"path": "long.txt"})).await;
    let (shown, note) = first.split_at(100_000);
    assert_eq!(
        (shown, note),
        (
            &text[..100_000],
            "[lines 1-10000 of 30000 (300000 bytes); continue with start_line 10001]"
        )
    );
    let rest = fixture
        .text(
            "read_file",
            json!({"path": "long.txt", "start_line": 10_001}),
        )
        .await;
    assert_eq!(&rest[..100_000], &text[100_000..200_000]);
}

#[tokio::test]
async fn read_limit_is_configurable() {
    let fixture = Fixture::with(|tools| tools.max_read(10));
    fixture.put("a.txt", "aaaa\nbbbb\ncccc\n");
    let text = fixture.text("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(
        text,
        "aaaa\nbbbb\n[lines 1-2 of 3 (15 bytes); continue with start_line 3]"
    );
}

#[tokio::test]
async fn read_cuts_long_line() {
    let fixture = Fixture::new();
    fixture.put("min.js", "x".repeat(1 << 20) + "\nend\n");
    let text = fixture.text("read_file", json!({"path": "min.js"})).await;
    assert!(text.len() < 10_000, "{}", text.len());
    assert!(
        text.ends_with("x… [the line has 1048577 bytes]\nend\n"),
        "{}",
        &text[text.len() - 100..]
    );
}

#[tokio::test]
async fn read_of_binary_file_reports_it() {
    let fixture = Fixture::new();
    fixture.put("a.png", b"\x89PNG\r\n\x1a\n\0\0\0");
    let text = fixture.text("read_file", json!({"path": "a.png"})).await;
    assert_eq!(
        text,
        "[`a.png` is not text in UTF-8 or UTF-16: 11 bytes, which are not shown]"
    );
    fixture.put("latin.txt", b"gr\xfc\xdfe aus dem Norden");
    assert_eq!(
        fixture
            .text("read_file", json!({"path": "latin.txt"}))
            .await,
        "gr\u{fffd}\u{fffd}e aus dem Norden"
    );
}

#[tokio::test]
async fn read_decodes_bom_and_utf16() {
    let fixture = Fixture::new();
    fixture.put("bom.txt", "\u{feff}hello\n");
    assert_eq!(
        fixture.text("read_file", json!({"path": "bom.txt"})).await,
        "hello\n"
    );
    let wide: Vec<u8> = "\u{feff}größe\r\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    fixture.put("wide.txt", wide);
    assert_eq!(
        fixture.text("read_file", json!({"path": "wide.txt"})).await,
        "größe\r\n"
    );
}

#[tokio::test]
async fn read_failure_reports_reason() {
    let fixture = Fixture::with_files(&[("dir/a.txt", "x")]);
    for (path, kind, text) in [
        (
            "missing",
            ToolErrorKind::Failed,
            "`missing` does not exist; list its parent folder to see what is there",
        ),
        (
            "dir",
            ToolErrorKind::Failed,
            "`dir` is not a regular file; use the path of a regular file",
        ),
        (
            "",
            ToolErrorKind::InvalidArgs,
            "`` cannot be used as a path: it is empty; `.` is the workspace itself",
        ),
    ] {
        assert_eq!(
            fixture.error("read_file", json!({"path": path})).await,
            (kind, text.to_owned())
        );
    }
}
