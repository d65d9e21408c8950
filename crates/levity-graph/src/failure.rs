/// A judgement of whether failed work can still be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The same worker may succeed at another attempt.
    Retry,
    /// The same worker would fail again; another may succeed.
    OtherWorker,
    /// No further attempt is useful.
    Nothing,
}

/// The step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<W> {
    /// The same worker tries again.
    Retry,
    /// This fallback worker takes the work.
    Fallback(W),
    /// The work has failed.
    GiveUp,
}

/// Decides on the step after a failed attempt.
///
/// `tried` is the number of attempts of the worker, and `retries` the number of retries allowed.
/// `stand_in` is the fallback that takes the work next, unless it is among the workers that `had`
/// it before.
pub fn after_failure<W: PartialEq>(
    remedy: Remedy,
    tried: u32,
    retries: u32,
    stand_in: Option<W>,
    had: &[W],
) -> Next<W> {
    match (remedy, stand_in) {
        (Remedy::Nothing, _) => Next::GiveUp,
        (Remedy::Retry, _) if tried <= retries => Next::Retry,
        (_, Some(other)) if !had.contains(&other) => Next::Fallback(other),
        _ => Next::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_failure_retries_then_falls_back_once_then_gives_up() {
        let next = |remedy, tried, stand_in| after_failure(remedy, tried, 1, stand_in, &["a", "b"]);
        assert_eq!(next(Remedy::Retry, 1, Some("c")), Next::Retry);
        assert_eq!(next(Remedy::Retry, 2, Some("c")), Next::Fallback("c"));
        assert_eq!(next(Remedy::Retry, 2, Some("a")), Next::GiveUp);
        assert_eq!(next(Remedy::Retry, 2, None), Next::GiveUp);
        assert_eq!(next(Remedy::OtherWorker, 1, Some("c")), Next::Fallback("c"));
        assert_eq!(next(Remedy::Nothing, 1, Some("c")), Next::GiveUp);
    }
}
