//! Pages that are made to take long or to fill memory. The tests count nodes, attributes, depth and
//! text. The clock only detects a page that never finishes.

use std::sync::mpsc;
use std::time::Duration;

use super::*;

const SIZE: usize = 1 << 20;

/// Far more time than any page takes, and far less than a page with quadratic cost takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The maximum text that is requested.
const MAX: usize = 256 * 1024;

/// Repeats a piece up to one megabyte.
fn fill(piece: &str) -> String {
    piece.repeat(SIZE / piece.len())
}

/// Repeats a piece up to an eighth of that, for tests with many cases.
fn some(piece: &str) -> String {
    piece.repeat(SIZE / 8 / piece.len())
}

/// Extracts a page and checks that the stored data is proportional to its size.
fn check(name: &str, page: String) -> Extract {
    let (done, receiver) = mpsc::channel();
    let work = std::thread::spawn(move || {
        let doc = Doc::parse(&page, MAX_NODES);
        let (nodes, attrs) = doc.sizes();
        assert!(
            nodes <= MAX_NODES && nodes <= page.len() + 1,
            "{nodes} nodes"
        );
        assert!(attrs <= page.len() / 3 + 1, "{attrs} attributes");
        assert!(doc.depth() <= 128, "{} levels", doc.depth());
        let found = extract(&page, "https://example.org/", MAX);
        assert!(
            found.text.len() <= MAX + 2000,
            "{} bytes of text",
            found.text.len()
        );
        let _ = done.send(());
        found
    });
    let ended = receiver.recv_timeout(TIMEOUT);
    assert_ne!(
        ended,
        Err(mpsc::RecvTimeoutError::Timeout),
        "{name} does not end"
    );
    work.join().unwrap_or_else(|_| panic!("{name}"))
}

#[test]
fn deep_nesting_is_flattened() {
    let found = check("a megabyte", format!("{}<p>the end</p>", fill("<div>")));
    assert_eq!(found.text, "the end");
    for piece in [
        "<b>",
        "<ul><li>",
        "<blockquote>",
        "<table><tr><td>",
        "<a href=x>",
        "<p><i>",
        "<x-y>",
        "<sup>",
    ] {
        let found = check(piece, format!("{}<p>the end</p>", some(piece)));
        assert!(found.text.contains("the end"), "{piece}");
    }
    let balanced = format!(
        "{}<p>inside</p>{}<p>outside",
        "<div>".repeat(100_000),
        "</div>".repeat(100_000)
    );
    assert_eq!(check("balanced", balanced).text, "inside\n\noutside");
    let quoted = format!("{}{}", "<blockquote>".repeat(200), fill("<p>x"));
    assert!(check("quotes", quoted).is_cut);
    check(
        "lists",
        format!("{}{}", "<ul><li>".repeat(200), some("<li>x")),
    );
    check("closing", some("</div></p></a></b></table>"));
    check("crossing", some("<b><p><i></b><div></i></p>"));
}

#[test]
fn huge_tags_take_bounded_memory() {
    check("attribute", format!("<p title='{}'>text", fill("x")));
    check(
        "unclosed attribute",
        format!("<p>before<p title='{}", fill("x")),
    );
    check(
        "attributes",
        format!(
            "<p {}>text",
            (0..100_000)
                .map(|at| format!("a{at}=1 "))
                .collect::<String>()
        ),
    );
    check("same attributes", format!("<p {}>text", fill("class=a ")));
    check(
        "classes",
        format!("<div class='{}'>text</div>", fill("nav ")),
    );
    check(
        "many classes",
        some("<p class='ad share nav menu x y z' id=sidebar style='display:block'>x"),
    );
    check("style", format!("<div style='{}'>text</div>", fill(" ")));
    check("name", format!("<{}>text", fill("x")));
    check("unclosed name", format!("<{}", fill("x")));
    check("signs", fill("<"));
    check("tags without end", fill("<a "));
    check("ends", fill("</"));
    check("quotes", fill("<a b=\"'"));
    let links = check("links", "<a href='/x'>y".repeat(200_000));
    assert!(
        links
            .text
            .starts_with("[y](https://example.org/x)[y](https")
    );
    check(
        "base",
        format!(
            "<base href='{}'>{}",
            fill("x"),
            "<a href=y>z</a>".repeat(1000)
        ),
    );
    check("addresses", format!("<a href='{}'>x</a>", fill("../")));
}

