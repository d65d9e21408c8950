//! Requests to a Chroma server, with limits and errors that help.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use levity_core::text::{bare_url, head, json_problem, one_line};
use levity_core::{Secrets, VectorStoreError, VectorStoreErrorKind};
use levity_http::NoCertificates;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;

pub(super) use reqwest::Method;

/// The maximum size of a reply, in bytes.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// The maximum size of the text of an error, in bytes.
const MAX_ERROR_BYTES: usize = 300;
/// The time limit to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server, which is connected with the first request.
pub(super) struct Server {
    address: String,
    headers: Vec<(String, String)>,
    timeout: Duration,
    secrets: Secrets,
    connection: OnceLock<Result<Connection, VectorStoreError>>,
}

/// The checked settings that every request needs.
struct Connection {
    client: Client,
    base: Url,
    headers: HeaderMap,
}

/// A reply that is complete: of a success, or of a path that does not exist.
pub(super) struct Reply {
    status: StatusCode,
    body: Vec<u8>,
}

impl Reply {
    /// Returns `true` if the server has no such collection.
    pub(super) fn is_missing(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }
}

/// The body of an error.
#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    error: String,
    #[serde(default)]
    message: String,
}

impl Server {
    /// Remembers the address, and the secrets in it.
    pub(super) fn new(address: &str) -> Self {
        let address = address.trim().trim_end_matches('/').to_owned();
        let mut secrets = Secrets::new();
        if let Ok(url) = Url::parse(&address) {
            let parts = [url.username(), url.password().unwrap_or_default()];
            secrets = parts.iter().fold(secrets, Secrets::known);
        }
        Self {
            address,
            headers: Vec::new(),
            timeout: Duration::from_secs(30),
            secrets,
            connection: OnceLock::new(),
        }
    }

    /// Adds a header, or replaces the one with its name. Its value is a secret.
    pub(super) fn add_header(&mut self, name: String, value: &str) {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        self.secrets = self.secrets.clone().known(value);
        // `Bearer TOKEN` contains the token.
        for part in value.split_whitespace() {
            self.secrets = self.secrets.clone().known(part);
        }
        self.headers.push((name, value.to_owned()));
        self.connection = OnceLock::new();
    }

    /// Sets the time limit of a request with its reply.
    pub(super) fn set_timeout(&mut self, time: Duration) {
        self.timeout = time;
        self.connection = OnceLock::new();
    }

    /// Returns the address without secrets.
    pub(super) fn address(&self) -> String {
        bare_url(&self.address)
    }

    /// Creates an error whose message continues "the Chroma server .. ".
    pub(super) fn error(&self, kind: VectorStoreErrorKind, message: &str) -> VectorStoreError {
        let message = format!("the Chroma server {} {message}", self.address());
        VectorStoreError::new(kind, message)
    }

