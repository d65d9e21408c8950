//! The futures of the effects that are in progress.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};

/// The effects that are performed concurrently. Usually there is one, which is polled directly: a
/// [`FuturesUnordered`] would cause one more poll each time that it had to wait.
pub(super) struct InProgress<T> {
    one: Option<BoxFuture<'static, T>>,
    more: FuturesUnordered<BoxFuture<'static, T>>,
}

impl<T> InProgress<T> {
    pub(super) fn new() -> Self {
        Self {
            one: None,
            more: FuturesUnordered::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    /// The first future gets the direct place, all others the queue.
    pub(super) fn push(&mut self, future: BoxFuture<'static, T>) {
        match self.one {
            None => self.one = Some(future),
            Some(_) => self.more.push(future),
        }
    }

    pub(super) fn clear(&mut self) {
        self.one = None;
        self.more.clear();
    }
}

impl<T> Stream for InProgress<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(one) = &mut self.one
            && let Poll::Ready(output) = one.as_mut().poll(cx)
        {
            self.one = None;
            return Poll::Ready(Some(output));
        }
        match self.more.poll_next_unpin(cx) {
            Poll::Ready(None) if self.one.is_some() => Poll::Pending,
            polled => polled,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn single_pending_future_does_not_wake_itself() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut in_progress = InProgress::<u8>::new();
        in_progress.push(Box::pin(pending()));
        assert!(
            in_progress
                .poll_next_unpin(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn every_future_completes_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut in_progress = InProgress::new();
        assert_eq!(in_progress.poll_next_unpin(&mut cx), Poll::Ready(None));
        (1..=3).for_each(|n| in_progress.push(Box::pin(ready(n))));
        let mut found: Vec<u8> = Vec::new();
        while let Poll::Ready(Some(n)) = in_progress.poll_next_unpin(&mut cx) {
            found.push(n);
        }
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3]);
        assert!(in_progress.is_empty());
        in_progress.push(Box::pin(pending()));
        in_progress.push(Box::pin(ready(4)));
        assert_eq!(in_progress.poll_next_unpin(&mut cx), Poll::Ready(Some(4)));
        assert!(in_progress.poll_next_unpin(&mut cx).is_pending());
        in_progress.clear();
        assert!(in_progress.is_empty());
    }
}
