//! Durations and sizes in human-readable form.
//!
//! Values are bounded here, so that later arithmetic cannot overflow: a duration is between 1 ms
//! and 30 days. Sizes use binary units: `1kB` and `1KiB` are both 1,024 bytes, because people mean
//! the same by them in such files.

use std::time::Duration;

/// The maximum duration: 30 days.
const MAX_SECONDS: f64 = 30.0 * 86_400.0;

/// Parses a duration such as `"30s"`, `"500ms"`, `"5m"` or `"1.5h"`; a bare number is in seconds.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(TIME_PROBLEM.to_owned()),
    };
    seconds_of(number.parse::<f64>().map_err(|_| TIME_PROBLEM.to_owned())? * seconds)
}

const TIME_PROBLEM: &str =
    "it must be a number of seconds, or a time such as \"30s\", \"500ms\" or \"5m\"";

/// Converts a number of seconds to a duration within the limits.
pub(super) fn seconds_of(seconds: f64) -> Result<Duration, String> {
    if !(0.001..=MAX_SECONDS).contains(&seconds) {
        return Err("it must be between a millisecond and 30 days".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| TIME_PROBLEM.to_owned())
}

/// Parses a size such as `"16MiB"` or `"64kB"`; a bare number is in bytes.
pub(super) fn size(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    let bytes = match &*unit.to_ascii_lowercase() {
        "" | "b" => 1.0,
        "kb" | "kib" | "k" => 1024.0,
        "mb" | "mib" | "m" => 1024.0 * 1024.0,
        _ => return Err("it must be a number of bytes, or a size such as \"16MiB\"".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "it must be a number of bytes, or a size such as \"16MiB\"".to_owned())?;
    Ok(number * bytes)
}

/// Splits a text into its number and its unit: `"1.5 h"` gives `("1.5", "h")`.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_parses_units_and_rejects_invalid_text() {
        for (text, millis) in [
            ("30s", 30_000),
            ("500ms", 500),
            ("5m", 300_000),
            ("1.5 h", 5_400_000),
            ("2", 2_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "", "s", "5x", "-5s", "0", "0.1ms", "1e9", "800h", "NaN", "inf", "1.2.3s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn size_parses_units_and_rejects_invalid_text() {
        assert_eq!(size("16MiB"), Ok(16.0 * 1024.0 * 1024.0));
        assert_eq!(size("64 kB"), Ok(65536.0));
        assert_eq!(size("1000"), Ok(1000.0));
        assert!(size("16 G").is_err());
        assert!(size("x").is_err());
    }
}
