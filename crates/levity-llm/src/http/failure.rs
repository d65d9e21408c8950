//! Parses the error replies of providers in their various formats.
//!
//! Providers agree neither on the shape of an error nor on the status: an error may arrive with
//! status 200, inside a stream, as a list, as text or as a web page. The kind is decided here once,
//! from codes first, then phrases, then the status. Layers such as retry and fallback rely on it
//! and never read messages.
//!
//! Shapes that occur in practice:
//!
//! ```json
//! {"error": {"message": "..", "type": "invalid_request_error", "code": "context_length_exceeded"}}
//! {"type": "error", "error": {"type": "overloaded_error", "message": ".."}}
//! [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "34s"}]}}]
//! {"error": "model 'qwen3' not found"}
//! {"detail": [{"msg": "field required"}]}
//! ```

use std::time::{Duration, SystemTime};

use levity_core::text::bare_url;
use levity_core::{ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::unexpected_reply::{markup, sanitized};

/// The maximum length of an error message. It is truncated only after secrets are removed, because
/// a part of a truncated secret would not be recognised.
pub(super) const MAX_MESSAGE_BYTES: usize = 2_000;

/// Phrases in server errors (500) that will recur for the same request. They make the error a
/// `BadRequest`, so that it is not retried.
const REFUSALS: [&str; 6] = [
    "input is not supported",
    "failed to parse messages",
    "failed to parse tools",
    "param requires",
    "unsupported param",
    "cannot use custom grammar",
];

/// A failure that a provider reports.
///
/// It is parsed from JSON of any shape and still contains the provider's own words, with secrets.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    /// The provider's message, possibly empty and not yet truncated.
    pub(crate) message: String,
    /// Types, codes and statuses in lower case, separated by spaces.
    codes: String,
    /// The delay that the body requests; a header takes precedence.
    retry_after: Option<Duration>,
}

/// Returns the failure that a reply reports, if any.
///
/// A failure is a field `error` that is not `null`, at the top level or in an item of a list.
pub(crate) fn find_failure(value: &Value) -> Option<Failure> {
    match value {
        Value::Array(items) => items.iter().find_map(find_failure),
        Value::Object(map) => {
            let error = map.get("error").filter(|error| !error.is_null());
            error.map(|error| Failure::of(error, value))
        }
        _ => None,
    }
}