    /// Sends a request and reads its reply.
    ///
    /// # Errors
    /// If there is no reply in time, and for every status except success and 404. A 404 that is no
    /// error of Chroma's is an error as well: the address is wrong.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
    ) -> Result<Reply, VectorStoreError> {
        let connection = self.connection.get_or_init(|| self.connect());
        let connection = connection.as_ref().map_err(Clone::clone)?;
        let mut url = connection.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v2"]).extend(path);
        }
        let body = body.map(Value::to_string);
        let attempt = || {
            let request = connection
                .client
                .request(method.clone(), url.clone())
                .headers(connection.headers.clone());
            match &body {
                Some(body) => request.body(body.clone()),
                None => request,
            }
        };
        let mut sent = attempt().send().await;
        // The server may have closed an idle connection, and all requests may be repeated.
        if sent
            .as_ref()
            .is_err_and(|error| !error.is_timeout() && !error.is_connect())
        {
            sent = attempt().send().await;
        }
        let mut reply = sent.map_err(|error| self.failed(error))?;
        let (status, mut body) = (reply.status(), Vec::new());
        while let Some(chunk) = reply.chunk().await.map_err(|error| self.failed(error))? {
            if body.len() + chunk.len() > MAX_REPLY_BYTES {
                let message = format!("sent a reply of more than {MAX_REPLY_BYTES} bytes");
                return Err(self.error(VectorStoreErrorKind::Malformed, &message));
            }
            body.extend_from_slice(&chunk);
        }
        let reply = Reply { status, body };
        match self.problem(&reply) {
            Some(error) => Err(error),
            None => Ok(reply),
        }
    }

    /// Reads the body of a reply.
    pub(super) fn read<T: for<'de> Deserialize<'de>>(
        &self,
        reply: &Reply,
    ) -> Result<T, VectorStoreError> {
        serde_json::from_slice(&reply.body).map_err(|error| {
            let message = format!(
                "sent an unexpected reply ({}); check that it is Chroma 1.0 or later",
                json_problem(&error)
            );
            self.error(VectorStoreErrorKind::Malformed, &message)
        })
    }

    /// Checks the settings and creates the client.
    fn connect(&self) -> Result<Connection, VectorStoreError> {
        let invalid = |what: &str| {
            let message = format!("cannot be used: {what}");
            self.error(VectorStoreErrorKind::Rejected, &message)
        };
        let base = Url::parse(&self.address)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let base =
            base.ok_or_else(|| invalid("expected an address like `http://127.0.0.1:8000`"))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &self.headers {
            let name = HeaderName::try_from(name);
            let value = HeaderValue::try_from(value);
            let (Ok(name), Ok(mut value)) = (name, value) else {
                return Err(invalid(
                    "a header has invalid characters in its name or value",
                ));
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let timeout = self.timeout;
        let client = levity_http::client(|builder| {
            builder
                .timeout(timeout)
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
        });
        let client = client.map_err(|_| invalid("an HTTP client cannot be created"))?;
        Ok(Connection {
            client,
            base,
            headers,
        })
    }

    /// Explains a request without a reply.
    fn failed(&self, error: reqwest::Error) -> VectorStoreError {
        let error = error.without_url();
        if error.is_timeout() {
            let message = format!(
                "did not answer within {:?}; check its load, or set a longer `timeout`",
                self.timeout
            );
            return self.error(VectorStoreErrorKind::Timeout, &message);
        }
        if NoCertificates::caused(&error) {
            let message = format!("cannot be reached: {NoCertificates}");
            return self.error(VectorStoreErrorKind::Rejected, &message);
        }
        let mut cause: &(dyn Error + 'static) = &error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let cause = self.shown(&cause.to_string());
        let message = if error.is_connect() {
            format!("cannot be reached: {cause}; is it running, and is the address correct?")
        } else {
            format!("ended the connection: {cause}; is it running?")
        };
        self.error(VectorStoreErrorKind::Unavailable, &message)
    }

    /// Explains a reply that is neither a success nor a missing collection.
    fn problem(&self, reply: &Reply) -> Option<VectorStoreError> {
        let status = reply.status;
        let problem: Option<Problem> = serde_json::from_slice(&reply.body).ok();
        let is_chroma = problem
            .as_ref()
            .is_some_and(|problem| !problem.error.is_empty());
        if status.is_success() || (reply.is_missing() && is_chroma) {
            return None;
        }
        let text = match &problem {
            Some(problem) if !problem.message.is_empty() => &problem.message,
            Some(problem) => &problem.error,
            None => "",
        };
        let text = match self.shown(text) {
            text if text.is_empty() => String::new(),
            text => format!(": {text}"),
        };
        use VectorStoreErrorKind as Kind;
        let (kind, next) = match status.as_u16() {
            401 | 403 => (Kind::Auth, "; check the token and its permissions"),
            404 => (
                Kind::Rejected,
                "; check the address, and that it is Chroma 1.0 or later",
            ),
            408 | 429 | 500.. => (Kind::Unavailable, "; try again later, or read its log"),
            _ => (Kind::Rejected, ""),
        };
        let message = format!("answered with status {}{text}{next}", status.as_u16());
        Some(self.error(kind, &message))
    }

    /// Returns the text of a server on one line, without secrets.
    fn shown(&self, text: &str) -> String {
        // What is cut off first may be a part of a secret, and is far behind what is shown.
        let text = head(text, 16 * MAX_ERROR_BYTES);
        one_line(&self.secrets.redact(text), MAX_ERROR_BYTES)
    }
}
