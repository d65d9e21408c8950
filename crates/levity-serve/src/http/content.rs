//! `GET /v1/runs/ID/artifacts/content` and `GET /v1/runs/ID/graph.svg`: the content of a file that
//! a run wrote, and its graph as an image.
//!
//! The files were written by a model, and a browser may open them on the origin of this server. So
//! only plain text and four kinds of images are shown, and all others are downloads. A policy
//! forbids scripts in any of them.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
};
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use levity_observe::ViewArtifact;
use levity_sandbox::{PathError, Workspace};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::extract::RunPath;
use super::input::{query, root};
use super::problem::{HandlerResult, Problem};
use super::snapshots::PIECE;
use super::{Api, HttpApi};
use crate::access::Caller;
use crate::quota::{Permit, QuotaFull};

/// The policy of content that a model wrote.
const POLICY: &str = "default-src 'none'; sandbox";
/// The media type of downloads.
const DOWNLOAD: &str = "application/octet-stream";
/// The media types of files that are shown as plain text.
const TEXTS: [&str; 5] = [
    "application/json",
    "application/jsonl",
    "text/csv",
    "text/markdown",
    "text/plain",
];

/// The parameter `path`: the path of an artifact, as the list of artifacts contains it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentQuery {
    path: String,
}

/// Returns the content of a file that the run wrote, if the file has not changed since.
pub(super) async fn content(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    uri: Uri,
) -> HandlerResult {
    let ContentQuery { path } = query(&uri)?;
    let Some(workspace) = api.settings.workspace.clone() else {
        let message = "this server has no workspace, so it cannot read the files of runs; start it \
            with a workspace";
        return Err(Problem::conflict("no_workspace", message));
    };
    let stored = api.runs.view_for(&caller, &id, &root(&id), None).await?;
    // Only paths of the list are read, whatever the client sends.
    let listed = stored.view.artifacts().find(|file| file.path == path);
    let Some(file) = listed.cloned() else {
        let message = format!("run `{id}` lists no artifact with this path");
        return Err(Problem::not_found("no_artifact", message));
    };
    let permit = api.artifacts.take(&caller).map_err(|full: QuotaFull| {
        let message = format!(
            "{} files are being sent, which is the limit; try again later",
            full.limit
        );
        Problem::unavailable("too_many_artifacts", message)
    })?;
    let read = spawn_blocking(move || read_file(&workspace, &file).map(|bytes| (file, bytes)));
    let Ok(read) = read.await else {
        let message = "the file could not be read; try again";
        return Err(Problem::failed("failed", message));
    };
    let (file, bytes) = read?;
    Ok(response(&file, bytes, permit))
}

/// Reads a file of the workspace. The workspace rejects paths and links that lead out of it, and
/// denied files.
fn read_file(workspace: &Workspace, file: &ViewArtifact) -> HandlerResult<Vec<u8>> {
    let read = workspace.read(&file.path, HttpApi::MAX_ARTIFACT);
    let bytes = read.map_err(|error| match error {
        PathError::TooLarge { size, max, .. } => {
            let message = format!(
                "the file has {size} bytes, and at most {max} are sent; open it in the workspace"
            );
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "artifact_too_large", message)
        }
        PathError::NotFound(_) => {
            Problem::not_found("no_artifact", "the file does not exist any more")
        }
        _ => Problem::conflict(
            "artifact_unreadable",
            "the file cannot be read: it is denied, or no regular file of the workspace",
        ),
    })?;
    let is_same = |known: &String| known.eq_ignore_ascii_case(&hex(&bytes));
    if file.sha256.as_ref().is_some_and(|known| !is_same(known)) {
        let message = "the file has changed since the run wrote it; open it in the workspace";
        return Err(Problem::conflict("artifact_changed", message));
    }
    Ok(bytes)
}

/// Returns the SHA-256 hash in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    hash.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the response, which holds the permit until its last piece is taken.
fn response(file: &ViewArtifact, bytes: Vec<u8>, permit: Permit) -> Response {
    let (shown, size) = (shown_type(file.media_type, &bytes), bytes.len());
    let pieces = stream::unfold((Bytes::from(bytes), permit), async |(mut bytes, permit)| {
        if bytes.is_empty() {
            return None;
        }
        let piece = Bytes::copy_from_slice(&bytes.split_to(PIECE.min(bytes.len())));
        Some((Ok::<_, Infallible>(piece), (bytes, permit)))
    });
    let mut answer = protected(shown.unwrap_or(DOWNLOAD), Body::from_stream(pieces));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    let kind = if shown.is_some() {
        "inline"
    } else {
        "attachment"
    };
    if let Ok(value) = HeaderValue::try_from(format!("{kind}; {}", file_name(&file.path))) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    answer
}

/// Returns a response with headers that keep a browser from running its content.
fn protected(content_type: &'static str, body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    (headers, body).into_response()
}

/// Returns the type with which a browser may show a file: plain text, or an image that begins like
/// one. All other files are downloads.
fn shown_type(media_type: &str, bytes: &[u8]) -> Option<&'static str> {
    if TEXTS.contains(&media_type) {
        let is_text = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
        return is_text.then_some("text/plain; charset=utf-8");
    }
    match media_type {
        "image/png" if bytes.starts_with(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        "image/jpeg" if bytes.starts_with(b"\xff\xd8\xff") => Some("image/jpeg"),
        "image/gif" if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") => {
            Some("image/gif")
        }
        "image/webp" if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") => {
            Some("image/webp")
        }
        _ => None,
    }
}

/// Returns the parameters with the name of a file, for clients with and without Unicode.
fn file_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let (mut ascii, mut encoded) = (String::new(), String::new());
    for byte in name.bytes().take(200) {
        if plain(byte) {
            ascii.push(char::from(byte));
            encoded.push(char::from(byte));
        } else {
            ascii.push('_');
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    format!("filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

/// Returns the graph of a run as an image.
pub(super) async fn graph(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> HandlerResult {
    let stored = api.runs.view_for(&caller, &id, &root(&id), None).await?;
    Ok(protected("image/svg+xml", Body::from(stored.view.svg())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_text_and_real_images_are_shown() {
        let png = b"\x89PNG\r\n\x1a\n rest".as_slice();
        let text = Some("text/plain; charset=utf-8");
        for (media_type, bytes, expected) in [
            ("text/plain", b"high water".as_slice(), text),
            ("text/markdown", b"<script>", text),
            ("text/plain", b"\xff\xfe", None),
            ("text/plain", b"a\0b", None),
            ("image/png", png, Some("image/png")),
            ("image/png", b"<html>", None),
            ("image/webp", b"RIFF\x04\0\0\0WEBPVP8 ", Some("image/webp")),
            ("image/webp", b"RIFF", None),
            ("image/svg+xml", b"<svg>", None),
            ("text/html", b"<html>", None),
            ("text/javascript", b"alert()", None),
            ("application/pdf", b"%PDF", None),
        ] {
            assert_eq!(shown_type(media_type, bytes), expected, "{media_type}");
        }
    }

    #[test]
    fn file_name_is_a_valid_header() {
        let name = file_name("artifacts/a \"b\"\r\nSet-Cookie: x/gez\u{e4}hlt;.txt");
        assert_eq!(
            name,
            "filename=\"gez__hlt_.txt\"; filename*=UTF-8''gez%C3%A4hlt%3B.txt"
        );
        assert!(HeaderValue::try_from(file_name("a/\r\n")).is_ok());
    }
}
