//! Servers and their lives.

use levity_core::{ToolCx, ToolSource};
use levity_mcp::{ServerEventKind, Servers, Wait};
use serde_json::json;

use crate::fixture::{Fixture, world};

#[tokio::test]
async fn tools_of_two_servers_are_called() {
    let (one, two) = (Fixture::echo().tool("say").tool("sing"), Fixture::echo().tool("say"));
    let servers =
        Servers::builder(world()).server(one.config("one")).server(two.config("two")).start().unwrap();
    let status = servers.wait(Wait::All).await;
    assert!(status.iter().all(|status| status.state.is_ready()), "{status:?}");
    let names: Vec<_> = servers.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["mcp_one_say", "mcp_one_sing", "mcp_two_say"]);
    let out = servers.tools()[1].call(json!({"text": "la"}), &ToolCx::detached()).await.unwrap();
    assert_eq!(out.as_text(), r#"sing {"text":"la"}"#);
    servers.stop().await;
    let error = servers.tools()[1].call(json!({}), &ToolCx::detached()).await.unwrap_err();
    assert!(error.to_string().contains("server `one`: it was stopped"), "{error}");
}

#[tokio::test]
async fn tools_that_are_not_allowed_are_neither_offered_nor_called() {
    let fixture = Fixture::echo().tool("say").tool("sing").tool("shout");
    let config = fixture.config("one").allow(["s*"]).deny(["*out"]);
    let servers = Servers::builder(world()).server(config).start().unwrap();
    servers.wait(Wait::All).await;
    let names: Vec<_> = servers.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["mcp_one_say", "mcp_one_sing"]);
    let server = servers.get("one").unwrap();
    assert!(server.call("mcp_one_sing", json!({})).await.is_ok());
    for tool in ["shout", "mcp_one_shout"] {
        let error = server.call(tool, json!({})).await.unwrap_err().to_string();
        assert!(error.contains("`allow` and `deny`"), "{error}");
    }
    assert_eq!(fixture.starts(), 1);
}

#[tokio::test]
async fn changed_tools_are_followed() {
    let fixture = Fixture::echo().tool("say");
    let servers = Servers::builder(world()).server(fixture.config("one")).start().unwrap();
    let mut events = servers.events();
    servers.wait(Wait::All).await;
    let before = servers.version();
    fixture.change(|tools| tools[0].name = "sing".into()).await;
    loop {
        if let ServerEventKind::ToolsChanged { tools } = events.next().await.unwrap().kind {
            assert_eq!(tools, 1);
            break;
        }
    }
    assert_ne!(servers.version(), before);
    assert_eq!(servers.tools()[0].spec().name, "mcp_one_sing");
}
