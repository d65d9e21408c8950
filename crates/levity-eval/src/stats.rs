//! The two statistics of a report: an interval for a share, and a test for a difference.

use serde::{Deserialize, Serialize};

/// The 0.975 quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// A range of shares, from 0 to 1.
///
/// ```
/// use levity_eval::{Interval, wilson};
///
/// assert_eq!(wilson(0, 0), Interval { low: 0.0, high: 1.0 });
/// let (few, many) = (wilson(8, 10), wilson(80, 100));
/// assert!(many.high - many.low < few.high - few.low);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end of the range.
    pub low: f64,
    /// The upper end of the range.
    pub high: f64,
}

/// Returns the 95% Wilson interval for a share of `passed` among `trials`. Without trials, it is 0
/// to 1.
///
/// The trials are assumed to be independent, so repetitions of a case make the interval too narrow.
///
/// ```
/// let interval = levity_eval::wilson(8, 10);
/// assert!((interval.low - 0.4902).abs() < 1e-4 && (interval.high - 0.9433).abs() < 1e-4);
/// ```
pub fn wilson(passed: u64, trials: u64) -> Interval {
    if trials == 0 {
        return Interval {
            low: 0.0,
            high: 1.0,
        };
    }
    let (passed, n) = (passed.min(trials) as f64, trials as f64);
    let (share, square) = (passed / n, Z * Z);
    let centre = (share + square / (2.0 * n)) / (1.0 + square / n);
    let half = Z / (1.0 + square / n) * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    // At the ends, the formula gives 0 and 1 except for rounding.
    let low = if passed == 0.0 {
        0.0
    } else {
        (centre - half).max(0.0)
    };
    let high = if passed == n {
        1.0
    } else {
        (centre + half).min(1.0)
    };
    Interval { low, high }
}

/// Returns the two-sided p-value of McNemar's exact test: `first` cases that only the first subject
/// passed, `second` only the second.
///
/// ```
/// assert_eq!(levity_eval::mcnemar(1, 9), 0.021484375);
/// assert_eq!(levity_eval::mcnemar(4, 4), 1.0);
/// ```
pub fn mcnemar(first: u64, second: u64) -> f64 {
    let (fewer, n) = (first.min(second), first.saturating_add(second));
    if n <= 60 {
        return exact(fewer, n);
    }
    // Logarithms are used because 2^-n is not an `f64` beyond n = 1074.
    let mut term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = term.exp();
    for k in 1..=fewer {
        term += ((n - k + 1) as f64).ln() - (k as f64).ln();
        sum += term.exp();
    }
    (2.0 * sum).min(1.0)
}

/// Computes the p-value in integers, for few cases.
fn exact(fewer: u64, n: u64) -> f64 {
    let (mut term, mut sum) = (1_u128, 1_u128);
    for k in 1..=fewer {
        term = term * u128::from(n - k + 1) / u128::from(k);
        sum += term;
    }
    (2.0 * sum as f64 / (1_u128 << n) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_returns_published_intervals() {
        // Source: Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        for (passed, trials, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let interval = wilson(passed, trials);
            assert!(
                (interval.low - low).abs() < 5e-5 && (interval.high - high).abs() < 5e-5,
                "{interval:?}"
            );
        }
        assert_eq!(wilson(10, 10).high, 1.0);
        assert_eq!(
            wilson(0, 0),
            Interval {
                low: 0.0,
                high: 1.0
            }
        );
    }

    #[test]
    fn mcnemar_returns_exact_values() {
        // Computed with fractions; the last ones exceed integers of 128 bits.
        for (first, second, p) in [
            (0, 0, 1.0),
            (0, 5, 0.0625),
            (5, 15, 0.041_389_465_332_031_25),
            (30, 31, 1.0),
            (59, 121, 4.434_449_263_755_176e-6),
            (0, 70, 1.694_065_894_508_600_7e-21),
            (600, 700, 0.006_015_793_861_044_952),
        ] {
            let value = mcnemar(first, second);
            assert!(
                (value - p).abs() <= 1e-9 * p,
                "{first}, {second}: {value} is not {p}"
            );
            assert_eq!(value, mcnemar(second, first));
        }
    }
}
