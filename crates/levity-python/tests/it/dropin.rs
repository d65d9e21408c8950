//! Tests of functions in a file as tools.

use levity_core::{EffectClass, Tool, ToolCx, ToolErrorKind};
use levity_python::{Error, ProgramLimits, PythonFileTools, tools_from_source};
use levity_test::conformance;
use serde_json::{Value, json};

use crate::support::python;

fn tools(source: &str) -> PythonFileTools {
    tools_from_source("tools.py", source, &python()).unwrap()
}

const SOURCE: &str = r#"from typing import Literal, Optional
import re

RATE = 1.5

def convert(amount: float, /, to: Literal["eur", "usd"] = "eur",
            *, digits: Optional[int] = None) -> str:
    """Converts money.

    It uses a fixed rate.

    Args:
        amount: How much.
        to (str): Which currency.
    """
    value = amount * RATE
    return f"{round(value, digits) if digits is not None else value} {to}"

async def words(text: str, least: int = 2) -> dict[str, int]:
    """Counts words.

    :param text: Where to look.
    """
    return _count(text, least)

def _count(text, least):
    found = {}
    for word in re.findall(r"\w+", text):
        found[word] = found.get(word, 0) + 1
    return {word: n for word, n in found.items() if n >= least}

def broken(x: int) -> int:
    """Fails."""
    return 1 // x

class Helper:
    def method(self): return 1

def loose(a, b: "Frame" = None, *rest):
    print("working")
    return [a, b]

if __name__ == "__main__":
    raise SystemExit(1)
"#;

async fn call(name: &str, args: Value) -> Result<levity_core::ToolOutput, levity_core::ToolError> {
    let tools = tools(SOURCE).tools;
    let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
    tool.call(args, &ToolCx::detached()).await
}

