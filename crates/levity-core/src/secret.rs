use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::text::head;

mod assigned;
mod names;
mod patterns;
#[cfg(test)]
mod tests;

/// The minimum length of a known value; a shorter one would match everywhere.
const MIN_KNOWN_LENGTH: usize = 4;

/// The minimum length of a variable's value; a shorter one is a switch or a word rather than a key.
const MIN_VARIABLE_LENGTH: usize = 8;

/// The search distance after a cut for the end of a secret with a known pattern, such as a private
/// key.
const MAX_PATTERN_LENGTH: usize = 16 << 10;

/// The kind of a secret that was found.
///
/// ```
/// # use levity_core::SecretKind;
/// assert_eq!(SecretKind::ApiKey.to_string(), "api key");
/// assert_eq!(SecretKind::ApiKey.marker(), "[secret: api key]");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SecretKind {
    /// A value that was registered with [`Secrets`].
    Known,
    /// A key of a well-known service, such as `sk-…`, `AIza…`, `ghp_…` or `AKIA…`.
    ApiKey,
    /// A credential after `Bearer` or `Basic`, or assigned to a name such as `access_token`.
    Token,
    /// A signed JSON web token.
    Jwt,
    /// A private key between its lines `-----BEGIN …` and `-----END …`.
    PrivateKey,
    /// A value assigned to a name such as `password`, or before the host in an address.
    Password,
}

impl SecretKind {
    /// Returns the name of the kind: `api key`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::ApiKey => "api key",
            Self::Token => "token",
            Self::Jwt => "jwt",
            Self::PrivateKey => "private key",
            Self::Password => "password",
        }
    }

    /// Returns the replacement for such a secret: `[secret: api key]`.
    pub fn marker(self) -> &'static str {
        match self {
            Self::Known => "[secret: known]",
            Self::ApiKey => "[secret: api key]",
            Self::Token => "[secret: token]",
            Self::Jwt => "[secret: jwt]",
            Self::PrivateKey => "[secret: private key]",
            Self::Password => "[secret: password]",
        }
    }
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The position of a secret in a text.
///
/// ```
/// # use levity_core::{SecretKind, Secrets};
/// let found = Secrets::new().find("PASSWORD=hunter2 rest");
/// assert_eq!((found[0].range.clone(), found[0].kind), (9..16, SecretKind::Password));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundSecret {
    /// The range of its bytes, on character boundaries.
    pub range: Range<usize>,
    /// The kind of the secret.
    pub kind: SecretKind,
}

/// Finds secrets in texts: registered values and typical patterns.
///
/// ```
/// use levity_core::Secrets;
///
/// let secrets = Secrets::new().known("correct horse");
/// assert_eq!(secrets.redact("say `correct horse`"), "say `[secret: known]`");
/// assert_eq!(secrets.redact("key: sk-ant-api03-0123456789abcdef0123"), "key: [secret: api key]");
/// assert_eq!(secrets.redact("PASSWORD=hunter2"), "PASSWORD=[secret: password]");
/// assert_eq!(secrets.redact("nothing here"), "nothing here");
/// assert_eq!(format!("{secrets:?}"), "Secrets(***)");
/// ```
///
/// A search takes one pass over the text, and one more for each known value. A text without secrets
/// is returned unchanged. The patterns are heuristic. They favour missing a secret over damaging
/// ordinary text: hashes, UUIDs, encoded images and source code are left unchanged. Register every
/// value that must never be visible.
///
/// Cloning is cheap.
#[derive(Clone, Default)]
pub struct Secrets {
    known: Arc<BTreeSet<String>>,
    known_only: bool,
}

impl Secrets {
    /// Creates a finder that uses only patterns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a value to find, also in its JSON and URL-encoded forms. A value of fewer than 4
    /// bytes is ignored, and surrounding white space is removed.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// let secrets = Secrets::new().known("correct horse");
    /// assert_eq!(secrets.redact("?word=correct%20horse"), "?word=[secret: known]");
    /// ```
    #[must_use]
    pub fn known(mut self, value: impl AsRef<str>) -> Self {
        let value = value.as_ref().trim();
        if value.len() >= MIN_KNOWN_LENGTH {
            Arc::make_mut(&mut self.known).extend(encoded_forms(value));
        }
        self
    }

    /// Registers the values of variables with [names](Self::is_name) of secrets, such as
    /// `OPENAI_API_KEY`. Values of fewer than 8 bytes are ignored, because they are switches and
    /// words.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// let variables = [("MY_API_KEY", "correct horse"), ("HOME", "/home/me")];
    /// let secrets = Secrets::new().variables(variables);
    /// assert_eq!(secrets.redact("correct horse in /home/me"), "[secret: known] in /home/me");
    /// ```
    #[must_use]
    pub fn variables<N: AsRef<str>, V: AsRef<str>>(
        self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let secret = |(name, value): &(N, V)| {
            Self::is_name(name.as_ref()) && value.as_ref().trim().len() >= MIN_VARIABLE_LENGTH
        };
        variables
            .into_iter()
            .filter(secret)
            .fold(self, |secrets, (_, value)| secrets.known(value))
    }

