//! Identity of requests: the same content gives the same key.
//!
//! [`Cached`](super::Cached) and [`Record`](super::Record) find replies by a SHA-256 of the
//! request's JSON, together with the provider and the id of the model. The keys of objects are
//! sorted first, because maps such as the extra options keep the order of insertion, which is not
//! part of the meaning. A changed field of a request, even a default one, changes the key: that is
//! intended, since it may change the reply.

use levity_core::__private::sha256;
use levity_core::{ModelCard, Request};
use serde_json::{Map, Value, json};

/// Returns a request as JSON with sorted object keys, so that equal requests have equal text. It
/// leaves out data that is not sent, such as the full text of long results.
///
/// A history can retain the full text of results that were shortened for the model. Two requests
/// that look alike to the model are the same request, so that text is cleared in a copy. The copy
/// is made only if something is retained.
pub(super) fn canonical(request: &Request) -> Value {
    if request.history.retained_bytes() == 0 {
        return sorted(serde_json::to_value(request).unwrap_or_default());
    }
    let mut shown = request.clone();
    shown.history.limit_retained_bytes(0);
    sorted(serde_json::to_value(&shown).unwrap_or_default())
}

/// Returns a key that identifies a request to a model by its content.
///
/// The key is 64 hexadecimal digits, which [`Cached`](super::Cached) also uses as a file name.
pub(super) fn key(card: &ModelCard, request: &Value) -> String {
    let named = json!({"provider": card.provider, "model": card.id, "request": request});
    sha256(named.to_string().as_bytes())
}

/// Returns the key of a request within a namespace, without revealing the namespace.
pub(super) fn namespaced_key(namespace: &str, key: String) -> String {
    match namespace {
        "" => key,
        // The inner hash has a fixed length, so no two pairs produce the same text.
        _ => sha256(format!("{}{key}", sha256(namespace.as_bytes())).as_bytes()),
    }
}

/// Rebuilds a value with the keys of all objects in ascending order, at every depth.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(
                entries
                    .into_iter()
                    .map(|(key, value)| (key, sorted(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        other => other,
    }
}