#[test]
fn huge_skipped_content_takes_bounded_memory() {
    for piece in [
        "<!--",
        "<!-- -->",
        "<!---->",
        "<!-",
        "<![CDATA[",
        "<![CDATA[x]]>",
        "<?",
        "<!doctype ",
        "--",
        "-->",
        "--!",
    ] {
        check(piece, some(piece));
        check(piece, format!("<!--{}", some(piece)));
    }
    for piece in [
        "<script>",
        "<style>",
        "<textarea>",
        "<title>",
        "<xmp>",
        "<plaintext>",
        "<svg>",
        "<template>",
    ] {
        check(piece, some(piece));
        check(piece, format!("{piece}{}", some("</")));
        check(piece, format!("{piece}{}", some("</scrip <!-- <script ")));
        let open = check(piece, format!("<p>before</p>{piece}{}", some("<p>x</p>")));
        assert!(open.text.starts_with("before"), "{piece}");
    }
}

#[test]
fn huge_text_takes_bounded_memory() {
    for piece in [
        "&",
        "&amp",
        "&amp;",
        "&#",
        "&#x",
        "&#9",
        "&#xf",
        "&notit;",
        "&CounterClockwiseContourIntegra",
        "\0",
        "\u{200b}",
    ] {
        check(piece, some(piece));
        check(piece, format!("<a href='{}'>x</a>", some(piece)));
    }
    for piece in [
        " ",
        "\n",
        "\u{a0}",
        "x",
        "é",
        "日",
        "x ",
        "*",
        "`",
        "|",
        "](",
        "<br>",
        "<hr>",
        "<p>",
        "<img alt=x>",
    ] {
        check(piece, some(piece));
        check(piece, format!("<pre>{}", some(piece)));
        check(piece, format!("<h1>{}", some(piece)));
    }
    check("fence", format!("<pre>{}</pre>", some("`")));
}

#[test]
fn long_base_address_is_ignored() {
    let base = format!("<base href='https://example.net/{}/'>", some("a"));
    let found = check("base", format!("{base}{}", some("<a href=b>x</a> ")));
    assert!(
        found.text.contains("[x](https://example.org/b)"),
        "{}",
        &found.text[..100]
    );
}

#[test]
fn huge_tables_take_bounded_memory() {
    check("rows", format!("<table>{}", some("<tr><td>a<td>b")));
    check("cells", format!("<table><tr>{}", some("<td>a")));
    check(
        "wide",
        format!(
            "<table><tr><td>x<tr>{}",
            some("<td colspan=1000000 rowspan=1000000>a")
        ),
    );
    check(
        "in cells",
        format!("<table><tr><td>{}<td>x<tr><td>y<td>z", some("<b>a</b> ")),
    );
    check(
        "in rows",
        format!("<table>{}", "<tr><td>a<td>b<table>".repeat(20_000)),
    );
    check("without", some("<td><tr><tbody><caption>x"));
    check("definitions", format!("<dl>{}", some("<dt>a<dd>b")));
}

#[test]
fn control_bytes_take_bounded_memory() {
    let mut state = 7_u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(SIZE)
    .collect();
    for label in [
        "utf-8",
        "utf-16le",
        "shift_jis",
        "gb18030",
        "iso-2022-jp",
        "euc-kr",
        "big5",
        "replacement",
        "koi8-r",
    ] {
        check(
            label,
            decode(&bytes[..SIZE / 8], Some(label), true).into_owned(),
        );
    }
    let marks: String = bytes
        .iter()
        .map(|byte| {
            ["<", ">", "/", "\"", "'", "=", "a", "p", " ", "!", "-", "&"][usize::from(byte % 12)]
        })
        .collect();
    check("marks", marks);
}