    /// Disables patterns, so that only known values are found.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// let secrets = Secrets::new().known("correct horse").known_only();
    /// assert_eq!(secrets.redact("PASSWORD=hunter2"), "PASSWORD=hunter2");
    /// assert_eq!(secrets.redact("say correct horse"), "say [secret: known]");
    /// ```
    #[must_use]
    pub fn known_only(mut self) -> Self {
        self.known_only = true;
        self
    }

    /// Returns `true` if a variable, header or object key of this name is usually a secret.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// assert!(Secrets::is_name("OPENAI_API_KEY") && Secrets::is_name("authorization"));
    /// assert!(!Secrets::is_name("max_tokens") && !Secrets::is_name("nextPageToken"));
    /// ```
    pub fn is_name(name: &str) -> bool {
        names::kind_of(name).is_some()
    }

    /// Returns all secrets in a text, in order and without overlaps.
    ///
    /// ```
    /// # use levity_core::{SecretKind, Secrets};
    /// let found = Secrets::new().known("correct horse").find("say correct horse");
    /// assert_eq!((found[0].kind, found[0].range.clone()), (SecretKind::Known, 4..17));
    /// ```
    pub fn find(&self, text: &str) -> Vec<FoundSecret> {
        let mut found = Vec::new();
        for known in self.known.iter() {
            let at = text.match_indices(known.as_str());
            found.extend(at.map(|(at, _)| FoundSecret {
                range: at..at + known.len(),
                kind: SecretKind::Known,
            }));
        }
        if !self.known_only {
            found.extend(patterns::find(text));
        }
        merge_overlaps(found)
    }

