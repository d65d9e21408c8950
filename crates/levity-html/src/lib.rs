//! Reads HTML pages as text: the main content of a page as Markdown.
//!
//! ```
//! let page = "<title>Tides</title><nav>Home</nav><h1>Harbour</h1><p>High water is <b>at six</b>.";
//! let found = levity_html::extract(page, "https://example.com/tides", 10_000);
//! assert_eq!(found.title.as_deref(), Some("Tides"));
//! assert_eq!(found.text, "# Harbour\n\nHigh water is **at six**.");
//! ```
//!
//! Pages are untrusted, so every step takes time and memory linear in the size of the page,
//! whatever it contains. Tags become nodes of a flat tree in page order. Noise and navigation are
//! marked, and the main part is found by counting text. That part is written in one pass.
//!
//! # Features
//! This crate has no features.
//!
//! # Where to go next
//! [`extract`] reads a page, [`plain`] a fragment, and [`decode`] turns bytes into text.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod charset;
mod class_names;
mod content;
mod entities;
mod markdown;
mod names;
mod output;
mod tokens;
mod tree;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use url::Url;

pub use charset::{content_type_charset, decode};
pub use entities::visible;
use entities::{decode as decode_text, decode_attr};
use names::{Attr, Name};
use tree::{Doc, Id};

/// The maximum number of nodes that are stored of a page.
const MAX_NODES: usize = 250_000;

/// The maximum size of a page's `<base>` address, in bytes; a longer one is ignored.
const MAX_BASE: usize = 2000;

/// Below this many bytes of text, less strict extraction levels are tried.
const LITTLE: usize = 200;

/// The extracted content of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extract {
    /// The title of the page, if it has one.
    pub title: Option<String>,
    /// The content as Markdown.
    pub text: String,
    /// Set if the page was too large to be processed completely.
    pub is_cut: bool,
    /// Set if there is hardly any text, as in a page that scripts render.
    pub is_thin: bool,
}

/// Extracts the main content of a page, at most `max` bytes.
///
/// Three levels are tried, from strict to lenient, until one gives at least 200 bytes. A page
/// without text of its own gets its description from the header. Links are resolved against `url`,
/// which may be empty.
pub fn extract(page: &str, url: &str, max: usize) -> Extract {
    let doc = Doc::parse(page, MAX_NODES);
    let base = base(&doc, Url::parse(url).ok());
    let best = content::LEVELS.iter().map(|level| {
        let content = content::find(&doc, *level);
        markdown::render(&doc, &content, base.as_ref(), max)
    });
    // A strict level wins as soon as it finds text; a less strict one must find much more.
    let mut found = markdown::Text::default();
    for text in best {
        if found.text.len() < LITTLE && text.text.len() > found.text.len() * 2 {
            found = text;
        }
        if found.text.len() >= LITTLE {
            break;
        }
    }
    let is_thin = found.text.len() < LITTLE;
    if is_thin {
        add_description(&doc, &mut found.text);
    }
    Extract {
        title: title(&doc),
        text: found.text,
        is_cut: doc.is_cut || found.is_cut,
        is_thin,
    }
}

/// Returns the plain text of an HTML fragment, such as a snippet with a few tags, on one line.
///
/// ```
/// assert_eq!(levity_html::plain("High <b>water</b> &amp; low"), "High water & low");
/// ```
pub fn plain(piece: &str) -> String {
    let doc = Doc::parse(piece, 1000);
    let text: Vec<_> = doc.texts(Doc::ROOT).map(decode_text).collect();
    one_line(&text.concat(), 2000)
}

/// Returns the address against which the page's links are resolved.
fn base(doc: &Doc<'_>, url: Option<Url>) -> Option<Url> {
    let href = doc
        .find(Name::Base)
        .and_then(|node| doc.attr(node, Attr::Href));
    // The base is copied for every link.
    let href = href.filter(|href| href.len() <= MAX_BASE);
    let own = href.and_then(|href| join(url.as_ref(), decode_attr(href).trim()));
    own.or(url)
}

/// Resolves an address against the base; without one it must be absolute.
fn join(base: Option<&Url>, href: &str) -> Option<Url> {
    base.map_or_else(|| Url::parse(href), |base| base.join(href))
        .ok()
}

/// Prefers the title for sharing (`og:title`) to that of the window.
fn title(doc: &Doc<'_>) -> Option<String> {
    let shared =
        meta(doc, Attr::Property, "og:title").map(|text| one_line(&decode_attr(text), 300));
    let own = || {
        let node = doc.find(Name::Title)?;
        Some(one_line(
            &doc.texts(node).map(decode_text).collect::<String>(),
            300,
        ))
    };
    shared
        .filter(|title| !title.is_empty())
        .or_else(own)
        .filter(|title| !title.is_empty())
}

/// Adds the page's own description if there is hardly any other text.
fn add_description(doc: &Doc<'_>, text: &mut String) {
    let found = meta(doc, Attr::Name, "description")
        .or_else(|| meta(doc, Attr::Property, "og:description"));
    let Some(found) = found.map(|found| one_line(&decode_attr(found), 1000)) else {
        return;
    };
    if !found.is_empty() && !text.contains(&found) {
        let own = std::mem::take(text);
        *text = format!("{found}\n\n{own}").trim_end().to_owned();
    }
}

/// Returns the content of the first `<meta>` element with this key.
fn meta<'a>(doc: &Doc<'a>, key: Attr, wanted: &str) -> Option<&'a str> {
    let is_it = |node: &Id| {
        doc.attr(*node, key)
            .is_some_and(|name| name.eq_ignore_ascii_case(wanted))
    };
    doc.all(Name::Meta)
        .find(is_it)
        .and_then(|node| doc.attr(node, Attr::Content))
}

/// Collapses white space into single spaces and cuts the text to `max` bytes.
fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() >= max {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Returns the character set that the beginning of a page declares.
fn declared(head: &str) -> Option<String> {
    if let Some(rest) = head.trim_start().strip_prefix("<?xml") {
        let own = rest.split("?>").next().unwrap_or_default();
        let label = own
            .split_once("encoding")?
            .1
            .trim_start()
            .strip_prefix('=')?
            .trim_start();
        let quote = label.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        return label[1..].split(quote).next().map(str::to_owned);
    }
    let mut tokens = tokens::Tokens::new(head);
    while let Some(token) = tokens.next() {
        if !matches!(token, tokens::Token::Start(name) if name.eq_ignore_ascii_case("meta")) {
            continue;
        }
        let value = |wanted: &str| {
            tokens
                .attrs()
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        if let Some((_, charset)) = value("charset") {
            return Some((*charset).to_owned());
        }
        let is_type =
            value("http-equiv").is_some_and(|(_, name)| name.eq_ignore_ascii_case("content-type"));
        if let (true, Some((_, content))) = (is_type, value("content")) {
            return content_type_charset(content).map(str::to_owned);
        }
    }
    None
}
