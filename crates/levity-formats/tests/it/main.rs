//! Tests with files that other programs wrote, and with hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod hostile;
mod pack;

use levity_formats::{FileTexts, FormatErrorKind, Limits, TextLayout, read};

/// Reads a file that another program wrote.
fn file(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

#[track_caller]
fn texts(name: &str) -> FileTexts {
    read(name, &file(name), &Limits::new()).unwrap()
}

/// Returns the only text of a file.
#[track_caller]
fn text(name: &str) -> String {
    let found = texts(name);
    assert_eq!(
        (found.texts.len(), found.left_out.len()),
        (1, 0),
        "{found:?}"
    );
    assert_eq!(found.texts[0].name, name);
    found.texts[0].text.clone()
}

#[test]
fn word_document_keeps_headings_lists_and_tables() {
    assert_eq!(
        text("tides.docx"),
        "# Tide tables\n\n# Harbour\n\nHigh water is at six in the morning.\n\n\
            Bring a lantern.\n\nBring a rope.\n\n\
            | Day | Low water |\n| --- | --- |\n| Monday | 12:10 |\n\n\
            ## Öresund\n\nEbb & flow < 2 m — “slack” water.\n"
    );
}

#[test]
fn slides_are_pages_with_titles_and_notes() {
    let found = texts("tides.pptx");
    let text = &found.texts[0];
    assert_eq!(
        text.text,
        "## Tides\n\nHigh water is at six.\n## Ebb\n\nLow water is at noon.\n\nNotes:\n\n\
            Mention the lantern.\n"
    );
    assert_eq!(text.pages.len(), 2);
    assert!(text.text[text.pages[1]..].starts_with("## Ebb"));
}

#[test]
fn each_sheet_is_a_table_whose_lines_are_rows() {
    let found = texts("tides.xlsx");
    let names: Vec<_> = found.texts.iter().map(|text| text.name.as_str()).collect();
    assert_eq!(names, ["tides.xlsx/Tides", "tides.xlsx/Notes"]);
    assert_eq!(
        found.texts[0].text,
        "day\thigh\theight\n2026-11-19\t06:00\t2.5\n\nTuesday\t\ttrue\n"
    );
    assert_eq!(found.texts[1].text, "\n\tBring a lantern.\n");
    assert_eq!(found.texts[0].layout, TextLayout::Table);
}

#[test]
fn old_and_open_workbooks_are_read() {
    let found = texts("tides.xls");
    assert_eq!(found.texts[0].text, "day\nMonday\t6.5\n");
    let found = texts("tides.ods");
    assert_eq!(found.texts[0].name, "tides.ods/Tides");
    assert_eq!(found.texts[0].text, "day\thigh\nMonday\t06:00\n");
}

#[test]
fn open_document_keeps_headings_lists_and_tables() {
    assert_eq!(
        text("tides.odt"),
        "# Harbour\n\nHigh water is at six in the morning.\n\n- Bring a lantern.\n\n\
            | Day | Low water |\n| --- | --- |\n| Monday | 12:10 |\n"
    );
    let slides = texts("tides.odp");
    assert_eq!(
        slides.texts[0].text,
        "High water is at six.\nLow water is at noon.\n"
    );
    assert_eq!(slides.texts[0].pages, [0, 22]);
}

#[test]
fn chapters_of_book_are_in_reading_order() {
    assert_eq!(
        text("tides.epub"),
        "# Harbour\n\nHigh water is at six in the morning.\n\n# Ebb\n\nLow water is at noon.\n"
    );
}

#[test]
fn pages_of_pdf_are_separate() {
    let found = texts("tides.pdf");
    let text = &found.texts[0];
    assert_eq!(text.pages.len(), 2);
    assert!(text.text[..text.pages[1]].contains("High water is at six in the morning."));
    assert!(text.text[text.pages[1]..].contains("Low water is at noon."));
    assert!(self::text("fpdf.pdf").contains("Low water is at noon."));
}

#[test]
fn email_has_fields_body_and_attachments() {
    let found = texts("tides.eml");
    let names: Vec<_> = found.texts.iter().map(|text| text.name.as_str()).collect();
    assert_eq!(names, ["tides.eml", "tides.eml/tides.docx"]);
    let mail = &found.texts[0].text;
    assert!(mail.starts_with("Subject: Tides, höher\nFrom: Harbour <harbour@example.com>\n"));
    assert!(mail.contains("High water is at six."), "{mail}");
    assert!(found.texts[1].text.contains("Bring a rope."));
}

#[test]
fn encrypted_files_say_so() {
    #[track_caller]
    fn check(name: &str, bytes: &[u8]) {
        let error = read(name, bytes, &Limits::new()).unwrap_err();
        assert_eq!(error.kind(), FormatErrorKind::Encrypted, "{name}: {error}");
    }
    check("encrypted.pdf", &file("encrypted.pdf"));
    let stream: Vec<u8> = "EncryptedPackage".bytes().flat_map(|b| [b, 0]).collect();
    let mut office = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec();
    office.resize(2_000, 0);
    office.extend(stream);
    check("tides.docx", &office);
    let manifest = "<manifest><encryption-data/></manifest>";
    let open = pack::zip(&[
        (
            "mimetype",
            b"application/vnd.oasis.opendocument.text".as_slice(),
        ),
        ("META-INF/manifest.xml", manifest.as_bytes()),
        ("content.xml", b"\x00\x01"),
    ]);
    check("tides.odt", &open);
}

#[test]
fn content_decides_on_format_and_not_name() {
    let pdf = read("tides.docx", &file("tides.pdf"), &Limits::new()).unwrap();
    assert_eq!(pdf.texts[0].pages.len(), 2);
    let word = read("tides.pdf", &file("tides.docx"), &Limits::new()).unwrap();
    assert!(word.texts[0].text.starts_with("# Tide tables"));
}

#[test]
fn unsupported_formats_name_the_way_out() {
    #[track_caller]
    fn check(name: &str, bytes: &[u8], expected: &str) {
        let error = read(name, bytes, &Limits::new()).unwrap_err();
        assert_eq!(error.kind(), FormatErrorKind::Unsupported);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";
    check("a.doc", ole, "save it as .docx");
    check("a.ppt", ole, "save it as .pptx");
    check("a.msg", ole, "save it as .eml");
    check("a.rtf", b"{\\rtf1 text}", "save it as .docx");
    check("a.png", b"\x89PNG\0\0", "neither text nor");
}

#[test]
fn archives_contain_documents_of_all_formats() {
    let inner = pack::zip(&[("deep/tides.md", b"# Tides\n".as_slice())]);
    let files = [
        ("tides.docx", file("tides.docx")),
        ("notes.txt", b"Bring a rope.".to_vec()),
        ("inner.zip", inner),
        ("broken.pdf", b"%PDF-1.7 nothing".to_vec()),
        ("../outside.txt", b"no".to_vec()),
        ("photo.png", b"\x89PNG\0\0".to_vec()),
    ];
    let parts: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (*name, &bytes[..]))
        .collect();
    for (archive, bytes) in [
        ("box.zip", pack::zip(&parts)),
        ("box.tar", pack::tar(&parts)),
        ("box.tar.gz", pack::gzip(&pack::tar(&parts))),
    ] {
        let found = read(archive, &bytes, &Limits::new()).unwrap();
        let names: Vec<_> = found.texts.iter().map(|text| text.name.clone()).collect();
        let expected = ["tides.docx", "notes.txt", "inner.zip/deep/tides.md"];
        assert_eq!(names, expected.map(|name| format!("{archive}/{name}")));
        let left_out: Vec<_> = found
            .left_out
            .iter()
            .map(|part| part.name.clone())
            .collect();
        let expected = ["broken.pdf", "photo.png"];
        assert_eq!(left_out, expected.map(|name| format!("{archive}/{name}")));
    }
    let found = read(
        "notes.txt.gz",
        &pack::gzip(b"Bring a rope."),
        &Limits::new(),
    )
    .unwrap();
    assert_eq!(found.texts[0].name, "notes.txt.gz/notes.txt");
}

#[test]
fn html_and_wide_text_are_decoded() {
    let page = b"<meta charset=koi8-r><h1>\xe4</h1><p>text of the page";
    let found = read("page.html", page, &Limits::new()).unwrap();
    assert_eq!(found.texts[0].text, "# Д\n\ntext of the page");
    let wide: Vec<u8> = "\u{feff}Öresund\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let found = read("wide.md", &wide, &Limits::new()).unwrap();
    assert_eq!(found.texts[0].text, "Öresund\n");
    assert_eq!(found.texts[0].layout, TextLayout::ByName);
}
