//! Session files read by NetworkX: set `LEVITY_TEST_NETWORKX` to a folder that has the package.

use std::fs;
use std::path::Path;
use std::process::Command;

use levity_core::EventKind;
use levity_dag::{Plan, Step};
use levity_observe::{Session, SessionFolder};
use serde_json::json;

use crate::session;
use crate::stream::Stream;

/// Reads a session with the default call, checks it, and writes it back.
const CHECK: &str = r#"
import json, sys, warnings
from datetime import datetime
import networkx as nx

with open(sys.argv[1], encoding="utf-8") as file:
    data = json.load(file)
version = [int(part) for part in nx.__version__.split(".")[:2]]
if version < [3, 4]:
    graph = nx.node_link_graph(data, link="edges")
    back = nx.node_link_data(graph)
elif version < [3, 6] or "--older" in sys.argv:
    # As releases before 3.6 name them unless told otherwise.
    graph = nx.node_link_graph(data, edges="edges")
    back = nx.node_link_data(graph, edges="links")
else:
    graph = nx.node_link_graph(data)
    back = nx.node_link_data(graph)
assert isinstance(graph, nx.DiGraph) and not graph.is_multigraph(), type(graph)
assert nx.is_directed_acyclic_graph(graph)
root = graph.graph["root"]
assert len(graph) == len(data["nodes"]) and graph.number_of_edges() == len(data["edges"])
assert set(nx.descendants(graph, root)) == set(graph) - {root}
for name in ["session_id", "original_query", "file_manifest", "created_at", "status",
             "globals_schema"]:
    assert name in graph.graph, name
datetime.fromisoformat(graph.graph["created_at"].replace("Z", "+00:00"))
wanted = ["agent", "description", "agent_prompt", "reads", "writes", "status", "output", "error",
          "cost", "input_tokens", "output_tokens", "start_time", "end_time", "execution_time",
          "attempts"]
for step, attributes in graph.nodes(data=True):
    for name in wanted if step != root else ["agent", "status"]:
        assert name in attributes, (step, name)
for _, _, attributes in graph.edges(data=True):
    assert attributes["kind"] in ("root", "after", "reads", "stands_in"), attributes
for step in nx.topological_sort(graph):
    for name in graph.nodes[step]["reads"] if step != root else []:
        writers = {other for other, node in graph.nodes(data=True) if name in node["writes"]}
        writers -= {step}
        assert not writers or writers & nx.ancestors(graph, step), (step, name)
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(back, file)
print("networkx", nx.__version__, "read", len(graph), "nodes")
"#;

#[test]
fn networkx_round_trip_preserves_sessions() {
    let Some(package) = std::env::var_os("LEVITY_TEST_NETWORKX") else {
        println!("SKIPPED: LEVITY_TEST_NETWORKX names no folder with networkx");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for stream in [
        session::run("whole"),
        unfinished(),
        Stream::new("empty", "only a goal"),
    ] {
        let writer = SessionFolder::open(dir.path()).writer(&stream.run);
        stream.events.iter().for_each(|event| writer.apply(event));
        // The goal alone is not written yet.
        let Some(path) = writer.path() else { continue };
        for older in [false, true] {
            check(
                Path::new(&package),
                &path,
                &dir.path().join("back.json"),
                older,
            );
        }
    }
}

fn check(package: &Path, path: &Path, back: &Path, older: bool) {
    let mut python = Command::new("python3");
    python
        .args(["-c", CHECK])
        .arg(path)
        .arg(back)
        .env("PYTHONPATH", package);
    if older {
        python.arg("--older");
    }
    let out = python.output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    print!("{}", String::from_utf8_lossy(&out.stdout));
    let read = |path: &Path| Session::parse(&fs::read(path).unwrap()).unwrap();
    assert_eq!(read(back), read(path));
}

/// Creates a run in progress, with unusual texts and numbers.
fn unfinished() -> Stream {
    let plan = Plan::new()
        .step(
            Step::new("ROOT", "A")
                .writes(["x"])
                .description("\u{1f30a} \u{2028} \u{0} \" \\"),
        )
        .step(
            Step::new("ROOT_", "B")
                .reads(["x"])
                .writes(["y"])
                .instead_of("ROOT"),
        )
        .step(Step::code("1", ["print(1)"]).reads(["y"]).after("ROOT_"));
    let mut stream = Stream::new("under/way", "\"quoted\" \u{1f30a}");
    stream
        .planned(&plan, &[("ROOT", "ROOT_"), ("ROOT_", "1")])
        .started("ROOT", 4)
        .wait(7);
    stream.failed("ROOT", "gone").started("ROOT_", 5);
    stream.completed(
        "ROOT_",
        json!({"y": [1e300, -0.0, 0.1, u64::MAX, i64::MIN, {"deep": [[[null]]]}]}),
    );
    stream.event_of_run(EventKind::Paused);
    stream
}
