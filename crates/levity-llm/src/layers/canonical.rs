use levity_core::__private::sha256;
use levity_core::{ModelCard, Request};
use serde_json::{Map, Value, json};

/// A request as JSON, with the keys of every object in order: what means the same is written the
/// same. What is not sent, the wholes of long results, is left out.
pub(super) fn canonical(request: &Request) -> Value {
    if request.history.kept() == 0 {
        return sorted(serde_json::to_value(request).unwrap_or_default());
    }
    let mut shown = request.clone();
    shown.history.keep_wholes(0);
    sorted(serde_json::to_value(&shown).unwrap_or_default())
}

/// Names a request to a model by its content.
pub(super) fn key(card: &ModelCard, request: &Value) -> String {
    let named = json!({"provider": card.provider, "model": card.id, "request": request});
    sha256(named.to_string().as_bytes())
}

/// The name of a request within a namespace, from which nobody learns the namespace.
pub(super) fn within(namespace: &str, key: String) -> String {
    match namespace {
        "" => key,
        // The inner hash has one length, so that no two pairs are written the same.
        _ => sha256(format!("{}{key}", sha256(namespace.as_bytes())).as_bytes()),
    }
}

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
