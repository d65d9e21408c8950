use std::borrow::Cow;

use serde_json::Value;

/// What stands in place of a secret.
const MASK: &str = "***";

/// Keys whose values are secrets, in lower case and without `_` and `-`.
const KEYS: [&str; 13] = [
    "authorization",
    "proxyauthorization",
    "apikey",
    "xapikey",
    "xgoogapikey",
    "cookie",
    "setcookie",
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "clientsecret",
    "password",
    "privatekey",
];

/// What the keys of well-known services begin with, and how many characters follow at least.
const PREFIXES: [(&str, usize); 16] = [
    ("sk-", 16),
    ("AIza", 30),
    ("ya29.", 16),
    ("gsk_", 16),
    ("xai-", 16),
    ("hf_", 30),
    ("nvapi-", 16),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("ghu_", 30),
    ("github_pat_", 22),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("Bearer ", 16),
];

/// Takes secrets out of what is written to files.
///
/// It masks the texts it was told ([`secret`](Self::secret)), the values of keys such as `authorization`,
/// `api_key` and `password`, and what looks like a key of a well-known service (`sk-…`, `ghp_…`,
/// `Bearer …`).
///
/// ```
/// use levity_llm::layers::Scrub;
///
/// let scrub = Scrub::new().secret("hunter2");
/// assert_eq!(scrub.text("the word is hunter2"), "the word is ***");
/// assert_eq!(scrub.text("Bearer 0123456789abcdef"), "Bearer ***");
/// ```
#[derive(Clone, Default)]
pub struct Scrub {
    secrets: Vec<String>,
}

impl Scrub {
    /// Knows only what secrets usually look like.
    pub fn new() -> Self {
        Self::default()
    }

    /// Masks this text wherever it stands. A text of fewer than 4 bytes is ignored: it would stand everywhere.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        let secret = secret.into();
        if secret.len() >= 4 {
            self.secrets.push(secret);
            // A secret that is part of another must not break it up before it is found.
            self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
        self
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in self.secrets.iter().filter(|secret| !secret.is_empty()) {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), MASK));
            }
        }
        match mask_keys(&text) {
            Some(masked) => Cow::Owned(masked),
            None => text,
        }
    }

    /// The value without secrets.
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Array(list) => list.into_iter().map(|value| self.value(value)).collect(),
            Value::Object(map) => {
                let entry = |(key, value): (String, Value)| {
                    let value = match value {
                        Value::String(_) if is_secret(&key) => Value::String(MASK.into()),
                        value => self.value(value),
                    };
                    (self.text(&key).into_owned(), value)
                };
                Value::Object(map.into_iter().map(entry).collect())
            }
            other => other,
        }
    }
}

impl std::fmt::Debug for Scrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrub({} secrets)", self.secrets.len())
    }
}

fn is_secret(key: &str) -> bool {
    // No known key is longer, and a key may be of any length.
    key.len() <= 32 && KEYS.contains(&key.to_ascii_lowercase().replace(['-', '_'], "").as_str())
}

/// The text with what looks like keys masked; `None` when there are none.
fn mask_keys(text: &str) -> Option<String> {
    let mut masked = String::new();
    let (mut copied, mut before) = (0, ' ');
    for (at, c) in text.char_indices() {
        let found = if at >= copied && !before.is_alphanumeric() { key_at(text, at) } else { None };
        if let Some((start, end)) = found {
            masked.push_str(&text[copied..start]);
            masked.push_str(MASK);
            copied = end;
        }
        before = c;
    }
    (copied > 0).then(|| masked + &text[copied..])
}

/// Where the secret part begins and ends of a key that begins at `at`.
fn key_at(text: &str, at: usize) -> Option<(usize, usize)> {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+' | '=' | '~');
    let (prefix, least) = PREFIXES.iter().find(|(prefix, _)| text[at..].starts_with(prefix))?;
    let from = at + prefix.len();
    let length = text[from..].find(|c| !word(c)).unwrap_or(text.len() - from);
    (length >= *least).then_some((from, from + length))
}
