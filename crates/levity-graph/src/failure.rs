/// A judgement of whether failed work can still be done.
///
/// ```
/// use levity_graph::{Next, Remedy, after_failure};
///
/// // A limit of the worker would stop it again, so its fallback takes over at once.
/// let next = after_failure(Remedy::OtherWorker, 1, 5, Some("deputy"), &[]);
/// assert_eq!(next, Next::Fallback("deputy"));
/// ```
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
///
/// ```
/// use levity_graph::{Next, Remedy, after_failure};
///
/// let next = after_failure(Remedy::Nothing, 1, 5, Some("deputy"), &[]);
/// assert_eq!(next, Next::GiveUp);
/// ```
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
///
/// The same worker has priority while it has retries left. A fallback that had the work before is
/// not tried again, so a cycle of fallbacks ends.
///
/// ```
/// use levity_graph::{Next, Remedy, after_failure};
///
/// let next = |tried, had: &[&'static str]| {
///     after_failure(Remedy::Retry, tried, 1, Some("deputy"), had)
/// };
/// assert_eq!(next(1, &[]), Next::Retry);
/// assert_eq!(next(2, &[]), Next::Fallback("deputy"));
/// assert_eq!(next(2, &["deputy"]), Next::GiveUp);
/// ```
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
