//! Writes messages, one per line.
//!
//! A semaphore with one permit decides the order: `send` requests the permit before it returns its
//! future, so messages are written in the order of the calls of `send`, even if their futures are
//! polled in another order. The lock on the pipe is held for one poll only.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use serde::Serialize;
use tokio::io::AsyncWrite;
use tokio::sync::Semaphore;

use crate::PendingCalls;
use crate::mcp::RequestId;
use crate::pipe::{Pipe, closed};

/// A writable stream of messages, one per line. Clones share it.
///
/// # Guarantees
/// - Messages are written whole, in the order in which they were sent. If a message is dropped when
///   only a part of it is written, the stream is closed: the next message would be read as its
///   rest.
/// - A cancellation never overtakes its request and never waits.
///
/// ```
/// use levity_rpc::LineWriter;
/// use serde_json::json;
/// use tokio::io::AsyncReadExt as _;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let (ours, mut theirs) = tokio::io::duplex(1024);
/// let writer = LineWriter::new(ours, |end| panic!("the stream closed early: {end:?}"));
/// writer.send::<_, ()>(json!({"id": 1, "method": "ping"}), None).await?;
/// writer.finish().await?;
///
/// let mut text = String::new();
/// theirs.read_to_string(&mut text).await?;
/// assert_eq!(text, "{\"id\":1,\"method\":\"ping\"}\n");
/// # Ok(())
/// # }
/// ```
pub struct LineWriter<W> {
    pipe: Arc<Mutex<Pipe<W>>>,
    /// Permits one message at a time, in the order in which they were sent.
    order: Arc<Semaphore>,
    on_end: Arc<dyn Fn(WriterEnd) + Send + Sync>,
}

/// The reason why a writer closed its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterEnd {
    /// The other side closed its end. The messages it wrote before are still valid.
    Gone,
    /// The other side stopped reading in the middle of a message whose sender stopped waiting.
    Stuck,
}

impl<W> Clone for LineWriter<W> {
    fn clone(&self) -> Self {
        Self {
            pipe: self.pipe.clone(),
            order: self.order.clone(),
            on_end: self.on_end.clone(),
        }
    }
}

impl<W> LineWriter<W> {
    /// Closes the stream immediately, even while a message is being written.
    ///
    /// Messages that wait for their turn fail with [`BrokenPipe`](io::ErrorKind::BrokenPipe). The
    /// callback for the end of the stream is not called.
    pub fn close(&self) {
        self.lock().close();
        self.order.close();
    }

    fn lock(&self) -> MutexGuard<'_, Pipe<W>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that the other side does not read, and closes the stream.
    fn stuck(&self) {
        (self.on_end)(WriterEnd::Stuck);
        self.close();
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> LineWriter<W> {
    /// Creates a writer that calls `on_end` when it closes the stream on its own.
    pub fn new(to: W, on_end: impl Fn(WriterEnd) + Send + Sync + 'static) -> Self {
        let (pipe, order) = (
            Arc::new(Mutex::new(Pipe::new(to))),
            Arc::new(Semaphore::new(1)),
        );
        Self {
            pipe,
            order,
            on_end: Arc::new(on_end),
        }
    }

    /// Writes a message after those before it. This call fixes the order, not the first poll of the
    /// future.
    ///
    /// A `call` is in the table of pending calls. It is not written if it is no longer in the
    /// table, and it is removed from the table if it is not written.
    ///
    /// # Errors
    /// The future returns an error if the message cannot be serialized, the call was cancelled
    /// before it was written, the writer is closed, or the stream fails. A failed stream is closed.
    pub fn send<M: Serialize + Send + 'static, T: Send + 'static>(
        &self,
        message: M,
        call: Option<(RequestId, Arc<PendingCalls<T>>)>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<W, M, T> {
        let mut call = call.map(|(id, pending)| UnsentCall {
            pending,
            id: Some(id),
        });
        let mut wait = Box::pin(self.order.clone().acquire_owned());
        let first = (&mut wait).now_or_never();
        let writer = self.clone();
        async move {
            let line = line(&message)?;
            drop(message);
            let permit = match first {
                Some(permit) => permit,
                None => wait.await,
            };
            let _permit = permit.map_err(|_| closed())?;
            let id = call.as_ref().and_then(|call| call.id.clone());
            if let (Some(call), Some(id)) = (&call, &id)
                && !call.pending.contains(id)
            {
                return Err(io::Error::other(
                    "the request was cancelled before it was sent",
                ));
            }
            writer.write(&line, id.as_ref()).await?;
            if let Some(call) = &mut call
                && let Some(id) = call.id.take()
            {
                call.pending.mark_sent(&id);
            }
            Ok(())
        }
    }

    /// Cancels a call: removes it from the queue while it waits there, or writes `message` if it
    /// was sent.
    ///
    /// The function never waits. If a part of the call is already written, the stream is closed as
    /// [`Stuck`](WriterEnd::Stuck), because neither the rest nor the cancellation can be written.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_rpc::mcp::RequestId;
    /// use levity_rpc::{LineWriter, PendingCalls};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (ours, _theirs) = tokio::io::duplex(1024);
    /// let (writer, pending) = (LineWriter::new(ours, |_| {}), Arc::new(PendingCalls::default()));
    /// let id = RequestId::Number(1);
    /// pending.insert(id.clone(), ());
    /// let sent = writer.send(json!({"id": 1}), Some((id.clone(), pending.clone())));
    /// writer.cancel(&id, &json!({"cancel": 1}), &pending);
    /// assert!(sent.await.is_err(), "it was cancelled before it was written");
    /// # }
    /// ```
    pub fn cancel<T>(&self, id: &RequestId, message: &impl Serialize, pending: &PendingCalls<T>) {
        if pending.remove(id).is_none_or(|call| call.sent) {
            self.lock()
                .push_extra_line(&line(message).unwrap_or_default());
            if let Ok(_permit) = self.order.try_acquire() {
                let _ = poll_fn(|cx| self.lock().poll_write(b"", cx)).now_or_never();
            }
        } else if self.lock().cancel(id) {
            self.stuck();
        }
    }

    /// Closes the stream once all messages sent before are written.
    ///
    /// # Errors
    /// Returns an error if the stream fails.
    pub async fn finish(&self) -> io::Result<()> {
        // The stream is already closed if there is no permit.
        let Ok(_permit) = self.order.acquire().await else {
            return Ok(());
        };
        let done = poll_fn(|cx| self.lock().poll_shutdown(cx)).await;
        self.close();
        done
    }

    /// Writes one line and closes the stream if that fails. The caller holds the permit.
    async fn write(&self, line: &[u8], id: Option<&RequestId>) -> io::Result<()> {
        self.lock().begin(id);
        let in_progress = WriteInProgress(self);
        let written = poll_fn(|cx| self.lock().poll_write(line, cx)).await;
        match &written {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.lock().end();
                self.close();
                (self.on_end)(WriterEnd::Gone);
            }
            _ => {}
        }
        drop(in_progress);
        written
    }
}

/// Formats a message as a line. JSON has no bare line ends, so each message is one line.
fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(256);
    serde_json::to_writer(&mut line, message)?;
    line.push(b'\n');
    Ok(line)
}

/// A request that is not written yet; dropping it removes it from the pending calls.
struct UnsentCall<T> {
    pending: Arc<PendingCalls<T>>,
    id: Option<RequestId>,
}

impl<T> Drop for UnsentCall<T> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.pending.remove(id);
        }
    }
}

