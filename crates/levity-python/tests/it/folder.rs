//! Tests of Python files in a tools folder, through the registry and the dispatcher of an agent.

use std::fs;

use levity_loop::Agent;
use levity_test::ScriptedModel;
use levity_tools::{FolderTools, Registry};
use serde_json::json;

const TEXTS: &str = r#"
def shout(text: str, times: int = 1) -> str:
    """Writes in capitals.

    Args:
        text: What to write.
    """
    return (text.upper() + _mark()) * times

def _mark():
    return "!"

def bare(x):
    return x
"#;

#[tokio::test]
async fn folder_loads_python_functions_automatically() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("texts.py", TEXTS);
    write("_private.py", "def hidden() -> int:\n    return 1\n");
    write("broken.py", "def f(:\n");
    write(
        "endless.py",
        "def g() -> int:\n    return 1\n\nwhile True:\n    pass\n",
    );
    write("fails.py", "x = 1\nx / 0\n");
    let registry = Registry::folder(folder.path()).unwrap();
    let names: Vec<String> = registry
        .specs()
        .iter()
        .map(|spec| spec.name.clone())
        .collect();
    assert_eq!(names, ["shout", "bare"]);
    let problems: Vec<String> = registry
        .problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    for expected in [
        "`broken.py`: line 1: ",
        "`endless.py`: line ",
        "`fails.py`: line 2: ",
        "`texts.py`: line 13: `bare`: it has no docstring",
    ] {
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{expected}: {problems:#?}"
        );
    }

    let model = ScriptedModel::new()
        .call("shout", json!({"text": "hi", "times": 2}))
        .reply("Done.");
    let tools = FolderTools::open(folder.path()).unwrap();
    let agent = Agent::builder(model.clone()).source(tools).build().unwrap();
    agent.run("Shout").await.unwrap();
    let result_text = model.requests()[1]
        .history
        .messages()
        .last()
        .unwrap()
        .results()
        .next()
        .unwrap()
        .text()
        .into_owned();
    assert!(result_text.contains("HI!HI!"), "{result_text}");
}
