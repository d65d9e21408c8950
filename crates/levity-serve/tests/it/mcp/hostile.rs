//! Clients that violate the protocol, over a pair of pipes.

use std::sync::Arc;
use std::time::Duration;

use levity_core::ToolOutput;
use levity_serve::mcp::{HandlerReply, McpLimits, McpServer};
use levity_test::RecordingTool;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::Notify;

use super::fixture::{ERAS, Era, Greetings, NumberedResources, Peer, TestHandler, builder};

fn echo() -> RecordingTool {
    RecordingTool::new("echo", |args| Ok(ToolOutput::text(args.to_string())))
}

async fn lives(peer: &mut Peer) {
    assert!(
        peer.text("echo", json!({"still": "here"}))
            .await
            .contains("still")
    );
}

#[tokio::test]
async fn invalid_lines_get_errors_or_are_ignored() {
    let server = builder().tool(echo()).build().unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        for (line, code) in [
            ("{", -32700),
            ("not json", -32700),
            ("\u{0}\u{1}", -32700),
            ("[]", -32600),
            ("5", -32600),
            (
                "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
                -32600,
            ),
        ] {
            peer.line(line).await;
            let answer = peer.next().await;
            assert_eq!(
                (&answer["error"]["code"], &answer["id"]),
                (&json!(code), &Value::Null),
                "{line}"
            );
        }
        // A notification, or a response without a request, gets no response.
        for line in [
            "",
            "   ",
            r#"{"jsonrpc":"2.0","method":"notifications/nonsense","params":5}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":999}}"#,
            r#"{"jsonrpc":"2.0","id":77,"result":{"action":"accept"}}"#,
            r#"{"jsonrpc":"2.0","id":78,"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0"}"#,
            "{}",
        ] {
            peer.line(line).await;
        }
        lives(&mut peer).await;
        assert!(peer.heard.is_empty(), "{era:?}: {:?}", peer.heard);
    }
}

#[tokio::test]
async fn parameters_of_wrong_type_return_errors() {
    let server = builder()
        .tool(echo())
        .resources(NumberedResources(1))
        .prompts(Greetings)
        .completions(Greetings)
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        for (method, params) in [
            ("tools/call", json!({})),
            ("tools/call", json!({"name": 5})),
            ("tools/call", json!({"name": "echo", "arguments": [1]})),
            ("tools/call", json!({"name": "echo", "arguments": "x"})),
            ("tools/call", json!({"name": ["echo"]})),
            ("resources/read", json!({"uri": 5})),
            ("prompts/get", json!({"name": {}})),
            ("completion/complete", json!({"ref": 1})),
        ] {
            let answer = peer.ask(method, params.clone()).await;
            assert_eq!(
                answer["error"]["code"], -32602,
                "{method} {params}: {answer}"
            );
        }
        let levels = peer
            .ask("logging/setLevel", json!({"level": "shout"}))
            .await;
        assert_eq!(
            levels["error"]["code"],
            if era == Era::Old { -32602 } else { -32601 }
        );
        let unknown = peer
            .ask("no/such/method", json!({"deep": {"a": [1, 2, {}]}}))
            .await;
        assert_eq!(unknown["error"]["code"], -32601);
        lives(&mut peer).await;
    }
}

#[tokio::test]
async fn too_long_line_is_rejected_with_its_id() {
    let server = builder()
        .tool(echo())
        .limits(McpLimits::default().line(64 << 10))
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    let long = "x".repeat(1 << 20);
    let call = format!(r#"{{"name":"echo","arguments":{{"id":5,"x":"{long}"}}}}"#);
    let first = format!(r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{call}}}"#);
    let last = format!(r#"{{"method":"tools/call","params":{call},"jsonrpc":"2.0","id":41}}"#);
    for (line, id) in [(first, json!("a")), (last, json!(41)), (long, Value::Null)] {
        peer.line(&line).await;
        let answer = peer.next().await;
        assert_eq!(answer["id"], id);
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("longer than 65536"),
            "{answer}"
        );
    }
    lives(&mut peer).await;
    // A line that fits is accepted, however it arrives.
    let fits = "y".repeat(60 << 10);
    assert!(peer.text("echo", json!({ "x": fits })).await.len() > 60 << 10);
}

#[tokio::test]
async fn too_long_unterminated_last_line_is_rejected_with_its_id() {
    let server = builder()
        .tool(echo())
        .limits(McpLimits::default().line(64 << 10))
        .build()
        .unwrap();
    let long = "x".repeat(1 << 20);
    let line = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"x":"{long}"}}}}"#);
    let (mut there, here) = tokio::io::duplex(4096);
    server
        .serve(std::io::Cursor::new(line.into_bytes()), here)
        .await
        .unwrap();
    let mut answer = String::new();
    there.read_to_string(&mut answer).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32600)),
        "{answer}"
    );
}