    /// Returns the text with a [marker](SecretKind::marker) in place of each secret.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// assert_eq!(Secrets::new().redact("PASSWORD=hunter2"), "PASSWORD=[secret: password]");
    /// ```
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.replace(text, SecretKind::marker)
    }

    /// Returns the text with a custom replacement for each secret.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// assert_eq!(Secrets::new().replace("PASSWORD=hunter2", |_| "***"), "PASSWORD=***");
    /// ```
    pub fn replace<'a>(
        &self,
        text: &'a str,
        with: impl Fn(SecretKind) -> &'static str,
    ) -> Cow<'a, str> {
        let found = self.find(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut clean, mut copied) = (String::with_capacity(text.len()), 0);
        for FoundSecret { range, kind } in found {
            clean.push_str(&text[copied..range.start]);
            clean.push_str(with(kind));
            copied = range.end;
        }
        clean.push_str(&text[copied..]);
        Cow::Owned(clean)
    }

    /// Returns the beginning of a text, at most `limit` bytes long, with a custom replacement for
    /// each secret.
    ///
    /// A secret across the cut is replaced as a whole, because cutting first would leave its
    /// beginning. The search covers only `limit` bytes plus the length of the longest possible
    /// secret.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// let secrets = Secrets::new().known("correct horse");
    /// let text = "the word is correct horse, he said";
    /// assert_eq!(secrets.replace_head(text, 18, |_| "***"), "the word is ***");
    /// assert_eq!(secrets.replace_head("nothing here", 7, |_| "***"), "nothing");
    /// ```
    pub fn replace_head<'a>(
        &self,
        text: &'a str,
        limit: usize,
        with: impl Fn(SecretKind) -> &'static str,
    ) -> Cow<'a, str> {
        let end = head(text, limit).len();
        let shape = if self.known_only {
            0
        } else {
            MAX_PATTERN_LENGTH
        };
        let seen = head(text, end.saturating_add(self.longest_known().max(shape)));
        let mut found = self.find(seen);
        found.retain(|found| found.range.start < end);
        if found.is_empty() {
            return Cow::Borrowed(&text[..end]);
        }
        let (mut clean, mut copied) = (String::with_capacity(end), 0);
        for FoundSecret { range, kind } in found {
            clean.push_str(&text[copied..range.start]);
            clean.push_str(with(kind));
            copied = range.end;
        }
        clean.push_str(text.get(copied..end).unwrap_or_default());
        clean.truncate(head(&clean, limit).len());
        Cow::Owned(clean)
    }

    /// Returns the position of an incomplete known value at the end of a text, if at least 4 bytes
    /// of it are present.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// let secrets = Secrets::new().known("correct horse");
    /// assert_eq!(secrets.begun_at_end("say corre"), Some(4));
    /// assert_eq!(secrets.begun_at_end("say co"), None);
    /// ```
    pub fn begun_at_end(&self, text: &str) -> Option<usize> {
        let begun = |known: &String| {
            let lengths = (MIN_KNOWN_LENGTH..known.len())
                .rev()
                .filter(|length| known.is_char_boundary(*length));
            lengths
                .filter(|length| text.ends_with(&known[..*length]))
                .map(|length| text.len() - length)
                .next()
        };
        self.known.iter().filter_map(begun).min()
    }

    /// Returns the length in bytes of the longest form of all [`known`](Self::known) values.
    pub fn longest_known(&self) -> usize {
        self.known.iter().map(String::len).max().unwrap_or(0)
    }

    /// Returns the value with markers in place of secrets: in texts, in keys, and in any text under
    /// a key that [names](Self::is_name) a secret.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// # use serde_json::json;
    /// let value = json!({"user": "me", "password": "x"});
    /// let clean = Secrets::new().redact_value(&value);
    /// assert_eq!(*clean, json!({"user": "me", "password": "[secret: password]"}));
    /// ```
    pub fn redact_value<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        self.replace_value(value, SecretKind::marker)
    }

    /// Returns the value with custom replacements where [`redact_value`](Self::redact_value) uses
    /// markers.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// # use serde_json::json;
    /// let value = json!({"api_key": "x", "city": "Brest"});
    /// let clean = Secrets::new().replace_value(&value, |_| "***");
    /// assert_eq!(*clean, json!({"api_key": "***", "city": "Brest"}));
    /// ```
    pub fn replace_value<'a>(
        &self,
        value: &'a Value,
        with: impl Fn(SecretKind) -> &'static str + Copy,
    ) -> Cow<'a, Value> {
        match self.clean_value(value, with) {
            Some(clean) => Cow::Owned(clean),
            None => Cow::Borrowed(value),
        }
    }

    /// Returns `None` if there is nothing to replace.
    fn clean_value(
        &self,
        value: &Value,
        with: impl Fn(SecretKind) -> &'static str + Copy,
    ) -> Option<Value> {
        match value {
            Value::String(text) => match self.replace(text, with) {
                Cow::Borrowed(_) => None,
                Cow::Owned(clean) => Some(Value::String(clean)),
            },
            Value::Array(list) => {
                let clean: Vec<_> = list
                    .iter()
                    .map(|each| self.clean_value(each, with))
                    .collect();
                clean.iter().any(Option::is_some).then(|| {
                    let each = list.iter().zip(clean);
                    each.map(|(old, clean)| clean.unwrap_or_else(|| old.clone()))
                        .collect()
                })
            }
            Value::Object(map) => {
                let entry = |(key, value): (&String, &Value)| self.clean_entry(key, value, with);
                let clean: Vec<_> = map.iter().map(entry).collect();
                clean.iter().any(Option::is_some).then(|| {
                    let each = map.iter().zip(clean);
                    each.map(|((key, value), clean)| {
                        clean.unwrap_or_else(|| (key.clone(), value.clone()))
                    })
                    .collect()
                })
            }
            // A known value may be a number, such as a PIN.
            Value::Number(number) if !self.known.is_empty() => {
                let text = number.to_string();
                let known = self.known.contains(&text);
                known.then(|| Value::from(with(SecretKind::Known)))
            }
            _ => None,
        }
    }

    fn clean_entry(
        &self,
        key: &str,
        value: &Value,
        with: impl Fn(SecretKind) -> &'static str + Copy,
    ) -> Option<(String, Value)> {
        let named = match value {
            Value::String(text) if !self.known_only && !text.is_empty() => names::kind_of(key),
            _ => None,
        };
        let clean = match named {
            // Leave text that was already redacted unchanged.
            Some(kind) if value.as_str().is_some_and(|text| text != with(kind)) => {
                Some(Value::from(with(kind)))
            }
            Some(_) => None,
            None => self.clean_value(value, with),
        };
        let renamed = self.replace(key, with);
        if clean.is_none() && matches!(renamed, Cow::Borrowed(_)) {
            return None;
        }
        Some((renamed.into_owned(), clean.unwrap_or_else(|| value.clone())))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(***)")
    }
}

/// Returns the forms of a value: plain, JSON-escaped and URL-encoded.
fn encoded_forms(value: &str) -> Vec<String> {
    let json = Value::from(value).to_string();
    let mut address = String::new();
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                address.push(byte.into());
            }
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    let mut forms = vec![
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        address,
    ];
    forms.dedup();
    forms
}

/// Sorts the secrets and merges those that touch: of two that overlap, a part of one would remain.
fn merge_overlaps(mut found: Vec<FoundSecret>) -> Vec<FoundSecret> {
    found.sort_by_key(|found| found.range.start);
    found.dedup_by(|later, earlier| {
        let overlap = later.range.start < earlier.range.end;
        if overlap {
            earlier.range.end = earlier.range.end.max(later.range.end);
        }
        overlap
    });
    found
}
