//! Tests of executables with a manifest through a real dispatcher.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levity_builtin_tools::ExecutableLoader;
use levity_core::{ToolCall, ToolErrorKind, ToolResult, ToolSource as _};
use levity_sandbox::{Sandbox, Workspace};
use levity_test::ManualWorld;
use levity_tools::{CallCx, Dispatched, Dispatcher, FolderTools, Registry};
use serde_json::{Value, json};

/// Returns `true` if a sandbox for a tools folder is available; otherwise prints a note.
fn has_sandbox() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let built = Sandbox::builder(Workspace::open(folder.path()).unwrap()).build();
    let _ = built
        .as_ref()
        .map_err(|error| eprintln!("SKIPPED: {error}"));
    built.is_ok()
}

fn script(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn manifest(folder: &Path, name: &str, value: &Value) {
    fs::write(folder.join(format!("{name}.tool.json")), value.to_string()).unwrap();
}

fn tool(folder: &Path, name: &str, text: &str) {
    script(folder, name, text);
    manifest(folder, name, &json!({"description": "A test."}));
}

fn dispatcher(tools: FolderTools) -> Dispatcher {
    let registry = Registry::builder().source(tools).build().unwrap();
    Dispatcher::builder(registry)
        .world(Arc::new(ManualWorld::new()))
        .build()
        .unwrap()
}

async fn call(dispatcher: &Dispatcher, name: &str, args: Value) -> ToolResult {
    let call = ToolCall::new("c", name, args);
    match dispatcher
        .dispatch(&call, false, CallCx::new("run".into(), "run/1"))
        .await
    {
        Dispatched::Done(result) => result,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn executable_reads_and_writes_json() {
    if !has_sandbox() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    script(
        folder.path(),
        "count.sh",
        "words=$(wc -w); echo \"{\\\"words\\\": $words, \\\"by\\\": \\\"$1\\\"}\"",
    );
    manifest(
        folder.path(),
        "count_words",
        &json!({
            "description": "Counts words.",
            "input": {"type": "object", "properties": {"text": {"type": "string"}},
                "required": ["text"]},
            "output": {"type": "object", "properties": {"words": {"type": "integer"}},
                "required": ["words"]},
            "run": ["count.sh", "me"],
            "read_only": true,
            "timeout_seconds": 20,
        }),
    );
    let tools = FolderTools::open(folder.path()).unwrap();
    let dispatcher = dispatcher(tools);
    let spec = dispatcher.specs()[0].clone();
    assert_eq!(
        (&*spec.name, &*spec.description),
        ("count_words", "Counts words.")
    );
    assert_eq!(spec.hints.timeout, Some(Duration::from_secs(20)));
    assert!(spec.hints.runs_in_parallel());
    let result = call(&dispatcher, "count_words", json!({"text": "a b c"})).await;
    // The arguments are one line of JSON: `{"text":"a b c"}`.
    assert_eq!(
        result.value,
        Some(json!({"words": 3, "by": "me"})),
        "{}",
        result.text()
    );
    let wrong = call(&dispatcher, "count_words", json!({"words": 1})).await;
    assert_eq!(wrong.error, Some(ToolErrorKind::InvalidArgs));
}

#[tokio::test]
async fn failing_executable_returns_error_with_reason() {
    if !has_sandbox() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    tool(folder, "fails", "echo 'no such city' >&2; exit 3");
    tool(folder, "prose", "echo hello");
    tool(folder, "silent", "exit 0");
    tool(folder, "killed", "kill -9 $$");
    tool(
        folder,
        "floods",
        "while :; do echo 0000000000000000000000000000000000000000000000000000000000; done | head \
            -c 40000000",
    );
    script(folder, "shape", "echo '{\"a\": 1}'");
    manifest(
        folder,
        "shape",
        &json!({"description": "A test.", "output": {"type": "array"}}),
    );
    let dispatcher = dispatcher(FolderTools::open(folder).unwrap());
    for (name, kind, text) in [
        (
            "fails",
            ToolErrorKind::Failed,
            "exit code 3; its standard error:\nno such city",
        ),
        (
            "prose",
            ToolErrorKind::InvalidOutput,
            "did not write JSON to standard output",
        ),
        (
            "silent",
            ToolErrorKind::InvalidOutput,
            "did not write JSON to standard output",
        ),
        ("killed", ToolErrorKind::Failed, "signal 9"),
        (
            "floods",
            ToolErrorKind::InvalidOutput,
            "wrote more output than the limit allows",
        ),
        (
            "shape",
            ToolErrorKind::InvalidOutput,
            "does not match its schema",
        ),
    ] {
        let result = call(&dispatcher, name, json!({})).await;
        assert_eq!(result.error, Some(kind), "{name}: {}", result.text());
        assert!(result.text().contains(text), "{name}: {}", result.text());
    }
}

#[tokio::test]
async fn executable_is_confined_to_sandbox() {
    if !has_sandbox() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let [tools, work] = ["tools", "work"].map(|name| root.path().join(name));
    fs::create_dir(&tools).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(root.path().join("secret"), "hush").unwrap();
    tool(
        &tools,
        "writes",
        "echo x > mark && echo '\"written\"' || echo '\"refused\"'",
    );
    tool(
        &tools,
        "looks",
        &format!(
            "cat {}/secret >&2 && echo '\"seen\"' || echo '\"refused\"'",
            root.path().display()
        ),
    );
    let own = FolderTools::open(&tools).unwrap();
    let probe = Sandbox::builder(Workspace::open(&work).unwrap())
        .build()
        .unwrap();
    if !probe.report().files.is_enforced {
        eprintln!(
            "SKIPPED: nothing keeps commands from files here:\n{}",
            probe.report()
        );
        return;
    }
    let dispatcher_own = dispatcher(own);
    for name in ["writes", "looks"] {
        let result = call(&dispatcher_own, name, json!({})).await;
        assert_eq!(
            result.value,
            Some(json!("refused")),
            "{name}: {}",
            result.text()
        );
    }
    assert!(!tools.join("mark").exists());
    // With a custom sandbox, executables run in its workspace.
    let sandbox = Sandbox::builder(Workspace::open(&work).unwrap())
        .allow_read(&tools)
        .build()
        .unwrap();
    let dispatcher = dispatcher(
        FolderTools::builder(&tools)
            .loader(ExecutableLoader::new(sandbox))
            .build()
            .unwrap(),
    );
    assert_eq!(
        call(&dispatcher, "writes", json!({})).await.value,
        Some(json!("written"))
    );
    assert!(work.join("mark").exists());
    assert_eq!(
        call(&dispatcher, "looks", json!({})).await.value,
        Some(json!("refused"))
    );
    // A manifest without `input` describes a tool without arguments.
    let with_arguments = call(&dispatcher, "looks", json!({"at": 1})).await;
    assert_eq!(with_arguments.error, Some(ToolErrorKind::InvalidArgs));
}

#[test]
fn invalid_manifest_is_reported_as_problem() {
    if !has_sandbox() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    tool(folder, "good", "echo 1");
    manifest(folder, "missing", &json!({"description": "A test."}));
    manifest(
        folder,
        "elsewhere",
        &json!({"description": "A test.", "run": ["../x"]}),
    );
    manifest(
        folder,
        "absolute",
        &json!({"description": "A test.", "run": ["/bin/sh"]}),
    );
    manifest(
        folder,
        "unknown",
        &json!({"description": "A test.", "readonly": true}),
    );
    manifest(
        folder,
        "plain",
        &json!({"description": "A test.", "run": ["good.tool.json"]}),
    );
    manifest(
        folder,
        "schema",
        &json!({"description": "A test.", "run": ["good"], "input": {"type": "array"}}),
    );
    fs::write(folder.join("broken.tool.json"), "{").unwrap();
    let tools = FolderTools::builder(folder)
        .scan_interval(Duration::ZERO)
        .build()
        .unwrap();
    let registry = Registry::builder().source(tools).build().unwrap();
    let names: Vec<String> = registry
        .specs()
        .iter()
        .map(|spec| spec.name.clone())
        .collect();
    assert_eq!(names, ["good"]);
    let problems: Vec<String> = registry
        .problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    for expected in [
        "`missing.tool.json`: no executable `missing` is next to the manifest",
        "`elsewhere.tool.json`: `../x` must be a file name without a folder",
        "`absolute.tool.json`: `/bin/sh` must be a file name without a folder",
        "`unknown.tool.json`: the manifest is invalid: unknown field `readonly`",
        "`plain.tool.json`: `good.tool.json` is not an executable file; run `chmod +x` on it",
        "the input schema of `schema` is not an object schema",
        "`broken.tool.json`: the manifest is invalid",
    ] {
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{expected}: {problems:#?}"
        );
    }
    // The executable appears later; the manifest does not change.
    script(folder, "missing", "echo 1");
    assert_eq!(registry.specs().len(), 2);
}

#[test]
fn program_linked_out_of_folder_is_reported() {
    if !has_sandbox() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("tools");
    fs::create_dir_all(folder.join("versions")).unwrap();
    script(&folder, "versions/1", "echo 1");
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
        let run = json!({"description": "A test.", "run": [name, "-c", "echo 1"]});
        manifest(&folder, name, &run);
    };
    link("versions/1", "inside");
    link("/bin/sh", "outside");
    link("outside", "twice");
    // The folder itself may be a link.
    let linked = root.path().join("linked");
    std::os::unix::fs::symlink("tools", &linked).unwrap();
    for folder in [&folder, &linked] {
        let tools = FolderTools::open(folder).unwrap();
        let names: Vec<String> = tools
            .tools()
            .iter()
            .map(|tool| tool.spec().name.clone())
            .collect();
        assert_eq!(names, ["inside"]);
        let expected = ["outside", "twice"].map(|name| {
            format!(
                "`{name}.tool.json`: `{name}` is a link to a file outside of the folder; copy the \
                    file instead"
            )
        });
        assert_eq!(tools.problems(), expected);
    }
}

#[tokio::test]
async fn executable_call_times_out_at_sandbox_limit() {
    let folder = tempfile::tempdir().unwrap();
    for (name, seconds) in [("hour", 3600), ("day", 86_400)] {
        script(folder.path(), name, "echo {}");
        manifest(
            folder.path(),
            name,
            &json!({"description": "A test.", "timeout_seconds": seconds}),
        );
    }
    let tools = FolderTools::open(folder.path()).unwrap();
    let registry = Registry::builder().source(tools).build().unwrap();
    let problems = registry.problems();
    if problems
        .iter()
        .any(|problem| format!("{problem:?}").contains("no sandbox"))
    {
        return println!("skipped: this system has no sandbox for commands");
    }
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        format!("{problems:?}").contains("`day.tool.json`: `timeout_seconds` exceeds"),
        "{problems:?}"
    );
}
