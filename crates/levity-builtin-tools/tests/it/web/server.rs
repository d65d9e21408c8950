//! A loopback web server with fixed responses that records its requests.
#![allow(
    clippy::disallowed_methods,
    reason = "a server is aborted when it is dropped"
)]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_sandbox::{NetGuard, NetGuardBuilder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The response to a request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Sends these bytes and closes the connection.
    Say(Vec<u8>),
    /// Sends these bytes and then nothing.
    Stall(Vec<u8>),
    /// Sends these bytes, and then the second ones forever.
    Endless(Vec<u8>, Vec<u8>),
    /// Sends these bytes and then resets the connection.
    Reset(Vec<u8>),
}

impl Answer {
    pub(crate) fn new(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let (body, mut bytes) = (
            body.as_ref(),
            format!("HTTP/1.1 {status} Said\r\n{headers}").into_bytes(),
        );
        bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).bytes());
        bytes.extend(body);
        Self::Say(bytes)
    }

    pub(crate) fn html(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, "content-type: text/html\r\n", body)
    }

    pub(crate) fn json(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, "content-type: application/json\r\n", body)
    }
}

/// A server by path that runs until it is dropped; unknown paths return 404.
pub(crate) struct Server {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

type Answers = Vec<(String, Answer)>;

impl Server {
    pub(crate) async fn start(answers: &[(&str, Answer)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers: Answers = answers
            .iter()
            .map(|(path, answer)| ((*path).to_owned(), answer.clone()))
            .collect();
        let (answers, heads) = (Arc::new(answers), Arc::<Mutex<Vec<String>>>::default());
        let recorded = heads.clone();
        let task = tokio::spawn(async move {
            let mut live = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, heads) = (answers.clone(), recorded.clone());
                live.spawn(async move { serve(stream, &answers, &heads).await });
            }
        });
        Self { port, heads, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the heads of all requests since the start.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn guard(&self) -> NetGuardBuilder {
        let guard = NetGuard::builder()
            .allow_http()
            .allow_port(self.port)
            .allow_address("127.0.0.0/8");
        guard.time_limit(Duration::from_secs(20))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: &Answers,
    heads: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().unwrap().push(head);
    let known = answers
        .iter()
        .find(|(known, _)| path.split('?').next() == Some(known));
    match known.map_or_else(|| Answer::new(404, "", ""), |(_, answer)| answer.clone()) {
        Answer::Say(bytes) | Answer::Stall(bytes) => stream.write_all(&bytes).await?,
        Answer::Endless(first, bytes) => {
            stream.write_all(&first).await?;
            loop {
                stream.write_all(&bytes).await?;
            }
        }
        Answer::Reset(bytes) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            return stream.set_zero_linger();
        }
    }
    // The loop ends when the client disconnects.
    while stream.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}
