//! Tests of code that calls tools, through an agent.

use levity_core::{
    Decision, EventKind, Hints, Journal as _, RunQuery, Secrets, Tool, ToolCx, ToolError,
    ToolOutput, ToolSpec,
};
use levity_loop::SecretGuard;
use levity_python::{ProgramLimits, RunPython};
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::RecordingTool;
use levity_tools::{Policy, Registry, Rule};
use serde_json::{Value, json};

use crate::support::{add_one, agent, call_result, python};

fn program(tool: &RecordingTool) -> RunPython {
    RunPython::new().python(python()).tool(tool)
}

async fn run(code: &str) -> (bool, Value, String) {
    let tool = add_one();
    let answer = agent(json!({"code": code}), program(&tool))
        .tool(tool)
        .build()
        .unwrap()
        .run("go")
        .await;
    call_result(&answer.unwrap())
}

#[tokio::test]
async fn tools_are_callable_as_functions() {
    let (failed, value, _) = run("a = add_one(1)\nb = add_one(n=a)\nprint(a, b)\n[a, b]").await;
    assert!(!failed);
    assert_eq!(value["result"], json!([2, 3]));
    assert_eq!(value["output"], "2 3\n");
    assert_eq!(value["calls"], 2);
    assert!(value["seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!(value.get("variant"), None);
}

#[tokio::test]
async fn awaited_calls_run_in_parallel() {
    let code = "import asyncio\na, b = await asyncio.gather(add_one(1), add_one(n=5))\nc = await \
        add_one(b)\n[a, b, c]";
    let (failed, value, text) = run(code).await;
    assert!(!failed, "{text}");
    assert_eq!(value["result"], json!([2, 6, 7]));
    assert_eq!(value["calls"], 3);
}

#[tokio::test]
async fn call_with_wrong_arguments_raises_type_error() {
    for (code, expected) in [
        (
            "add_one(1, 2)",
            "TypeError: add_one() takes 1 positional arguments but 2 were given",
        ),
        (
            "add_one(1, n=2)",
            "TypeError: add_one() got multiple values for argument 'n'",
        ),
        ("add_one(n={1, 2}, x=print)", "which is not JSON"),
        ("add_one('x')", "RuntimeError: "),
        ("add_one()", "RuntimeError: "),
        ("add_two(1)", "NameError: name 'add_two' is not defined"),
        (
            "x = []\nx.append(x)\nadd_one(x)",
            "a value that contains itself",
        ),
    ] {
        let (failed, _, text) = run(code).await;
        assert!(failed && text.contains(expected), "{code}: {text}");
        assert!(text.contains("line "), "{code}: {text}");
    }
}

#[tokio::test]
async fn failing_tool_raises_exception() {
    let broken = RecordingTool::new("broken", |_| Err(ToolError::failed("the disk is full")));
    let code = "try:\n    broken()\nexcept RuntimeError as e:\n    result = str(e)\nresult";
    let agent = agent(json!({"code": code}), program(&broken))
        .tool(broken)
        .build()
        .unwrap();
    let (failed, value, _) = call_result(&agent.run("go").await.unwrap());
    assert!(!failed);
    assert_eq!(value["result"], "the disk is full");
}

#[tokio::test]
async fn code_receives_complete_long_result() {
    let text = |_: &Value| Ok(ToolOutput::text("é".repeat(100_000)));
    let list = |_: &Value| {
        Ok(ToolOutput::value(Value::from(
            (0..50_000).collect::<Vec<_>>(),
        )))
    };
    let (text, plain) = (
        RecordingTool::new("text", text),
        RecordingTool::new("plain", list),
    );
    let typed = Typed(ToolSpec::new("typed", "Counts.").with_output(json!({"type": "array"})));
    let program = program(&text).tool(&plain).tool(&typed);
    let code = "t = text()\np = plain()\nl = typed()\n[len(t), t[-1], p[:5], len(l), l[-1]]";
    let agent = agent(json!({"code": code}), program)
        .tool(text)
        .tool(plain)
        .tool(typed);
    let (failed, value, words) = call_result(&agent.build().unwrap().run("go").await.unwrap());
    assert!(!failed, "{words}");
    assert_eq!(
        value["result"],
        json!([100_000, "é", "[0,1,", 50_000, 49_999])
    );
}

/// A tool with an output schema.
struct Typed(ToolSpec);

#[async_trait::async_trait]
impl Tool for Typed {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::value(Value::from(
            (0..50_000).collect::<Vec<_>>(),
        )))
    }
}

