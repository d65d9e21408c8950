//! The web page: static files that are compiled into this crate.
//!
//! The files contain nothing secret, so they require no token. The page reads the token from its
//! user and sends it with each request to the API. All URLs in the files are relative, so the page
//! also works behind a reverse proxy that adds a path.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use ring::digest::{SHA256, digest};

use super::Api;
use super::problem::{HandlerResult, Problem};

/// The policy of the page: scripts, styles and requests only from this server, and no HTML from
/// strings.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of the page.
struct PageFile {
    /// The path, which requires no token.
    path: &'static str,
    content_type: &'static str,
    content: &'static [u8],
    /// The hash of the content, which lets browsers reuse a cached file.
    tag: LazyLock<String>,
}

macro_rules! file {
    ($path:literal, $content_type:literal, $file:literal) => {
        PageFile {
            path: $path,
            content_type: $content_type,
            content: include_bytes!(concat!("../../page/", $file)),
            tag: LazyLock::new(|| tag(include_bytes!(concat!("../../page/", $file)))),
        }
    };
}

/// The files of the page. Add a file here to serve it.
static FILES: [PageFile; 20] = [
    file!("/", "text/html; charset=utf-8", "index.html"),
    file!("/page/api.js", "text/javascript; charset=utf-8", "api.js"),
    file!("/page/asks.js", "text/javascript; charset=utf-8", "asks.js"),
    file!("/page/chat.js", "text/javascript; charset=utf-8", "chat.js"),
    file!(
        "/page/compare.js",
        "text/javascript; charset=utf-8",
        "compare.js"
    ),
    file!(
        "/page/costs.js",
        "text/javascript; charset=utf-8",
        "costs.js"
    ),
    file!("/page/dom.js", "text/javascript; charset=utf-8", "dom.js"),
    file!(
        "/page/format.js",
        "text/javascript; charset=utf-8",
        "format.js"
    ),
    file!(
        "/page/graph.js",
        "text/javascript; charset=utf-8",
        "graph.js"
    ),
    file!(
        "/page/markdown.js",
        "text/javascript; charset=utf-8",
        "markdown.js"
    ),
    file!("/page/page.js", "text/javascript; charset=utf-8", "page.js"),
    file!(
        "/page/panels.js",
        "text/javascript; charset=utf-8",
        "panels.js"
    ),
    file!(
        "/page/parts.js",
        "text/javascript; charset=utf-8",
        "parts.js"
    ),
    file!("/page/runs.js", "text/javascript; charset=utf-8", "runs.js"),
    file!(
        "/page/sessions.js",
        "text/javascript; charset=utf-8",
        "sessions.js"
    ),
    file!(
        "/page/texts.js",
        "text/javascript; charset=utf-8",
        "texts.js"
    ),
    file!(
        "/page/timeline.js",
        "text/javascript; charset=utf-8",
        "timeline.js"
    ),
    file!("/page/view.js", "text/javascript; charset=utf-8", "view.js"),
    file!("/page/page.css", "text/css; charset=utf-8", "page.css"),
    file!("/licenses", "text/plain; charset=utf-8", "licenses.txt"),
];

/// Returns the paths of the page, which require no token.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.path)
}

/// Returns the entity tag of a file: a prefix of its SHA-256 hash.
fn tag(content: &[u8]) -> String {
    let hash = digest(&SHA256, content);
    let hex: String = hash
        .as_ref()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("\"{hex}\"")
}

/// `GET /`, `/page/FILE` and `/licenses`: a file of the page.
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let found = FILES
        .iter()
        .find(|file| api.settings.page && file.path == uri.path());
    let Some(file) = found else {
        let message = "this server serves no such page; `/v1/openapi.json` describes all paths";
        return Err(Problem::not_found("no_route", message));
    };
    Ok(answer(file, &headers))
}

fn answer(file: &'static PageFile, headers: &HeaderMap) -> Response {
    let known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim().trim_start_matches("W/") == *file.tag);
    let mut answer = match known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(CONTENT_TYPE, file.content_type)], file.content).into_response(),
    };
    let mut set = |name, value| answer.headers_mut().insert(name, value);
    set(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    set(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    set(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::try_from(file.tag.as_str()) {
        set(ETAG, tag);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_uses_only_relative_urls() {
        let index = std::str::from_utf8(FILES[0].content).unwrap_or_default();
        for absolute in ["src=\"/", "href=\"/", "http://", "https://"] {
            assert!(!index.contains(absolute), "{absolute}");
        }
    }

    /// Reads a character of a JavaScript class: `\u00ad`, `\u{e0000}`.
    fn character(class: &str) -> (u32, &str) {
        let class = class.strip_prefix("\\u").unwrap();
        let (digits, rest) = match class.strip_prefix('{') {
            Some(class) => class.split_once('}').unwrap(),
            None => class.split_at(4),
        };
        (u32::from_str_radix(digits, 16).unwrap(), rest)
    }

    #[test]
    fn page_escapes_the_same_characters_as_the_terminal() {
        let format = FILES.iter().find(|file| file.path == "/page/format.js");
        let format = std::str::from_utf8(format.unwrap().content).unwrap();
        let (_, class) = format.split_once("INVISIBLE = /[").unwrap();
        let (mut class, _) = class.split_once("]/gu").unwrap();
        let mut escaped = std::collections::BTreeSet::new();
        while !class.is_empty() {
            let (first, rest) = character(class);
            let (last, rest) = match rest.strip_prefix('-') {
                Some(rest) => character(rest),
                None => (first, rest),
            };
            escaped.extend(first..=last);
            class = rest;
        }
        let blank = ('\0'..=char::MAX).filter(|c| {
            let is_layout = matches!(c, ' ' | '\t' | '\n');
            !is_layout && levity_core::text::is_blank(c.encode_utf8(&mut [0; 4]))
        });
        let differ: Vec<u32> = (escaped.symmetric_difference(&blank.map(u32::from).collect()))
            .copied()
            .collect();
        assert!(differ.is_empty(), "{differ:x?}");
    }

    #[test]
    fn tags_of_files_differ() {
        let tags: std::collections::BTreeSet<&str> =
            FILES.iter().map(|file| file.tag.as_str()).collect();
        assert_eq!(tags.len(), FILES.len());
    }
}
