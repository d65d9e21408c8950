use super::*;
use crate::convert::{Tasks, spec};

#[test]
fn entries_are_mended_or_named() {
    let made = |entry: Value| tool(entry).map(|tool| Value::Object((*tool.input_schema).clone()));
    let any = json!({"type": "object"});
    assert_eq!(made(json!({"name": "a"})), Ok(any.clone()));
    assert_eq!(
        made(json!({"name": "a", "inputSchema": null})),
        Ok(any.clone())
    );
    assert_eq!(
        made(json!({"name": "a", "inputSchema": true})),
        Ok(any.clone())
    );
    let odd = json!({
        "name": "a", "title": 5, "description": [], "inputSchema": any, "outputSchema": "x",
        "annotations": {"readOnlyHint": "yes"}, "icons": 1, "_meta": 2,
    });
    assert_eq!(made(odd), Ok(any.clone()));
    for (entry, flaw) in [
        (json!(1), "an entry of the list of tools is no object"),
        (
            json!({"inputSchema": {}}),
            "an entry of the list of tools has no name",
        ),
        (
            json!({"name": "a", "inputSchema": false}),
            "the tool `a` is left out: its input schema accepts nothing",
        ),
        (
            json!({"name": "a", "inputSchema": "x"}),
            "the tool `a` is left out: its input schema is no schema",
        ),
    ] {
        assert_eq!(made(entry).unwrap_err(), flaw);
    }
}

#[test]
fn whether_a_tool_is_a_task_is_kept() {
    let tasks = |entry: Value| {
        let tool = tool(entry).unwrap();
        let limit = std::time::Duration::from_secs(1);
        spec(&tool, "t".into(), crate::Trust::Wary, limit)
            .unwrap()
            .1
            .tasks
    };
    assert_eq!(tasks(json!({"name": "a"})), Tasks::Forbidden);
    assert_eq!(
        tasks(json!({"name": "a", "execution": {"taskSupport": "required"}})),
        Tasks::Required
    );
    let kept = json!({"name": "a", "_meta": {"mine": 1}, "execution": {"taskSupport": "optional"}});
    assert_eq!(tasks(kept), Tasks::Optional);
}
