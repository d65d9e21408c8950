//! A local provider that returns scripted answers and records its requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::Response;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Removes the origin of provider state from a reply, as in older journals: every server of the
/// protocol accepts it.
pub(crate) fn without_origin(reply: &Response) -> Response {
    let mut message = (*reply.message).clone();
    for part in &mut message.parts {
        if let Some(state) = part.opaque().cloned() {
            part.set_opaque(state.without_origin());
        }
    }
    let mut reply = reply.clone();
    reply.message = message.into();
    reply
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The method and the path.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Seen {
    /// Returns the value of a header, or an empty string.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    head: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    /// Sends these bytes repeatedly.
    Repeat(Vec<u8>, usize),
    /// Sends nothing more, and keeps the connection open.
    Stall,
    /// Resets the connection.
    Reset,
}

impl Answer {
    /// Creates an answer with a body of this type, which ends with the connection.
    pub(crate) fn new(status: u16, kind: &str, body: impl AsRef<[u8]>) -> Self {
        let head =
            format!("HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\nconnection: close\r\n");
        Self {
            head,
            steps: vec![Step::Send(body.as_ref().to_vec())],
        }
    }

    pub(crate) fn json(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self::new(status, "application/json", body)
    }

    /// Creates a stream of events.
    pub(crate) fn sse(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    /// Creates a stream of JSON, one value per line.
    pub(crate) fn lines(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, "application/x-ndjson", body)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Adds a UTF-8 byte order mark before the body.
    pub(crate) fn with_mark(mut self) -> Self {
        self.steps
            .insert(0, Step::Send("\u{feff}".as_bytes().to_vec()));
        self
    }

    pub(crate) fn then_stall(mut self) -> Self {
        self.steps.push(Step::Stall);
        self
    }

    pub(crate) fn then_reset(mut self) -> Self {
        self.steps.push(Step::Reset);
        self
    }

    pub(crate) fn then_repeat(mut self, bytes: impl AsRef<[u8]>, times: usize) -> Self {
        self.steps
            .push(Step::Repeat(bytes.as_ref().to_vec(), times));
        self
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The number of connections that the client has closed.
    closed: Arc<tokio::sync::Semaphore>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server that gives one answer after the other, and repeats the last one.
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: Vec<_> = answers.into_iter().collect();
        Self::with(move |at, _| answers[at.min(answers.len() - 1)].clone()).await
    }

    /// Starts a server whose answer depends on the number of earlier requests and on the request.
    pub(crate) async fn with(
        answer: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, answer) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::new(answer));
        let closed = Arc::new(tokio::sync::Semaphore::new(0));
        let shared = (seen.clone(), closed.clone());
        let task = tokio::spawn(async move {
            let (seen, closed) = shared;
            let mut live = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, closed, answer) = (seen.clone(), closed.clone(), answer.clone());
                live.spawn(async move {
                    let _ = serve(stream, &seen, &*answer).await;
                    closed.add_permits(1);
                });
            }
        });
        Self {
            url,
            seen,
            closed,
            task,
        }
    }

    /// Starts a server with one answer for all requests.
    pub(crate) async fn with_answer(answer: Answer) -> Self {
        Self::start([answer]).await
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns all received requests.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the last request.
    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().unwrap()
    }

    /// Waits until a connection has ended.
    pub(crate) async fn closed(&self) {
        let waited = tokio::time::timeout(Duration::from_secs(20), self.closed.acquire()).await;
        waited
            .expect("the client keeps its connection")
            .unwrap()
            .forget();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Seen>>,
    answer: &(dyn Fn(usize, &Seen) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let request = read(&mut stream).await?;
    let answer = {
        let mut seen = seen.lock().unwrap();
        let answer = answer(seen.len(), &request);
        seen.push(request);
        answer
    };
    stream
        .write_all(format!("{}\r\n", answer.head).as_bytes())
        .await?;
    for step in &answer.steps {
        match step {
            Step::Send(bytes) => stream.write_all(bytes).await?,
            Step::Repeat(bytes, times) => {
                for _ in 0..*times {
                    stream.write_all(bytes).await?;
                }
            }
            // Ends when the client disconnects.
            Step::Stall => while stream.read(&mut [0; 64]).await? > 0 {},
            Step::Reset => {
                stream.flush().await?;
                return stream.set_zero_linger();
            }
        }
    }
    stream.shutdown().await?;
    while stream.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Seen> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.split("\r\n");
    let line = lines
        .next()
        .unwrap_or_default()
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let headers: Vec<_> = lines
        .filter_map(|line| {
            line.split_once(':')
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        })
        .collect();
    let mut seen = Seen {
        line,
        headers,
        body: Value::Null,
    };
    let length = seen.header("content-length").parse().unwrap_or(0);
    let mut body = bytes.split_off(head + 4);
    while body.len() < length && stream.read_buf(&mut body).await? > 0 {}
    // Content that is not JSON, such as a form, is stored as text.
    seen.body =
        serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into());
    Ok(seen)
}
