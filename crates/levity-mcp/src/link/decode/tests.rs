use levity_rpc::mcp::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, PingRequest, Request,
};
use serde_json::json;

use super::*;
use crate::link::pending::record;

/// Returns pending requests with these ids and methods.
fn pending(asked: &[(i64, &str)]) -> Pending {
    let pending = Pending::default();
    for (id, method) in asked {
        record(&pending, &request(*id, method));
    }
    pending
}

fn request(id: i64, method: &str) -> ClientJsonRpcMessage {
    let request = match method {
        "tools/call" => {
            ClientRequest::CallToolRequest(Request::new(CallToolRequestParams::new("t")))
        }
        "tools/list" => ClientRequest::ListToolsRequest(Default::default()),
        _ => ClientRequest::PingRequest(PingRequest::default()),
    };
    ClientJsonRpcMessage::request(request, RequestId::Number(id))
}

fn read(line: impl AsRef<[u8]>, pending: &Pending) -> (DecodeOutcome, Vec<Value>) {
    let mut queue = Queue::new();
    let decoded = decode(line.as_ref(), &"docs".into(), pending, &mut queue);
    (
        decoded,
        queue
            .iter()
            .map(|message| serde_json::to_value(message).unwrap())
            .collect(),
    )
}

/// Checks that one line becomes these messages while one call with the id 7 is pending.
#[track_caller]
fn check(line: impl AsRef<[u8]>, expected: impl IntoIterator<Item = Value>) {
    let (decoded, messages) = read(line, &pending(&[(7, "tools/call")]));
    assert_eq!(decoded, DecodeOutcome::Message);
    assert_eq!(messages, Vec::from_iter(expected));
}

/// Returns levity's own error in a message.
fn own_error(message: &Value) -> Option<Error> {
    let error = serde_json::from_value(message["error"].clone()).unwrap();
    failure::read(&"docs".into(), &error)
}

fn answer(result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "result": result})
}

#[test]
fn decode_reads_response_fields_in_any_order() {
    let expected = answer(&json!({"content": [{"type": "text", "text": "hi"}], "isError": false}));
    check(expected.to_string(), [expected.clone()]);
    check(
        concat!(
            r#"{"result":{"content":[{"type":"text","text":"hi"}],"isError":false},"#,
            r#""jsonrpc":"2.0","id":7}"#,
        ),
        [expected.clone()],
    );
    check(
        concat!(
            r#"{"result":{"content":[{"type":"text","text":"hi"}],"isError":false},"#,
            r#""id":7,"jsonrpc":"2.0"}"#,
        ),
        [expected.clone()],
    );
    check(
        concat!(
            r#" {"id":"7","extra":[1],"#,
            r#""result":{"isError":false,"content":[{"type":"text","text":"hi"}]}}"#,
        ),
        [expected],
    );
}

#[test]
fn decode_keeps_results_that_rmcp_cannot_represent() {
    for result in [
        json!({
            "content": [{"type": "text", "text": "a"}, {"type": "hologram", "beams": 3}],
            "resultType": "complete",
        }),
        json!({"content": "just text"}),
        json!({"tools": [], "content": "confusing"}),
        json!({"messages": [], "contents": []}),
        json!({"action": "accept"}),
        json!([1, 2]),
        json!("text"),
        Value::Null,
    ] {
        check(answer(&result).to_string(), [answer(&result)]);
    }
}

#[test]
fn decode_repairs_invalid_text() {
    let text = |text: &str| answer(&json!({"content": [{"type": "text", "text": text}]}));
    let line = |text: &[u8]| {
        [
            br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":""#,
            text,
            br#""}]}}"#,
        ]
        .concat()
    };
    check(line(b"a\xffb"), [text("a\u{fffd}b")]);
    check(line(br"a\ud800b"), [text("a\u{fffd}b")]);
    check(line(br"\udc80\ud83d"), [text("\u{fffd}\u{fffd}")]);
    check(
        line(br"\ud83d\ude00 \\ud800 \ud83d"),
        [text("\u{1f600} \\ud800 \u{fffd}")],
    );
    check(
        [b"\xEF\xBB\xBF", &*line(b"bom"), b"\r"].concat(),
        [text("bom")],
    );
}

#[test]
fn decode_of_invalid_json_fails_its_request() {
    let broken =
        r#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":{"x":NaN}}}"#;
    let (decoded, messages) = read(broken, &pending(&[(7, "tools/call"), (8, "tools/call")]));
    assert_eq!(decoded, DecodeOutcome::Message);
    assert_eq!((&messages[0]["id"], messages.len()), (&json!(7), 1));
    assert_eq!(own_error(&messages[0]).unwrap().kind(), ErrorKind::Protocol);
}

