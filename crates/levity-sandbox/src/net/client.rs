//! Requests under a guard.
//!
//! The HTTP library gets nothing to decide: redirects, retries, proxies, decompression and
//! connection reuse are off, and names are resolved by the guard. One deadline covers the
//! connection, all redirects and the body, so a slow server cannot hold a request open. Error
//! messages of the library contain addresses, and are not passed on.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use levity_http::NoCertificates;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response, StatusCode, redirect, retry};
use tokio::time::{Instant, timeout_at};

use super::error::{AddressError, NetError};
use super::guard::{CheckedUrl, NetGuard};
use super::resolve::CheckedResolver;

/// An HTTP client that connects only to addresses that its [`NetGuard`] allows.
///
/// # Promises
/// - Every address of a name is checked, and the connection goes to one of those: the name is not
///   resolved again.
/// - Every redirect is checked like the first URL.
/// - Proxies of the environment are not used: they would connect to addresses that were not
///   checked.
/// - No cookies, no `Referer`, no compression. Headers that you set go to the first server only.
/// - Nothing is stored between two requests.
///
/// ```no_run
/// # async fn example() -> Result<(), levity_sandbox::NetError> {
/// let client = levity_sandbox::NetGuard::default().client()?;
/// let mut reply = client.get("https://example.org/")?.send().await?;
/// let body = reply.read(1024 * 1024).await?;
/// println!("{}: {} bytes", reply.url(), body.bytes.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GuardedClient {
    guard: NetGuard,
    client: Client,
}

impl GuardedClient {
    pub(super) fn new(guard: NetGuard) -> Result<Self, NetError> {
        let client = levity_http::client(|builder| {
            builder
                .dns_resolver(CheckedResolver(guard.clone()))
                .no_proxy()
                .redirect(redirect::Policy::none())
                .referer(false)
                .retry(retry::never())
                // Another part of the program may have enabled these features.
                .no_gzip()
                .no_brotli()
                .no_zstd()
                .no_deflate()
                .http1_max_headers(100)
                .http2_max_header_list_size(64 * 1024)
                // A connection belongs to the runtime that opened it, and a client may outlive a
                // runtime.
                .pool_max_idle_per_host(0)
                .user_agent(guard.user_agent())
        })
        .map_err(|error| NetError::Setting {
            setting: "client",
            problem: causes(&error),
        })?;
        Ok(Self { guard, client })
    }

    /// Returns the guard of this client.
    pub fn guard(&self) -> &NetGuard {
        &self.guard
    }

    /// Starts building a GET request; nothing is sent yet.
    ///
    /// # Errors
    /// Returns an error if the guard refuses the URL.
    pub fn get(&self, url: &str) -> Result<GuardedRequest, AddressError> {
        let url = self.guard.check_url(url)?;
        Ok(GuardedRequest {
            client: self.clone(),
            url,
            headers: HeaderMap::new(),
            problem: None,
        })
    }

    async fn send_once(&self, url: &CheckedUrl, own: &HeaderMap) -> Result<Response, NetError> {
        let request = self
            .client
            .get(url.0.clone())
            .header(ACCEPT_ENCODING, "identity")
            .headers(own.clone());
        request.send().await.map_err(|error| failed(&error))
    }
}

/// A request that has not been sent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use levity_sandbox::{NetError, NetGuard};
///
/// let client = NetGuard::default().client()?;
/// let request = client.get("https://example.org/")?.header("accept", "text/html\n");
/// // A header that cannot be sent is reported here, and nothing is sent.
/// assert!(matches!(request.send().await, Err(NetError::Header(name)) if name == "accept"));
/// # Ok(())
/// # }
/// ```
///
/// Its headers are marked as sensitive, so they do not appear in `Debug`.
#[must_use]
#[derive(Debug)]
pub struct GuardedRequest {
    client: GuardedClient,
    url: CheckedUrl,
    headers: HeaderMap,
    problem: Option<String>,
}

impl GuardedRequest {
    /// Adds a header. It is dropped if a redirect leads to another server.
    ///
    /// A header that is added twice replaces the first one.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(mut value)) => {
                value.set_sensitive(true);
                self.headers.insert(name, value);
            }
            _ => self.problem = Some(name.chars().take(64).collect()),
        }
        self
    }

    /// Sends the request and follows redirects.
    ///
    /// # Errors
    /// Returns an error if an address is refused, no server can be reached, or the time limit is
    /// exceeded.
    pub async fn send(self) -> Result<Reply, NetError> {
        if let Some(name) = self.problem {
            return Err(NetError::Header(name));
        }
        let limit = self.client.guard.time_limit();
        #[expect(
            clippy::disallowed_methods,
            reason = "the time limit for a server needs the real clock"
        )]
        let deadline = Deadline {
            end: Instant::now().checked_add(limit),
            limit,
        };
        let (url, redirects, response) = deadline
            .within(follow(&self.client, self.url, self.headers))
            .await?;
        Ok(Reply {
            url,
            redirects,
            response,
            deadline,
        })
    }
}

