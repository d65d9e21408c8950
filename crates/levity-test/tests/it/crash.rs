use std::sync::Mutex;

use levity_core::{EffectClass, EffectId, EffectKind, EffectNote};
use levity_core::{Entry, Journal, Limit, Outcome, Record, RunId, Timestamp};
use levity_test::crash::{self, Crashes, Life, Moment, Report};

use crate::conformance::FlawedJournal;
use crate::{block_on, panic_of};

fn record(seq: u64, entry: Entry) -> Record {
    Record::new(seq, Timestamp::default(), entry)
}

fn near_limit_entry() -> Entry {
    Entry::Wrapped(Limit::Tokens)
}

/// Appends the missing ones of four records: two at once, then one by one.
async fn four<W>(life: &Life<W>) {
    let mut run = life.journal.open(&RunId::new("r")).await.unwrap();
    let have = run.records.len() as u64;
    if have < 2 {
        let both: Vec<_> = (have..2)
            .map(|seq| record(seq, near_limit_entry()))
            .collect();
        run.log.append(&both).await.unwrap();
    }
    for seq in have.max(2)..4 {
        run.log
            .append(&[record(seq, near_limit_entry())])
            .await
            .unwrap();
    }
}

fn points<T, W>(report: &Report<T, W>) -> Vec<Vec<(usize, Moment)>> {
    let point = |point: &crash::Point| (point.records, point.moment);
    report
        .stops
        .iter()
        .map(|end| end.stopped.iter().map(point).collect())
        .collect()
}

#[test]
fn crash_stops_after_every_record_at_both_moments() {
    use Moment::{BeforeNext, Ended, Written};
    let report = block_on(crash::after_every_record(
        FlawedJournal::default,
        async |life| four(&life).await,
    ));
    let expected = [
        (0, BeforeNext),
        (1, Written),
        (1, BeforeNext),
        (2, Written),
        (2, BeforeNext),
        (3, Written),
        (3, BeforeNext),
        (4, Written),
        (4, Ended),
    ];
    assert_eq!(points(&report), expected.map(|point| vec![point]));
    report.assert_same();
    assert!(report.whole.stopped.is_empty());
}

#[test]
fn second_life_finds_records_and_world_of_the_first() {
    let report = block_on(crash::after_every_record(
        FlawedJournal::default,
        async |life| {
            let found = life.journal.read(&RunId::new("r")).await.unwrap().len();
            assert_eq!(life.knows("r").await, found > 0);
            life.world.record_action("live");
            four(&life).await;
            (life.number, found)
        },
    ));
    for end in &report.stops {
        assert_eq!(end.value, (2, end.stopped[0].records), "{end}");
        assert_eq!(end.world.remaining("live"), 2, "{end}");
    }
    assert_eq!(
        (report.whole.value, report.whole.world.ever("live")),
        ((1, 0), 1)
    );
}

#[test]
fn second_life_can_be_stopped() {
    let crashes = Crashes::new(FlawedJournal::default)
        .world(Mutex::<Vec<usize>>::default)
        .stop_again(2);
    let report = block_on(crashes.run(async |life| {
        life.world.lock().unwrap().push(life.number);
        four(&life).await;
    }));
    let twice: Vec<_> = points(&report)
        .into_iter()
        .filter(|points| points.len() == 2)
        .collect();
    assert!(
        twice.contains(&vec![(1, Moment::Written), (0, Moment::BeforeNext)]),
        "{twice:?}"
    );
    assert!(
        twice.contains(&vec![(2, Moment::BeforeNext), (1, Moment::Written)]),
        "{twice:?}"
    );
    assert!(
        twice
            .iter()
            .all(|points| points[1].0 <= 1 && points[1].1 != Moment::Ended),
        "{twice:?}"
    );
    for end in &report.stops {
        let lives: Vec<usize> = (1..=end.stopped.len() + 1).collect();
        assert_eq!(*end.world.lock().unwrap(), lives, "{end}");
    }
    report.assert_same();
}

#[test]
fn difference_is_reported_with_its_record() {
    let report = block_on(crash::after_every_record(
        FlawedJournal::default,
        async |life| {
            let mut run = life.journal.open(&RunId::new("r")).await.unwrap();
            let found = run.records.len();
            let (effect, note) = (
                EffectId::new(3),
                EffectNote::new(EffectKind::Tool, "send", EffectClass::AtMostOnce),
            );
            let all = [
                Entry::Started { effect, note },
                Entry::finished(effect, Outcome::Unknown),
            ];
            for (seq, entry) in (0..).zip(all).skip(found) {
                run.log.append(&[record(seq, entry)]).await.unwrap();
            }
            if found == 1 { "lost" } else { "sent" }
        },
    ));
    let message = panic_of(|| _ = report.assert_same());
    let expected = "crash: 2 of 5 stops end differently
stopped after record 1 (`started tool send` of run `r`), as soon as it was written:
   found: \"lost\"
stopped after record 1 (`started tool send` of run `r`), before the next was written:
   found: \"lost\"
expected: \"sent\"";
    assert_eq!(message, expected);
    assert_eq!(
        report.stops[3].to_string(),
        "stopped after record 2 (`finished tool send` of run `r`), as soon as it was written"
    );
    report.assert_same_by(|end| end.world.all());
}

#[test]
fn invalid_scenario_panics_with_reason() {
    let nothing = crash::after_every_record(FlawedJournal::default, async |_| ());
    let message = panic_of(|| drop(block_on(nothing)));
    assert_eq!(
        message,
        "crash: the scenario wrote nothing to `life.journal`"
    );

    let crashes = Crashes::new(FlawedJournal::default).max_records(10);
    let endless = crashes.run(async |life| {
        let mut run = life.journal.open(&RunId::new("r")).await.unwrap();
        for seq in 0.. {
            run.log
                .append(&[record(seq, near_limit_entry())])
                .await
                .unwrap();
        }
    });
    let message = panic_of(|| drop(block_on(endless)));
    let expected = "crash: undisturbed: the scenario did not end within 10 records; if it does \
        end, raise \
                    `max_records`";
    assert_eq!(message, expected);

    let fails = crash::after_every_record(FlawedJournal::default, async |life| {
        assert!(!life.knows("r").await, "nobody goes on");
        four(&life).await;
    });
    let message = panic_of(|| drop(block_on(fails)));
    let expected = "crash: stopped after record 1 (`wrapped` of run `r`), as soon as it was \
        written: the \
                    scenario panicked: nobody goes on";
    assert_eq!(message, expected);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the task is not to end with its life"
)]
fn run_left_open_by_task_is_free_in_next_life() {
    let report = block_on(crash::after_every_record(
        FlawedJournal::default,
        async |life| {
            tokio::spawn(async move { four(&life).await })
                .await
                .unwrap();
        },
    ));
    assert_eq!(report.stops.len(), 9);
}
