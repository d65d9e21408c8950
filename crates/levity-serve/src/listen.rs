//! The listening socket: accepts connections, limits them and serves HTTP/1.1 on each.
//!
//! Each connection is a task in a `JoinSet`, so dropping the serving future closes all of them. A
//! connection ends for one of five reasons: the client closes it, it presents no token in time, its
//! slot is needed by another client, the client does not read, or the listener stops. The HTTP
//! parser limits request heads; bodies are limited by the handlers.

use std::fmt;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use levity_core::CancelToken;
use levity_runtime::SystemWorld;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::access_control::{AccessControl, AccessLayer, Audience};
use crate::access_log::AccessLog;
use crate::error::{Error, Result};

mod answer_timer;
mod failures;
mod notice;
mod slots;
mod timed_stream;
mod tls;

pub(crate) use answer_timer::AnswerTimer;
pub(crate) use failures::{Failures, Penalty};
pub use notice::{ListenNotice, check_exposure};
use slots::Slots;
pub(crate) use slots::{NoSlot, Slot};
use timed_stream::TimedStream;

/// The limits of a [`Listener`]: numbers of connections, and timeouts for clients without a token.
///
/// A connection is unauthenticated until a request on it presents a valid token. When all slots for
/// unauthenticated connections are taken, the listener answers the one that has waited longest with
/// 503 and closes it. It chooses one of the same address if that address has too many, else one of
/// the address with the most connections. Idle connections therefore never lock out a client that
/// sends its request at once, even at the same address.
///
/// ```
/// use levity_serve::ConnectionLimits;
/// let limits = ConnectionLimits { per_address: 32, ..ConnectionLimits::default() };
/// assert_eq!((limits.unauthenticated, limits.authenticated), (512, 1536));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum number of unauthenticated connections. 512 by default.
    pub unauthenticated: usize,
    /// The maximum number of unauthenticated connections from one address, or from one IPv6 /64
    /// network. 256 by default.
    pub per_address: usize,
    /// The maximum number of authenticated connections, for which these slots are reserved. 1,536
    /// by default. Requests on further connections are answered with 503.
    pub authenticated: usize,
    /// The maximum number of authenticated connections with named tokens of the same tenant. 384 by
    /// default.
    pub per_token: usize,
    /// The time until a request on a connection must present a token, including the TLS handshake.
    /// 10 seconds by default.
    pub unauthenticated_time: Duration,
    /// The number of invalid tokens from one address per minute that are answered without delay. 10
    /// by default.
    pub wrong_tokens: u32,
    /// The delay of the responses to further invalid tokens. 1 second by default. A valid token is
    /// never delayed.
    pub wrong_token_delay: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            unauthenticated: 512,
            per_address: 256,
            authenticated: 1536,
            per_token: 384,
            unauthenticated_time: Duration::from_secs(10),
            wrong_tokens: 10,
            wrong_token_delay: Duration::from_secs(1),
        }
    }
}

/// A listening socket with its access control.
///
/// ```
/// # use levity_serve::{AccessControl, Listener, Token};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_serve::Result<()> {
/// let listener = Listener::bind("127.0.0.1:0", AccessControl::new(Token::generate()?)).await?;
/// println!("listening on {}", listener.address());
/// # Ok(())
/// # }
/// ```
///
/// Set limits, TLS, an access log and a stop token on the listener, then pass it to a service:
/// [`HttpApi::serve`](crate::http::HttpApi::serve),
/// [`McpServer::listen`](crate::mcp::McpServer::listen) or
/// [`BridgeHost::serve`](crate::bridge::BridgeHost::serve).
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    access: AccessControl,
    limits: ConnectionLimits,
    header_time: Duration,
    send_time: Duration,
    stop: CancelToken,
    tls: Option<TlsAcceptor>,
    access_log: Option<AccessLog>,
    on_notice: Option<Arc<failures::NoticeFn>>,
}

impl Listener {
    /// The default maximum number of connections: 2,048, of which 512 may be unauthenticated.
    pub const DEFAULT_CONNECTIONS: usize = 2048;
    /// The default timeout for the head of a request, and for an idle connection between two
    /// requests: 20 seconds.
    pub const DEFAULT_HEADER_TIME: Duration = Duration::from_secs(20);
    /// The default time after which a connection is closed if the client reads nothing of the
    /// pending data: 60 seconds.
    pub const DEFAULT_SEND_TIME: Duration = Duration::from_secs(60);
    /// The maximum size of a request head in bytes, including the final empty line: 64 KiB. A
    /// longer one is answered with 431.
    pub const HEAD_LIMIT: usize = 64 << 10;
    /// The time that connections in progress have to finish when the listener stops: 2 seconds.
    pub const GRACE: Duration = Duration::from_secs(2);