impl Failure {
    /// Collects message, codes and delay. `outer` is the object around the error, which may have
    /// codes too.
    fn of(error: &Value, outer: &Value) -> Self {
        let mut failure = Self {
            message: find_message(error).unwrap_or_default(),
            ..Self::default()
        };
        // The server forwards the error of another provider.
        if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
            failure.message = format!("{}: {raw}", failure.message);
        }
        let inner = error.get("innererror").unwrap_or(&Value::Null);
        for object in [outer, error, inner] {
            for name in [
                "type",
                "code",
                "status",
                "status_code",
                "raw_status_code",
                "reason",
                "error_type",
            ] {
                let word = match object.get(name) {
                    Some(Value::String(word)) => word.to_lowercase(),
                    Some(Value::Number(number)) => number.to_string(),
                    _ => continue,
                };
                failure.codes.push_str(&word);
                failure.codes.push(' ');
            }
        }
        // Google puts the reason into the details.
        for detail in error
            .get("details")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if let Some(reason) = detail.get("reason").and_then(Value::as_str) {
                failure.codes.push_str(&reason.to_lowercase());
                failure.codes.push(' ');
            }
        }
        failure.retry_after = google_delay(error);
        failure
    }

    /// Parses a failure from a body of any format.
    ///
    /// It never fails: a body without a recognisable message yields an empty message.
    pub(crate) fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::any(&value),
            Err(_) => Self {
                message: page(body),
                ..Self::default()
            },
        }
    }

    /// Parses a failure from a JSON value of any shape.
    ///
    /// An object without `error` is taken as the error itself.
    pub(crate) fn any(value: &Value) -> Self {
        let value = match value {
            Value::Array(items) if items.len() == 1 => items.first().unwrap_or(value),
            value => value,
        };
        find_failure(value).unwrap_or_else(|| Self::of(value, &Value::Null))
    }

    /// Converts the failure to the error for an HTTP reply with this status.
    ///
    /// The request id of the provider is attached, for its support. Only retryable errors get a
    /// delay.
    pub(crate) fn into_http_error(mut self, status: u16, headers: &HeaderMap) -> ModelError {
        self.retry_after = retry_after(headers).or(self.retry_after);
        let id = [
            "x-request-id",
            "request-id",
            "x-goog-request-id",
            "x-amzn-requestid",
            "cf-ray",
        ];
        let id = id
            .iter()
            .find_map(|name| headers.get(*name)?.to_str().ok())
            .map(str::to_owned);
        if self.message.is_empty() {
            self.message = match headers
                .get("location")
                .filter(|_| (300..400).contains(&status))
            {
                Some(place) => redirect(place.as_bytes()),
                None => format!("the server answered with status {status}"),
            };
        }
        let asked = self.retry_after;
        let error = self.into_error(Some(status)).with_status(status);
        // An overloaded server may also send a retry delay.
        let error = match asked.filter(|_| error.is_retryable()) {
            Some(time) => error.with_retry_after(time),
            None => error,
        };
        match id {
            Some(id) => error.with_request_id(id),
            None => error,
        }
    }

    /// Converts the failure to an error, for a reply with a successful status.
    ///
    /// `status` is `None` for a failure inside a reply with status 200; a code such as `429` then
    /// replaces it.
    pub(crate) fn into_error(self, status: Option<u16>) -> ModelError {
        let kind = self.kind(status.or_else(|| self.status_in_codes()));
        let message = if self.message.is_empty() {
            "the provider reported a failure without a message"
        } else {
            &*self.message
        };
        ModelError::new(kind, message)
    }

    /// Returns a code that is an HTTP status.
    fn status_in_codes(&self) -> Option<u16> {
        let numbers = self
            .codes
            .split_whitespace()
            .filter_map(|word| word.parse::<u16>().ok());
        numbers
            .into_iter()
            .find(|number| (400..600).contains(number))
    }

    /// Decides the kind of error.
    ///
    /// The order matters: a context that is too long is often reported as 400, a used-up quota as
    /// 429. The first would be lost in `BadRequest`, and the second would be retried in vain.
    fn kind(&self, status: Option<u16>) -> ModelErrorKind {
        let message = self.message.to_lowercase();
        let has_code = |words: &[&str]| words.iter().any(|word| self.codes.contains(word));
        let message_contains = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let too_long = [
            "maximum context length",
            "context length",
            "prompt is too long",
            "exceeds the maximum number of tokens",
            "context window",
            "exceed context",
            "exceeds the available context size",
            "prompt too long",
            "input is too long",
            "messages is too long",
        ];
        let too_large = [
            "context_length",
            "context_window",
            "exceed_context",
            "request_too_large",
            "too_many_prompt_tokens",
        ];
        if has_code(&too_large) || (message_contains(&too_long) && status != Some(429)) {
            return ModelErrorKind::ContextTooLong;
        }
        if has_code(&[
            "content_filter",
            "content_policy",
            "responsibleai",
            "safety",
        ]) {
            return ModelErrorKind::ContentFiltered;
        }
        if has_code(&[
            "insufficient_quota",
            "billing",
            "payment_required",
            "api_key_invalid",
        ]) || message_contains(&["credit balance is too low"])
        {
            return ModelErrorKind::Auth;
        }
        match status {
            Some(401..=403) => ModelErrorKind::Auth,
            Some(408 | 504) => ModelErrorKind::Timeout,
            Some(413) => ModelErrorKind::ContextTooLong,
            Some(429) => ModelErrorKind::RateLimited {
                retry_after: self.retry_after,
            },
            Some(503 | 529) => ModelErrorKind::Overloaded,
            // llama.cpp reports a request that it cannot handle in this way.
            Some(500) if message_contains(&REFUSALS) => ModelErrorKind::BadRequest,
            Some(500..) => ModelErrorKind::Server,
            Some(300..) => ModelErrorKind::BadRequest,
            _ => self.kind_by_codes(has_code),
        }
    }

    /// Decides the kind by codes alone, for a failure without a status. The default is `Server`.
    fn kind_by_codes(&self, has_code: impl Fn(&[&str]) -> bool) -> ModelErrorKind {
        if has_code(&["rate_limit", "resource_exhausted", "too_many"]) {
            return ModelErrorKind::RateLimited {
                retry_after: self.retry_after,
            };
        }
        let kinds: [(&[&str], ModelErrorKind); 4] = [
            (
                &["overloaded", "unavailable", "slow_down"],
                ModelErrorKind::Overloaded,
            ),
            (
                &["authentication", "permission", "api_key", "unauthenticated"],
                ModelErrorKind::Auth,
            ),
            (&["timeout", "deadline"], ModelErrorKind::Timeout),
            (
                &[
                    "invalid",
                    "not_found",
                    "bad_request",
                    "tool_use_failed",
                    "image_",
                ],
                ModelErrorKind::BadRequest,
            ),
        ];
        let known = kinds.into_iter().find(|(words, _)| has_code(words));
        known.map_or(ModelErrorKind::Server, |(_, kind)| kind)
    }
}