#[tokio::test]
async fn code_receives_text_result_as_string() {
    let hello = RecordingTool::new("hello", |_| Ok(ToolOutput::text("hi there")));
    let agent = agent(json!({"code": "hello().upper()"}), program(&hello))
        .tool(hello)
        .build()
        .unwrap();
    assert_eq!(
        call_result(&agent.run("go").await.unwrap()).1["result"],
        "HI THERE"
    );
}

#[tokio::test]
async fn variants_are_tried_until_one_succeeds() {
    let args =
        json!({"variants": ["1 / 0", "missing", "add_one(x)", "never()"], "inputs": {"x": 4}});
    let tool = add_one();
    let agent = agent(args, program(&tool)).tool(tool).build().unwrap();
    let (failed, value, _) = call_result(&agent.run("go").await.unwrap());
    assert!(!failed);
    assert_eq!(
        (&value["result"], &value["variant"]),
        (&json!(5), &json!(3))
    );
    let reasons = value["failed"].as_array().unwrap();
    assert!(
        reasons[0].as_str().unwrap().contains("ZeroDivisionError"),
        "{value}"
    );
    assert!(
        reasons[1].as_str().unwrap().contains("NameError"),
        "{value}"
    );
}

#[tokio::test]
async fn failure_of_all_variants_lists_each_reason() {
    let args = json!({"variants": ["1 / 0", "print('so far')\nint('x')"]});
    let agent = agent(args, RunPython::new().python(python()))
        .build()
        .unwrap();
    let (failed, _, text) = call_result(&agent.run("go").await.unwrap());
    assert!(failed);
    for word in [
        "variant 1: ",
        "ZeroDivisionError",
        "variant 2: ",
        "ValueError",
        "line 2",
        "so far",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[tokio::test]
async fn variables_of_program_and_call_are_merged() {
    let program = RunPython::new()
        .python(python())
        .variables(json!({"a": 1, "b": {"c": [2]}}));
    let agent = agent(
        json!({"code": "[a, b, d]", "inputs": {"a": 3, "d": null}}),
        program,
    )
    .build()
    .unwrap();
    assert_eq!(
        call_result(&agent.run("go").await.unwrap()).1["result"],
        json!([3, {"c": [2]}, null])
    );
}

#[tokio::test]
async fn invalid_arguments_return_error() {
    for (args, expected) in [
        (json!({}), "give `code`"),
        (json!({"code": "1", "variants": ["2"]}), "not both"),
        (json!({"variants": []}), "variants"),
        (json!({"code": [1]}), "code"),
    ] {
        let agent = agent(args.clone(), RunPython::new().python(python()))
            .build()
            .unwrap();
        let (failed, _, text) = call_result(&agent.run("go").await.unwrap());
        assert!(failed && text.contains(expected), "{args}: {text}");
    }
}

#[tokio::test]
async fn policy_applies_to_calls_from_code() {
    struct No;
    #[async_trait::async_trait]
    impl levity_core::Approver for No {
        async fn decide(&self, ask: &levity_core::Ask) -> Decision {
            assert_eq!(ask.call.name, "add_one");
            Decision::deny("not today")
        }
    }
    let code = "try:\n    add_one(1)\nexcept RuntimeError as e:\n    print(e)\n";
    let tool = add_one().with_hints(Hints::new().destructive());
    let asked = agent(json!({"code": code}), program(&tool))
        .tool(tool.clone())
        .approver(No)
        .build()
        .unwrap();
    let (_, value, text) = call_result(&asked.run("go").await.unwrap());
    assert!(
        value["output"].as_str().unwrap().contains("not today"),
        "{text}"
    );
    assert!(tool.calls().is_empty());

    let denied = agent(json!({"code": code}), program(&tool)).tool(tool.clone());
    let denied = denied
        .policy(Policy::new().rule(Rule::tool("add_one").deny("too dear")))
        .build()
        .unwrap();
    let (_, value, text) = call_result(&denied.run("go").await.unwrap());
    assert!(
        value["output"].as_str().unwrap().contains("too dear"),
        "{text}"
    );
    assert!(tool.calls().is_empty());
}

/// The guards of the agent screen messages to the run of its program before they are journaled.
#[tokio::test]
async fn messages_to_program_are_screened_before_journal() {
    let (tool, journal) = (
        add_one().with_hints(Hints::new().destructive()),
        MemoryJournal::new(),
    );
    let code = "try:\n    add_one(1)\nexcept RuntimeError as e:\n    print(e)\n";
    let guard = SecretGuard::new().secrets(Secrets::new().known("hunter22-hunter22"));
    let agent = agent(json!({"code": code}), program(&tool))
        .tool(tool)
        .guard(guard);
    let agent = agent
        .runtime(Runtime::new().with_journal(journal.clone()))
        .build()
        .unwrap();
    let mut run = agent.run("go").id("r").start();
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            run.deny(ask, "no, the password is hunter22-hunter22")
                .await
                .unwrap();
        }
    }
    run.await.unwrap();
    let mut journal_text = String::new();
    for run in journal.list(&RunQuery::new()).await.unwrap() {
        journal_text += &serde_json::to_string(&journal.read(&run.run).await.unwrap()).unwrap();
    }
    assert!(
        journal_text.contains("no, the password is"),
        "{journal_text}"
    );
    assert!(
        !journal_text.contains("hunter22-hunter22"),
        "{journal_text}"
    );
}

