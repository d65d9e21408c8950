use levity_core::ToolErrorKind;
use serde_json::json;

use super::Desk;

#[tokio::test]
async fn a_short_file_is_shown_as_it_is() {
    let desk = Desk::holding(&[("a.txt", "one\ntwo\n"), ("empty", "")]);
    assert_eq!(
        desk.text("read_file", json!({"path": "a.txt"})).await,
        "one\ntwo\n"
    );
    let value = desk.value("read_file", json!({"path": "./a.txt"})).await;
    let expected = json!({
        "path": "a.txt", "content": "one\ntwo\n", "first_line": 1, "last_line": 2, "total_lines": 2, "bytes": 8,
        "complete": true, "binary": false,
    });
    assert_eq!(value, expected);
    assert_eq!(
        desk.text("read_file", json!({"path": "empty"})).await,
        "[the file is empty]"
    );
    let numbered = desk
        .text("read_file", json!({"path": "a.txt", "numbers": true}))
        .await;
    assert_eq!(numbered, "     1\tone\n     2\ttwo\n");
}

#[tokio::test]
async fn a_part_says_where_it_is_and_how_to_go_on() {
    let desk = Desk::holding(&[("a.txt", "1\n2\n3\n4\n5")]);
    let read = async |args| desk.text("read_file", args).await;
    let middle = read(json!({"path": "a.txt", "start_line": 2, "lines": 2})).await;
    assert_eq!(
        middle,
        "2\n3\n[lines 2-3 of 5 (9 bytes); read on with start_line 4]"
    );
    let end = read(json!({"path": "a.txt", "start_line": 4, "lines": 9})).await;
    assert_eq!(end, "4\n5\n[lines 4-5 of 5 (9 bytes)]");
    let (kind, text) = desk
        .error("read_file", json!({"path": "a.txt", "start_line": 6}))
        .await;
    assert_eq!(
        (kind, &*text),
        (
            ToolErrorKind::Failed,
            "`a.txt` has 5 lines; ask for lines within them"
        )
    );
}

#[tokio::test]
async fn a_hundred_kilobytes_are_shown_at_once() {
    let desk = Desk::new();
    let text: String = (0..30_000).map(|n| format!("{n:09}\n")).collect();
    desk.put("long.txt", &text);
    let first = desk.text("read_file", json!({"path": "long.txt"})).await;
    let (shown, note) = first.split_at(100_000);
    assert_eq!(
        (shown, note),
        (
            &text[..100_000],
            "[lines 1-10000 of 30000 (300000 bytes); read on with start_line 10001]"
        )
    );
    let rest = desk
        .text(
            "read_file",
            json!({"path": "long.txt", "start_line": 10_001}),
        )
        .await;
    assert_eq!(&rest[..100_000], &text[100_000..200_000]);
}

#[tokio::test]
async fn the_cap_can_be_set() {
    let desk = Desk::with(|tools| tools.max_read(10));
    desk.put("a.txt", "aaaa\nbbbb\ncccc\n");
    let text = desk.text("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(
        text,
        "aaaa\nbbbb\n[lines 1-2 of 3 (15 bytes); read on with start_line 3]"
    );
}

#[tokio::test]
async fn a_long_line_is_bounded() {
    let desk = Desk::new();
    desk.put("min.js", "x".repeat(1 << 20) + "\nend\n");
    let text = desk.text("read_file", json!({"path": "min.js"})).await;
    assert!(text.len() < 10_000, "{}", text.len());
    assert!(
        text.ends_with("x… [the line has 1048577 bytes]\nend\n"),
        "{}",
        &text[text.len() - 100..]
    );
}

#[tokio::test]
async fn what_is_no_text_is_told() {
    let desk = Desk::new();
    desk.put("a.png", b"\x89PNG\r\n\x1a\n\0\0\0");
    let text = desk.text("read_file", json!({"path": "a.png"})).await;
    assert_eq!(
        text,
        "[`a.png` is not text in UTF-8 or UTF-16: 11 bytes, which are not shown]"
    );
    desk.put("latin.txt", b"gr\xfc\xdfe aus dem Norden");
    assert_eq!(
        desk.text("read_file", json!({"path": "latin.txt"})).await,
        "gr\u{fffd}\u{fffd}e aus dem Norden"
    );
}

#[tokio::test]
async fn marks_and_wide_text_are_understood() {
    let desk = Desk::new();
    desk.put("bom.txt", "\u{feff}hello\n");
    assert_eq!(
        desk.text("read_file", json!({"path": "bom.txt"})).await,
        "hello\n"
    );
    let wide: Vec<u8> = "\u{feff}größe\r\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    desk.put("wide.txt", wide);
    assert_eq!(
        desk.text("read_file", json!({"path": "wide.txt"})).await,
        "größe\r\n"
    );
}

#[tokio::test]
async fn what_cannot_be_read_says_why() {
    let desk = Desk::holding(&[("dir/a.txt", "x")]);
    for (path, kind, text) in [
        (
            "missing",
            ToolErrorKind::Failed,
            "there is no `missing`; list the folder above it to see what is there",
        ),
        (
            "dir",
            ToolErrorKind::Failed,
            "`dir` is no regular file; use the path of one",
        ),
        (
            "",
            ToolErrorKind::InvalidArgs,
            "`` cannot be used as a path: it is empty; `.` is the workspace itself",
        ),
    ] {
        assert_eq!(
            desk.error("read_file", json!({"path": path})).await,
            (kind, text.to_owned())
        );
    }
}