    /// Listens on an address such as `127.0.0.1:8888`. Port 0 selects any free port.
    ///
    /// The socket accepts connections from now on; clients wait until a service serves them.
    ///
    /// ```
    /// use levity_serve::{AccessControl, Error, Listener, Token};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let access = AccessControl::new(Token::generate()?);
    /// let first = Listener::bind("127.0.0.1:0", access.clone()).await?;
    /// let error = Listener::bind(&first.address().to_string(), access).await.unwrap_err();
    /// assert!(matches!(error, Error::Listen { .. }), "the port is in use");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the address is invalid or in use. Also fails if other machines can reach the
    /// address and the access control requires no token.
    pub async fn bind(address: &str, access: AccessControl) -> Result<Self> {
        let failed = |source| Error::Listen {
            address: address.to_owned(),
            source,
        };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let bound = tcp.local_addr().map_err(failed)?;
        if !bound.ip().is_loopback() && !access.has_token() {
            let problem = "is reachable from other machines and requires no token; set a token, or \
                listen on 127.0.0.1";
            return Err(Error::setting("address", problem));
        }
        Ok(Self {
            tcp,
            address: bound,
            access,
            limits: ConnectionLimits::default(),
            header_time: Self::DEFAULT_HEADER_TIME,
            send_time: Self::DEFAULT_SEND_TIME,
            stop: CancelToken::new(),
            tls: None,
            access_log: None,
            on_notice: None,
        })
    }

