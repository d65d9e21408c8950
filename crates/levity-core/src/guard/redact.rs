//! Removal of secrets from the subjects of guards.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::GuardSubject;
use crate::{Content, Message, Part, Secrets, ToolCall, ToolResult};

impl GuardSubject {
    /// Returns a copy with markers in place of secrets in all its text, including thinking,
    /// provider data and full results. Returns `None` if there are no secrets.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{Message, Secrets, GuardSubject};
    /// let subject = GuardSubject::Input(Arc::new(Message::user("my password=hunter2")));
    /// let clean = subject.without(&Secrets::new()).unwrap();
    /// assert_eq!(clean.text(), "my password=[secret: password]");
    /// ```
    pub fn without(&self, secrets: &Secrets) -> Option<Self> {
        match self {
            Self::Input(of) => {
                redact_message(of, secrets).map(|clean| Self::Input(Arc::new(clean)))
            }
            Self::Answer(of) => {
                redact_message(of, secrets).map(|clean| Self::Answer(Arc::new(clean)))
            }
            Self::Call(of) => redact_call(of, secrets).map(Self::Call),
            Self::Result(of) => redact_result(of, secrets).map(Self::Result),
            Self::Failure(of) => redact_text(of, secrets).map(Self::Failure),
        }
    }
}

fn redact_text(text: &str, secrets: &Secrets) -> Option<String> {
    match secrets.redact(text) {
        Cow::Borrowed(_) => None,
        Cow::Owned(clean) => Some(clean),
    }
}

fn redact_value(value: &Value, secrets: &Secrets) -> Option<Value> {
    match secrets.redact_value(value) {
        Cow::Borrowed(_) => None,
        Cow::Owned(clean) => Some(clean),
    }
}

/// Leaves calls unchanged: each is checked separately.
fn redact_message(message: &Message, secrets: &Secrets) -> Option<Message> {
    let clean: Vec<_> = message
        .parts
        .iter()
        .map(|each| redact_part(each, secrets))
        .collect();
    clean.iter().any(Option::is_some).then(|| {
        let parts = message.parts.iter().zip(clean);
        let parts = parts.map(|(old, clean)| clean.unwrap_or_else(|| old.clone()));
        Message {
            parts: parts.collect(),
            ..message.clone()
        }
    })
}

fn redact_part(part: &Part, secrets: &Secrets) -> Option<Part> {
    let opaque = part
        .opaque()
        .and_then(|opaque| redact_value(&opaque.data, secrets));
    let original = match part {
        Part::Text(part) => &part.text,
        Part::Thinking(part) => &part.text,
        Part::Opaque(part) => {
            let mut clean = part.clone();
            clean.data = opaque?.into();
            return Some(Part::Opaque(clean));
        }
        _ => return None,
    };
    let clean = redact_text(original, secrets);
    if clean.is_none() && opaque.is_none() {
        return None;
    }
    // A signature covers the original text and no longer fits.
    let clean = clean.unwrap_or_else(|| original.clone());
    Some(if matches!(part, Part::Text(_)) {
        Part::text(clean)
    } else {
        Part::thinking(clean)
    })
}

fn redact_call(call: &ToolCall, secrets: &Secrets) -> Option<ToolCall> {
    let args = redact_value(&call.args, secrets);
    let raw = call
        .raw
        .as_deref()
        .and_then(|raw| redact_text(raw, secrets));
    let opaque = call
        .opaque
        .as_ref()
        .and_then(|opaque| redact_value(&opaque.data, secrets));
    if args.is_none() && raw.is_none() && opaque.is_none() {
        return None;
    }
    let mut clean = call.clone();
    clean.args = args.unwrap_or(clean.args);
    clean.raw = raw.or(clean.raw);
    clean.opaque = clean.opaque.filter(|_| opaque.is_none());
    Some(clean)
}

fn redact_result(result: &ToolResult, secrets: &Secrets) -> Option<ToolResult> {
    let mut clean = Cow::Borrowed(result);
    for (at, content) in result.content.iter().enumerate() {
        let Content::Text(original) = content else {
            continue;
        };
        if let Some(redacted) = redact_text(original, secrets) {
            clean.to_mut().content[at] = Content::Text(redacted);
        }
    }
    if let Some(redacted) = result
        .value
        .as_ref()
        .and_then(|original| redact_value(original, secrets))
    {
        clean.to_mut().value = Some(redacted);
    }
    if let Some(whole) = result
        .whole
        .as_deref()
        .and_then(|whole| redact_text(whole, secrets))
    {
        clean.to_mut().whole = Some(whole.into());
    }
    match clean {
        Cow::Borrowed(_) => None,
        Cow::Owned(clean) => Some(clean),
    }
}
