use std::sync::Arc;

use levity_core::{RunId, Timestamp, estimate_tokens};
use proptest::prelude::*;

use super::{Bus, BusMessage, MessageKind, NewMessage, Recipient};

const NAMES: [&str; 5] = ["coder", "reviewer", "researcher", "", "*"];

/// A post: the sender, the recipient, the content, and the change of the clock.
type Post = (usize, usize, String, i64);

fn any_post() -> impl Strategy<Value = Post> {
    (0..4_usize, 0..5_usize, "[aé\u{0}\"]{0,60}", -3..5_i64)
}

fn draft((from, to, content, _): &Post) -> NewMessage {
    NewMessage::new(
        NAMES[*from],
        NAMES[*to],
        MessageKind::Note,
        content.as_str(),
    )
}

/// Posts all messages and checks the bus after each.
fn posted(mut bus: Bus, posts: &[Post], mut look: impl FnMut(&Bus, &[BusMessage])) -> Bus {
    let (mut clock, mut all) = (100_i64, Vec::new());
    for post in posts {
        clock += post.3;
        let at = Timestamp::from_millis(clock as u64);
        all.push(bus.post(draft(post), at, &RunId::new("r1")).clone());
        look(&bus, &all);
    }
    bus
}

/// Returns the context of a worker by a scan of all messages.
fn naive<'a>(
    there: &[&'a BusMessage],
    worker: &str,
    tokens: usize,
    upto: u64,
) -> Vec<&'a BusMessage> {
    let mut remaining = tokens;
    let mut row = |wanted: &dyn Fn(&BusMessage) -> bool| {
        let mut row = Vec::new();
        for message in there
            .iter()
            .rev()
            .filter(|message| message.id < upto && wanted(message))
        {
            let cost = estimate_tokens(&message.content) as usize + Bus::MESSAGE_TOKENS;
            if cost > remaining {
                break;
            }
            remaining -= cost;
            row.insert(0, *message);
        }
        row
    };
    let direct = row(&|message| message.to == Recipient::One(worker.into()));
    let others = row(&|message| message.to == Recipient::All && &*message.from != worker);
    [direct, others].concat()
}

fn lines(bus: &Bus) -> Vec<u8> {
    let mut lines = Vec::new();
    bus.write_json_lines(&mut lines).unwrap();
    lines
}

