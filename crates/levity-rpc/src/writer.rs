//! Writing messages, one a line.

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

/// A writable stream that takes one message a line. Clones share it.
///
/// # Promises
/// - Messages are written in the order in which they were sent, each whole. One that nobody waits
///   for any more when only a part of it is out closes the stream: what came after it would be read
///   as its rest.
/// - A cancellation never overtakes its request and never waits.
pub struct LineWriter<W> {
    pipe: Arc<Mutex<Pipe<W>>>,
    /// One message is written at a time, in the order in which they were sent.
    turn: Arc<Semaphore>,
    on_end: Arc<dyn Fn(WriterEnd) + Send + Sync>,
}

/// Why a writer closed its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterEnd {
    /// The other side closed its end. What it wrote before is still worth reading.
    Gone,
    /// The other side stopped reading in the middle of a message that nobody waits for any more.
    Stuck,
}

impl<W> Clone for LineWriter<W> {
    fn clone(&self) -> Self {
        Self {
            pipe: self.pipe.clone(),
            turn: self.turn.clone(),
            on_end: self.on_end.clone(),
        }
    }
}

impl<W> LineWriter<W> {
    /// Closes the stream, at once, also while something is being written.
    pub fn close(&self) {
        self.lock().close();
        self.turn.close();
    }

    fn lock(&self) -> MutexGuard<'_, Pipe<W>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stuck(&self) {
        (self.on_end)(WriterEnd::Stuck);
        self.close();
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> LineWriter<W> {
    /// Creates a writer that calls `on_end` when it has to close the stream by itself.
    pub fn new(to: W, on_end: impl Fn(WriterEnd) + Send + Sync + 'static) -> Self {
        let (pipe, turn) = (
            Arc::new(Mutex::new(Pipe::new(to))),
            Arc::new(Semaphore::new(1)),
        );
        Self {
            pipe,
            turn,
            on_end: Arc::new(on_end),
        }
    }

    /// Writes a message once those before it are written. Its place among them is fixed by this
    /// call, not by when the future is first polled.
    ///
    /// A message that is a `call` is in its table of pending ones. It is not written when it is not
    /// there any more, and does not stay there when it is not written.
    pub fn send<M: Serialize + Send + 'static, T: Send + 'static>(
        &self,
        message: M,
        call: Option<(RequestId, Arc<PendingCalls<T>>)>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<W, M, T> {
        let mut call = call.map(|(id, pending)| Unsent {
            pending,
            id: Some(id),
        });
        let mut wait = Box::pin(self.turn.clone().acquire_owned());
        let first = (&mut wait).now_or_never();
        let writer = self.clone();
        async move {
            let line = line(&message)?;
            drop(message);
            let turn = match first {
                Some(turn) => turn,
                None => wait.await,
            };
            let _turn = turn.map_err(|_| closed())?;
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

    /// Cancels a call: takes it from the queue while it waits there, and writes `message` once it
    /// was sent.
    pub fn cancel<T>(&self, id: &RequestId, message: &impl Serialize, pending: &PendingCalls<T>) {
        if pending.remove(id).is_none_or(|call| call.sent) {
            self.lock().carry(&line(message).unwrap_or_default());
            if let Ok(_turn) = self.turn.try_acquire() {
                let _ = poll_fn(|cx| self.lock().poll_write(b"", cx)).now_or_never();
            }
        } else if self.lock().cancel(id) {
            self.stuck();
        }
    }

    /// Closes the stream once what was sent before is written.
    ///
    /// # Errors
    /// When the stream fails.
    pub async fn finish(&self) -> io::Result<()> {
        // It is closed already where there is no turn.
        let Ok(_turn) = self.turn.acquire().await else {
            return Ok(());
        };
        let done = poll_fn(|cx| self.lock().poll_shutdown(cx)).await;
        self.close();
        done
    }

    async fn write(&self, line: &[u8], id: Option<&RequestId>) -> io::Result<()> {
        self.lock().begin(id);
        let begun = Begun(self);
        let written = poll_fn(|cx| self.lock().poll_write(line, cx)).await;
        match &written {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.lock().end();
                self.close();
                (self.on_end)(WriterEnd::Gone);
            }
            _ => {}
        }
        drop(begun);
        written
    }
}

/// A message as a line. JSON has no bare line ends, so one write of it is one line.
fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(256);
    serde_json::to_writer(&mut line, message)?;
    line.push(b'\n');
    Ok(line)
}

/// A request that is not written yet, and that no answer can come to unless it is.
struct Unsent<T> {
    pending: Arc<PendingCalls<T>>,
    id: Option<RequestId>,
}

impl<T> Drop for Unsent<T> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.pending.remove(id);
        }
    }
}

/// A message whose writing has begun; when this is dropped, it is known how far that came.
struct Begun<'a, W>(&'a LineWriter<W>);

impl<W> Drop for Begun<'_, W> {
    fn drop(&mut self) {
        let torn = self.0.lock().end();
        if torn {
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

    /// A writer over a pipe with this much room, its other end, and how often it got stuck.
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
    async fn messages_are_written_in_the_order_of_send_however_they_are_polled() {
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
    async fn finish_waits_for_what_was_sent_and_takes_no_more() {
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
        assert!(writer.finish().await.is_ok(), "twice is no error");
        assert_eq!(stuck.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_call_that_is_cancelled_while_it_waits_is_never_written() {
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
            "only what was sent is cancelled aloud"
        );
    }

    #[tokio::test]
    async fn a_message_that_is_left_half_written_closes_the_stream() {
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
