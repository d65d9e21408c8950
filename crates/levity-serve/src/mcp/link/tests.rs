use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use levity_rpc::mcp::http_server::ServerSseMessage;
use levity_runtime::SystemWorld;
use levity_test::ManualWorld;
use serde_json::{Value, json};

use super::super::event_stream::MAX_STALL;
use super::routes::ENDED;
use super::*;

fn link() -> (Arc<Link>, Wire) {
    Link::new(Arc::new(SystemWorld))
}

fn call(id: u64) -> ClientJsonRpcMessage {
    let params = json!({"name": "echo", "_meta": {"progressToken": format!("p{id}")}});
    client(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
}

fn client(message: Value) -> ClientJsonRpcMessage {
    serde_json::from_value(message).unwrap()
}

fn answer(id: u64) -> ServerJsonRpcMessage {
    let result = json!({"content": [], "isError": false});
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap()
}

fn progress(id: u64, done: u64) -> ServerJsonRpcMessage {
    let params = json!({"progressToken": format!("p{id}"), "progress": done});
    serde_json::from_value(
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
    )
    .unwrap()
}

fn changed() -> ServerJsonRpcMessage {
    serde_json::from_value(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        .unwrap()
}

/// Returns the ids of all available events, and `true` if the stream has ended.
fn ids(reader: &mut Reader) -> (Vec<String>, bool) {
    let mut found = Vec::new();
    loop {
        match reader.next().now_or_never() {
            Some(Some(ServerSseMessage { event_id, .. })) => found.push(event_id.unwrap()),
            Some(None) => return (found, true),
            None => return (found, false),
        }
    }
}

fn events(found: &[&str], ended: bool) -> (Vec<String>, bool) {
    (found.iter().map(ToString::to_string).collect(), ended)
}

#[tokio::test]
async fn messages_go_to_the_stream_of_their_request() {
    let (link, mut wire) = link();
    let (mut one, mut two) = (
        link.request(call(1)).await.unwrap(),
        link.request(call(2)).await.unwrap(),
    );
    let mut common = link.common().unwrap();
    assert!(wire.receive().await.is_some() && wire.receive().await.is_some());
    for message in [progress(2, 1), changed(), answer(1), answer(2), answer(2)] {
        wire.send(message).await.unwrap();
    }
    assert_eq!(ids(&mut one), events(&["0/0", "1/0"], true));
    assert_eq!(ids(&mut two), events(&["0/1", "1/1", "2/1"], true));
    assert_eq!(ids(&mut common), events(&["0", "1"], false));
    let state = link.state();
    assert!(state.requests.is_empty() && state.progress.is_empty());
}

#[tokio::test]
async fn resume_after_disconnect_returns_remaining_events() {
    let (link, mut wire) = link();
    let mut reader = link.request(call(1)).await.unwrap();
    wire.send(progress(1, 1)).await.unwrap();
    assert_eq!(ids(&mut reader), events(&["0/0", "1/0"], false));
    drop(reader);
    wire.send(progress(1, 2)).await.unwrap();
    let mut reader = link.resume("1/0").unwrap();
    assert_eq!(ids(&mut reader), events(&["2/0"], false));
    drop(reader);
    wire.send(answer(1)).await.unwrap();
    // The stream has ended in the meantime, and can be fetched for a while.
    for _ in 0..2 {
        assert_eq!(
            ids(&mut link.resume("2/0").unwrap()),
            events(&["3/0"], true)
        );
    }
    for nonsense in [
        "",
        "x",
        "1/",
        "/1",
        "1/2/3",
        "-1/0",
        "1/99999999999999999999",
    ] {
        assert_eq!(
            link.resume(nonsense).err(),
            Some(SessionError::Stream),
            "{nonsense}"
        );
    }
}

/// The old connection may be dead without being detected.
#[tokio::test]
async fn resume_takes_over_while_old_stream_is_open() {
    let (link, mut wire) = link();
    let mut old = link.common().unwrap();
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut old), events(&["0", "1"], false));
    for _ in 0..17 {
        wire.send(changed()).now_or_never();
    }
    let mut waits = Box::pin(wire.send(changed()));
    assert!(waits.as_mut().now_or_never().is_none());
    let mut new = link.resume("1").unwrap();
    assert!(
        waits.now_or_never().is_some(),
        "no sender waits for the old reader"
    );
    assert_eq!(ids(&mut new).0.last().unwrap(), "19");
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut new), events(&["20"], false));
    // The old reader stays, so that two live clients do not displace each other, until it would
    // become active.
    assert!(!ids(&mut old).1);
    drop(new);
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut old), events(&[], true));
    assert_eq!(ids(&mut link.resume("20").unwrap()), events(&["21"], false));
}

