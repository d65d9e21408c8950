use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use levity_rpc::mcp::http_server::ServerSseMessage;
use levity_runtime::SystemWorld;
use levity_test::ManualWorld;
use serde_json::{Value, json};

use super::super::strand::STALLED;
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

/// The ids of all events that are there, and whether that is the end.
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

fn all(found: &[&str], ended: bool) -> (Vec<String>, bool) {
    (found.iter().map(ToString::to_string).collect(), ended)
}

#[tokio::test]
async fn each_message_goes_to_the_request_that_it_is_about() {
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
    assert_eq!(ids(&mut one), all(&["0/0", "1/0"], true));
    assert_eq!(ids(&mut two), all(&["0/1", "1/1", "2/1"], true));
    assert_eq!(ids(&mut common), all(&["0", "1"], false));
    let state = link.state();
    assert!(state.requests.is_empty() && state.progress.is_empty());
}

#[tokio::test]
async fn whoever_was_cut_off_comes_back_for_the_rest() {
    let (link, mut wire) = link();
    let mut reader = link.request(call(1)).await.unwrap();
    wire.send(progress(1, 1)).await.unwrap();
    assert_eq!(ids(&mut reader), all(&["0/0", "1/0"], false));
    drop(reader);
    wire.send(progress(1, 2)).await.unwrap();
    let mut reader = link.resume("1/0").unwrap();
    assert_eq!(ids(&mut reader), all(&["2/0"], false));
    drop(reader);
    wire.send(answer(1)).await.unwrap();
    // It has ended meanwhile, and can be fetched for a while.
    for _ in 0..2 {
        assert_eq!(ids(&mut link.resume("2/0").unwrap()), all(&["3/0"], true));
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
            Some(Gone::Stream),
            "{nonsense}"
        );
    }
}

/// The old connection may be dead without anybody having noticed.
#[tokio::test]
async fn whoever_comes_back_has_everything_though_the_old_stream_is_open() {
    let (link, mut wire) = link();
    let mut old = link.common().unwrap();
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut old), all(&["0", "1"], false));
    for _ in 0..17 {
        wire.send(changed()).now_or_never();
    }
    let mut waits = Box::pin(wire.send(changed()));
    assert!(waits.as_mut().now_or_never().is_none());
    let mut new = link.resume("1").unwrap();
    assert!(
        waits.now_or_never().is_some(),
        "nobody waits for the old one"
    );
    assert_eq!(ids(&mut new).0.last().unwrap(), "19");
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut new), all(&["20"], false));
    // The old one stays as it is, so that two who live do not drive each other away, until it would
    // be its turn.
    assert!(!ids(&mut old).1);
    drop(new);
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut old), all(&[], true));
    assert_eq!(ids(&mut link.resume("20").unwrap()), all(&["21"], false));
}

#[tokio::test]
async fn nobody_waits_for_a_stream_that_was_come_back_to() {
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

/// What a call says belongs to no request, too, and its answer comes behind that.
#[tokio::test]
async fn a_stream_that_is_not_read_holds_no_call_up_for_long() {
    let world = Arc::new(ManualWorld::new());
    let (link, mut wire) = Link::new(world.clone());
    let mut stalled = link.common().unwrap();
    for _ in 0..16 {
        wire.send(changed()).await.unwrap();
    }
    let mut waits = Box::pin(wire.send(changed()));
    assert!(waits.as_mut().now_or_never().is_none());
    world.advance(STALLED - Duration::from_millis(1));
    assert!(waits.as_mut().now_or_never().is_none());
    world.advance(Duration::from_millis(1));
    assert!(waits.now_or_never().is_some());
    assert!(
        wire.send(changed()).now_or_never().is_some(),
        "only the first waited"
    );
    // It has what it was given, and comes back for the rest.
    let (found, ended) = ids(&mut stalled);
    assert_eq!((found.last().unwrap().as_str(), ended), ("17", true));
    assert_eq!(ids(&mut link.resume("17").unwrap()), all(&["18"], false));
}

#[tokio::test]
async fn what_took_long_is_not_forgotten_before_what_was_quick() {
    let (link, mut wire) = link();
    drop(link.request(call(0)).await.unwrap());
    wire.receive().await.unwrap();
    for id in 1..=20 {
        drop(link.request(call(id)).await.unwrap());
        wire.receive().await.unwrap();
        wire.send(answer(id)).await.unwrap();
    }
    wire.send(answer(0)).await.unwrap();
    assert_eq!(ids(&mut link.resume("0/0").unwrap()), all(&["1/0"], true));
    let state = link.state();
    assert_eq!((state.strands.len(), state.ended.len()), (ENDED.0, ENDED.0));
}

#[tokio::test]
async fn who_leaves_before_there_is_room_leaves_nothing_behind() {
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
        assert_eq!((state.strands.len(), state.requests.len()), (16, 16));
    }
    wire.receive().await.unwrap();
    assert!(link.request(call(16)).now_or_never().is_some());
}

