//! A browser login with a redirect to a port of this machine.
//!
//! The port is bound when the value is created, so the redirect URL is known and no other program
//! can take the port meanwhile. The listener joins a tokio runtime only with the first login,
//! because it may be created outside one. It serves plain requests by hand: one `GET` at a time, at
//! most 16 KiB and 5 s each, 64 unrelated ones per login.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as Listener};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use super::Browser;

/// The maximum size of a request line with its headers.
const MAX_REQUEST: usize = 16 << 10;
/// The maximum number of unrelated requests before the login fails.
const MAX_STRAYS: usize = 64;
/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A browser login that passes the URL of the login page to a callback, and waits for the redirect
/// on a local port.
///
/// The callback prints the URL or starts a browser. Only a request with the `state` of the login is
/// accepted; others are rejected. Logins of several servers wait for each other.
///
/// ```
/// use levity_mcp::{Browser, LoopbackBrowser};
///
/// # fn main() -> std::io::Result<()> {
/// let browser = LoopbackBrowser::bind(|url| println!("log in at {url}"))?;
/// assert!(browser.redirect_url().starts_with("http://127.0.0.1:"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LoopbackBrowser {
    port: u16,
    show: Arc<dyn Fn(&str) + Send + Sync>,
    listener: Arc<Mutex<ListenerState>>,
}

/// The listener before and after its first use; `Gone` means that it could not be opened.
enum ListenerState {
    Bound(Listener),
    Open(TcpListener),
    Gone,
}

impl LoopbackBrowser {
    /// Binds a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Returns an error if no port can be bound.
    pub fn bind(show: impl Fn(&str) + Send + Sync + 'static) -> io::Result<Self> {
        Self::bind_port(0, show)
    }

    /// Binds this port of 127.0.0.1, for a client that was registered with it.
    ///
    /// # Errors
    /// Returns an error if another program uses the port.
    pub fn bind_port(port: u16, show: impl Fn(&str) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok(Self {
            port,
            show: Arc::new(show),
            listener: Arc::new(Mutex::new(ListenerState::Bound(listener))),
        })
    }
}

#[async_trait]
impl Browser for LoopbackBrowser {
    fn redirect_url(&self) -> String {
        format!("http://127.0.0.1:{}/callback", self.port)
    }

    async fn visit(&self, url: &str) -> io::Result<String> {
        let state = parameter(url, "state")
            .ok_or_else(|| invalid("the URL of the login page has no `state`"))?;
        let mut source = self.listener.lock().await;
        let listener = source.open()?;
        (self.show)(url);
        for _ in 0..MAX_STRAYS {
            let (stream, _) = listener.accept().await?;
            if let Some(answer) = timeout(REQUEST_TIMEOUT, self.serve(stream, &state))
                .await
                .ok()
                .flatten()
            {
                return Ok(answer);
            }
        }
        Err(invalid(
            "received too many requests that are not the redirect of the login",
        ))
    }
}

impl LoopbackBrowser {
    /// Handles one request. Returns its URL if it is the redirect of the login.
    async fn serve(&self, mut stream: TcpStream, state: &str) -> Option<String> {
        let path = target(&mut stream).await?;
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let is_redirect =
            path.starts_with("/callback?") && parameter(&url, "state").as_deref() == Some(state);
        let (status, text) = if is_redirect {
            ("200 OK", "The login is complete. You can close this page.")
        } else {
            ("404 Not Found", "There is nothing here.")
        };
        let reply = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: \
             close\r\n\r\n{text}",
            text.len()
        );
        // The result counts even if the browser does not wait for the page.
        let _ = stream.write_all(reply.as_bytes()).await;
        let _ = stream.shutdown().await;
        is_redirect.then_some(url)
    }
}

impl ListenerState {
    /// Returns the listener. It is created on first use, because it belongs to the current runtime.
    fn open(&mut self) -> io::Result<&TcpListener> {
        if let Self::Bound(_) = self
            && let Self::Bound(listener) = std::mem::replace(self, Self::Gone)
        {
            *self = Self::Open(TcpListener::from_std(listener)?);
        }
        match self {
            Self::Open(listener) => Ok(listener),
            _ => Err(invalid("cannot open the port for the redirect")),
        }
    }
}

/// Reads the path and the query of a `GET` request.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 2048];
        let read = stream.read(&mut piece).await.ok()?;
        head.extend_from_slice(&piece[..read]);
        if read == 0 || head.len() > MAX_REQUEST {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let path = std::str::from_utf8(line)
        .ok()?
        .strip_prefix("GET ")?
        .split(' ')
        .next()?;
    path.starts_with('/').then(|| path.to_owned())
}

fn parameter(url: &str, name: &str) -> Option<String> {
    Url::parse(url)
        .ok()?
        .query_pairs()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

fn invalid(text: &str) -> io::Error {
    io::Error::other(text)
}

impl fmt::Debug for LoopbackBrowser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopbackBrowser")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