/// Follows redirects, and checks the URL before each step.
///
/// Returns the final URL, the number of redirects and the response. A URL that was visited before
/// ends the request, since every request of a guard is the same except for its URL.
async fn follow(
    client: &GuardedClient,
    mut url: CheckedUrl,
    mut headers: HeaderMap,
) -> Result<(CheckedUrl, usize, Response), NetError> {
    let mut seen = vec![url.clone()];
    loop {
        let response = client.send_once(&url, &headers).await?;
        let Some(location) = location(&response) else {
            return Ok((url, seen.len() - 1, response));
        };
        let next = client.guard.check_redirect(&url, &location)?;
        if seen.len() > client.guard.max_redirects() {
            return Err(NetError::TooManyRedirects(client.guard.max_redirects()));
        }
        if seen.contains(&next) {
            return Err(NetError::RedirectLoop);
        }
        if !next.same_origin(&url) {
            headers.clear();
        }
        seen.push(next.clone());
        url = next;
    }
}

/// Returns the target of a redirect, if the reply is one.
fn location(response: &Response) -> Option<String> {
    let moved = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| moved)?;
    Some(
        String::from_utf8_lossy(location.as_bytes())
            .trim()
            .to_owned(),
    )
}

/// A reply whose body has not been read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::io::{Read, Write};
/// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let port = server.local_addr()?.port();
/// # let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello";
/// # let served = std::thread::spawn(move || -> std::io::Result<()> {
/// #     let (mut stream, _) = server.accept()?;
/// #     stream.read(&mut [0; 4096])?;
/// #     stream.write_all(answer.as_bytes())
/// # });
/// use levity_sandbox::NetGuard;
///
/// let guard =
///     NetGuard::builder().allow_http().allow_port(port).allow_address("127.0.0.1").build()?;
/// let url = format!("http://127.0.0.1:{port}/page");
/// let mut reply = guard.client()?.get(&url)?.send().await?;
/// assert_eq!((reply.status(), reply.redirects()), (200, 0));
/// assert_eq!(reply.header("content-type"), Some("text/plain"));
/// assert_eq!(reply.read(1024).await?.bytes, b"hello");
/// # served.join().expect("a server")?;
/// # Ok(())
/// # }
/// ```
///
/// Status codes such as 404 are not errors: check [`status`](Self::status).
#[derive(Debug)]
pub struct Reply {
    url: CheckedUrl,
    redirects: usize,
    response: Response,
    deadline: Deadline,
}

impl Reply {
    /// Returns the final URL, after all redirects.
    pub fn url(&self) -> &CheckedUrl {
        &self.url
    }

    /// Returns the number of redirects that were followed.
    pub fn redirects(&self) -> usize {
        self.redirects
    }

    /// Returns the HTTP status code, such as 200.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns a header value, if it exists and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Reads the body, up to `max` bytes of it; the rest is not downloaded.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, or if the time limit of the whole request is
    /// exceeded.
    pub async fn read(&mut self, max: usize) -> Result<Body, NetError> {
        // The server reports the length, so it must not decide how much memory is reserved.
        let mut bytes = Vec::new();
        loop {
            let chunk = async { self.response.chunk().await.map_err(|error| failed(&error)) };
            let Some(piece) = self.deadline.within(chunk).await? else {
                return Ok(Body {
                    bytes,
                    is_truncated: false,
                });
            };
            let room = max - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                return Ok(Body {
                    bytes,
                    is_truncated: true,
                });
            }
        }
    }
}

/// The body of a reply, as far as it was read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::io::{Read, Write};
/// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let port = server.local_addr()?.port();
/// # let served = std::thread::spawn(move || -> std::io::Result<()> {
/// #     let (mut stream, _) = server.accept()?;
/// #     stream.read(&mut [0; 4096])?;
/// #     stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789")
/// # });
/// # let guard = levity_sandbox::NetGuard::builder()
/// #     .allow_http()
/// #     .allow_port(port)
/// #     .allow_address("127.0.0.1")
/// #     .build()?;
/// # let url = format!("http://127.0.0.1:{port}/");
/// let mut reply = guard.client()?.get(&url)?.send().await?;
/// let body = reply.read(4).await?;
/// assert_eq!((&body.bytes[..], body.is_truncated), (&b"0123"[..], true));
/// # served.join().expect("a server")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Body {
    /// The bytes that were read.
    pub bytes: Vec<u8>,
    /// `true` if the body is longer than the limit.
    pub is_truncated: bool,
}

/// The deadline of a request.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    /// `None` if the deadline is beyond the range of the clock.
    end: Option<Instant>,
    limit: Duration,
}

impl Deadline {
    /// Fails with [`NetError::Timeout`] at the deadline, and drops the work, which closes its
    /// connection.
    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, NetError>>,
    ) -> Result<T, NetError> {
        match self.end {
            Some(end) => timeout_at(end, work)
                .await
                .unwrap_or(Err(NetError::Timeout(self.limit))),
            None => work.await,
        }
    }
}

/// Converts an error without the client's message, which names addresses.
///
/// A refusal of the resolver is wrapped by several layers of the library; it is searched for among
/// the causes.
fn failed(error: &reqwest::Error) -> NetError {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(refused) = cause.downcast_ref::<AddressError>() {
            return refused.clone().into();
        }
        next = cause.source();
    }
    if NoCertificates::caused(error) {
        NetError::NoCertificates
    } else if error.is_connect() {
        NetError::Connect
    } else {
        NetError::Transfer
    }
}

/// Joins an error and its causes into one text, for settings that the library rejects.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
