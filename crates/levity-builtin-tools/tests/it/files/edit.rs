use levity_core::ToolErrorKind;
use serde_json::json;

use super::Fixture;

/// Returns the file after an edit that succeeds.
async fn edited(file: impl AsRef<[u8]>, old: &str, new: &str) -> Vec<u8> {
    let fixture = Fixture::new();
    fixture.put("f", file);
    fixture
        .text("edit_file", json!({"path": "f", "old": old, "new": new}))
        .await;
    fixture.get("f")
}

#[tokio::test]
async fn edit_replaces_single_occurrence() {
    let fixture = Fixture::with_files(&[("a.rs", "fn a() {}\nfn b() {}\n")]);
    let args = json!({"path": "a.rs", "old": "fn b() {}", "new": "fn b() {\n    c();\n}"});
    let result = fixture.call("edit_file", args).await;
    assert_eq!(
        result.text(),
        "edited `a.rs` in 1 place; the new text is in lines 2-4"
    );
    assert_eq!(
        result.value,
        Some(json!({"path": "a.rs", "replaced": 1, "lines": [{"first": 2, "last": 4}]}))
    );
    assert_eq!(fixture.get("a.rs"), b"fn a() {}\nfn b() {\n    c();\n}\n");
    assert_eq!(*fixture.changed.lock().unwrap(), ["a.rs written"]);
}

#[tokio::test]
async fn edit_reports_several_occurrences_or_replaces_all() {
    let fixture = Fixture::with_files(&[("a", "x\ny\nx\n")]);
    let (kind, text) = fixture
        .error("edit_file", json!({"path": "a", "old": "x", "new": "z"}))
        .await;
    assert_eq!(kind, ToolErrorKind::Failed);
    assert_eq!(
        text,
        "`old` occurs 2 times in `a`, in lines 1, 3; add more of the text around it, or set `all` \
            to \
            replace every one"
    );
    assert_eq!(fixture.get("a"), b"x\ny\nx\n");
    let text = fixture
        .text(
            "edit_file",
            json!({"path": "a", "old": "x", "new": "z", "all": true}),
        )
        .await;
    assert_eq!(
        text,
        "edited `a` in 2 places; the new text is in line 1, line 3"
    );
    assert_eq!(fixture.get("a"), b"z\ny\nz\n");
}

#[tokio::test]
async fn edit_of_missing_text_suggests_similar_text() {
    let fixture = Fixture::with_files(&[("a", "if (x) {\n\treturn 1;\n}\n")]);
    let (_, text) = fixture
        .error(
            "edit_file",
            json!({"path": "a", "old": "    return 1;", "new": "y"}),
        )
        .await;
    assert!(
        text.starts_with("`old` is not in `a`; it occurs with other white space in line 2;"),
        "{text}"
    );
    let (_, text) = fixture
        .error(
            "edit_file",
            json!({"path": "a", "old": "return 2;", "new": "y"}),
        )
        .await;
    assert!(
        text.contains("the closest line is 2: `return 1;`"),
        "{text}"
    );
    let (_, text) = fixture
        .error(
            "edit_file",
            json!({"path": "a", "old": "nothing like it", "new": "y"}),
        )
        .await;
    assert_eq!(
        text,
        "`old` is not in `a`; read the file again and give the text exactly"
    );
}

#[tokio::test]
async fn edit_without_change_returns_error() {
    let fixture = Fixture::with_files(&[("a", "x")]);
    let (kind, text) = fixture
        .error("edit_file", json!({"path": "a", "old": "x", "new": "x"}))
        .await;
    assert_eq!(
        (kind, &*text),
        (
            ToolErrorKind::InvalidArgs,
            "`old` and `new` are the same, so nothing would change"
        )
    );
    let (kind, _) = fixture
        .error("edit_file", json!({"path": "a", "old": "", "new": "x"}))
        .await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
}

#[tokio::test]
async fn edit_preserves_line_endings_bom_and_encoding() {
    assert_eq!(
        edited("a\r\nb\r\nc\r\n", "b\nc", "x\ny").await,
        b"a\r\nx\r\ny\r\n"
    );
    assert_eq!(
        edited("\u{feff}a\n", "a", "b").await,
        "\u{feff}b\n".as_bytes()
    );
    assert_eq!(
        edited(b"gr\xfc\xdfe aus Norden", "Norden", "S\u{fc}den").await,
        b"gr\xfc\xdfe aus S\xc3\xbcden"
    );
    let wide = |text: &str| {
        text.encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect::<Vec<u8>>()
    };
    assert_eq!(
        edited(wide("\u{feff}ein Wort\r\n"), "Wort\n", "Satz\n").await,
        wide("\u{feff}ein Satz\r\n")
    );
}

#[tokio::test]
async fn edit_of_invalid_utf16_returns_error_and_changes_nothing() {
    // A byte too many, and half of a surrogate pair.
    for invalid in [&b"\xff\xfea\0b\0c"[..], b"\xff\xfea\0\x00\xd8b\0"] {
        let fixture = Fixture::new();
        fixture.put("a.txt", invalid);
        let arguments = json!({"path": "a.txt", "old": "a", "new": "x"});
        let (kind, text) = fixture.error("edit_file", arguments).await;
        assert_eq!(kind, ToolErrorKind::Failed);
        assert_eq!(
            text,
            "`a.txt` has invalid UTF-16, which an edit would change; use a command"
        );
        assert_eq!(
            std::fs::read(fixture.path().join("a.txt")).unwrap(),
            invalid
        );
    }
}

#[tokio::test]
async fn edit_of_binary_file_returns_error() {
    let fixture = Fixture::new();
    fixture.put("a.bin", b"abc\0def");
    let (kind, text) = fixture
        .error(
            "edit_file",
            json!({"path": "a.bin", "old": "abc", "new": "x"}),
        )
        .await;
    assert_eq!(
        (kind, &*text),
        (
            ToolErrorKind::Failed,
            "`a.bin` is not text, so it cannot be edited"
        )
    );
    fixture.put("big.txt", vec![b'x'; (16 << 20) + 1]);
    let (_, text) = fixture
        .error(
            "edit_file",
            json!({"path": "big.txt", "old": "abc", "new": "x"}),
        )
        .await;
    assert!(text.contains("16777217 bytes"), "{text}");
}

#[tokio::test]
async fn edit_above_size_limit_returns_error() {
    let fixture = Fixture::new();
    fixture.put("a", "a".repeat(1 << 20));
    let args = json!({"path": "a", "old": "a", "new": "b".repeat(1 << 20), "all": true});
    let (kind, text) = fixture.error("edit_file", args).await;
    assert_eq!(kind, ToolErrorKind::Failed);
    assert!(
        text.contains("`a` would have 1099511627776 bytes"),
        "{text}"
    );
    assert_eq!(fixture.get("a").len(), 1 << 20);
}
