//! A reply stream produced by an async block that sends one delta after another.
//!
//! A hand-written stream needs a state machine per layer. An async block reads like the code of
//! `complete` instead: it sends deltas to a slot, and the stream polls the block whenever its
//! consumer polls for the next delta. There is no task and no channel, so dropping the stream drops
//! the block at its current await point, and with it the inner call.
//!
//! The slot holds at most one delta. A layer therefore never runs ahead of its consumer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use levity_core::{Delta, Deltas, Fold, Model, ModelError, Request, Response};

/// Returns a stream of the deltas that `make` sends, followed by its error if it fails. Nothing
/// runs before the stream is polled or after it is dropped.
///
/// `make` receives the sender and returns the block; the block itself starts with the first poll. A
/// consumer that only creates the stream causes no request.
pub(super) fn deltas<F>(make: impl FnOnce(DeltaSender) -> F) -> Deltas
where
    F: Future<Output = Result<(), ModelError>> + Send + 'static,
{
    let out = DeltaSender::default();
    let work = Box::pin(make(out.clone()));
    Deltas::new(DeltaStream {
        work: Some(work),
        out,
    })
}

/// The sending half, which the async block uses.
///
/// The mutex is never contended: the block and the stream run in the same poll. It exists because a
/// [`Deltas`] must be `Send`.
#[derive(Clone, Default)]
pub(super) struct DeltaSender(Arc<Mutex<Option<Delta>>>);

impl DeltaSender {
    /// Sends a delta and waits until the consumer has taken it.
    ///
    /// The future registers no waker. This is sound because only the consumer's next poll can empty
    /// the slot, and that poll also polls the block.
    pub(super) async fn send(&self, delta: Delta) {
        *self.slot() = Some(delta);
        poll_fn(|_| {
            if self.slot().is_some() {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    fn slot(&self) -> MutexGuard<'_, Option<Delta>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards all deltas of a reply and folds them into a response.
///
/// The fold limits the reply to [`Fold::DEFAULT_LIMIT`] and fails the stream beyond it. An error of
/// the model ends the function without a response, so callers store complete replies only.
pub(super) async fn forward(
    model: &dyn Model,
    request: Request,
    out: &DeltaSender,
) -> Result<Response, ModelError> {
    let mut deltas = model.stream(request).await?;
    let mut fold = Fold::new();
    while let Some(delta) = deltas.next().await {
        let delta = delta?;
        fold.push(delta.clone())?;
        out.send(delta).await;
    }
    Ok(fold.finish())
}

type Work = Pin<Box<dyn Future<Output = Result<(), ModelError>> + Send>>;

/// The consumer's end: the block while it runs, and the slot that it fills. `work` is `None` after
/// the end, which keeps the stream fused.
struct DeltaStream {
    work: Option<Work>,
    out: DeltaSender,
}

impl Stream for DeltaStream {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(None);
        };
        let polled = work.as_mut().poll(cx);
        // The sender waits for each delta to be taken, so a pending delta precedes the end.
        let piece = self.out.slot().take();
        match (piece, polled) {
            (Some(piece), _) => Poll::Ready(Some(Ok(piece))),
            (None, Poll::Pending) => Poll::Pending,
            (None, Poll::Ready(end)) => {
                self.work = None;
                Poll::Ready(end.err().map(Err))
            }
        }
    }
}
