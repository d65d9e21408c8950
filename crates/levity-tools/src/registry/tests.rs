use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use levity_core::ToolSpec;
use serde_json::json;

use super::*;
use crate::SchemaSide;
use crate::testing::FnTool;

fn names(registry: &Registry) -> Vec<String> {
    registry
        .specs()
        .iter()
        .map(|spec| spec.name.clone())
        .collect()
}

#[track_caller]
fn refused(tool: FnTool, expected: &str) {
    assert_eq!(
        Registry::builder()
            .tool(tool)
            .build()
            .unwrap_err()
            .to_string(),
        expected
    );
}

fn with_input(input: serde_json::Value) -> FnTool {
    FnTool::ready(ToolSpec::new("t", "").with_input(input), |_| {
        Ok(Default::default())
    })
}

#[test]
fn tools_keep_their_insertion_order() {
    let boxed: Vec<Arc<dyn Tool>> =
        vec![Arc::new(FnTool::named("m")), Arc::new(FnTool::named("b"))];
    let registry = Registry::builder()
        .tool(FnTool::named("z"))
        .tools(boxed)
        .shared(Arc::new(FnTool::named("a")))
        .tool_as("k", FnTool::named("z"))
        .linked()
        .build()
        .unwrap();
    assert_eq!(names(&registry), ["z", "m", "b", "a", "k"]);
    assert_eq!(registry.get("k").unwrap().spec().name, "k");
    assert!(registry.get("nobody").is_none());
    assert!(Arc::ptr_eq(&registry.specs(), &registry.clone().specs()));
    assert_eq!(
        format!("{registry:?}"),
        r#"Registry(["z", "m", "b", "a", "k"])"#
    );
}

#[test]
fn invalid_tools_are_rejected() {
    refused(
        FnTool::named(""),
        "`` is not a valid tool name; use 1 to 64 letters, digits, `_` and `-`",
    );
    refused(
        FnTool::named("a b"),
        "`a b` is not a valid tool name; use 1 to 64 letters, digits, `_` and `-`",
    );
    refused(
        FnTool::named("wetter_für"),
        "`wetter_für` is not a valid tool name; use 1 to 64 letters, digits, `_` and `-`",
    );
    assert!(
        Registry::builder()
            .tool(FnTool::named(&"x".repeat(64)))
            .build()
            .is_ok()
    );
    assert!(
        Registry::builder()
            .tool(FnTool::named(&"x".repeat(65)))
            .build()
            .is_err()
    );
    for input in [
        json!(false),
        json!(true),
        json!({}),
        json!({"type": "string"}),
        json!(null),
    ] {
        refused(
            with_input(input),
            "the input schema of `t` is not an object schema; give it `\"type\": \"object\"`",
        );
    }
    refused(
        with_input(json!({"type": "object", "properties": 1})),
        "the input schema of `t` does not compile",
    );
    refused(
        with_input(json!({"type": "object", "$ref": "http://x.example/y"})),
        "the input schema of `t` refers to `http://x.example/y`, which is never fetched; move it \
            to `$defs`",
    );
}

#[test]
fn output_schema_is_compiled() {
    let spec = ToolSpec::new("t", "").with_output(json!({"type": "nothing"}));
    let error = Registry::builder()
        .tool(FnTool::ready(spec, |_| Ok(Default::default())))
        .build()
        .unwrap_err();
    assert!(matches!(
        error,
        Error::InvalidSchema {
            side: SchemaSide::Output,
            ..
        }
    ));
    assert!(!error.is_retryable());
}

struct TestSource {
    tools: Mutex<Vec<Arc<dyn Tool>>>,
    version: AtomicU64,
    asked: AtomicUsize,
}

impl TestSource {
    fn new(tools: Vec<Arc<dyn Tool>>) -> Arc<Self> {
        Arc::new(Self {
            tools: Mutex::new(tools),
            version: AtomicU64::new(1),
            asked: AtomicUsize::new(0),
        })
    }