#[tokio::test]
async fn unterminated_line_uses_bounded_memory() {
    if !crate::is_alone("mcp::hostile::unterminated_line_uses_bounded_memory") {
        return;
    }
    let server = builder()
        .tool(echo())
        .limits(McpLimits::default().line(1 << 20))
        .build()
        .unwrap();
    let (mut here, there) = tokio::io::duplex(1 << 20);
    let (read, write) = tokio::io::split(there);
    let serving = async move { server.serve(read, write).await };
    let flooding = async move {
        let piece = vec![b'z'; 1 << 20];
        for _ in 0..128 {
            here.write_all(&piece).await.unwrap();
        }
    };
    let before = memory();
    let (served, ()) = tokio::join!(serving, flooding);
    served.unwrap();
    assert!(
        memory() < before + (64 << 20),
        "{} bytes more",
        memory() - before
    );
}

/// Returns the memory of this process in bytes; `None` if it cannot be read.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| {
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<usize>()
            .ok()
    })
    .unwrap_or(0)
        << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_are_all_answered() {
    let server = builder().tool(echo()).build().unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let mut open = std::collections::BTreeSet::new();
        for at in 0..500 {
            open.insert(
                peer.send(
                    "tools/call",
                    json!({"name": "echo", "arguments": {"at": at}}),
                )
                .await,
            );
        }
        while !open.is_empty() {
            let answer = peer.next().await;
            assert!(open.remove(&answer["id"].as_i64().unwrap()), "{answer}");
            assert_eq!(answer["result"]["isError"], false);
        }
    }
}

#[tokio::test]
async fn calls_beyond_the_limit_are_rejected_as_busy() {
    let go = Arc::new(Notify::new());
    let goes = go.clone();
    let talk = TestHandler::new("wait", move |_| {
        let goes = goes.clone();
        async move {
            goes.notified().await;
            Ok(HandlerReply::text("gone"))
        }
    });
    let server = builder()
        .handler(talk)
        .tool(echo())
        .limits(McpLimits::default().calls(3))
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    for _ in 0..3 {
        peer.send("tools/call", json!({"name": "wait"})).await;
    }
    let busy = loop {
        let answer = peer.call("echo", json!({})).await;
        if answer.get("error").is_some() {
            break answer;
        }
    };
    assert_eq!(busy["error"]["code"], -32000);
    assert!(busy["error"]["message"].as_str().unwrap().contains("busy"));
    assert!(
        peer.ask("tools/list", json!({})).await["result"].is_object(),
        "lists are not calls"
    );
    for _ in 0..3 {
        go.notify_one();
        peer.next().await;
    }
    lives(&mut peer).await;
}

/// A client that sends requests and never reads.
async fn flood(server: &McpServer, here: DuplexStream, there: DuplexStream) -> usize {
    let (read, write) = tokio::io::split(there);
    let serving = server.serve(read, write);
    let (_unread, mut writer) = tokio::io::split(here);
    let asked = async {
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string() + "\n";
        let mut sent = 0;
        loop {
            let time = Duration::from_millis(500);
            match tokio::time::timeout(time, writer.write_all(line.as_bytes())).await {
                Ok(Ok(())) if sent < 1_000_000 => sent += 1,
                _ => return sent,
            }
        }
    };
    tokio::select! {
        served = serving => panic!("{served:?}"),
        sent = asked => sent,
    }
}

#[tokio::test]
async fn client_that_never_reads_delays_only_itself() {
    let server = builder().tool(echo()).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    let sent = flood(&server, here, there).await;
    assert!(
        sent < 10_000,
        "{sent} requests were taken in, and none of the answers was read"
    );
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    lives(&mut peer).await;
}

#[tokio::test]
async fn requests_out_of_order_are_handled() {
    let server = builder().tool(echo()).build().unwrap();
    let (here, there) = tokio::io::duplex(1 << 16);
    let mut peer = Peer::raw(&server, there, here, Era::Old, json!({}));
    peer.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    peer.tell(
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    )
    .await;
    peer.tell(json!({"jsonrpc": "2.0", "id": 5, "result": {}}))
        .await;
    lives(&mut peer).await;
    let answer = peer.ask("initialize", json!({"protocolVersion": 5})).await;
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    lives(&mut peer).await;
}

#[tokio::test]
async fn requests_before_the_end_of_input_are_answered() {
    let server = builder().tool(echo()).build().unwrap();
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    for _ in 0..10 {
        peer.send("tools/call", json!({"name": "echo"})).await;
    }
    assert_eq!(peer.close().await.len(), 10);
}
