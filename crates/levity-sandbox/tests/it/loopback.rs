//! Web servers on loopback with scripted replies, and names with scripted addresses.
#![allow(
    clippy::disallowed_methods,
    reason = "a server is aborted when it is dropped"
)]

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_sandbox::{AddressResolver, NetGuard, NetGuardBuilder, ResolveFuture};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The reply to a request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Sends these bytes, and ends.
    Say(Vec<u8>),
    /// Sends these bytes, and then nothing forever.
    Stall(Vec<u8>),
    /// Sends these bytes, and then repeats the second ones forever.
    Endless(Vec<u8>, Vec<u8>),
    /// Sends these bytes, and then resets the connection.
    Reset(Vec<u8>),
}

pub(crate) fn ok(body: &str) -> Answer {
    Answer::Say(
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    )
}

pub(crate) fn moved(status: u16, to: &str) -> Answer {
    Answer::Say(
        format!("HTTP/1.1 {status} Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
            .into_bytes(),
    )
}

/// Serves by path until it is dropped, and stores the heads of all requests.
pub(crate) struct Server {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    /// The number of connections, including those without a request.
    touched: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answers: &[(&str, Answer)]) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answers)
    }

    pub(crate) fn on(listener: TcpListener, answers: &[(&str, Answer)]) -> Self {
        let port = listener.local_addr().unwrap().port();
        let answers: HashMap<String, Answer> = answers
            .iter()
            .map(|(path, answer)| ((*path).to_owned(), answer.clone()))
            .collect();
        let (heads, touched) = (
            Arc::<Mutex<Vec<String>>>::default(),
            Arc::<Mutex<usize>>::default(),
        );
        let shared = (Arc::new(answers), heads.clone(), touched.clone());
        let task = tokio::spawn(async move {
            let (answers, heads, touched) = shared;
            let mut live = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *touched.lock().unwrap() += 1;
                let (answers, heads) = (answers.clone(), heads.clone());
                live.spawn(async move { serve(stream, &answers, &heads).await });
            }
        });
        Self {
            port,
            heads,
            touched,
            task,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn touched(&self) -> usize {
        *self.touched.lock().unwrap()
    }

    /// Returns a guard that allows this server, and no other local address.
    pub(crate) fn guard(&self) -> NetGuardBuilder {
        NetGuard::builder()
            .allow_http()
            .allow_port(self.port)
            .allow_address("127.0.0.1")
            .time_limit(Duration::from_secs(20))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: &HashMap<String, Answer>,
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
    match answers
        .get(&path)
        .cloned()
        .unwrap_or_else(|| ok("no such page"))
    {
        Answer::Say(bytes) => stream.write_all(&bytes).await?,
        Answer::Stall(bytes) => stream.write_all(&bytes).await?,
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
    // Ends when the client disconnects.
    while stream.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}

/// Names with scripted addresses: each query gets the next answer, and then the last one forever.
#[derive(Clone, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<String, Asked>>>);

/// The number of queries for a name, and its answers.
type Asked = (usize, Vec<Vec<IpAddr>>);

impl Names {
    pub(crate) fn add(&self, name: &str, answers: &[&[&str]]) {
        let read = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
        self.0
            .lock()
            .unwrap()
            .insert(name.to_owned(), (0, answers.iter().map(read).collect()));
    }

    /// Returns the number of queries for a name.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.0
            .lock()
            .unwrap()
            .get(name)
            .map_or(0, |(asked, _)| *asked)
    }
}

impl AddressResolver for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let mut names = self.0.lock().unwrap();
            let (asked, answers) = names.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
            *asked += 1;
            Ok(answers[(*asked - 1).min(answers.len() - 1)].clone())
        })
    }
}