    fn put(&self, tools: Vec<Arc<dyn Tool>>) {
        *self.tools.lock().unwrap() = tools;
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

impl ToolSource for TestSource {
    fn name(&self) -> &str {
        "shelf"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.tools.lock().unwrap().clone()
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }
}

fn tools(names: &[&str]) -> Vec<Arc<dyn Tool>> {
    names
        .iter()
        .map(|name| Arc::new(FnTool::named(name)) as Arc<dyn Tool>)
        .collect()
}

#[test]
fn source_is_queried_again_only_after_change() {
    let (first, second) = (
        TestSource::new(tools(&["b"])),
        TestSource::new(tools(&["c"])),
    );
    let registry = Registry::builder()
        .source(first.clone())
        .source(second)
        .tool(FnTool::named("z"));
    let registry = registry.build().unwrap();
    assert_eq!(names(&registry), ["z", "b", "c"]);
    let before = registry.specs();
    assert!(registry.get("b").is_some() && Arc::ptr_eq(&before, &registry.specs()));
    assert_eq!(first.asked.load(Ordering::SeqCst), 1);

    first.put(tools(&["b", "a"]));
    assert_eq!(names(&registry), ["z", "b", "a", "c"]);
    assert!(
        Arc::ptr_eq(&before[0], &registry.specs()[0])
            && Arc::ptr_eq(&before[1], &registry.specs()[1])
    );
    assert_eq!(first.asked.load(Ordering::SeqCst), 2);

    let before = registry.specs();
    first.put(tools(&["b", "a"]));
    assert!(Arc::ptr_eq(&before, &registry.specs()));
    first.put(Vec::new());
    assert_eq!(names(&registry), ["z", "c"]);
    assert!(registry.get("b").is_none());
}

#[test]
fn replaced_tool_is_called_instead_of_old_one() {
    let shelf = TestSource::new(tools(&["b"]));
    let registry = Registry::builder().source(shelf.clone()).build().unwrap();
    let old = registry.get("b").unwrap();
    shelf.put(tools(&["b"]));
    assert!(!Arc::ptr_eq(&old, &registry.get("b").unwrap()));
}

#[test]
fn invalid_tool_of_source_does_not_affect_others() {
    let mut offered = tools(&["z", "good", "bad name", "good"]);
    offered.push(Arc::new(with_input(
        json!({"type": "object", "required": 7}),
    )));
    offered.push(Arc::new(FnTool::named("last")));
    let registry = Registry::builder()
        .tool(FnTool::named("z"))
        .source(TestSource::new(offered))
        .build()
        .unwrap();
    assert_eq!(names(&registry), ["z", "good", "last"]);
    let problems: Vec<_> = registry
        .problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        problems,
        [
            "a tool of `shelf` is left out: two tools are named `z`; rename one with \
                `.tool_as(..)`",
            "a tool of `shelf` is left out: `bad name` is not a valid tool name; use 1 to 64 \
                letters, \
                digits, `_` and `-`",
            "a tool of `shelf` is left out: two tools are named `good`; rename one with \
                `.tool_as(..)`",
            "a tool of `shelf` is left out: the input schema of `t` does not compile: at \
                `/required`: 7 is not of type \"array\"",
        ]
    );
}

#[test]
fn concurrent_threads_see_one_snapshot() {
    let shelf = TestSource::new(tools(&["a"]));
    let registry = Registry::builder().source(shelf.clone()).build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(registry.specs().len(), 1)));
        }
        scope.spawn(|| (0..50).for_each(|_| shelf.put(tools(&["a"]))));
    });
    assert!(Arc::ptr_eq(&registry.specs(), &registry.specs()));
}

#[test]
fn invalid_output_schema_of_source_disables_only_validation() {
    let odd = |output| {
        let spec = ToolSpec::new("t", "").with_output(output);
        Arc::new(FnTool::ready(spec, |_| Ok(Default::default()))) as Arc<dyn Tool>
    };
    for (output, said) in [
        (
            json!({"type": 5}),
            "in `shelf`: the output of `t` is not validated, because the output schema of `t` does \
                not \
                compile: ",
        ),
        (
            json!({"$ref": "https://example.com/a"}),
            "in `shelf`: the output of `t` is not validated, because the output schema of `t` \
                refers to \
                `https://example.com/a`",
        ),
    ] {
        let shelf = TestSource::new(vec![odd(output.clone())]);
        let registry = Registry::builder().source(shelf.clone()).build().unwrap();
        assert_eq!(names(&registry), ["t"]);
        let problems = || {
            registry
                .problems()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert!(
            matches!(&*problems(), [one] if one.starts_with(said)),
            "{:?}",
            problems()
        );
        // It is reported again when the tool is not compiled again.
        shelf.put(vec![odd(output.clone())]);
        assert_eq!(problems().len(), 1);
        // A program can fix the tools that it adds itself.
        assert!(Registry::builder().shared(odd(output)).build().is_err());
    }
}

#[test]
fn cost_of_each_source_is_reported() {
    let registry = Registry::builder()
        .tool(FnTool::named("own"))
        .source(TestSource::new(tools(&["a", "b"])))
        .source(TestSource::new(Vec::new()))
        .build()
        .unwrap();
    let cost = registry.cost();
    let [one] = &*cost else { panic!("{cost:?}") };
    assert_eq!((&*one.source, one.tools), ("shelf", 2));
    assert!((20..80).contains(&one.tokens), "{}", one.tokens);
    assert_eq!(registry.find("b", 5).len(), 1);
    assert!(registry.find("own", 5).is_empty());
}