/// Finds the message text in an error of any shape.
///
/// Names are tried in order and at any depth, and blank texts are skipped.
fn find_message(error: &Value) -> Option<String> {
    match error {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items.iter().find_map(find_message),
        Value::Object(map) => {
            let names = [
                "message",
                "error",
                "detail",
                "msg",
                "error_message",
                "description",
                "errors",
            ];
            names
                .iter()
                .find_map(|name| map.get(*name).and_then(find_message))
        }
        _ => None,
    }
    .filter(|text| !text.trim().is_empty())
}

/// Describes a page that is not JSON in a few words.
///
/// Markup is described by its title. Other text stays, with control characters replaced by spaces.
fn page(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if let Some(page) = markup(text) {
        return format!("the server sent {page}");
    }
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Describes a redirect, which is not followed, and its target without secrets.
fn redirect(place: &[u8]) -> String {
    let place = String::from_utf8_lossy(place);
    let place = match place
        .strip_prefix('/')
        .filter(|rest| !rest.starts_with(['/', '\\']))
    {
        // The target is a path on the same server.
        Some(path) => bare_url(&format!("h/{path}"))
            .trim_start_matches('h')
            .to_owned(),
        None => bare_url(&place),
    };
    format!(
        "the server redirects to `{}`, which is not followed; check the address",
        sanitized(&place)
    )
}

/// Returns the retry delay in the headers.
///
/// `retry-after-ms` wins over `retry-after`, which may be seconds or a date. A date in the past is
/// a delay of zero.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = header("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1_000.0).ok();
    }
    let text = header("retry-after")?;
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the date in the header refers to the real clock"
    )]
    let now = SystemTime::now();
    Some(date.duration_since(now).unwrap_or_default())
}