#[tokio::test]
async fn public_functions_become_tools() {
    let PythonFileTools {
        tools, warnings, ..
    } = tools(SOURCE);
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
    assert_eq!(names, ["convert", "words", "broken", "loose"]);
    let spec = tools[0].spec();
    assert_eq!(spec.description, "Converts money.");
    assert_eq!(
        spec.input,
        json!({
            "type": "object",
            "properties": {
                "amount": {"type": "number", "description": "How much."},
                "to": {"enum": ["eur", "usd"], "description": "Which currency.", "default": "eur"},
                "digits": {"type": ["integer", "null"], "default": null},
            },
            "required": ["amount"],
            "additionalProperties": false,
        })
    );
    assert_eq!(spec.output, Some(json!({"type": "string"})));
    assert_eq!(spec.hints.class, EffectClass::ReadOnly);
    assert_eq!(tools[3].spec().output, None);
    let expected = [
        "`loose`: it has no docstring",
        "`a` has no type hint",
        "`Frame` is not supported",
        "`*args`",
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for words in expected {
        assert!(
            warnings.iter().any(|warning| warning.contains(words)),
            "{words}: {warnings:?}"
        );
    }
    assert!(warnings[0].starts_with("tools.py:39: "), "{warnings:?}");
}

#[tokio::test]
async fn function_tools_run() {
    assert_eq!(
        call("convert", json!({"amount": 2}))
            .await
            .unwrap()
            .as_text(),
        "3.0 eur"
    );
    let args = json!({"amount": 1.11, "to": "usd", "digits": 1});
    assert_eq!(call("convert", args).await.unwrap().as_text(), "1.7 usd");
    let counted = call("words", json!({"text": "a b a", "least": 1}))
        .await
        .unwrap();
    assert_eq!(counted.value, Some(json!({"a": 2, "b": 1})));
    assert_eq!(
        call("loose", json!({"a": {"k": [1]}})).await.unwrap().value,
        Some(json!([{"k": [1]}, null]))
    );
}

#[tokio::test]
async fn function_failure_names_line() {
    let error = call("broken", json!({"x": 0})).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Failed);
    for words in [
        "File \"tools.py\", line 34, in broken",
        "return 1 // x",
        "ZeroDivisionError",
    ] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

#[tokio::test]
async fn function_tools_pass_tool_conformance() {
    let tool = || tools(SOURCE).tools.remove(0);
    conformance::tool(tool, json!({"amount": 2})).await;
}

#[test]
fn invalid_file_returns_error_with_line() {
    for (source, line, words) in [
        ("def f(:\n    pass", 1, ""),
        ("x = 1\n\ndef g():\n    yield 1\n", 4, "yield"),
        ("import math\nimport requests\n", 2, "requests"),
        ("def f(): pass\n1 / 0\n", 2, "ZeroDivisionError"),
    ] {
        let error = tools_from_source("bad.py", source, &python()).unwrap_err();
        let Error::File {
            file,
            line: found,
            problem,
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(
            (file.as_str(), *found),
            ("bad.py", line),
            "{source}: {problem}"
        );
        assert!(problem.contains(words), "{problem}");
    }
    let small = python().with_limits(ProgramLimits::new().source(10));
    assert!(tools_from_source("large.py", "x = 1 + 1 + 1", &small).is_err());
    let short =
        python().with_limits(ProgramLimits::new().time(std::time::Duration::from_millis(200)));
    let error = tools_from_source("endless.py", "while True: pass", &short).unwrap_err();
    assert!(error.to_string().contains("time limit exceeded"), "{error}");
}

#[test]
fn underscore_functions_are_private() {
    assert!(
        tools("def _f(): pass\nclass C: pass\nx = lambda: 0\n")
            .tools
            .is_empty()
    );
    assert!(tools("").tools.is_empty());
}

#[tokio::test]
async fn last_of_two_functions_with_same_name_wins() {
    let tools = tools(
        "def f(a: int):\n    \"\"\"One.\"\"\"\n    return 1\ndef f():\n    \"\"\"Two.\"\"\"\n    \
            return 2\n",
    )
    .tools;
    assert_eq!((tools.len(), &*tools[0].spec().description), (1, "Two."));
    assert_eq!(
        tools[0]
            .call(json!({}), &ToolCx::detached())
            .await
            .unwrap()
            .value,
        Some(json!(2))
    );
}

#[test]
fn file_with_many_functions_loads() {
    // The work per function must not grow with the file; otherwise this takes many seconds.
    let source: String = (0..4_000)
        .map(|n| format!("def f{}(): pass\n", n % 3_999))
        .collect();
    let PythonFileTools {
        tools, warnings, ..
    } = tools(&source);
    assert_eq!((tools.len(), warnings.len()), (3_999, 3_999));
    // Of the two functions `f0`, the last one counts.
    let ends = [&warnings[0], &warnings[3_998]].map(|warning| warning.split(": it").next());
    let expected = ["tools.py:2: `f1`", "tools.py:4000: `f0`"];
    assert_eq!(ends, expected.map(Some));
}

#[test]
fn deeply_nested_file_does_not_crash() {
    for source in [
        format!("x = 1{}", " + 1".repeat(60_000)),
        format!("x = {}1", "lambda:".repeat(30_000)),
        format!("x = a{}", ".a".repeat(100_000)),
        format!("x = 1{}", " if 1 else 1".repeat(20_000)),
        format!("def f(x: int{}): pass", " | int".repeat(30_000)),
        format!("def f(x: 'int{}'): pass", " | int".repeat(30_000)),
        format!("def f(x={}1): pass", "-".repeat(150)),
    ] {
        // Only a crash would fail the test; the result does not matter.
        let _ = tools_from_source("deep.py", &source, &python());
    }
}

#[tokio::test]
async fn positional_argument_after_gap_returns_error() {
    let tools = tools("def f(a: int = 1, b: int = 2, /) -> list[int]:\n    return [a, b]\n").tools;
    let cx = ToolCx::detached();
    let call = |args| tools[0].call(args, &cx);
    assert_eq!(
        call(json!({"a": 3})).await.unwrap().value,
        Some(json!([3, 2]))
    );
    assert_eq!(
        call(json!({"a": 3, "b": 4})).await.unwrap().value,
        Some(json!([3, 4]))
    );
    let error = call(json!({"b": 4})).await.unwrap_err();
    assert!(
        error.kind() == ToolErrorKind::InvalidArgs && error.to_string().contains("`b`"),
        "{error}"
    );
}

#[tokio::test]
async fn too_large_result_returns_error() {
    let source = "def typed(n: int) -> list[int]:\n    return [0] * n\n\ndef bare(n: int):\n    \
        return [0] * n\n";
    let tools = tools(source).tools;
    let cx = ToolCx::detached();
    let error = tools[0].call(json!({"n": 100_000}), &cx).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("returned more than 65536 bytes of JSON"),
        "{error}"
    );
    let shown = tools[1].call(json!({"n": 100_000}), &cx).await.unwrap();
    assert!(
        shown.as_text().contains("cut: the result has"),
        "{}",
        &shown.as_text()[..200]
    );
}