/// A message that is being written; dropping it detects a partial write.
struct WriteInProgress<'a, W>(&'a LineWriter<W>);

impl<W> Drop for WriteInProgress<'_, W> {
    fn drop(&mut self) {
        let is_partial = self.0.lock().end();
        if is_partial {
            self.0.stuck();
        }
    }
}

impl<W> fmt::Debug for LineWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineWriter(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, DuplexStream};

    use super::*;

    type Calls = Arc<PendingCalls<()>>;

    /// Returns a writer over a pipe of this capacity, its other end, and a counter of how often it
    /// got stuck.
    fn pair(room: usize) -> (LineWriter<DuplexStream>, DuplexStream, Arc<AtomicUsize>) {
        let (ours, theirs) = tokio::io::duplex(room);
        let stuck = Arc::<AtomicUsize>::default();
        let count = stuck.clone();
        let writer = LineWriter::new(ours, move |end| {
            count.fetch_add(usize::from(end == WriterEnd::Stuck), Ordering::Relaxed);
        });
        (writer, theirs, stuck)
    }

    fn call(pending: &Calls, id: i64) -> Option<(RequestId, Calls)> {
        pending.insert(RequestId::Number(id), ());
        Some((RequestId::Number(id), pending.clone()))
    }

    async fn rest(mut theirs: DuplexStream) -> String {
        let mut text = String::new();
        theirs.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn send_writes_messages_in_order_of_calls() {
        let (writer, theirs, _) = pair(1 << 10);
        let (first, second) = (
            writer.send::<_, ()>(1, None),
            writer.send::<_, ()>("a\nb", None),
        );
        let (second, first) = tokio::join!(second, first);
        assert!(first.is_ok() && second.is_ok());
        writer.finish().await.unwrap();
        assert_eq!(rest(theirs).await, "1\n\"a\\nb\"\n");
    }

    #[tokio::test]
    async fn finish_waits_for_sent_messages_and_rejects_new_ones() {
        let (writer, theirs, stuck) = pair(8);
        let long = "x".repeat(1000);
        let sent = writer.send::<_, ()>(long.clone(), None);
        let (sent, finished, text) = tokio::join!(sent, writer.finish(), rest(theirs));
        assert!(sent.is_ok() && finished.is_ok());
        assert_eq!(text, format!("\"{long}\"\n"));
        assert_eq!(
            writer.send::<_, ()>(1, None).await.unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
        assert!(writer.finish().await.is_ok(), "a second call succeeds");
        assert_eq!(stuck.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn cancel_of_queued_call_prevents_its_write() {
        let (writer, theirs, _) = pair(1 << 10);
        let pending = Calls::default();
        let (first, second) = (
            writer.send(1, call(&pending, 1)),
            writer.send(2, call(&pending, 2)),
        );
        writer.cancel(&RequestId::Number(2), &"cancel 2", &pending);
        assert!(first.await.is_ok() && second.await.is_err());
        writer.cancel(&RequestId::Number(1), &"cancel 1", &pending);
        assert!(pending.is_empty());
        writer.finish().await.unwrap();
        assert_eq!(
            rest(theirs).await,
            "1\n\"cancel 1\"\n",
            "only a sent call needs a cancellation"
        );
    }

    #[tokio::test]
    async fn half_written_message_closes_stream() {
        let (writer, theirs, stuck) = pair(8);
        assert!(
            writer
                .send::<_, ()>("x".repeat(1000), None)
                .now_or_never()
                .is_none()
        );
        assert_eq!(stuck.load(Ordering::Relaxed), 1);
        assert!(writer.send::<_, ()>(1, None).await.is_err());
        assert_eq!(rest(theirs).await, "\"xxxxxxx");
    }
}
