use levity_core::{CallId, EffectId, Timestamp};

use super::*;

fn event(run: &str, kind: EventKind) -> Event {
    Event::new(RunId::new(run), 0, Timestamp::default(), kind)
}

fn transient(text: &str) -> Event {
    let (effect, call) = (EffectId::new(0), CallId::new("c"));
    event(
        "r",
        EventKind::Progress {
            effect,
            call,
            text: text.to_owned(),
        },
    )
}

fn note(text: impl Into<String>) -> Event {
    event("r", EventKind::Note { text: text.into() })
}

fn feed() -> Arc<Feed> {
    Arc::new(Feed::new(RunId::new("r"), "boot".into()))
}

/// Reads to the end and lists ids, `-` for events without one, and other items by name.
async fn rest(reader: &mut EventReader) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(item) = reader.next().await {
        found.push(match item {
            FeedItem::Event { id, .. } => id.unwrap_or_else(|| "-".to_owned()),
            FeedItem::Missed(count) => format!("missed {count}"),
            FeedItem::Reset => "reset".to_owned(),
        });
    }
    found
}

async fn after(feed: &Arc<Feed>, id: &str) -> Vec<String> {
    rest(&mut feed.reader(Some(id))).await
}

#[tokio::test]
async fn reader_resumes_after_an_id() {
    let feed = feed();
    let mut first = feed.reader(None);
    feed.push(&note("1"));
    feed.push(&transient("f"));
    feed.push(&note("2"));
    feed.close();
    assert_eq!(rest(&mut first).await, ["1", "-", "2"]);
    assert_eq!(after(&feed, "1").await, ["-", "2"]);
    assert_eq!(after(&feed, "2").await, [] as [&str; 0]);
    for unknown in ["3", "x", "1~other", ""] {
        assert_eq!(
            after(&feed, unknown).await,
            ["reset", "1", "-", "2"],
            "{unknown}"
        );
    }
}

#[tokio::test]
async fn ids_name_the_process_once_child_runs_emit_events() {
    let feed = feed();
    feed.push(&note("1"));
    feed.push(&event("r.0", EventKind::Paused));
    feed.push(&note("3"));
    feed.close();
    assert_eq!(
        rest(&mut feed.reader(None)).await,
        ["1", "2~boot", "3~boot"]
    );
    assert_eq!(
        after(&feed, "1").await,
        ["2~boot", "3~boot"],
        "ids before the first child event are the same in every process"
    );
    assert_eq!(after(&feed, "2~boot").await, ["3~boot"]);
    assert_eq!(after(&feed, "2~before").await[0], "reset");
}

#[tokio::test]
async fn full_feed_drops_transient_events_first_and_reports_misses() {
    let feed = feed();
    let mut slow = feed.reader(None);
    feed.push(&note("1"));
    (1..Feed::EVENTS).for_each(|_| feed.push(&transient("f")));
    feed.push(&note("2"));
    feed.close();
    assert_eq!(
        rest(&mut slow).await,
        [
            "1".to_owned(),
            format!("missed {}", Feed::EVENTS - 1),
            "2".to_owned()
        ]
    );
    // A later reader was never meant to get the transient events, so it missed nothing.
    assert_eq!(rest(&mut feed.reader(None)).await, ["1", "2"]);
    assert_eq!(after(&feed, "1").await, ["2"]);
    assert_eq!(after(&feed, "x").await, ["reset", "1", "2"]);
}

#[tokio::test]
async fn large_events_are_dropped_beyond_the_byte_limit() {
    let feed = feed();
    let mut slow = feed.reader(None);
    (0..20).for_each(|_| feed.push(&note("x".repeat(1 << 20))));
    feed.close();
    let bytes: usize = feed
        .state()
        .waiting
        .iter()
        .map(|event| event.json.len())
        .sum();
    assert!(bytes <= Feed::BYTES && feed.state().bytes == bytes);
    assert_eq!(rest(&mut slow).await[0], "missed 17");
    assert_eq!(after(&feed, "1").await[..2], ["reset", "missed 17"]);
}

#[tokio::test]
async fn transient_event_without_readers_is_not_buffered() {
    let feed = feed();
    feed.push(&transient("f"));
    assert!(feed.state().waiting.is_empty());
}
