use std::time::Duration;

use levity_core::{Deadline, Timestamp};
use proptest::prelude::*;

const DAY: u64 = 86_400_000;

#[track_caller]
fn check(millis: u64, expected: &str) {
    assert_eq!(Timestamp::from_millis(millis).to_string(), expected);
}

#[test]
fn timestamp_displays_as_rfc_3339() {
    check(0, "1970-01-01T00:00:00.000Z");
    check(1, "1970-01-01T00:00:00.001Z");
    check(DAY - 1, "1970-01-01T23:59:59.999Z");
    check(DAY, "1970-01-02T00:00:00.000Z");
    check(1_234_567_890_123, "2009-02-13T23:31:30.123Z");
    // Dates around the ends of years.
    check(365 * DAY - 1, "1970-12-31T23:59:59.999Z");
    check(365 * DAY, "1971-01-01T00:00:00.000Z");
    check(1_704_067_199_999, "2023-12-31T23:59:59.999Z");
    check(1_704_067_200_000, "2024-01-01T00:00:00.000Z");
    check(1_735_689_599_999, "2024-12-31T23:59:59.999Z");
    check(1_735_689_600_000, "2025-01-01T00:00:00.000Z");
    // Leap years: every fourth, but not every hundredth, but every four hundredth.
    check(1_709_164_799_999, "2024-02-28T23:59:59.999Z");
    check(1_709_164_800_000, "2024-02-29T00:00:00.000Z");
    check(1_709_251_200_000, "2024-03-01T00:00:00.000Z");
    check(1_677_628_799_999, "2023-02-28T23:59:59.999Z");
    check(1_677_628_800_000, "2023-03-01T00:00:00.000Z");
    check(951_782_400_000, "2000-02-29T00:00:00.000Z");
    check(951_868_800_000, "2000-03-01T00:00:00.000Z");
    check(4_107_542_399_999, "2100-02-28T23:59:59.999Z");
    check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
    check(253_402_300_799_999, "9999-12-31T23:59:59.999Z");
    check(253_402_300_800_000, "10000-01-01T00:00:00.000Z");
    let last = Timestamp::from_millis(u64::MAX).to_string();
    assert!(last.starts_with("584556019-"), "{last}");
}

fn is_leap(year: u64) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}

/// Counts days one by one, which is slow and obviously correct.
#[test]
fn timestamp_displays_every_day_of_five_centuries() {
    let mut days = 0;
    for year in 1970..2470 {
        let lengths = [
            31,
            28 + u64::from(is_leap(year)),
            31,
            30,
            31,
            30,
            31,
            31,
            30,
            31,
            30,
            31,
        ];
        for (month, length) in (1..).zip(lengths) {
            for day in 1..=length {
                check(
                    days * DAY,
                    &format!("{year:04}-{month:02}-{day:02}T00:00:00.000Z"),
                );
                days += 1;
            }
        }
    }
}

#[test]
fn timestamp_arithmetic_saturates() {
    let at = Timestamp::from_millis;
    assert_eq!(at(5).after(Duration::from_millis(2)), at(7));
    assert_eq!(at(5).after(Duration::MAX), at(u64::MAX));
    assert_eq!(at(7).since(at(5)), Duration::from_millis(2));
    assert_eq!(
        at(5).since(at(7)),
        Duration::ZERO,
        "a clock may go backwards"
    );
    assert_eq!(at(7).as_millis(), 7);
    assert_eq!(Timestamp::default(), at(0));
    let deadline = Deadline::new(at(5), Duration::from_millis(2));
    assert_eq!(
        (deadline.at, deadline.limit),
        (Some(at(7)), Some(Duration::from_millis(2)))
    );
    assert_eq!(Deadline::default().at, None);
}

proptest! {
    #[test]
    fn later_timestamp_is_greater(
        millis in 0..253_402_300_800_000u64,
        more in 1..10_000_000_000u64,
    ) {
        let (early, late) = (Timestamp::from_millis(millis), Timestamp::from_millis(millis + more));
        prop_assert!(early < late);
        if late.as_millis() < 253_402_300_800_000 {
            prop_assert!(early.to_string() < late.to_string(), "{} {}", early, late);
        }
        prop_assert_eq!(late.since(early), Duration::from_millis(more));
        prop_assert_eq!(early.after(Duration::from_millis(more)), late);
    }
}
