use futures_util::FutureExt;
use levity_rpc::mcp::{
    CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientNotification,
    ClientRequest, ClientResult, Request, RequestId,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::super::unanswered::MAX_UNANSWERED;
use super::*;

type Duplex = StdioTransport<tokio::io::ReadHalf<DuplexStream>, tokio::io::WriteHalf<DuplexStream>>;

fn pair(limit: usize, capacity: usize) -> (Duplex, DuplexStream) {
    let (client, peer) = tokio::io::duplex(capacity);
    let (read, write) = tokio::io::split(client);
    (lines("docs".into(), read, write, limit), peer)
}

fn call(id: i64, text: &str) -> ClientJsonRpcMessage {
    let arguments = serde_json::Map::from_iter([("text".to_owned(), text.into())]);
    let params = CallToolRequestParams::new("echo").with_arguments(arguments);
    ClientJsonRpcMessage::request(
        ClientRequest::CallToolRequest(Request::new(params)),
        RequestId::Number(id),
    )
}

fn cancel(id: i64) -> ClientJsonRpcMessage {
    let params = CancelledNotificationParam::new(Some(RequestId::Number(id)), None);
    let cancelled = CancelledNotification::new(params);
    ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(cancelled))
}

fn answer(id: i64, text: &str) -> String {
    let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

async fn next(transport: &mut Duplex) -> Option<serde_json::Value> {
    let message =
        tokio::time::timeout(std::time::Duration::from_secs(60), transport.receive()).await;
    message
        .expect("receive timed out")
        .map(|message| serde_json::to_value(message).unwrap())
}

#[tokio::test]
async fn messages_are_sent_and_received_as_lines() {
    let (mut transport, peer) = pair(1 << 20, 1 << 20);
    transport.send(call(1, "a\nb")).await.unwrap();
    transport.send(call(2, "c")).await.unwrap();
    let mut peer = BufReader::new(peer);
    for id in 1..=2 {
        let mut line = String::new();
        peer.read_line(&mut line).await.unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).unwrap()["id"],
            id
        );
    }
    let text = format!(
        "banner\r\n\r\n\u{feff}{}\r\n{}",
        answer(2, "two"),
        answer(1, "one")
    );
    peer.get_mut().write_all(text.as_bytes()).await.unwrap();
    assert_eq!(next(&mut transport).await.unwrap()["id"], 2);
    drop(peer);
    assert_eq!(
        next(&mut transport).await.unwrap()["id"],
        1,
        "the last line needs no line break"
    );
    assert_eq!(next(&mut transport).await, None);
    assert_eq!(transport.close_state().cause(), None);
}

#[tokio::test]
async fn dropped_receive_loses_no_bytes() {
    let (mut transport, mut peer) = pair(1 << 20, 1 << 20);
    let _sent = transport.send(call(1, "a"));
    let line = answer(1, "one") + "\n";
    for byte in line.as_bytes() {
        assert!(transport.receive().now_or_never().is_none());
        peer.write_all(&[*byte]).await.unwrap();
    }
    assert_eq!(
        next(&mut transport).await.unwrap()["result"]["content"][0]["text"],
        "one"
    );
}