#[tokio::test]
async fn resume_releases_senders_of_the_old_stream() {
    let (link, mut wire) = link();
    let _old = link.request(call(1)).await.unwrap();
    for done in 0..16 {
        wire.send(progress(1, done)).await.unwrap();
    }
    let mut waits = Box::pin(wire.send(progress(1, 16)));
    assert!(waits.as_mut().now_or_never().is_none());
    let _new = link.resume("0/0").unwrap();
    assert!(waits.now_or_never().is_some());
}

/// Notifications of a call may belong to no request, and its response follows them.
#[tokio::test]
async fn unread_common_stream_delays_senders_only_briefly() {
    let world = Arc::new(ManualWorld::new());
    let (link, mut wire) = Link::new(world.clone());
    let mut stalled = link.common().unwrap();
    for _ in 0..16 {
        wire.send(changed()).await.unwrap();
    }
    let mut waits = Box::pin(wire.send(changed()));
    assert!(waits.as_mut().now_or_never().is_none());
    world.advance(MAX_STALL - Duration::from_millis(1));
    assert!(waits.as_mut().now_or_never().is_none());
    world.advance(Duration::from_millis(1));
    assert!(waits.now_or_never().is_some());
    assert!(
        wire.send(changed()).now_or_never().is_some(),
        "only the first sender waited"
    );
    // The stalled reader has received its events, and its client resumes after them.
    let (found, ended) = ids(&mut stalled);
    assert_eq!((found.last().unwrap().as_str(), ended), ("17", true));
    assert_eq!(ids(&mut link.resume("17").unwrap()), events(&["18"], false));
}

#[tokio::test]
async fn ended_streams_are_removed_in_order_of_their_end() {
    let (link, mut wire) = link();
    drop(link.request(call(0)).await.unwrap());
    wire.receive().await.unwrap();
    for id in 1..=20 {
        drop(link.request(call(id)).await.unwrap());
        wire.receive().await.unwrap();
        wire.send(answer(id)).await.unwrap();
    }
    wire.send(answer(0)).await.unwrap();
    assert_eq!(
        ids(&mut link.resume("0/0").unwrap()),
        events(&["1/0"], true)
    );
    let state = link.state();
    assert_eq!((state.streams.len(), state.ended.len()), (ENDED.0, ENDED.0));
}

#[tokio::test]
async fn request_dropped_before_its_slot_leaves_no_stream() {
    let (link, mut wire) = link();
    let mut readers = Vec::new();
    for id in 0..16 {
        readers.push(link.request(call(id)).await.unwrap());
    }
    for id in 16..100 {
        assert!(link.request(call(id)).now_or_never().is_none());
    }
    {
        let state = link.state();
        assert_eq!((state.streams.len(), state.requests.len()), (16, 16));
    }
    wire.receive().await.unwrap();
    assert!(link.request(call(16)).now_or_never().is_some());
}

#[tokio::test]
async fn session_ends_if_initialize_is_dropped() {
    let (link, mut wire) = link();
    assert!(link.initialize(call(0)).now_or_never().is_none());
    assert!(wire.receive().await.is_some());
    wire.send(answer(0)).await.unwrap();
    assert!(
        wire.receive()
            .now_or_never()
            .is_some_and(|message| message.is_none())
    );
}

#[tokio::test]
async fn has_more_is_false_after_the_last_event() {
    let (link, mut wire) = link();
    let _reader = link.request(call(1)).await.unwrap();
    assert!(
        link.has_more("0/0") && link.has_more("7") && !link.has_more("0/1") && !link.has_more("x")
    );
    wire.send(answer(1)).await.unwrap();
    assert!(link.has_more("0/0") && !link.has_more("1/0"));
}

#[tokio::test]
async fn unfetched_events_stay_within_their_limits() {
    let (link, mut wire) = link();
    for id in 0..100 {
        drop(link.request(call(id)).await.unwrap());
        wire.receive().await.unwrap();
        for done in 0..100 {
            wire.send(progress(id, done)).await.unwrap();
        }
        wire.send(answer(id)).await.unwrap();
        wire.send(changed()).await.unwrap();
    }
    // The latest events of each stream and of the latest requests are retained.
    assert_eq!(ids(&mut link.resume("0/99").unwrap()).0.len(), 16);
    assert_eq!(ids(&mut link.common().unwrap()).0.len(), 1 + 16);
    assert!(link.resume("0/50").is_err());
    assert!(link.state().streams.len() <= ENDED.0);
}

