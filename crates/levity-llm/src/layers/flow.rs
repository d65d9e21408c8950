//! A reply that is made while it is read: an async block that hands out one piece after another.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use levity_core::{Delta, Deltas, Fold, Model, ModelError, Request, Response};

/// The pieces that `make` hands out, in order, then its error if it ends with one. Nothing runs
/// before the reply is polled, nor once it is dropped.
pub(super) fn deltas<F>(make: impl FnOnce(Out) -> F) -> Deltas
where
    F: Future<Output = Result<(), ModelError>> + Send + 'static,
{
    let out = Out::default();
    let work = Box::pin(make(out.clone()));
    Deltas::new(Flow {
        work: Some(work),
        out,
    })
}

/// Takes the pieces.
#[derive(Clone, Default)]
pub(super) struct Out(Arc<Mutex<Option<Delta>>>);

impl Out {
    /// Hands a piece out, and waits until it was taken.
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

/// Hands the pieces on and puts them together.
pub(super) async fn forward(
    model: &dyn Model,
    request: Request,
    out: &Out,
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

struct Flow {
    work: Option<Work>,
    out: Out,
}

impl Stream for Flow {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(None);
        };
        let polled = work.as_mut().poll(cx);
        // A piece is always waited for, so one that is there belongs before the end.
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
