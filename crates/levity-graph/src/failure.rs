/// A judgement of whether work that failed may still be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The same worker may do it at another attempt.
    Retry,
    /// The same worker would fail in the same way; another may do it.
    OtherWorker,
    /// Nobody is to try again.
    Nothing,
}

/// The step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<W> {
    /// The same worker tries again.
    Retry,
    /// This one takes the work.
    StandIn(W),
    /// The work has failed.
    GiveUp,
}

/// Decides what follows a failed attempt.
///
/// `tried` is how often the worker has tried, and `retries` how often it may try again. `stand_in`
/// takes the work after it, unless it is among those who `had` it already.
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
        (_, Some(other)) if !had.contains(&other) => Next::StandIn(other),
        _ => Next::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_work_is_retried_then_handed_on_once_then_left() {
        let next = |remedy, tried, stand_in| after_failure(remedy, tried, 1, stand_in, &["a", "b"]);
        assert_eq!(next(Remedy::Retry, 1, Some("c")), Next::Retry);
        assert_eq!(next(Remedy::Retry, 2, Some("c")), Next::StandIn("c"));
        assert_eq!(next(Remedy::Retry, 2, Some("a")), Next::GiveUp);
        assert_eq!(next(Remedy::Retry, 2, None), Next::GiveUp);
        assert_eq!(next(Remedy::OtherWorker, 1, Some("c")), Next::StandIn("c"));
        assert_eq!(next(Remedy::Nothing, 1, Some("c")), Next::GiveUp);
    }
}
