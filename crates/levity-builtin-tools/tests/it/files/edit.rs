use levity_core::ToolErrorKind;
use serde_json::json;

use super::Desk;

/// The file after an edit that succeeds.
async fn edited(file: impl AsRef<[u8]>, old: &str, new: &str) -> Vec<u8> {
    let desk = Desk::new();
    desk.put("f", file);
    desk.text("edit_file", json!({"path": "f", "old": old, "new": new}))
        .await;
    desk.get("f")
}

#[tokio::test]
async fn one_place_is_edited() {
    let desk = Desk::holding(&[("a.rs", "fn a() {}\nfn b() {}\n")]);
    let args = json!({"path": "a.rs", "old": "fn b() {}", "new": "fn b() {\n    c();\n}"});
    let result = desk.call("edit_file", args).await;
    assert_eq!(
        result.text(),
        "edited `a.rs` in 1 place; the new text is in lines 2-4"
    );
    assert_eq!(
        result.value,
        Some(json!({"path": "a.rs", "replaced": 1, "lines": [{"first": 2, "last": 4}]}))
    );
    assert_eq!(desk.get("a.rs"), b"fn a() {}\nfn b() {\n    c();\n}\n");
    assert_eq!(*desk.changed.lock().unwrap(), ["a.rs written"]);
}

#[tokio::test]
async fn several_places_are_told_or_all_edited() {
    let desk = Desk::holding(&[("a", "x\ny\nx\n")]);
    let (kind, text) = desk
        .error("edit_file", json!({"path": "a", "old": "x", "new": "z"}))
        .await;
    assert_eq!(kind, ToolErrorKind::Failed);
    assert_eq!(
        text,
        "`old` is 2 times in `a`, in lines 1, 3; add more of what is around it, or set `all` to \
            replace every one"
    );
    assert_eq!(desk.get("a"), b"x\ny\nx\n");
    let text = desk
        .text(
            "edit_file",
            json!({"path": "a", "old": "x", "new": "z", "all": true}),
        )
        .await;
    assert_eq!(
        text,
        "edited `a` in 2 places; the new text is in line 1, line 3"
    );
    assert_eq!(desk.get("a"), b"z\ny\nz\n");
}

#[tokio::test]
async fn a_miss_is_helped() {
    let desk = Desk::holding(&[("a", "if (x) {\n\treturn 1;\n}\n")]);
    let (_, text) = desk
        .error(
            "edit_file",
            json!({"path": "a", "old": "    return 1;", "new": "y"}),
        )
        .await;
    assert!(
        text.starts_with("`old` is not in `a`; it is there with other white space, in line 2;"),
        "{text}"
    );
    let (_, text) = desk
        .error(
            "edit_file",
            json!({"path": "a", "old": "return 2;", "new": "y"}),
        )
        .await;
    assert!(
        text.contains("the closest line is 2: `return 1;`"),
        "{text}"
    );
    let (_, text) = desk
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
async fn what_changes_nothing_is_refused() {
    let desk = Desk::holding(&[("a", "x")]);
    let (kind, text) = desk
        .error("edit_file", json!({"path": "a", "old": "x", "new": "x"}))
        .await;
    assert_eq!(
        (kind, &*text),
        (
            ToolErrorKind::InvalidArgs,
            "`old` and `new` are the same, so nothing would change"
        )
    );
    let (kind, _) = desk
        .error("edit_file", json!({"path": "a", "old": "", "new": "x"}))
        .await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
}

#[tokio::test]
async fn ends_of_lines_marks_and_encodings_stay() {
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
async fn what_is_no_text_is_left_alone() {
    let desk = Desk::new();
    desk.put("a.bin", b"abc\0def");
    let (kind, text) = desk
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
    desk.put("big.txt", vec![b'x'; (16 << 20) + 1]);
    let (_, text) = desk
        .error(
            "edit_file",
            json!({"path": "big.txt", "old": "abc", "new": "x"}),
        )
        .await;
    assert!(text.contains("16777217 bytes"), "{text}");
}

#[tokio::test]
async fn an_edit_does_not_blow_up_a_file() {
    let desk = Desk::new();
    desk.put("a", "a".repeat(1 << 20));
    let args = json!({"path": "a", "old": "a", "new": "b".repeat(1 << 20), "all": true});
    let (kind, text) = desk.error("edit_file", args).await;
    assert_eq!(kind, ToolErrorKind::Failed);
    assert!(
        text.contains("`a` would have 1099511627776 bytes"),
        "{text}"
    );
    assert_eq!(desk.get("a").len(), 1 << 20);
}