    /// Sets the maximum number of connections; [`DEFAULT_CONNECTIONS`](Self::DEFAULT_CONNECTIONS)
    /// by default. A quarter of them may be unauthenticated; use [`limits`](Self::limits) to set
    /// each limit.
    ///
    /// With a limit of 100, for example, 25 connections may be unauthenticated (13 from one
    /// address), 75 authenticated, and 18 of one tenant.
    ///
    /// ```
    /// use levity_serve::{AccessControl, Listener};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::open()).await?.connections(100);
    /// assert!(format!("{listener:?}").contains("per_address: 13"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn connections(mut self, limit: usize) -> Self {
        let unauthenticated = (limit / 4).max(1);
        let authenticated = limit.saturating_sub(unauthenticated).max(1);
        self.limits.unauthenticated = unauthenticated;
        self.limits.per_address = unauthenticated.div_ceil(2);
        self.limits.authenticated = authenticated;
        self.limits.per_token = (authenticated / 4).max(1);
        self
    }

    /// Sets all limits for connections.
    ///
    /// Numbers of connections that are zero count as one, so that a listener always accepts
    /// somebody.
    ///
    /// ```
    /// use std::time::Duration;
    /// use levity_serve::{AccessControl, ConnectionLimits, Listener};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let limits = ConnectionLimits {
    ///     unauthenticated_time: Duration::from_secs(3),
    ///     ..ConnectionLimits::default()
    /// };
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::open()).await?.limits(limits);
    /// assert!(format!("{listener:?}").contains("unauthenticated_time: 3s"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limits(mut self, limits: ConnectionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Encrypts connections with a certificate chain and its private key, both PEM files.
    ///
    /// TLS 1.2 and 1.3 are supported, without client certificates. The files are read once; restart
    /// the server after a renewal.
    ///
    /// ```
    /// use levity_serve::{AccessControl, Listener};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::open()).await?;
    /// assert!(!listener.is_encrypted());
    /// let error = listener.tls("missing.pem", "missing.key").unwrap_err();
    /// assert!(error.to_string().contains("missing.pem"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a file cannot be read or has the wrong content, or if every user can read the key.
    pub fn tls(mut self, certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self> {
        self.tls = Some(tls::acceptor(certificates.as_ref(), key.as_ref())?);
        Ok(self)
    }

    /// Returns `true` if connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Logs each request to an access log. By default, requests are not logged.
    #[must_use]
    pub fn access_log(mut self, log: AccessLog) -> Self {
        self.access_log = Some(log);
        self
    }

    /// Calls a function with notices for the operator, such as invalid tokens. The function must
    /// not block.
    ///
    /// ```
    /// use levity_serve::{AccessControl, Listener, Token};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::new(Token::generate()?))
    ///     .await?
    ///     .on_notice(|notice| eprintln!("warning: {notice}"));
    /// # let _ = listener.address();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_notice(mut self, on_notice: impl Fn(&ListenNotice) + Send + Sync + 'static) -> Self {
        self.on_notice = Some(Arc::new(on_notice));
        self
    }

    /// Sets the timeout for the head of a request;
    /// [`DEFAULT_HEADER_TIME`](Self::DEFAULT_HEADER_TIME) by default.
    ///
    /// A client that sends its request byte by byte is disconnected after this time.
    #[must_use]
    pub fn header_time(mut self, time: Duration) -> Self {
        self.header_time = time;
        self
    }

    /// Sets the time after which a connection is closed if the client reads nothing of the pending
    /// data; [`DEFAULT_SEND_TIME`](Self::DEFAULT_SEND_TIME) by default.
    ///
    /// The time starts again whenever the client reads something. A slow client that reads
    /// continuously is not disconnected by it.
    #[must_use]
    pub fn send_time(mut self, time: Duration) -> Self {
        self.send_time = time;
        self
    }

    /// Stops the listener when this token is cancelled. The listener then accepts no more clients,
    /// and those in progress have [`GRACE`](Self::GRACE) to finish.
    ///
    /// ```
    /// use levity_core::CancelToken;
    /// use levity_serve::{AccessControl, Listener, mcp::McpServer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let stop = CancelToken::new();
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::open())
    ///     .await?
    ///     .stop_on(stop.clone());
    /// stop.cancel(); // for example when the process gets a signal
    /// McpServer::builder("empty", "1.0").build()?.listen(listener).await?; // returns at once
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stop_on(mut self, stop: CancelToken) -> Self {
        self.stop = stop;
        self
    }

    /// Returns the address, with the port that was chosen.
    ///
    /// ```
    /// use levity_serve::{AccessControl, Listener};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::open()).await?;
    /// assert_ne!(listener.address().port(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requires no token at this path.
    pub(crate) fn open_at(mut self, path: &'static str) -> Self {
        self.access = self.access.open_at(path);
        self
    }

    /// Returns the token that is cancelled when the listener must stop.
    pub(crate) fn stopped(&self) -> CancelToken {
        self.stop.clone()
    }

    /// Lets clients prove possession of the token instead of sending it.
    pub(crate) fn with_proofs(mut self) -> Result<Self> {
        self.access = self.access.with_proofs()?;
        Ok(self)
    }

    /// Serves only the owner until the listener must stop: named tokens need
    /// [`TokenScope::Admin`](crate::TokenScope::Admin). Dropping the future closes all connections.
    pub(crate) async fn serve(self, router: Router) -> Result<()> {
        self.serve_as(router, Audience::Owner).await
    }

    /// Same as [`serve`](Self::serve), for a router that checks the scopes of its callers itself.
    pub(crate) async fn serve_callers(self, router: Router) -> Result<()> {
        self.serve_as(router, Audience::Callers).await
    }

    /// The accept loop. Failed accepts never end it: an error of one client is ignored, and a lack
    /// of file descriptors makes it pause for 50 ms. After the stop, connections have
    /// [`GRACE`](Self::GRACE) to finish; the rest is closed.
    async fn serve_as(self, router: Router, audience: Audience) -> Result<()> {
        let limits = &self.limits;
        let failures = Failures::new(
            Arc::new(SystemWorld),
            limits.wrong_tokens,
            limits.wrong_token_delay,
            self.on_notice.clone(),
        );
        let layer = AccessLayer::new(
            self.access.clone(),
            audience,
            failures,
            self.access_log.clone(),
        );
        let service = TowerToHyperService::new(layer.before(router));
        let slots = Slots::new(self.limits.clone());
        let mut closed = 0_usize;
        let mut served = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = self.stop.cancelled() => break,
            };
            while served.try_join_next().is_some() {}
            match accepted {
                Ok((stream, address)) => {
                    let (slot, evicted) = slots.enter(address.ip());
                    let local = stream.local_addr().ok();
                    closed = self.report(address.ip(), closed, evicted);
                    let connection = Connection {
                        header_time: self.header_time,
                        send_time: self.send_time,
                        token_time: self.limits.unauthenticated_time,
                        stop: self.stop.clone(),
                        info: ConnectionInfo {
                            slot: Arc::new(slot),
                            address: address.ip().to_canonical(),
                            local,
                            answers: AnswerTimer::default(),
                        },
                    };
                    served.spawn(connection.accept(stream, self.tls.clone(), service.clone()));
                    // Accepted connections get a chance to send their request before new ones evict
                    // them.
                    tokio::task::yield_now().await;
                }
                // The process may have too many open files: current connections continue, and new
                // ones wait.
                Err(error) => pause_after_accept_error(&error).await,
            }
        }
        let _ = timeout(Self::GRACE, async {
            while served.join_next().await.is_some() {}
        })
        .await;
        Ok(())
    }

    /// Reports connections that were closed to make room: the first, and then at each power of ten.
    fn report(&self, address: IpAddr, before: usize, evicted: usize) -> usize {
        let closed = before.saturating_add(evicted);
        if evicted > 0
            && closed.checked_ilog10() != before.checked_ilog10()
            && let Some(on_notice) = &self.on_notice
        {
            on_notice(&ListenNotice::ConnectionsClosed { address, closed });
        }
        closed
    }
}

