use levity_core::ToolSource;

use super::*;

/// A foreign source of tools, each with a description of so many bytes.
struct Heavy(usize, usize);

impl ToolSource for Heavy {
    fn name(&self) -> &str {
        "heavy"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let tool = |n: usize| {
            let spec = ToolSpec::new(format!("lift_{n}"), "Lifts. ".repeat(self.1 / 7));
            let hints = Hints::new().destructive();
            Arc::new(FnTool::ready(spec.with_hints(hints), |_| {
                Ok(ToolOutput::text("lifted"))
            })) as Arc<_>
        };
        (0..self.0).map(tool).collect()
    }

    fn version(&self) -> u64 {
        0
    }
}

fn dispatcher(tools: usize, bytes: usize) -> Dispatcher {
    let registry = Registry::builder()
        .source(Heavy(tools, bytes))
        .build()
        .unwrap();
    Dispatcher::builder(registry)
        .world(Clock::still())
        .tool_search(3)
        .policy(Policy::ask_all())
        .build()
        .unwrap()
}

#[test]
fn search_results_are_bounded_and_all_are_named() {
    for bytes in [100, 4_000, 100_000] {
        let result = call(
            &dispatcher(30, bytes),
            "find_tools",
            json!({"query": "lift", "limit": 20}),
        );
        let value = result.value.as_ref().unwrap();
        assert!(value.to_string().len() <= 32 << 10, "{bytes}");
        let tools = value["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 20, "{bytes}");
        assert_eq!(tools[0].get("input").is_some(), bytes < 100_000);
        assert_eq!(tools[19].get("input").is_some(), bytes < 4_000);
    }
}

#[test]
fn minimum_output_still_names_tools() {
    let registry = Registry::builder()
        .source(Heavy(30, 4_000))
        .build()
        .unwrap();
    let builder = Dispatcher::builder(registry)
        .world(Clock::still())
        .tool_search(3)
        .max_output(1);
    let result = call(
        &builder.build().unwrap(),
        "find_tools",
        json!({"query": "lift"}),
    );
    let tools = &result.value.as_ref().unwrap()["tools"];
    assert_eq!(tools.as_array().unwrap().len(), 5);
    assert_eq!(tools[0], json!({"name": "lift_0"}));
}

#[test]
fn tool_search_needs_no_approval() {
    let dispatcher = dispatcher(4, 10);
    let call = ToolCall::new("c", "find_tools", json!({"query": "lift"}));
    assert_eq!(permit(&dispatcher, &call), Permit::Allow);
    assert_eq!(dispatcher.class("find_tools"), EffectClass::ReadOnly);
    assert!(!dispatcher.runs_alone("find_tools"));
    assert!(matches!(
        permit(&dispatcher, &ToolCall::new("c", "lift_0", json!({}))),
        Permit::Ask { .. }
    ));
}

#[test]
fn only_found_tools_are_offered_above_the_limit() {
    let names = |specs: Arc<[Arc<ToolSpec>]>| {
        specs
            .iter()
            .map(|spec| spec.name.clone())
            .collect::<Vec<_>>()
    };
    let many = dispatcher(4, 10);
    assert_eq!(names(many.offer(&[])), ["find_tools"]);
    let known: [Arc<str>; 3] = ["lift_3".into(), "gone".into(), "lift_0".into()];
    assert_eq!(
        names(many.offer(&known)),
        ["find_tools", "lift_3", "lift_0"]
    );
    assert_eq!(names(dispatcher(3, 10).offer(&known)).len(), 3);
    let registry = Registry::builder()
        .tool(FnTool::named("a"))
        .tool(FnTool::named("b"))
        .build()
        .unwrap();
    let fixed = Dispatcher::builder(registry)
        .world(Clock::still())
        .tool_search(1)
        .build()
        .unwrap();
    assert_eq!((fixed.finder(), names(fixed.offer(&[])).len()), (None, 2));
}
