//! Futures that are under way.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};

/// What is performed at the same time. Mostly that is one thing, which is polled as it is: a [`FuturesUnordered`] would
/// have itself polled once more each time that it had to wait.
pub(super) struct UnderWay<T> {
    one: Option<BoxFuture<'static, T>>,
    more: FuturesUnordered<BoxFuture<'static, T>>,
}

impl<T> UnderWay<T> {
    pub(super) fn new() -> Self {
        Self { one: None, more: FuturesUnordered::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

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

impl<T> Stream for UnderWay<T> {
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