/// Returns the delay in Google's `RetryInfo`: `{"retryDelay": "34.4s"}` among the details.
fn google_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, kind: ModelErrorKind, message: &str) {
        let error = Failure::read(body.as_bytes()).into_http_error(status, &HeaderMap::new());
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (kind, message),
            "{body}"
        );
    }

    #[test]
    fn failure_is_read_from_formats_of_all_providers() {
        use ModelErrorKind::{
            Auth, BadRequest, ContentFiltered, ContextTooLong, RateLimited, Server,
        };
        // OpenAI and most others.
        let body = r#"{"error":{"message":"no such model","type":"invalid_request_error",
            "param":null,"code":"model_not_found"}}"#;
        check(404, body, BadRequest, "no such model");
        // Ollama, Venice.
        check(
            404,
            r#"{"error":"model 'x' not found"}"#,
            BadRequest,
            "model 'x' not found",
        );
        // xAI.
        check(
            400,
            r#"{"code":"Client specified an invalid argument","error":"Incorrect API key"}"#,
            BadRequest,
            "Incorrect API key",
        );
        // Mistral, Doubleword.
        let body = r#"{"object":"error","message":"not enabled",
            "type":"invalid_request_invalid_args","param":null,"code":"3051",
            "raw_status_code":400}"#;
        check(400, body, BadRequest, "not enabled");
        // Mistral, ChatGPT.
        check(
            401,
            r#"{"detail":"Invalid API Key"}"#,
            Auth,
            "Invalid API Key",
        );
        // Servers that are built on FastAPI.
        let body = r#"{"detail":[{"type":"missing","loc":["body","messages"],
            "msg":"Field required","input":{}}]}"#;
        check(422, body, BadRequest, "Field required");
        // Mistral in older versions.
        let body = r#"{"object":"error",
            "message":{"detail":[{"type":"extra_forbidden","loc":["body"],
            "msg":"Extra inputs are not permitted"}]},
            "type":"invalid_request_error","code":null}"#;
        check(422, body, BadRequest, "Extra inputs are not permitted");
        // OpenRouter, with the error of its provider.
        check(
            401,
            r#"{"error":{"message":"Missing Authentication header","code":401},"user_id":"u"}"#,
            Auth,
            "Missing Authentication header",
        );
        let body = r#"{"error":{"message":"Provider returned error","code":429,
            "metadata":{"raw":"slow down","provider_name":"P"}}}"#;
        check(
            429,
            body,
            RateLimited { retry_after: None },
            "Provider returned error: slow down",
        );
        // Azure.
        let body =
            r#"{"error":{"code":"RateLimitReached","message":"too fast","details":"too fast"}}"#;
        check(429, body, RateLimited { retry_after: None }, "too fast");
        let body = r#"{"error":{"message":"filtered","code":null,"status":400,
            "innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#;
        check(400, body, ContentFiltered, "filtered");
        check(
            404,
            r#"{"statusCode":404,"message":"Resource not found"}"#,
            BadRequest,
            "Resource not found",
        );
        // Google, with OpenAI's protocol.
        let body = r#"[{"error":{"code":429,"message":"exhausted","status":"RESOURCE_EXHAUSTED",
            "details":[{"@type":"t","retryDelay":"1.5s"}]}}]"#;
        check(
            429,
            body,
            RateLimited {
                retry_after: Some(Duration::from_millis(1_500)),
            },
            "exhausted",
        );
        // Cloudflare, and error pages of proxies.
        check(
            403,
            r#"{"success":false,"errors":[{"code":10000,"message":"Authentication error"}]}"#,
            Auth,
            "Authentication error",
        );
        check(
            502,
            "<html><h1>Bad Gateway</h1></html>",
            Server,
            "the server sent a web page titled `Bad Gateway`",
        );
        check(500, "upstream\nis gone", Server, "upstream is gone");
        check(500, "", Server, "the server answered with status 500");
        check(500, "[]", Server, "the server answered with status 500");
        check(500, "null", Server, "the server answered with status 500");
        // Requests that exceed the context window.
        let body = r#"{"error":{"code":400,
            "message":"request (9 tokens) exceeds the available context size (5 tokens)",
            "type":"exceed_context_size_error"}}"#;
        check(
            400,
            body,
            ContextTooLong,
            "request (9 tokens) exceeds the available context size (5 tokens)",
        );
        let body = r#"{"error":{"message":"The total length of all messages is too long.",
            "type":"too_many_prompt_tokens","code":400}}"#;
        check(
            400,
            body,
            ContextTooLong,
            "The total length of all messages is too long.",
        );
        check(
            400,
            r#"{"error":{"message":"prompt too long"}}"#,
            ContextTooLong,
            "prompt too long",
        );
        // Accounts without credit.
        check(
            429,
            r#"{"error":{"message":"no credit","code":"insufficient_quota"}}"#,
            Auth,
            "no credit",
        );
        check(
            500,
            r#"{"error":{"message":"audio input is not supported"}}"#,
            BadRequest,
            "audio input is not supported",
        );
        check(
            500,
            r#"{"error":{"message":"tools param requires --jinja flag"}}"#,
            BadRequest,
            "tools param requires --jinja flag",
        );
    }

    #[test]
    fn redirect_message_hides_secrets_in_address() {
        for (place, shown) in [
            ("/login", "/login"),
            ("/login?next=hush", "/login"),
            ("/", "/"),
            ("/me:hush@h", "***"),
            ("https://h/x", "https://h/x"),
            ("https://me:hush@h/x#hush", "https://h/x"),
            ("https://me:12/hush@h", "https://***"),
            ("https:///me:hush@h", "https://***"),
            ("//me:hush@h", "***"),
        ] {
            let message = redirect(place.as_bytes());
            assert!(
                message.contains(&format!("to `{shown}`")) && !message.contains("hush"),
                "{place}: {message}"
            );
        }
    }

    #[test]
    fn long_message_is_truncated_at_character_boundary() {
        let body = format!("{{\"error\":\"{}\"}}", "ä".repeat(5_000));
        let error = Failure::read(body.as_bytes()).into_error(None);
        let error = crate::http::scrub_error(error, &crate::Endpoint::new("http://h"), &[]);
        assert_eq!(error.to_string().len(), MAX_MESSAGE_BYTES);
    }
}
