//! Files that try to exhaust memory or time.

use levity_formats::{FormatErrorKind, Limits, read};

use crate::pack;

#[track_caller]
fn check(name: &str, bytes: &[u8], limits: &Limits, expected: FormatErrorKind) {
    let error = read(name, bytes, limits).unwrap_err();
    assert_eq!(error.kind(), expected, "{error}");
}

/// A Word document with this body.
fn word(body: &str) -> Vec<u8> {
    let xml = format!("<document><body>{body}</body></document>");
    pack::zip(&[
        ("[Content_Types].xml", b"<Types/>".as_slice()),
        ("word/document.xml", xml.as_bytes()),
    ])
}

#[test]
fn unpacked_bytes_are_limited() {
    let zeros = vec![b' '; 3 << 20];
    let limits = Limits::new().max_unpacked(1 << 20);
    let packed = pack::zip(&[("a.txt", &zeros)]);
    assert!(packed.len() < 10_000);
    check("a.zip", &packed, &limits, FormatErrorKind::TooLarge);
    check(
        "a.gz",
        &pack::gzip(&zeros),
        &limits,
        FormatErrorKind::TooLarge,
    );
    let body = "<p><r><t>x</t></r></p>".repeat(100_000);
    check("a.docx", &word(&body), &limits, FormatErrorKind::TooLarge);
}

#[test]
fn many_small_bombs_share_one_limit() {
    let spaces = vec![b' '; 1 << 20];
    let names: Vec<_> = (0..20).map(|number| format!("{number}.txt")).collect();
    let files: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), &spaces[..]))
        .collect();
    let limits = Limits::new().max_unpacked(10 << 20);
    check(
        "a.zip",
        &pack::zip(&files),
        &limits,
        FormatErrorKind::TooLarge,
    );
}

#[test]
fn texts_are_limited() {
    let limits = Limits::new().max_text(1_000);
    let body = "<p><r><t>some words</t></r></p>".repeat(200);
    check("a.docx", &word(&body), &limits, FormatErrorKind::TooLarge);
    let text = "some words ".repeat(200);
    let files = [("a.txt", text.as_bytes()), ("b.txt", text.as_bytes())];
    check(
        "a.zip",
        &pack::zip(&files),
        &limits,
        FormatErrorKind::TooLarge,
    );
    let mail = format!("Subject: a\r\n\r\n{text}");
    check("a.eml", mail.as_bytes(), &limits, FormatErrorKind::TooLarge);
}

#[test]
fn nesting_of_archives_is_limited() {
    let mut bytes = pack::zip(&[("a.txt", b"the text".as_slice())]);
    for _ in 0..10 {
        bytes = pack::zip(&[("a.zip", &bytes)]);
    }
    let found = read("a.zip", &bytes, &Limits::new()).unwrap();
    assert!(found.texts.is_empty());
    let error = &found.left_out[0].error;
    assert_eq!(error.kind(), FormatErrorKind::TooLarge, "{error}");
}

#[test]
fn number_of_files_is_limited() {
    let names: Vec<_> = (0..10_500).map(|number| format!("{number}.txt")).collect();
    let files: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), b"x".as_slice()))
        .collect();
    check(
        "a.zip",
        &pack::zip(&files),
        &Limits::new(),
        FormatErrorKind::TooLarge,
    );
}

#[test]
fn entities_are_not_expanded() {
    let xml = "<!DOCTYPE a [<!ENTITY b \"boom\"><!ENTITY c \"&b;&b;&b;\">]>\
        <document><body><p><r><t>a&c;&b;d &amp; &#228;</t></r></p></body></document>";
    let bytes = pack::zip(&[
        ("[Content_Types].xml", b"<Types/>".as_slice()),
        ("word/document.xml", xml.as_bytes()),
    ]);
    let found = read("a.docx", &bytes, &Limits::new()).unwrap();
    assert_eq!(found.texts[0].text, "ad & ä\n");
}

#[test]
fn deep_nesting_is_an_error_or_ignored() {
    let body = "<p>".repeat(100_000);
    check(
        "a.docx",
        &word(&body),
        &Limits::new(),
        FormatErrorKind::Damaged,
    );
    let tables = format!(
        "{}<p><r><t>x</t></r></p>{}",
        "<tbl><tr><tc>".repeat(50_000),
        "</tc></tr></tbl>".repeat(50_000)
    );
    let found = read("a.docx", &word(&tables), &Limits::new()).unwrap();
    assert_eq!(found.texts[0].text, "| x |\n| --- |\n");
}

#[test]
fn distant_cells_take_no_memory() {
    let found = read("a.xlsx", &crate::file("distant.xlsx"), &Limits::new()).unwrap();
    let text = &found.texts[0].text;
    assert_eq!(text.lines().count(), 1_048_576);
    assert_eq!(
        (text.lines().next(), text.trim_end().ends_with('2')),
        (Some("1"), true)
    );
}

#[test]
fn broken_references_are_no_panic() {
    let book = pack::zip(&[
        ("META-INF/container.xml", b"<a/>".as_slice()),
        ("b.opf", b"<a/>"),
    ]);
    check("a.epub", &book, &Limits::new(), FormatErrorKind::Damaged);
    let slides = pack::zip(&[
        ("[Content_Types].xml", b"<Types/>".as_slice()),
        (
            "ppt/presentation.xml",
            b"<p xmlns:r='x'><sldId r:id='1'/><sldId/></p>",
        ),
    ]);
    check("a.pptx", &slides, &Limits::new(), FormatErrorKind::NoText);
    check("a.docx", &word(""), &Limits::new(), FormatErrorKind::NoText);
    check(
        "a.zip",
        b"PK\x05\x06",
        &Limits::new(),
        FormatErrorKind::Damaged,
    );
}
