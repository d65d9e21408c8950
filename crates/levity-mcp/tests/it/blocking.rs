//! Tests of the blocking API.

use levity_mcp::{ErrorKind, Servers, WaitFor, blocking};
use serde_json::json;

use crate::fixture::{Fixture, world};

#[test]
fn blocking_servers_call_tools() {
    let fixture = Fixture::echo().tool("say");
    let servers = blocking::Servers::start(
        Servers::builder()
            .world(world())
            .server(fixture.config("one")),
    )
    .unwrap();
    let status = servers.wait(WaitFor::All).unwrap();
    assert!(status[0].state.is_ready(), "{status:?}");
    let names: Vec<_> = servers.tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["mcp_one_say"]);
    for tool in ["say", "mcp_one_say"] {
        let output = servers.call("one", tool, json!({"text": "la"})).unwrap();
        assert_eq!(output.as_text(), r#"say {"text":"la"}"#);
    }
    let error = servers.call("two", "say", json!({})).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (
            ErrorKind::Config,
            "MCP server `two`: there is no such server".into()
        )
    );
    let inner = servers.servers().clone();
    servers.stop().unwrap();
    assert_eq!(inner.status()[0].state.to_string(), "stopped");
}

#[test]
fn blocking_servers_are_shared_by_threads() {
    let fixture = Fixture::echo().tool("say");
    let servers = blocking::Servers::start(
        Servers::builder()
            .world(world())
            .server(fixture.config("one")),
    )
    .unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let servers = &servers;
            scope.spawn(move || {
                let output = servers
                    .call("one", "say", json!({"text": number.to_string()}))
                    .unwrap();
                assert_eq!(output.as_text(), format!(r#"say {{"text":"{number}"}}"#));
            });
        }
    });
    let inner = servers.servers().clone();
    drop(servers);
    assert_eq!(inner.status()[0].state.to_string(), "stopped");
}

#[tokio::test]
async fn blocking_start_in_async_code_returns_error() {
    let error = blocking::Servers::start(Servers::builder().world(world())).unwrap_err();
    assert!(
        error.to_string().contains("inside an async runtime"),
        "{error}"
    );
}