#[tokio::test]
async fn line_over_limit_fails_its_request_and_is_discarded() {
    let (mut transport, mut peer) = pair(100 << 10, 64 << 10);
    transport.send(call(1, "a")).await.unwrap();
    transport.send(call(2, "b")).await.unwrap();
    let write = async {
        peer.write_all(br#"{"result":{"content":[{"type":"text","text":""#)
            .await
            .unwrap();
        for _ in 0..320 {
            peer.write_all(&[b'x'; 64 << 10]).await.unwrap();
        }
        peer.write_all(b"\"}]},\"jsonrpc\":\"2.0\",\"id\":2}\n")
            .await
            .unwrap();
        peer.write_all((answer(1, "one") + "\n").as_bytes())
            .await
            .unwrap();
    };
    let read = async {
        let large = next(&mut transport).await.unwrap();
        assert_eq!(large["id"], 2);
        let message = large["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            message.starts_with("its response has 20971") && message.contains("`max_message`"),
            "{message}"
        );
        assert_eq!(
            next(&mut transport).await.unwrap()["result"]["content"][0]["text"],
            "one"
        );
    };
    tokio::join!(write, read);
}

#[tokio::test]
async fn endless_junk_closes_connection() {
    for line in ["log log log\n".to_owned(), "x".repeat(300 << 10) + "\n"] {
        let reported = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (transport, mut peer) = pair(16 << 20, 64 << 10);
        let count = reported.clone();
        let mut transport = transport.on_junk(Box::new(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
        let write = async { while peer.write_all(line.as_bytes()).await.is_ok() {} };
        let read = async {
            assert_eq!(next(&mut transport).await, None);
            let cause = transport.close_state().cause().unwrap();
            assert_eq!(cause.kind, ErrorKind::Protocol);
            assert!(
                cause.message.contains("must log to stderr"),
                "{}",
                cause.message
            );
            drop(transport);
        };
        tokio::join!(write, read);
        assert!(
            (1..=MAX_REPORTED_JUNK).contains(&reported.load(std::sync::atomic::Ordering::Relaxed))
        );
    }
}

#[tokio::test]
async fn junk_between_messages_is_ignored() {
    let (mut transport, mut peer) = pair(1 << 20, 1 << 20);
    for id in 0..2_500 {
        let _sent = transport.send(call(id, "")).await;
        peer.write_all(format!("log\n{}\n", answer(id, "")).as_bytes())
            .await
            .unwrap();
        assert_eq!(next(&mut transport).await.unwrap()["id"], id);
    }
}

#[tokio::test]
async fn receive_works_while_server_does_not_read() {
    let (mut transport, mut peer) = pair(1 << 20, 100);
    let mut stuck = Box::pin(transport.send(call(1, &"x".repeat(1_000))));
    assert!((&mut stuck).now_or_never().is_none());
    peer.write_all(b"{\"method\":\"ping\",\"id\":3}\n")
        .await
        .unwrap();
    assert_eq!(next(&mut transport).await.unwrap()["method"], "ping");
}

fn ping(id: usize) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n")
}

/// Returns a connection with as many unanswered requests as the limit allows, and `more` behind
/// them.
async fn flooded(more: &str) -> (Duplex, DuplexStream) {
    let (mut transport, mut peer) = pair(1 << 20, 1 << 16);
    transport.send(call(1, "")).await.unwrap();
    let pings: String = (0..MAX_UNANSWERED).map(ping).collect();
    peer.write_all((pings + more).as_bytes()).await.unwrap();
    for id in 0..MAX_UNANSWERED {
        assert_eq!(next(&mut transport).await.unwrap()["id"], id);
    }
    (transport, peer)
}

#[tokio::test]
async fn request_over_limit_waits_until_answer_is_written() {
    let one_more = ping(MAX_UNANSWERED);
    let response = answer(1, "one");
    let (mut transport, _peer) = flooded(&format!("{response}\n{one_more}{response}\n")).await;
    assert!(
        next(&mut transport).await.unwrap().get("result").is_some(),
        "a response before the request is passed on"
    );
    // The task gets a new budget, so that only the limit can stop the reader.
    tokio::task::yield_now().await;
    assert!(transport.receive().now_or_never().is_none());
    let pong = ClientJsonRpcMessage::response(ClientResult::empty(()), RequestId::Number(0));
    let unwritten = transport.send(pong);
    assert!(transport.receive().now_or_never().is_none());
    let (request, written) = tokio::join!(next(&mut transport), unwritten);
    written.unwrap();
    assert_eq!(request.unwrap()["id"], MAX_UNANSWERED);
}

#[tokio::test]
async fn close_ends_wait_of_request_over_limit() {
    let (mut transport, _peer) = flooded(&ping(MAX_UNANSWERED)).await;
    let close_state = transport.close_state();
    let (request, ()) = tokio::join!(next(&mut transport), async { close_state.close(None) });
    assert_eq!(request.unwrap()["id"], MAX_UNANSWERED);
    assert_eq!(next(&mut transport).await, None);
}

#[tokio::test]
async fn dropped_partial_send_closes_connection() {
    let (mut transport, mut peer) = pair(1 << 20, 100);
    let mut stuck = Box::pin(transport.send(call(1, &"x".repeat(1_000))));
    assert!((&mut stuck).now_or_never().is_none());
    drop(stuck);
    assert!(transport.send(call(2, "")).await.is_err());
    assert_eq!(next(&mut transport).await, None);
    assert_eq!(
        transport.close_state().cause().unwrap().message,
        "it stopped reading in the middle of a message"
    );
    // The halves of a pipe within this process close together.
    drop(transport);
    let mut rest = Vec::new();
    AsyncReadExt::read_to_end(&mut peer, &mut rest)
        .await
        .unwrap();
    assert_eq!(rest.len(), 100);
}

#[tokio::test]
async fn cancelled_unsent_request_is_not_sent() {
    let (mut transport, peer) = pair(1 << 20, 100);
    // This fills the pipe to its last byte.
    let full = 100 - call_length();
    transport.send(call(1, &"x".repeat(full))).await.unwrap();
    let mut second = Box::pin(transport.send(call(2, "")));
    let mut third = Box::pin(transport.send(call(3, "")));
    assert!((&mut second).now_or_never().is_none());
    assert!((&mut third).now_or_never().is_none());
    for id in 1..=3 {
        assert!(
            transport.send(cancel(id)).now_or_never().unwrap().is_ok(),
            "a cancellation never waits"
        );
    }
    assert!(second.await.is_err());
    assert!(third.await.is_err());
    let mut peer = BufReader::new(peer);
    let read = async {
        let mut seen = Vec::new();
        while seen.last() != Some(&4) {
            let mut line = String::new();
            peer.read_line(&mut line).await.unwrap();
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            seen.push(
                line["id"]
                    .as_i64()
                    .unwrap_or_else(|| -line["params"]["requestId"].as_i64().unwrap()),
            );
        }
        seen
    };
    let (sent, seen) = tokio::join!(transport.send(call(4, "")), read);
    sent.unwrap();
    assert_eq!(seen, [1, -1, 4]);
}

fn call_length() -> usize {
    serde_json::to_string(&call(1, "")).unwrap().len() + 1
}

#[tokio::test]
async fn cancelled_partial_send_closes_connection() {
    let (mut transport, _theirs) = pair(1 << 20, 100);
    let mut stuck = Box::pin(transport.send(call(1, &"x".repeat(1_000))));
    assert!((&mut stuck).now_or_never().is_none());
    transport.send(cancel(1)).await.unwrap();
    assert!(stuck.await.is_err());
    assert_eq!(next(&mut transport).await, None);
}

#[tokio::test]
async fn data_written_before_peer_close_is_read() {
    let (mut transport, mut peer) = pair(1 << 20, 1 << 20);
    transport.send(call(1, "")).await.unwrap();
    peer.write_all((answer(1, "last words") + "\n{\"half").as_bytes())
        .await
        .unwrap();
    transport.close_state().peer_closed();
    assert_eq!(next(&mut transport).await.unwrap()["id"], 1);
    assert_eq!(
        next(&mut transport).await,
        None,
        "the stream is not awaited while others hold it open"
    );
}

#[tokio::test]
async fn close_wakes_waiting_reader() {
    let (mut transport, _theirs) = pair(1 << 20, 1 << 20);
    let close_state = transport.close_state();
    let (received, ()) = tokio::join!(next(&mut transport), async { close_state.close(None) });
    assert_eq!(received, None);
}

#[tokio::test]
async fn flood_of_notifications_lets_other_tasks_run() {
    let (mut transport, mut peer) = pair(1 << 20, 1 << 20);
    let note = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";
    peer.write_all(note.repeat(1_000).as_bytes()).await.unwrap();
    let mut received = 0;
    let flood = async {
        while transport.receive().await.is_some() {
            received += 1;
        }
    };
    assert!(flood.now_or_never().is_none());
    assert!(
        (1..500).contains(&received),
        "{received} messages in one poll"
    );
}

#[tokio::test]
async fn task_without_budget_reads_data_before_peer_close() {
    let (mut transport, mut peer) = pair(1 << 20, 1 << 20);
    transport.send(call(1, "a")).await.unwrap();
    peer.write_all(format!("{}\n", answer(1, "one")).as_bytes())
        .await
        .unwrap();
    transport.close_state().peer_closed();
    // This uses up the budget of the task.
    while has_budget_remaining() {
        tokio::task::coop::consume_budget().await;
    }
    assert_eq!(next(&mut transport).await.unwrap()["id"], 1);
    assert_eq!(next(&mut transport).await, None);
}