/// Pauses after a failed accept, unless the error concerns only that one client.
async fn pause_after_accept_error(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        let mut pause = tokio::time::interval(Duration::from_millis(50));
        pause.tick().await;
        pause.tick().await;
    }
}

/// Completes when a connection has presented no token in time; never completes once it has.
async fn token_deadline(slot: Arc<Slot>, time: Duration) {
    if timeout(time, slot.admitted()).await.is_ok() {
        pending::<()>().await;
    }
}

/// Data that all requests on a connection share.
#[derive(Clone)]
pub(crate) struct ConnectionInfo {
    pub(crate) slot: Arc<Slot>,
    pub(crate) address: IpAddr,
    /// The address at which the client reached this server.
    pub(crate) local: Option<SocketAddr>,
    /// Limits the time that the client may take to read a response.
    pub(crate) answers: AnswerTimer,
}

/// The settings and shared data of one accepted connection, before it is served.
struct Connection {
    header_time: Duration,
    send_time: Duration,
    token_time: Duration,
    stop: CancelToken,
    info: ConnectionInfo,
}

impl Connection {
    /// Serves one client, after the TLS handshake if TLS is enabled. Errors concern only this
    /// client and are ignored.
    ///
    /// The deadline for the token starts before the handshake, so a slow handshake does not extend
    /// it.
    async fn accept(
        self,
        stream: TcpStream,
        tls: Option<TlsAcceptor>,
        service: TowerToHyperService<Router>,
    ) {
        // Without `TCP_NODELAY`, a client that waits with its next request gets each small response
        // 40 ms late.
        let _ = stream.set_nodelay(true);
        let slot = self.info.slot.clone();
        let mut late = Box::pin(token_deadline(slot.clone(), self.token_time));
        let Some(tls) = tls else {
            return self.serve(stream, service, late).await;
        };
        let encrypted = tokio::select! {
            encrypted = tls.accept(stream) => encrypted,
            () = &mut late => return,
            () = slot.evicted() => return,
            () = self.stop.cancelled() => return,
        };
        if let Ok(stream) = encrypted {
            self.serve(stream, service, late).await;
        }
    }

    /// Runs the HTTP connection against everything that can end it. An evicted connection gets one
    /// more chance to be polled, so that [`TimedStream`] can send the 503 response. Upgraded
    /// connections, such as WebSockets, leave this future and manage themselves.
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        service: TowerToHyperService<Router>,
        late: impl Future<Output = ()>,
    ) {
        let evicted = Arc::new(AtomicBool::new(false));
        let slot = self.info.slot.clone();
        let info = self.info;
        let answers = info.answers.clone();
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(info.clone());
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_time)
            .max_header_size(Listener::HEAD_LIMIT)
            .max_buf_size(Listener::HEAD_LIMIT)
            .serve_connection(
                TokioIo::new(TimedStream::new(stream, self.send_time, evicted.clone())),
                service,
            )
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = late => return,
            () = answers.expired() => return,
            () = slot.evicted() => {
                evicted.store(true, Ordering::Release);
                let _ = timeout(Listener::GRACE, connection.as_mut()).await;
                return;
            }
            () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            _ = connection => {}
            () = answers.expired() => {}
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .field("access", &self.access)
            .field("limits", &self.limits)
            .field("encrypted", &self.is_encrypted())
            .finish_non_exhaustive()
    }
}
