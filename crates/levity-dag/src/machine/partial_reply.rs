//! Assembles plans that are longer than one reply: the complete parts are stored, and the rest is
//! requested.
//!
//! For example, the reply `{"steps": [{"id": "a", ..}, {"id": "b", "age` gives the step `a`. The
//! last element is dropped even if it looks complete, because a cut may fall after any field. The
//! planner sees the kept part and returns only the rest; `join` adds it, and a repeated id replaces
//! the earlier step.

use levity_core::Finish;
use levity_llm::json::{self, Repair};
use serde_json::{Map, Value};

use crate::read;

/// Returns the complete parts of a reply that was cut off. Returns `None` if the reply is complete,
/// or if it does not contain the beginning of a plan or a change.
pub(super) fn cut(text: &str, finish: Option<&Finish>) -> Option<Map<String, Value>> {
    if serde_json::from_str::<Value>(text).is_ok() {
        return None;
    }
    let repaired = json::repair(text)
        .ok()
        .filter(|repaired| repaired.repairs.contains(Repair::Truncated))?;
    // A reply that the model ended and that lacks a brace has a typing error, and was not cut off.
    if finish != Some(&Finish::Length) && read::is_closed(text) {
        return None;
    }
    if !read::is_plan(&repaired.value) && !read::is_diff(&repaired.value) {
        return None;
    }
    let mut kept = fields(repaired.value);
    drop_last(&mut kept);
    Some(kept)
}

/// Counts the stored parts. The count grows as long as further requests help.
pub(super) fn count(kept: &Map<String, Value>) -> usize {
    let size = |value: &Value| match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 1,
    };
    kept.values().map(size).sum()
}

/// Adds a later reply. Repeated parts replace the stored ones, so a reply with the whole plan is
/// used as it is.
pub(super) fn join(kept: &mut Map<String, Value>, rest: Map<String, Value>) {
    for (key, value) in rest {
        match (kept.get_mut(&key), value) {
            (Some(Value::Array(all)), Value::Array(more)) => add_all(all, more),
            (Some(Value::Object(all)), Value::Object(more)) => all.extend(more),
            (_, value) => {
                kept.insert(key, value);
            }
        }
    }
}

/// Returns the fields of a complete later reply, if it contains parts of a plan or a change.
pub(super) fn whole(text: &str) -> Option<Map<String, Value>> {
    let value = json::parse(text).ok()?;
    (read::is_plan(&value) || read::is_diff(&value)).then(|| fields(value))
}

fn add_all(all: &mut Vec<Value>, more: Vec<Value>) {
    for item in more {
        let same = |other: &Value| match item.get("id") {
            Some(id) => other.get("id") == Some(id),
            None => *other == item,
        };
        match all.iter().position(same) {
            Some(at) => all[at] = item,
            None => all.push(item),
        }
    }
}

/// Returns the object that contains the steps, without its wrappers. A bare list contains steps.
fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(mut map) => {
            let has_own = ["steps", "nodes"]
                .iter()
                .chain(&read::DIFF_KEYS)
                .any(|key| map.contains_key(*key));
            let wrap = read::PLAN_WRAPPERS
                .iter()
                .chain(&read::DIFF_WRAPPERS)
                .find(|key| map.contains_key(**key));
            match wrap.filter(|_| !has_own).and_then(|key| map.remove(*key)) {
                Some(inner) => fields(inner),
                None => map,
            }
        }
        Value::Array(steps) => Map::from_iter([("steps".to_owned(), Value::Array(steps))]),
        _ => Map::new(),
    }
}

