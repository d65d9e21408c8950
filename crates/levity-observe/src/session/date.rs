//! ISO 8601 dates in the forms that other programs write.
//!
//! Other programs write `2025-01-15T10:30:00`, with a fraction of any length, with `Z` or an
//! offset, or with a space in place of `T`. Dates before 1970 give `None`.

use levity_core::Timestamp;

/// Parses `2025-01-15T10:30:00`, with or without a fraction and a zone; without a zone it is UTC.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once(['T', ' '])?;
    let (year, month_day) = date.split_once('-')?;
    let (month, day) = month_day.split_once('-')?;
    let days = days(number(year)?, number(month)?, number(day)?)?;
    let (clock, zone) = match rest.find(['Z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, "Z"),
    };
    let millis = days
        .checked_mul(86_400_000)?
        .checked_add(of_clock(clock)?)?
        .checked_sub(of_zone(zone)?)?;
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// Parses digits only: `str::parse` would also accept a sign.
fn number(text: &str) -> Option<i64> {
    let digits =
        !text.is_empty() && text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Returns the days since the start of 1970, by counting 400-year cycles that begin in March.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year > 100_000_000 {
        return None;
    }
    let (year, shifted) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468)
}

fn of_clock(clock: &str) -> Option<i64> {
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = whole.split(':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let second = parts.next().map_or(Some(0), number)?;
    if hour > 24 || minute > 59 || second > 60 || parts.next().is_some() {
        return None;
    }
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some(((hour * 60 + minute) * 60 + second) * 1_000 + number(&digits)?)
}

fn of_zone(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes().first()? {
        b'Z' => return (zone.len() == 1).then_some(0),
        b'-' => -1,
        _ => 1,
    };
    let digits: String = zone[1..].chars().filter(|char| *char != ':').collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = if minutes.is_empty() {
        0
    } else {
        number(minutes)?
    };
    Some(sign * (number(hours)? * 60 + minutes) * 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            parse(text).map(|at| at.to_string()).as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn parse_accepts_dates_of_other_programs() {
        check("2025-01-15T10:30:00", Some("2025-01-15T10:30:00.000Z"));
        check(
            "2025-01-15 10:30:00.123456",
            Some("2025-01-15T10:30:00.123Z"),
        );
        check("2024-02-29T23:59:59.9Z", Some("2024-02-29T23:59:59.900Z"));
        check(
            "2025-01-15T10:30:00+02:00",
            Some("2025-01-15T08:30:00.000Z"),
        );
        check("2025-01-15T10:30:00-0530", Some("2025-01-15T16:00:00.000Z"));
        check("1970-01-01T00:00:00Z", Some("1970-01-01T00:00:00.000Z"));
    }

    #[test]
    fn parse_rejects_invalid_dates() {
        for text in [
            "",
            "T",
            "2025-01-15",
            "2025-13-01T00:00:00",
            "+025-01-01T00:00",
            "1960-01-01T00:00:00Z",
        ] {
            check(text, None);
        }
        for text in [
            "999999999999-01-01T00:00:00",
            "2025-01-15T10:30:00+é",
            "2025-01-15T10:30:00Zulu",
            "2025-01-15T1:2:3:4",
        ] {
            check(text, None);
        }
    }
}
