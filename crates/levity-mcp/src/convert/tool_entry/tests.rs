use super::*;
use crate::convert::{Tasks, spec};

#[test]
fn tool_repairs_entry_or_returns_reason() {
    let convert =
        |entry: Value| tool(entry).map(|tool| Value::Object((*tool.input_schema).clone()));
    let any = json!({"type": "object"});
    assert_eq!(convert(json!({"name": "a"})), Ok(any.clone()));
    assert_eq!(
        convert(json!({"name": "a", "inputSchema": null})),
        Ok(any.clone())
    );
    assert_eq!(
        convert(json!({"name": "a", "inputSchema": true})),
        Ok(any.clone())
    );
    let invalid = json!({
        "name": "a", "title": 5, "description": [], "inputSchema": any, "outputSchema": "x",
        "annotations": {"readOnlyHint": "yes"}, "icons": 1, "_meta": 2,
    });
    assert_eq!(convert(invalid), Ok(any.clone()));
    for (entry, problem) in [
        (json!(1), "an entry of the list of tools is not an object"),
        (
            json!({"inputSchema": {}}),
            "an entry of the list of tools has no name",
        ),
        (
            json!({"name": "a", "inputSchema": false}),
            "the tool `a` is omitted: its input schema accepts nothing",
        ),
        (
            json!({"name": "a", "inputSchema": "x"}),
            "the tool `a` is omitted: its input schema is not a schema",
        ),
    ] {
        assert_eq!(convert(entry).unwrap_err(), problem);
    }
}

#[test]
fn tool_keeps_task_support() {
    let tasks = |entry: Value| {
        let tool = tool(entry).unwrap();
        let limit = std::time::Duration::from_secs(1);
        spec(&tool, "t".into(), crate::Trust::Cautious, limit)
            .unwrap()
            .1
            .tasks
    };
    assert_eq!(tasks(json!({"name": "a"})), Tasks::Forbidden);
    assert_eq!(
        tasks(json!({"name": "a", "execution": {"taskSupport": "required"}})),
        Tasks::Required
    );
    let entry_with_meta =
        json!({"name": "a", "_meta": {"mine": 1}, "execution": {"taskSupport": "optional"}});
    assert_eq!(tasks(entry_with_meta), Tasks::Optional);
}