proptest! {
    #![proptest_config(
        ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() }
    )]

    #[test]
    fn limits_hold_after_every_post(
        posts in prop::collection::vec(any_post(), 0..60), most in 0..20_usize,
        bytes in 0..200_usize,
    ) {
        posted(Bus::with_limits(most, bytes), &posts, |bus, all| {
            let there: Vec<_> = bus.messages().collect();
            let sum: usize = there.iter().map(|message| message.content.len()).sum();
            assert!(bus.len() <= most.max(1) && sum <= bytes && sum == bus.bytes(), "{bus:?}");
            assert!(there.iter().copied().eq(&all[all.len() - bus.len()..]), "the newest are \
                stored, as posted");
            assert_eq!(bus.dropped() as usize + bus.len(), all.len());
            assert_eq!(bus.last_id() as usize, all.len());
            // No message is dropped before it must be.
            if let Some(gone) = all.len().checked_sub(bus.len() + 1) {
                assert!(bus.len() == most.max(1) || sum + all[gone].content.len() > bytes);
            }
            let (lists, entries) = bus.index.size();
            assert!(lists <= bus.len() && entries == bus.len(), "the index has exactly \
                the stored messages");
        });
    }

    #[test]
    fn ids_and_times_increase(posts in prop::collection::vec(any_post(), 0..60)) {
        let bus = posted(Bus::with_limits(30, 10_000), &posts, |_, _| ());
        let there: Vec<_> = bus.messages().collect();
        prop_assert!(
            there
                .windows(2)
                .all(|pair| pair[0].id + 1 == pair[1].id && pair[0].at <= pair[1].at)
        );
        for id in 0..posts.len() as u64 + 3 {
            prop_assert_eq!(bus.get(id), there.iter().copied().find(|message| message.id == id));
            prop_assert!(bus.since(id).eq(there.iter().copied().filter(|message| message.id > id)));
        }
    }

    #[test]
    fn context_matches_naive_scan(
        posts in prop::collection::vec(any_post(), 0..60), most in 1..40_usize,
        bytes in 0..2_000_usize,
        budget in 0..400_usize, upto in 0..70_u64,
    ) {
        let bus = posted(Bus::with_limits(most, bytes), &posts, |_, _| ());
        let there: Vec<_> = bus.messages().collect();
        for worker in NAMES.into_iter().chain(["nobody"]) {
            prop_assert_eq!(
                bus.context_before(worker, budget, upto),
                naive(&there, worker, budget, upto)
            );
            prop_assert_eq!(
                bus.context_for(worker, budget),
                naive(&there, worker, budget, u64::MAX)
            );
        }
    }

    #[test]
    fn log_is_read_back_as_written(
        posts in prop::collection::vec(any_post(), 0..40),
        gap in 2..5_usize,
    ) {
        let bus = posted(Bus::with_limits(30, 10_000), &posts, |_, _| ());
        let read = Bus::read_json_lines(&*lines(&bus)).unwrap();
        prop_assert!(read.messages().eq(bus.messages()));
        prop_assert_eq!((read.last_id(), read.dropped()), (bus.last_id(), bus.dropped()));
        prop_assert_eq!(lines(&read), lines(&bus));

        // Without some lines, ids have gaps; everything still holds.
        let text = String::from_utf8(lines(&bus)).unwrap();
        let some: Vec<_> = text
            .lines()
            .enumerate()
            .filter(|(at, _)| at % gap != 1)
            .map(|(_, line)| line)
            .collect();
        let read = Bus::read_json_lines(some.join("\n\n").as_bytes()).unwrap();
        let there: Vec<_> = read.messages().collect();
        prop_assert_eq!(there.len(), some.len());
        for worker in NAMES {
            prop_assert_eq!(read.context_before(worker, 150, 20), naive(&there, worker, 150, 20));
        }
        for id in 0..45 {
            prop_assert_eq!(read.get(id), bus.get(id).filter(|message| there.contains(message)));
        }
    }

    #[test]
    fn reader_never_panics_on_any_text(text in "(\\{\"id\":[0-9]{1,3}|[ \
        -~\n]|\\u{0}|,\"to\":|\"\\*\"|\\}\n){0,40}") {
        let _ = Bus::read_json_lines(text.as_bytes());
    }
}

fn post(bus: &mut Bus, from: &str, to: &str, content: &str) {
    bus.post(
        NewMessage::new(from, to, MessageKind::Note, content),
        Timestamp::default(),
        &RunId::new("r1"),
    );
}

#[test]
fn content_over_limit_is_cut_with_size_note() {
    let mut bus = Bus::new();
    post(&mut bus, "coder", "*", &"é".repeat(5_000_000));
    let content = bus.get(1).unwrap().content.clone();
    assert!(content.ends_with("é\n[cut here: 65472 of 10000000 bytes]"));
    assert!(content.len() <= Bus::MAX_CONTENT);
    // The note is omitted if it does not fit.
    let mut tiny = Bus::with_limits(10, 5);
    post(&mut tiny, "coder", "*", "éééééé");
    assert_eq!(&*tiny.get(1).unwrap().content, "éé");
}

#[test]
fn content_within_limit_is_not_copied() {
    let content: Arc<str> = "x".repeat(Bus::MAX_CONTENT).into();
    let mut bus = Bus::new();
    let draft = NewMessage::new("coder", "*", MessageKind::Note, content.clone());
    let message = bus.post(draft, Timestamp::default(), &RunId::new("r1"));
    assert!(Arc::ptr_eq(&message.content, &content));
}

#[test]
fn long_names_are_cut_consistently() {
    let long = "n".repeat(1_000_000);
    let mut bus = Bus::new();
    post(&mut bus, "coder", &long, "to you");
    post(&mut bus, &long, "*", "to all");
    assert_eq!(bus.get(2).unwrap().from.len(), Bus::MAX_NAME);
    let known: Vec<_> = bus
        .context_for(&long, 100)
        .iter()
        .map(|message| &*message.content)
        .collect();
    assert_eq!(known, ["to you"]);
}

#[test]
fn broadcast_name_cannot_name_one_worker() {
    let mut bus = Bus::new();
    let draft = NewMessage {
        to: Recipient::One("*".into()),
        ..NewMessage::new("coder", "*", MessageKind::Note, "Hello.")
    };
    bus.post(draft, Timestamp::default(), &RunId::new("r1"));
    assert_eq!(bus.get(1).unwrap().to, Recipient::All);
    assert_eq!(bus.context_for("reviewer", 100).len(), 1);
}

