use super::*;

fn page(html: &str) -> Extract {
    extract(html, "https://example.org/dir/page", 1 << 20)
}

#[track_caller]
fn check(html: &str, expected: &str) {
    assert_eq!(page(html).text, expected, "{html}");
}

#[test]
fn inline_elements_become_markdown() {
    check("<p>Hello <b>big</b> world", "Hello **big** world");
    check("<p>a <b> b </b> c<i>d</i>e <em></em>f", "a **b** c*d*e f");
    check(
        "<p><b><strong>a</strong></b> <del>b</del> <code>x  y</code> <kbd>Ctrl</kbd>",
        "**a** ~~b~~ `x y` `Ctrl`",
    );
    check(
        "<p>a&nbsp;&amp;&nbsp;b &lt;tag&gt; caf&eacute;",
        "a & b <tag> café",
    );
    check("a<br>b<br><br>c<br/>d", "a\nb\n\nc\nd");
    check(
        "<p>10<sup>6</sup> m<sup>2</sup> note<sup><a href='#n'>[1]</a></sup>",
        "10^6 m^2 note[1]",
    );
    check("<p>He said <q>so</q>.", "He said “so”.");
    check("<b>a<p>b</b>c</p>d", "a\n\nbc\n\nd");
    check(
        "one<p>two<p>three<div>four</div>five",
        "one\n\ntwo\n\nthree\n\nfour\n\nfive",
    );
}

#[test]
fn links_and_images_become_markdown() {
    check(
        "<a href=/x>a</a> <a href='other?q=1&amp;r=2'>b</a>",
        "[a](https://example.org/x) [b](https://example.org/dir/other?q=1&r=2)",
    );
    check(
        "<a href='?a=1&copy=2&sect=3&lt;'>a</a>",
        "[a](https://example.org/dir/page?a=1&copy=2&sect=3%3C)",
    );
    check(
        "<a href='#top'>a</a> <a href='javascript:x()'>b</a> <a>c</a> <a href='/e'></a>",
        "a b c",
    );
    check(
        "<base href='https://cdn.example.net/d/'><a href=x>a</a>",
        "[a](https://cdn.example.net/d/x)",
    );
    check(
        "<a href=/a>one<a href=/b>two</a>",
        "[one](https://example.org/a)[two](https://example.org/b)",
    );
    check(
        "<a href=/a><h2>Head</h2><p>text</p></a>",
        "## [Head](https://example.org/a)\n\ntext",
    );
    check(
        "x <img src=a.png alt='A dog'> <img src=b.png> y",
        "x ![A dog] y",
    );
    check(
        "<a href='/w/Rust_(game)'>r</a>",
        "[r](https://example.org/w/Rust_%28game%29)",
    );
    check("<h2>Title <a class=x href='#title'>¶</a></h2>", "## Title");
}

#[test]
fn block_elements_become_markdown() {
    check(
        "<h1>A <b>b</b></h1><h3>c<br>d</h3><hr>",
        "# A **b**\n\n### c d\n\n---",
    );
    check(
        "<blockquote><p>a</p><p>b</p></blockquote>c",
        "> a\n>\n> b\n\nc",
    );
    check(
        "<ul><li>a<li>b<ul><li>c</li></ul></li></ul><p>d",
        "- a\n- b\n  - c\n\nd",
    );
    check(
        "<ol start=9><li>a<li><p>b</p><p>c</p></ol>",
        "9. a\n10. b\n\n    c",
    );
    check("<ul><li></li><li>a</li></ul>", "- a");
    check(
        "<dl><dt>Term<dd>It is.<dt>Other<dd>So.</dl>",
        "Term\n: It is.\nOther\n: So.",
    );
    check("<ul><li><blockquote>q</blockquote></ul>", "- > q");
    check(
        "a<blockquote>b</blockquote>c<blockquote><blockquote>d</blockquote>e</blockquote>",
        "a\n\n> b\n\nc\n\n> > d\n>\n> e",
    );
    check(
        "<ul><li><p>a</p></li><li><p>b</p><p>c</p></li><li>d</ul>",
        "- a\n- b\n\n  c\n- d",
    );
}