#[tokio::test]
async fn person_can_answer_instead_of_tool() {
    struct Person;
    #[async_trait::async_trait]
    impl levity_core::Approver for Person {
        async fn decide(&self, _: &levity_core::Ask) -> Decision {
            Decision::answer("forty")
        }
    }
    let tool = add_one().with_hints(Hints::new().destructive());
    let agent = agent(json!({"code": "add_one(1).upper()"}), program(&tool)).tool(tool.clone());
    let (failed, value, text) = call_result(
        &agent
            .approver(Person)
            .build()
            .unwrap()
            .run("go")
            .await
            .unwrap(),
    );
    assert!(!failed && value["result"] == "FORTY", "{text}");
    assert!(tool.calls().is_empty());
}

#[tokio::test]
async fn call_limit_stops_program() {
    let tool = add_one();
    let code = "n = 0\nwhile True:\n    try:\n        n = add_one(n)\n    except \
        BaseException:\n        pass";
    let program = program(&tool).limits(ProgramLimits::new().calls(3));
    let agent = agent(json!({"code": code}), program)
        .tool(tool.clone())
        .build()
        .unwrap();
    let (failed, _, text) = call_result(&agent.run("go").await.unwrap());
    assert!(
        failed && text.contains("the limit is 3 tool calls"),
        "{text}"
    );
    assert_eq!(tool.calls().len(), 3);
}

#[tokio::test]
async fn too_large_state_returns_error() {
    let tool = add_one();
    let program = program(&tool).limits(ProgramLimits::new().snapshot(100_000));
    let agent = agent(json!({"code": "x = 'x' * 200000\nadd_one(1)"}), program)
        .tool(tool.clone())
        .build()
        .unwrap();
    let (failed, _, text) = call_result(&agent.run("go").await.unwrap());
    assert!(failed && text.contains("the limit is 100000"), "{text}");
    assert!(tool.calls().is_empty());
}

#[tokio::test]
async fn code_calls_only_chosen_tools() {
    let tool = add_one();
    let agent = agent(
        json!({"code": "add_one(1)"}),
        RunPython::new().python(python()),
    )
    .tool(tool.clone());
    let (failed, _, text) = call_result(&agent.build().unwrap().run("go").await.unwrap());
    assert!(failed && text.contains("NameError"), "{text}");
    assert!(tool.calls().is_empty());
}

#[test]
fn tools_are_selected_by_name() {
    let registry = Registry::builder().tool(add_one()).build().unwrap();
    let program = RunPython::new().tools(&registry, ["add_one"]).unwrap();
    let description = &levity_core::Program::spec(&program).description;
    assert!(
        description.contains("add_one(n: int) -> str"),
        "{description}"
    );
    let error = RunPython::new().tools(&registry, ["add_on"]).unwrap_err();
    assert!(error.to_string().contains("`add_one`"), "{error}");
}