#[test]
fn decode_reads_errors_of_any_form() {
    let error = |code: i32, message: &str| {
        json!({
            "jsonrpc": "2.0",
            "id": 7,
            "error": {"code": code, "message": message},
        })
    };
    check(error(-1, "no").to_string(), [error(-1, "no")]);
    check(r#"{"id":7,"error":"no"}"#, [error(-32603, "no")]);
    check(
        r#"{"id":7,"error":{"code":"5","message":"no"},"result":null}"#,
        [error(5, "no")],
    );
    check(
        r#"{"id":7,"error":{"message":"no"}}"#,
        [error(-32603, "no")],
    );
    let (_, nothing) = read(r#"{"id":7}"#, &pending(&[(7, "tools/call")]));
    assert_eq!(
        own_error(&nothing[0]).unwrap().message(),
        "its response has neither a result nor an error"
    );
    check(
        r#"{"id":7,"error":null,"result":{"content":[]}}"#,
        [answer(&json!({"content": []}))],
    );
}

#[test]
fn error_without_id_fails_all_pending_requests() {
    for line in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#,
        r#"{"error":{"code":-32700,"message":"m"}}"#,
    ] {
        let pending = pending(&[(7, "tools/call"), (8, "ping")]);
        let (_, messages) = read(line, &pending);
        let mut ids: Vec<_> = messages
            .iter()
            .map(|message| message["id"].as_i64())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, [Some(7), Some(8)]);
        assert_eq!(pending.len(), 0);
        assert_eq!(read(line, &pending).1, Vec::<Value>::new());
    }
}

#[test]
fn late_and_duplicate_responses_are_dropped() {
    let pending = pending(&[(7, "tools/call"), (8, "tools/call")]);
    let line = answer(&json!({"content": []})).to_string();
    assert_eq!(read(&line, &pending).1.len(), 1);
    assert_eq!(read(&line, &pending), (DecodeOutcome::Message, vec![]));
    assert_eq!(
        read(
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#,
            &pending
        )
        .1,
        Vec::<Value>::new()
    );
    assert_eq!(pending.len(), 1);
}

#[test]
fn response_to_cancelled_request_is_dropped() {
    let pending = pending(&[(7, "tools/call")]);
    pending.remove(&RequestId::Number(7));
    assert_eq!(
        read(answer(&json!({"content": []})).to_string(), &pending),
        (DecodeOutcome::Message, vec![])
    );
}

#[test]
fn decode_reads_requests_and_notifications() {
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    check(notification.to_string(), [notification.clone()]);
    check(
        r#"{"method":"notifications/tools/list_changed","id":null}"#,
        [notification],
    );
    let ping = json!({"jsonrpc": "2.0", "id": "x", "method": "ping"});
    check(ping.to_string(), [ping.clone()]);
    let both = json!([ping, answer(&json!({"content": []}))]);
    check(both.to_string(), [ping, answer(&json!({"content": []}))]);
}

#[test]
fn decode_of_banners_and_logs_is_junk() {
    for line in [
        "Server running on stdio",
        "[INFO] started",
        "{",
        "{}",
        "[]",
        "{not json}",
        "[1]",
        "null",
        "7",
        r#"{"level":30,"id":3}"#,
    ] {
        assert_eq!(
            read(line, &pending(&[(7, "tools/call")])),
            (DecodeOutcome::Junk, vec![]),
            "{line}"
        );
    }
    for line in ["", " \r", "\t"] {
        assert_eq!(
            read(line, &Pending::default()),
            (DecodeOutcome::Blank, vec![]),
            "{line}"
        );
    }
}

#[track_caller]
fn check_too_large(head: &str, tail: &str, ids: &[i64]) {
    let pending = pending(&[(7, "tools/call"), (8, "ping")]);
    let mut queue = Queue::new();
    let error = Error::new(ErrorKind::TooLarge, "docs", "much");
    fail_too_large(
        [head.as_bytes(), tail.as_bytes()],
        &error,
        &pending,
        &mut queue,
    );
    let mut found: Vec<_> = queue
        .iter()
        .map(|message| serde_json::to_value(message).unwrap())
        .collect();
    found.sort_by_key(|message| message["id"].as_i64());
    assert_eq!(
        found
            .iter()
            .filter_map(|message| message["id"].as_i64())
            .collect::<Vec<_>>(),
        ids
    );
    for message in found {
        assert_eq!(own_error(&message).unwrap().kind(), ErrorKind::TooLarge);
    }
}

#[test]
fn too_large_response_fails_only_its_request() {
    check_too_large(
        r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"te"#,
        r#"aaa"}]}}"#,
        &[7],
    );
    check_too_large(
        r#"{"result":{"content":[{"id":8,"te"#,
        r#"\"id\":8}aa"}]},"jsonrpc":"2.0","id":7}"#,
        &[7],
    );
    check_too_large(
        r#"{"result":{"content":[{"te"#,
        r#"aaa","id":8}]},"id":"7","jsonrpc":"2.0"}"#,
        &[7],
    );
    check_too_large(
        r#"{"result":{"content":[{"te"#,
        r#"aaa","id":8}}}"#,
        &[7, 8],
    );
    check_too_large(
        r#"{"method":"notifications/message","params":{"te"#,
        r#"aaa"}}"#,
        &[],
    );
}

proptest::proptest! {
    #[test]
    fn decode_of_any_bytes_does_not_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
    ) {
        let (_, messages) = read(&bytes, &pending(&[(7, "tools/call")]));
        proptest::prop_assert!(messages.len() <= 1);
    }

    #[test]
    fn decode_of_damaged_messages_does_not_panic(cut in 0usize..90, put in ".{0,3}") {
        let line = concat!(
            r#"{"jsonrpc":"2.0","id":7,"#,
            r#""result":{"content":[{"type":"text","text":"a\ud83d\ude00 \\ b"}]}}"#,
        );
        let cut = cut.min(line.len());
        read([&line[..cut], &put, &line[cut..]].concat(), &pending(&[(7, "tools/call")]));
        read([&line[..cut], &put].concat(), &pending(&[(7, "tools/call")]));
    }
}