/// Drops the last element of the last field, which may be incomplete. The planner writes it again.
fn drop_last(kept: &mut Map<String, Value>) {
    let Some(key) = kept.keys().next_back().cloned() else {
        return;
    };
    match kept.get_mut(&key) {
        Some(Value::Array(items)) => {
            items.pop();
        }
        Some(Value::Object(map)) => {
            let last = map.keys().next_back().cloned();
            last.map(|last| map.remove(&last));
        }
        _ => {
            kept.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "the cases read better")]
    fn check_cut(text: &str, expected: Option<Value>) {
        assert_eq!(
            cut(text, Some(&Finish::Length)).map(Value::Object),
            expected,
            "{text}"
        );
    }

    #[test]
    fn cut_reply_keeps_complete_steps() {
        let a = json!({"id": "a", "agent": "Thinker"});
        let one = || Some(json!({"steps": [a]}));
        for text in [
            r#"{"steps": [{"id": "a", "agent": "Thinker"}, {"id": "b", "prompt": "Go on and"#,
            r#"{"steps": [{"id": "a", "agent": "Thinker"}, {"id": "b", "wri"#,
            r#"{"steps": [{"id": "a", "agent": "Thinker"}, {"#,
            r#"[{"id": "a", "agent": "Thinker"}, {"id": "b""#,
            "Here it is:\n```json\n{\"steps\": [{\"id\": \"a\", \"agent\": \"Thinker\"}, \
                {\"id\": \"b\", \"prompt\": \"x",
            r#"{"plan": {"steps": [{"id": "a", "agent": "Thinker"}, {"id": "b", "reads": ["x""#,
        ] {
            check_cut(text, one());
        }
        // The last step may be incomplete, so the planner writes it again.
        check_cut(
            r#"{"steps": [{"id": "a", "agent": "Thinker"}"#,
            Some(json!({"steps": []})),
        );
        check_cut(
            r#"{"steps": {"a": {"agent": "x"}, "b": {"#,
            Some(json!({"steps": {"a": {"agent": "x"}}})),
        );
        check_cut(
            concat!(
                r#"{"nodes": [{"id": "a"}, {"id": "b"}], "#,
                r#""links": [{"source": "a", "target": "b"}, {"sou"#,
            ),
            Some(json!({
                "nodes": [{"id": "a"}, {"id": "b"}],
                "links": [{"source": "a", "target": "b"}],
            })),
        );
        check_cut(
            r#"{"reason": "it broke", "add": [{"id": "c"}, {"id": "d", "instead"#,
            Some(json!({"reason": "it broke", "add": [{"id": "c"}]})),
        );
    }

    #[test]
    fn complete_reply_is_not_cut() {
        check_cut(r#"{"steps": [{"id": "a"}]}"#, None);
        check_cut(
            "```json\n{\"steps\": [{\"id\": \"a\"}]}\n```\nThat is a",
            None,
        );
        check_cut("I would begin with", None);
        check_cut("", None);
        // A missing brace at the end of a reply that the model ended is a typing error.
        assert_eq!(cut(r#"{"steps": [{"id": "a"}]"#, Some(&Finish::Stop)), None);
        assert_eq!(
            cut(r#"{"steps": [{"id": "a"}, {"id": "b"#, Some(&Finish::Stop))
                .map(|kept| count(&kept)),
            Some(1)
        );
    }

    #[test]
    fn later_reply_is_merged_by_step_ids() {
        let join_all = |first: Value, rest: Value| {
            let mut kept = fields(first);
            join(&mut kept, fields(rest));
            Value::Object(kept)
        };
        let steps = |ids: &[&str]| {
            json!({
                "steps": ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>(),
            })
        };
        assert_eq!(
            join_all(steps(&["a"]), steps(&["b", "c"])),
            steps(&["a", "b", "c"])
        );
        assert_eq!(
            join_all(steps(&["a", "b"]), steps(&["a", "b", "c"])),
            steps(&["a", "b", "c"])
        );
        assert_eq!(
            join_all(steps(&["a"]), json!([{"id": "b"}])),
            steps(&["a", "b"])
        );
        let changed = join_all(
            json!({"add": [{"id": "a", "x": 1}], "remove": ["z"]}),
            json!({"add": [{"id": "a"}], "remove": ["y", "z"]}),
        );
        assert_eq!(changed, json!({"add": [{"id": "a"}], "remove": ["z", "y"]}));
    }
}
