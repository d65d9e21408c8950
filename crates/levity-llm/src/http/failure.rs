//! What providers say when something is wrong, in all the shapes they have for it.

use std::time::{Duration, SystemTime};

use levity_core::{ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use serde_json::Value;

/// The longest message that is passed on.
const LONGEST: usize = 2_000;

/// What a provider says is wrong.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// Types, codes and states, in lower case, one after the other.
    words: String,
    retry_after: Option<Duration>,
}

/// What a reply says is wrong, if it does.
pub(crate) fn plain(value: &Value) -> Option<Failure> {
    match value {
        Value::Array(items) => items.iter().find_map(plain),
        Value::Object(map) => {
            let error = map.get("error").filter(|error| !error.is_null());
            error.map(|error| Failure::of(error, value))
        }
        _ => None,
    }
}

impl Failure {
    fn of(error: &Value, around: &Value) -> Self {
        let mut failure = Self { message: words_of(error).unwrap_or_default(), ..Self::default() };
        for place in [around, error] {
            for name in ["type", "code", "status", "reason", "error_type"] {
                let word = match place.get(name) {
                    Some(Value::String(word)) => word.to_lowercase(),
                    Some(Value::Number(number)) => number.to_string(),
                    _ => continue,
                };
                failure.words.push_str(&word);
                failure.words.push(' ');
            }
        }
        // Google has the reason among the details.
        for detail in error.get("details").and_then(Value::as_array).into_iter().flatten() {
            if let Some(reason) = detail.get("reason").and_then(Value::as_str) {
                failure.words.push_str(&reason.to_lowercase());
                failure.words.push(' ');
            }
        }
        failure.retry_after = google_delay(error);
        failure
    }

    /// What a body says, whatever its shape.
    pub(crate) fn read(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return Self { message: page(body), ..Self::default() };
        };
        let value = match value {
            Value::Array(mut items) if items.len() == 1 => items.remove(0),
            value => value,
        };
        plain(&value).unwrap_or_else(|| Self::of(&value, &Value::Null))
    }

    /// The error that an HTTP reply of this status means.
    pub(crate) fn into_http_error(mut self, status: u16, headers: &HeaderMap) -> ModelError {
        self.retry_after = retry_after(headers).or(self.retry_after);
        let id = ["x-request-id", "request-id", "x-goog-request-id", "x-amzn-requestid", "cf-ray"];
        let id = id.iter().find_map(|name| headers.get(*name)?.to_str().ok()).map(str::to_owned);
        if self.message.is_empty() {
            self.message = format!("the server answered with status {status}");
        }
        let asked = self.retry_after;
        let error = self.into_error(Some(status)).with_status(status);
        // An overloaded server says so too.
        let error = match asked.filter(|_| error.is_retryable()) {
            Some(time) => error.with_retry_after(time),
            None => error,
        };
        match id {
            Some(id) => error.with_request_id(id),
            None => error,
        }
    }

    /// The error that it means, of a reply that began well.
    pub(crate) fn into_error(self, status: Option<u16>) -> ModelError {
        let kind = self.kind(status.or_else(|| self.status_in_words()));
        let message =
            if self.message.is_empty() { "the provider says that it failed" } else { &*self.message };
        let mut end = message.len().min(LONGEST);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        ModelError::new(kind, message.get(..end).unwrap_or_default())
    }

    /// A code that is an HTTP status.
    fn status_in_words(&self) -> Option<u16> {
        let numbers = self.words.split_whitespace().filter_map(|word| word.parse::<u16>().ok());
        numbers.into_iter().find(|number| (400..600).contains(number))
    }

    fn kind(&self, status: Option<u16>) -> ModelErrorKind {
        let message = self.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| self.words.contains(word));
        let tells = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let too_long = [
            "maximum context length",
            "context length",
            "prompt is too long",
            "exceeds the maximum number of tokens",
            "context window",
            "exceed context",
            "exceeds the available context size",
        ];
        if says(&["context_length", "context_window", "exceed_context", "request_too_large"])
            || (tells(&too_long) && status != Some(429))
        {
            return ModelErrorKind::ContextTooLong;
        }
        if says(&["content_filter", "content_policy", "responsibleai", "safety"]) {
            return ModelErrorKind::ContentFiltered;
        }
        if says(&["insufficient_quota", "billing", "payment_required", "api_key_invalid"])
            || tells(&["credit balance is too low"])
        {
            return ModelErrorKind::Auth;
        }
        match status {
            Some(401..=403) => ModelErrorKind::Auth,
            Some(408 | 504) => ModelErrorKind::Timeout,
            Some(413) => ModelErrorKind::ContextTooLong,
            Some(429) => ModelErrorKind::RateLimited { retry_after: self.retry_after },
            Some(503 | 529) => ModelErrorKind::Overloaded,
            Some(500..) => ModelErrorKind::Server,
            Some(300..) => ModelErrorKind::BadRequest,
            _ => self.kind_by_words(says),
        }
    }

    fn kind_by_words(&self, says: impl Fn(&[&str]) -> bool) -> ModelErrorKind {
        if says(&["rate_limit", "resource_exhausted", "too_many"]) {
            return ModelErrorKind::RateLimited { retry_after: self.retry_after };
        }
        let kinds: [(&[&str], ModelErrorKind); 4] = [
            (&["overloaded", "unavailable", "slow_down"], ModelErrorKind::Overloaded),
            (&["authentication", "permission", "api_key", "unauthenticated"], ModelErrorKind::Auth),
            (&["timeout", "deadline"], ModelErrorKind::Timeout),
            (
                &["invalid", "not_found", "bad_request", "tool_use_failed", "image_"],
                ModelErrorKind::BadRequest,
            ),
        ];
        let known = kinds.into_iter().find(|(words, _)| says(words));
        known.map_or(ModelErrorKind::Server, |(_, kind)| kind)
    }
}

/// The words in an error, wherever they are.
fn words_of(error: &Value) -> Option<String> {
    match error {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items.iter().find_map(words_of),
        Value::Object(map) => {
            let names = ["message", "error", "detail", "msg", "error_message", "description", "errors"];
            names.iter().find_map(|name| map.get(*name).and_then(words_of))
        }
        _ => None,
    }
    .filter(|text| !text.trim().is_empty())
}

/// A page that is no JSON, in a few words.
fn page(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..LONGEST.min(body.len())).unwrap_or_default());
    let text = text.trim();
    if text.is_empty() || text.starts_with('<') {
        return String::new();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// How long a provider asks to wait, by its headers.
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
    #[expect(clippy::disallowed_methods, reason = "the date in the header is one of the real clock")]
    let now = SystemTime::now();
    Some(date.duration_since(now).unwrap_or_default())
}

/// Google's `RetryInfo`: `{"retryDelay": "34.4s"}` among the details.
fn google_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}