#[tokio::test]
async fn large_responses_are_removed_beyond_the_byte_limit() {
    let world = Arc::new(ManualWorld::new());
    let (link, mut wire) = Link::new(world.clone());
    let large = |id: u64, bytes: usize| {
        let mut message = serde_json::to_value(answer(id)).unwrap();
        message["result"]["content"] = json!([{"type": "text", "text": "x".repeat(bytes)}]);
        serde_json::from_value::<ServerJsonRpcMessage>(message).unwrap()
    };
    for (id, bytes) in [(0, 400 << 10), (1, 400 << 10), (2, 400 << 10), (3, 2 << 20)] {
        drop(link.request(call(id)).await.unwrap());
        wire.receive().await.unwrap();
        wire.send(large(id, bytes)).await.unwrap();
        let kept = |id: u64| link.state().streams.contains_key(&id);
        let kept: Vec<u64> = (0..=id).filter(|id| kept(*id)).collect();
        let expected: &[u64] = [&[0][..], &[0, 1], &[1, 2], &[3]][id as usize];
        assert_eq!(
            kept, expected,
            "a response above the limit is retained alone"
        );
    }
    world.advance(Duration::from_secs(61));
    link.remove_expired();
    assert!(link.state().streams.is_empty());
}

#[tokio::test]
async fn slow_reader_delays_only_its_own_senders() {
    let (link, mut wire) = link();
    let (slow, mut other) = (
        link.request(call(1)).await.unwrap(),
        link.request(call(2)).await.unwrap(),
    );
    for done in 0..16 {
        wire.send(progress(1, done)).await.unwrap();
    }
    let mut waits = Box::pin(wire.send(progress(1, 16)));
    assert!(waits.as_mut().now_or_never().is_none());
    wire.send(answer(2)).now_or_never().unwrap().unwrap();
    assert!(ids(&mut other).1);
    // Senders do not wait for a dropped reader.
    drop(slow);
    waits.now_or_never().unwrap().unwrap();
}

#[tokio::test]
async fn common_stream_readers_succeed_each_other() {
    let (link, mut wire) = link();
    // No reader existed for this event.
    wire.send(changed()).await.unwrap();
    let (mut first, mut second) = (link.common().unwrap(), link.common().unwrap());
    assert_eq!(ids(&mut first), events(&["0", "1"], false));
    wire.send(changed()).await.unwrap();
    assert_eq!(
        (ids(&mut first), ids(&mut second)),
        (events(&["2"], false), events(&["1"], false))
    );
    drop(first);
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut second), events(&["3"], false));
    drop(second);
    // The resumption id is that of the last event before any missed ones.
    assert_eq!(ids(&mut link.common().unwrap()), events(&["3"], false));
    assert_eq!(
        ids(&mut link.resume("1").unwrap()),
        events(&["2", "3"], false)
    );
}

#[tokio::test]
async fn cancelled_or_repeated_request_ends_its_stream() {
    let (link, mut wire) = link();
    let mut reader = link.request(call(1)).await.unwrap();
    let params = json!({"requestId": 1});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    link.push(client(cancel)).await.unwrap();
    assert_eq!(ids(&mut reader), events(&["0/0"], true));
    wire.send(answer(1)).await.unwrap();
    let (mut old, mut new) = (
        link.request(call(2)).await.unwrap(),
        link.request(call(2)).await.unwrap(),
    );
    wire.send(answer(2)).await.unwrap();
    assert_eq!(
        (ids(&mut old), ids(&mut new)),
        (events(&["0/1"], true), events(&["0/2", "1/2"], true))
    );
}

#[tokio::test]
async fn close_ends_all_readers() {
    let (link, mut wire) = link();
    let (mut reader, mut common) = (link.request(call(1)).await.unwrap(), link.common().unwrap());
    wire.receive().await.unwrap();
    let (first, ()) = tokio::join!(link.initialize(call(0)), async {
        wire.receive().await.unwrap();
        wire.send(answer(0)).await.unwrap();
    });
    assert!(first.is_ok());
    link.close();
    assert!(wire.receive().await.is_none());
    assert!(ids(&mut reader).1 && ids(&mut common).1);
    assert_eq!(link.push(call(2)).await, Err(SessionError::Session));
    assert_eq!(
        link.initialize(call(2)).await.err(),
        Some(SessionError::Session)
    );
    assert!(link.common().is_err() && link.request(call(3)).await.is_err());
}