#[test]
fn code_blocks_become_fenced_markdown() {
    check(
        "<pre><code class='language-rust'>fn a() {\n    b();\n}\n</code></pre>",
        "```rust\nfn a() {\n    b();\n}\n```",
    );
    check(
        "<div class='highlight-python'><pre>\n  x\r\n\ty</pre></div>",
        "```python\n  x\n\ty\n```",
    );
    check("<pre>a ``` b</pre>", "````\na ``` b\n````");
    check(
        "<pre>a<br>b <b>c</b> &lt;d&gt;</pre>",
        "```\na\nb c <d>\n```",
    );
    check(
        "<pre><span class=lineno>1</span>a</pre><pre> </pre>",
        "```\na\n```",
    );
    check(
        "<blockquote><pre>a\nb</pre></blockquote>",
        "> ```\n> a\n> b\n> ```",
    );
}

#[test]
fn tables_become_markdown_tables() {
    check(
        "<table><caption>Cap</caption><tr><th>A<th>B</tr><tr><td>1|2<td><b>3</b></table>",
        "Cap\n\n| A | B |\n| --- | --- |\n| 1\\|2 | **3** |",
    );
    check(
        "<table><tr><td colspan=2>Head<tr><th>A<td>1<tr><th>B<td>2</table>",
        "Head\n\n| A | 1 |\n| --- | --- |\n| B | 2 |",
    );
    check(
        "<table><tr><td><p>a</p><p>b</p></td></tr></table>",
        "a\n\nb",
    );
    check(
        "<table><tr><td>x<table><tr><td>1<td>2<tr><td>3<td>4</table>y</table>",
        "x\n\n| 1 | 2 |\n| --- | --- |\n| 3 | 4 |\n\ny",
    );
    check(
        "<table><tr><td><ul><li>a<li>b</ul><td>c<tr><td>d<br>e<td></table>",
        "| a b | c |\n| --- | --- |\n| d e |  |",
    );
}

#[test]
fn hidden_elements_are_omitted() {
    let hidden = "<script>var a = \
        '<p>no';</script><style>p{}</style><template><p>no</template><noscript>no</noscript>
        <div hidden>no</div><p aria-hidden=TRUE>no</p><p style='color:red; DISPLAY : none'>no</p>
        <p style='font-size:0'>no</p><p style='opacity: \
        0;'>no</p><dialog>no</dialog><select><option>no</select>
        <textarea><p>no</textarea><iframe><p>no</iframe>\
        <svg><title>no</title><text>no</text></svg><!-- no -->
        <![CDATA[ no ]]><?php no ?><button>no</button><p class='d-none'>no</p><object>no</object>";
    check(&format!("{hidden}<p>yes"), "yes");
    check("<p style='opacity: 0.9'>yes</p>", "yes");
    check(
        "a<!-->b<!--->c<!-- -- > d --!>e<!doctype html>f</>g</ h>i<3 j",
        "abcefgi<3 j",
    );
    check("<script><!-- <script> </script> x --></script>yes", "yes");
    check("<p>a</p><script>never closed <p>b</p>", "a");
}

#[test]
fn title_comes_from_metadata_or_title_element() {
    let title = |html: &str| page(html).title;
    assert_eq!(
        title("<title> A &amp;\n B </title>").as_deref(),
        Some("A & B")
    );
    assert_eq!(
        title("<meta property='og:title' content='Own'><title>Own | Site</title>").as_deref(),
        Some("Own")
    );
    assert_eq!(title("<title></title>"), None);
    assert_eq!(title("<svg><title>no</title></svg>").as_deref(), Some("no"));
    assert_eq!(
        title(&format!("<title>{}</title>", "word ".repeat(1000))).map(|title| title.len()),
        Some(299)
    );
}
