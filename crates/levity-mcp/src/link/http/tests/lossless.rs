//! Tests that results arrive as the server wrote them.

use levity_rpc::mcp::{ClientJsonRpcMessage, RoleClient, ServerJsonRpcMessage, Transport};
use serde_json::{Value, json};

use super::raw_server::{Action, EVENTS, Request, ok, start};
use super::{TestConnection, within};
use crate::Error;

/// Returns a list with fields that rmcp's types lack.
fn list() -> Value {
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    let schema = json!({"type": "object", "properties": {"region": region}});
    let tool =
        json!({"name": "t", "inputSchema": schema, "execution": {"taskSupport": "required"}});
    json!({"tools": [tool], "news": {"x": [1]}})
}

/// Returns content of an unknown type.
fn content() -> Value {
    json!({
        "content": [{"type": "hologram", "data": "x"}, {"type": "text", "text": "y", "news": 1}],
    })
}

fn result_of(request: &Request) -> Value {
    if request.rpc() == "tools/list" {
        list()
    } else {
        content()
    }
}

fn message(value: Value) -> ClientJsonRpcMessage {
    serde_json::from_value(value).unwrap()
}

async fn request<T: Transport<RoleClient, Error = Error>>(
    link: &mut T,
    method: &str,
    params: Value,
) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 5, "method": method, "params": params});
    within(link.send(message(request))).await.unwrap();
    loop {
        match within(link.receive()).await.unwrap() {
            ServerJsonRpcMessage::Response(answer) => {
                return serde_json::to_value(answer.result).unwrap();
            }
            ServerJsonRpcMessage::Error(error) => panic!("{error:?}"),
            _ => {}
        }
    }
}

/// Sends requests in a session of the older protocol.
async fn legacy(action: impl Fn(&Request) -> Action + Send + Sync + 'static) {
    let server = start(action).await;
    let mut link = TestConnection::to(server.url()).open().unwrap();
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    });
    request(&mut link, "initialize", params).await;
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    within(link.send(message(initialized))).await.unwrap();
    assert_eq!(request(&mut link, "tools/list", json!({})).await, list());
    assert_eq!(
        request(&mut link, "tools/call", json!({"name": "t"})).await,
        content()
    );
    within(link.close()).await.unwrap();
}

/// Sends requests with the newer protocol, in which the worker parses lists of tools.
async fn modern(action: impl Fn(&Request) -> Action + Send + Sync + 'static) {
    let server = start(action).await;
    let mut link = TestConnection::to(server.url()).open().unwrap();
    let meta = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    assert_eq!(request(&mut link, "tools/list", meta.clone()).await, list());
    assert_eq!(request(&mut link, "tools/list", meta.clone()).await, list());
    let mut call = meta;
    call["name"] = "t".into();
    call["arguments"] = json!({"region": "north"});
    assert_eq!(request(&mut link, "tools/call", call).await, content());
    let last = server.seen().pop().unwrap();
    assert_eq!(last.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(last.header("mcp-param-region"), Some("north"));
    within(link.close()).await.unwrap();
}

const NOTE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;

#[tokio::test]
async fn results_are_unchanged_over_every_response_path() {
    let as_json = |request: &Request| ok(&request.result(&result_of(request)));
    let at_once = |request: &Request| {
        Action::SendAndClose(format!(
            "{EVENTS}data: {}\n\n",
            request.result(&result_of(request))
        ))
    };
    let later = |request: &Request| {
        let answer = request.result(&result_of(request));
        Action::SendAndClose(format!("{EVENTS}data: {NOTE}\n\ndata: {answer}\n\n"))
    };
    legacy(as_json).await;
    legacy(at_once).await;
    legacy(later).await;
    modern(as_json).await;
    modern(at_once).await;
    modern(later).await;
}
