//! Writing whole messages, one after the other.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId};
use tokio::io::AsyncWrite;
use tokio::sync::Semaphore;

use super::pipe::Pipe;
use crate::ErrorKind;
use crate::link::end::{Cause, End};
use crate::link::pending::Pending;

/// The way to the server. Clones share it.
pub(crate) struct Writer<W> {
    pipe: Arc<Mutex<Pipe<W>>>,
    /// One message is written at a time, in the order in which they were sent.
    turn: Arc<Semaphore>,
    end: End,
}

impl<W> Clone for Writer<W> {
    fn clone(&self) -> Self {
        Self { pipe: self.pipe.clone(), turn: self.turn.clone(), end: self.end.clone() }
    }
}

impl<W> Writer<W> {
    /// Closes the way, at once, also while something is being written.
    pub(crate) fn close(&self) {
        self.lock().close();
        self.turn.close();
    }

    fn lock(&self) -> MutexGuard<'_, Pipe<W>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stuck(&self) {
        let message = "it stopped reading in the middle of a message".to_owned();
        self.end.over(Some(Cause { kind: ErrorKind::Closed, message }));
        self.close();
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Writer<W> {
    pub(super) fn new(to: W, end: End) -> Self {
        Self { pipe: Arc::new(Mutex::new(Pipe::new(to))), turn: Arc::new(Semaphore::new(1)), end }
    }

    /// Writes a message once those before it are written.
    ///
    /// Its place among them is fixed by this call, not by when the future is first polled, so a cancellation never overtakes its
    /// request. A cancellation never waits either: it is what a caller sends whose time is over.
    pub(super) fn send(
        &self,
        message: &ClientJsonRpcMessage,
        pending: &Arc<Pending>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<W> {
        let line = line_of(message);
        let mut unsent = Unsent { pending: pending.clone(), id: None };
        let mut turn = None;
        let cancelled = cancelled_by(message);
        if let Some(id) = cancelled {
            self.cancel(id, line.as_deref().unwrap_or_default(), pending);
        } else {
            pending.sent(message);
            unsent.id = id_of(message).cloned();
            let mut wait = Box::pin(self.turn.clone().acquire_owned());
            turn = Some(((&mut wait).now_or_never(), wait));
        }
        let writer = self.clone();
        async move {
            let (line, Some((first, wait))) = (line?, turn) else { return Ok(()) };
            let turn = match first {
                Some(turn) => turn,
                None => wait.await,
            };
            let _turn = turn.map_err(|_| closed())?;
            if unsent.id.as_ref().is_some_and(|id| unsent.pending.kind(id).is_none()) {
                return Err(io::Error::other("the request was cancelled before it was sent"));
            }
            writer.write(&line, unsent.id.as_ref()).await?;
            if let Some(id) = unsent.id.take() {
                unsent.pending.written(&id);
            }
            Ok(())
        }
    }

    /// Takes a request back: from the queue while it waits there, from the server once it was sent.
    fn cancel(&self, id: &RequestId, line: &[u8], pending: &Pending) {
        if pending.cancel(id) {
            self.lock().carry(line);
            if let Ok(_turn) = self.turn.try_acquire() {
                let _ = poll_fn(|cx| self.lock().poll_write(b"", cx)).now_or_never();
            }
        } else if self.lock().cancel(id) {
            self.stuck();
        }
    }

    async fn write(&self, line: &[u8], id: Option<&RequestId>) -> io::Result<()> {
        self.lock().begin(id);
        let begun = Begun(self);
        let written = poll_fn(|cx| self.lock().poll_write(line, cx)).await;
        match &written {
            // Its end of the pipe is closed, but what it wrote before is still worth reading.
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.lock().end();
                self.close();
                self.end.gone();
            }
            _ => {}
        }
        drop(begun);
        written
    }
}

/// A message as a line. JSON has no bare line ends, so one write of it is one line.
fn line_of(message: &ClientJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(256);
    serde_json::to_writer(&mut line, message)?;
    line.push(b'\n');
    Ok(line)
}

fn id_of(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

/// The request that this message cancels.
fn cancelled_by(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(notification) => match &notification.notification {
            ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed")
}

/// A request that is not written yet, and that no answer can come to unless it is.
struct Unsent {
    pending: Arc<Pending>,
    id: Option<RequestId>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.pending.forget(id);
        }
    }
}

/// A message whose writing has begun; when this is dropped, it is known how far that came.
struct Begun<'a, W>(&'a Writer<W>);

impl<W> Drop for Begun<'_, W> {
    fn drop(&mut self) {
        let torn = self.0.lock().end();
        if torn {
            self.0.stuck();
        }
    }
}
