//! Durations in attributes: `"250ms"`, `"5s"`.

use std::time::Duration;

use syn::{Error, LitStr, Result};

/// Parses `"250ms"`, `"5s"`, `"1.5m"` or `"2h"`.
pub(crate) fn read(text: &LitStr) -> Result<Duration> {
    parse(&text.value()).ok_or_else(|| {
        Error::new(
            text.span(),
            "a timeout is a number and `ms`, `s`, `m` or `h`, as in `\"5s\"`",
        )
    })
}

fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    // `f64` would accept signs as well.
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
    (!time.is_zero()).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, millis: Option<u64>) {
        assert_eq!(parse(text), millis.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn parse_accepts_number_with_unit() {
        check("250ms", Some(250));
        check("5s", Some(5_000));
        check("0.1s", Some(100));
        check("1.5m", Some(90_000));
        check("2h", Some(7_200_000));
    }

    #[test]
    fn parse_rejects_other_texts() {
        for text in [
            "", "5", "s", "5 s", "-5s", "+5s", "inf", "infs", "0s", "5d", "1e3s", "1.2.3s", "5ss",
            "9e99h",
        ] {
            check(text, None);
        }
    }
}