#[tokio::test]
async fn a_session_that_nobody_waited_for_ends() {
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
async fn it_is_known_whether_anything_comes() {
    let (link, mut wire) = link();
    let _reader = link.request(call(1)).await.unwrap();
    assert!(
        link.has_more("0/0") && link.has_more("7") && !link.has_more("0/1") && !link.has_more("x")
    );
    wire.send(answer(1)).await.unwrap();
    assert!(link.has_more("0/0") && !link.has_more("1/0"));
}

#[tokio::test]
async fn what_nobody_fetches_is_bounded() {
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
    // The last of each is there, and of the last requests.
    assert_eq!(ids(&mut link.resume("0/99").unwrap()).0.len(), 16);
    assert_eq!(ids(&mut link.common().unwrap()).0.len(), 1 + 16);
    assert!(link.resume("0/50").is_err());
    assert!(link.state().strands.len() <= ENDED.0);
}

#[tokio::test]
async fn large_answers_are_not_kept_for_long() {
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
        let kept = |id: u64| link.state().strands.contains_key(&id);
        let kept: Vec<u64> = (0..=id).filter(|id| kept(*id)).collect();
        let expected: &[u64] = [&[0][..], &[0, 1], &[1, 2], &[3]][id as usize];
        assert_eq!(
            kept, expected,
            "one that is larger than all may be is kept alone"
        );
    }
    world.advance(Duration::from_secs(61));
    link.forget();
    assert!(link.state().strands.is_empty());
}

#[tokio::test]
async fn whoever_does_not_read_makes_only_its_own_senders_wait() {
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
    // When it leaves, nobody waits for it.
    drop(slow);
    waits.now_or_never().unwrap().unwrap();
}

#[tokio::test]
async fn who_reads_what_belongs_to_no_request_takes_turns() {
    let (link, mut wire) = link();
    // Nobody was there for this one.
    wire.send(changed()).await.unwrap();
    let (mut first, mut second) = (link.common().unwrap(), link.common().unwrap());
    assert_eq!(ids(&mut first), all(&["0", "1"], false));
    wire.send(changed()).await.unwrap();
    assert_eq!(
        (ids(&mut first), ids(&mut second)),
        (all(&["2"], false), all(&["1"], false))
    );
    drop(first);
    wire.send(changed()).await.unwrap();
    assert_eq!(ids(&mut second), all(&["3"], false));
    drop(second);
    // What it is told to come back with is what it has missed nothing before.
    assert_eq!(ids(&mut link.common().unwrap()), all(&["3"], false));
    assert_eq!(ids(&mut link.resume("1").unwrap()), all(&["2", "3"], false));
}

#[tokio::test]
async fn a_request_that_is_cancelled_or_begun_anew_is_over() {
    let (link, mut wire) = link();
    let mut reader = link.request(call(1)).await.unwrap();
    let params = json!({"requestId": 1});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    link.push(client(cancel)).await.unwrap();
    assert_eq!(ids(&mut reader), all(&["0/0"], true));
    wire.send(answer(1)).await.unwrap();
    let (mut old, mut new) = (
        link.request(call(2)).await.unwrap(),
        link.request(call(2)).await.unwrap(),
    );
    wire.send(answer(2)).await.unwrap();
    assert_eq!(
        (ids(&mut old), ids(&mut new)),
        (all(&["0/1"], true), all(&["0/2", "1/2"], true))
    );
}

#[tokio::test]
async fn an_end_is_the_end_for_all() {
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
    assert_eq!(link.push(call(2)).await, Err(Gone::Session));
    assert_eq!(link.initialize(call(2)).await.err(), Some(Gone::Session));
    assert!(link.common().is_err() && link.request(call(3)).await.is_err());
}