/// A worker's own broadcasts are skipped in one step.
#[test]
fn own_broadcasts_are_skipped_without_scan() {
    let mut bus = Bus::with_limits(1_000_000, usize::MAX);
    post(&mut bus, "reviewer", "*", "first");
    (0..200_000).for_each(|_| post(&mut bus, "coder", "*", "again"));
    let found: Vec<_> = bus.index.broadcasts("coder", u64::MAX).collect();
    assert_eq!(found, [1]);
    // A scan of all messages would be too slow here.
    for _ in 0..200_000 {
        assert_eq!(bus.context_for("coder", 20).len(), 1);
    }
}

#[test]
fn shrunken_list_releases_memory() {
    let mut bus = Bus::with_limits(1_000, usize::MAX);
    for worker in 1..=30 {
        for turn in 0..1_000 {
            post(&mut bus, "router", &format!("w{worker}"), ".");
            // Some messages go to earlier workers, so that their lists remain.
            if turn % 10 == 0 {
                post(&mut bus, "router", &format!("w{}", turn / 10 % worker), ".");
            }
        }
    }
    assert!(bus.index.size().0 > 20);
    assert!(bus.index.room() <= 10 * bus.len(), "{}", bus.index.room());
}

#[test]
fn debug_output_contains_no_content() {
    let mut bus = Bus::new();
    post(&mut bus, "coder", "*", "secret");
    assert_eq!(
        format!("{bus:?}"),
        "Bus { messages: 1, bytes: 6, dropped: 0 }"
    );
}

#[track_caller]
fn check_fault(text: &str, expected: &str) {
    let error = Bus::read_json_lines(text.as_bytes()).unwrap_err();
    assert_eq!(format!("{} {error}", error.line()), expected);
}

#[test]
fn read_errors_name_line() {
    let line = |id: u64| {
        format!(
            "{{\"id\":{id},\"from\":\"a\",\"to\":\"b\",\"type\":\"note\",\"content\":\"c\",\
                \"timestamp\":1,\"run\":\"r\"}}"
        )
    };
    check_fault(
        &format!("{}\n\nnonsense\n", line(1)),
        "3 line 3 of the bus log is not a message (column 2)",
    );
    check_fault(
        &line(1).replace("note", "gossip"),
        "1 line 1 of the bus log is not a message (column 43)",
    );
    check_fault(
        &line(1)[..20],
        "1 line 1 of the bus log is not a message (column 20)",
    );
    let order = |line, id, last| {
        format!(
            "{line} line {line} of the bus log has the id `{id}`, which does not follow `{last}`"
        )
    };
    check_fault(&line(0), &order(1, 0, 0));
    check_fault(&format!("{}\n{}\n", line(4), line(4)), &order(2, 4, 4));
    check_fault(&line(u64::MAX), &order(1, u64::MAX, 0));
    let long = format!(
        "{}\n{}",
        line(1),
        line(2).replace("\"c\"", &format!("\"{}\"", "c".repeat(2_000_000)))
    );
    check_fault(
        &long,
        "2 line 2 of the bus log is longer than the limit of 1048576 bytes",
    );
}

/// A message of maximum size with every character escaped fits on one line.
#[test]
fn longest_message_fits_on_one_line() {
    let worst = |bytes| "\u{1}".repeat(bytes);
    let mut bus = Bus::new();
    post(
        &mut bus,
        &worst(Bus::MAX_NAME),
        &worst(Bus::MAX_NAME),
        &worst(Bus::MAX_CONTENT),
    );
    let read = Bus::read_json_lines(&*lines(&bus)).unwrap();
    assert!(read.messages().eq(bus.messages()));
}

/// Of a log that is longer than a bus, the newest messages remain. Endless lines are not buffered.
#[test]
fn long_log_is_read_within_limits() {
    let mut bus = Bus::with_limits(usize::MAX, usize::MAX);
    (0..Bus::MAX_MESSAGES + 5).for_each(|_| post(&mut bus, "coder", "*", "again"));
    let read = Bus::read_json_lines(&*lines(&bus)).unwrap();
    assert_eq!(
        (read.len(), read.dropped(), read.last_id()),
        (Bus::MAX_MESSAGES, 5, bus.last_id())
    );
    let endless = std::io::BufReader::new(std::io::repeat(b'x'));
    assert_eq!(Bus::read_json_lines(endless).unwrap_err().line(), 1);
}
