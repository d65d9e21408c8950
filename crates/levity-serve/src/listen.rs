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

use crate::access_log::AccessLog;
use crate::error::{Error, Result};
use crate::gate::{AccessControl, Door, Serves};

mod answers;
mod failures;
mod notice;
mod slots;
mod stalled;
mod tls;

pub(crate) use answers::AnswerTimer;
pub(crate) use failures::{Failures, Penalty};
pub use notice::{ListenNotice, check_exposure};
use slots::Slots;
pub(crate) use slots::{NoSlot, Slot};
use stalled::Stalled;

/// How many connections a [`Listener`] has at once, and how long those that show no token may stay.
///
/// A connection belongs to those without a token until a request on it shows a right one. When such
/// connections take all their places, the one that has waited longest is answered with 503 and
/// closed: one of the same address when that address has too many, else one of the address that has
/// most. So idle connections never lock out a client that sends its request at once, also at the
/// same address.
///
/// ```
/// use levity_serve::ConnectionLimits;
/// let limits = ConnectionLimits { per_address: 32, ..ConnectionLimits::default() };
/// assert_eq!((limits.unauthenticated, limits.authenticated), (512, 1536));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How many connections that have shown no token there are. 512 by default.
    pub unauthenticated: usize,
    /// How many of them come from one address, or one IPv6 network of 64 bits. 256 by default.
    pub per_address: usize,
    /// How many connections that have shown a token there are; these places are reserved for them.
    /// 1,536 by default. Requests on further ones are answered with 503.
    pub authenticated: usize,
    /// How many of them show named tokens of the same tenant. 384 by default.
    pub per_token: usize,
    /// How long a connection may take until a request on it shows a token, encryption included. 10
    /// seconds by default.
    pub unauthenticated_time: Duration,
    /// How many wrong tokens of one address in a minute are answered at once. 10 by default.
    pub wrong_tokens: u32,
    /// How long the answers to further ones are held back. 1 second by default. A right token is
    /// never held back.
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

/// An address that is listened on, and who is let in.
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
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    gate: AccessControl,
    limits: ConnectionLimits,
    header_time: Duration,
    send_time: Duration,
    stop: CancelToken,
    tls: Option<TlsAcceptor>,
    access_log: Option<AccessLog>,
    tell: Option<Arc<failures::Tell>>,
}

impl Listener {
    /// How many connections there may be at once: 2,048, of which 512 may have shown no token.
    pub const DEFAULT_CONNECTIONS: usize = 2048;
    /// How long a client may take to send the head of a request, and how long a connection may be
    /// idle between two: 20 seconds.
    pub const DEFAULT_HEADER_TIME: Duration = Duration::from_secs(20);
    /// How long a client may take nothing of what waits to be sent to it: 60 seconds. It is closed
    /// then.
    pub const DEFAULT_SEND_TIME: Duration = Duration::from_secs(60);
    /// How many bytes the head of a request may have, the empty line behind it included: 64 KiB. A
    /// longer one is answered with 431.
    pub const HEAD_LIMIT: usize = 64 << 10;
    /// How long those who are being served have to come to an end when the listener is stopped: 2
    /// seconds.
    pub const GRACE: Duration = Duration::from_secs(2);

    /// Listens on an address such as `127.0.0.1:8888`; port 0 is any that is free.
    ///
    /// # Errors
    /// When the address makes no sense, is taken, or can be reached from other machines while the
    /// gate asks for no token.
    pub async fn bind(address: &str, gate: AccessControl) -> Result<Self> {
        let failed = |source| Error::Listen {
            address: address.to_owned(),
            source,
        };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let bound = tcp.local_addr().map_err(failed)?;
        if !bound.ip().is_loopback() && !gate.has_token() {
            let problem =
                "can be reached from other machines; give it a token, or listen on 127.0.0.1";
            return Err(Error::setting("address", problem));
        }
        Ok(Self {
            tcp,
            address: bound,
            gate,
            limits: ConnectionLimits::default(),
            header_time: Self::DEFAULT_HEADER_TIME,
            send_time: Self::DEFAULT_SEND_TIME,
            stop: CancelToken::new(),
            tls: None,
            access_log: None,
            tell: None,
        })
    }

    /// How many connections there may be at once;
    /// [`DEFAULT_CONNECTIONS`](Self::DEFAULT_CONNECTIONS) by default. A quarter of them may have
    /// shown no token; set [`limits`](Self::limits) for more.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        let unauthenticated = (most / 4).max(1);
        let authenticated = most.saturating_sub(unauthenticated).max(1);
        self.limits.unauthenticated = unauthenticated;
        self.limits.per_address = unauthenticated.div_ceil(2);
        self.limits.authenticated = authenticated;
        self.limits.per_token = (authenticated / 4).max(1);
        self
    }

    /// How many connections there may be, of whom, and for how long.
    #[must_use]
    pub fn limits(mut self, limits: ConnectionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Encrypts connections with a certificate chain and its private key, both PEM files.
    ///
    /// # Errors
    /// When a file cannot be read, does not hold what it should, or everybody can read the key.
    pub fn tls(mut self, certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self> {
        self.tls = Some(tls::acceptor(certificates.as_ref(), key.as_ref())?);
        Ok(self)
    }

    /// Returns whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Notes each request; nowhere by default.
    #[must_use]
    pub fn access_log(mut self, log: AccessLog) -> Self {
        self.access_log = Some(log);
        self
    }

    /// Calls `tell` with what the operator should know, such as wrong tokens; it must not block.
    #[must_use]
    pub fn on_notice(mut self, tell: impl Fn(&ListenNotice) + Send + Sync + 'static) -> Self {
        self.tell = Some(Arc::new(tell));
        self
    }

    /// How long a client may take to send the head of a request;
    /// [`DEFAULT_HEADER_TIME`](Self::DEFAULT_HEADER_TIME) by default.
    #[must_use]
    pub fn header_time(mut self, time: Duration) -> Self {
        self.header_time = time;
        self
    }

    /// How long a client may take nothing of what waits to be sent to it;
    /// [`DEFAULT_SEND_TIME`](Self::DEFAULT_SEND_TIME) by default.
    #[must_use]
    pub fn send_time(mut self, time: Duration) -> Self {
        self.send_time = time;
        self
    }

    /// Stops when this is cancelled: nobody is let in any more, and those who are being served have
    /// [`GRACE`](Self::GRACE).
    #[must_use]
    pub fn until(mut self, stop: CancelToken) -> Self {
        self.stop = stop;
        self
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks for no token at this path.
    pub(crate) fn open_at(mut self, path: &'static str) -> Self {
        self.gate = self.gate.open_at(path);
        self
    }

    /// Is cancelled when it is told to stop.
    pub(crate) fn stopped(&self) -> CancelToken {
        self.stop.clone()
    }

    /// Lets clients prove that they have the token instead of sending it.
    pub(crate) fn with_proofs(mut self) -> Result<Self> {
        self.gate = self.gate.with_proofs()?;
        Ok(self)
    }

    /// Serves its owner until it is told to stop: named tokens need
    /// [`TokenScope::Admin`](crate::TokenScope::Admin). Dropping the future closes all connections.
    pub(crate) async fn serve(self, router: Router) -> Result<()> {
        self.serve_as(router, Serves::Owner).await
    }

    /// The same for a router that checks the scopes of its callers itself.
    pub(crate) async fn serve_callers(self, router: Router) -> Result<()> {
        self.serve_as(router, Serves::Callers).await
    }

    async fn serve_as(self, router: Router, serves: Serves) -> Result<()> {
        let limits = &self.limits;
        let failures = Failures::new(
            Arc::new(SystemWorld),
            limits.wrong_tokens,
            limits.wrong_token_delay,
            self.tell.clone(),
        );
        let door = Door::new(self.gate.clone(), serves, failures, self.access_log.clone());
        let service = TowerToHyperService::new(door.before(router));
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
                        visit: Visit {
                            slot: Arc::new(slot),
                            address: address.ip().to_canonical(),
                            local,
                            answers: AnswerTimer::default(),
                        },
                    };
                    served.spawn(connection.accept(stream, self.tls.clone(), service.clone()));
                    // Those that have come are heard before others take their places.
                    tokio::task::yield_now().await;
                }
                // Such as too many open files: those who are being served go on, and others wait.
                Err(error) => breathe(&error).await,
            }
        }
        let _ = timeout(Self::GRACE, async {
            while served.join_next().await.is_some() {}
        })
        .await;
        Ok(())
    }

    /// Reports connections that were closed to make room: the first, and then each power of ten.
    fn report(&self, address: IpAddr, before: usize, evicted: usize) -> usize {
        let closed = before.saturating_add(evicted);
        if evicted > 0
            && closed.checked_ilog10() != before.checked_ilog10()
            && let Some(tell) = &self.tell
        {
            tell(&ListenNotice::Crowded { address, closed });
        }
        closed
    }
}

/// Lets some time pass after an accept that failed, unless only that one client is concerned.
async fn breathe(error: &io::Error) {
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

/// Ends when a connection has shown no token in time; never when it has.
async fn too_late(slot: Arc<Slot>, time: Duration) {
    if timeout(time, slot.admitted()).await.is_ok() {
        pending::<()>().await;
    }
}

/// What requests on a connection have in common.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) slot: Arc<Slot>,
    pub(crate) address: IpAddr,
    /// Where the client reached this server.
    pub(crate) local: Option<SocketAddr>,
    /// How long the client may take for an answer.
    pub(crate) answers: AnswerTimer,
}

struct Connection {
    header_time: Duration,
    send_time: Duration,
    token_time: Duration,
    stop: CancelToken,
    visit: Visit,
}

impl Connection {
    /// Serves one client, once the connection is encrypted, if it is to be. How that ends concerns
    /// only the client.
    async fn accept(
        self,
        stream: TcpStream,
        tls: Option<TlsAcceptor>,
        service: TowerToHyperService<Router>,
    ) {
        // Small answers go out at once; otherwise a client that waits with its next request has
        // each of them 40 ms late.
        let _ = stream.set_nodelay(true);
        let slot = self.visit.slot.clone();
        let mut late = Box::pin(too_late(slot.clone(), self.token_time));
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

    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        service: TowerToHyperService<Router>,
        late: impl Future<Output = ()>,
    ) {
        let turned_away = Arc::new(AtomicBool::new(false));
        let slot = self.visit.slot.clone();
        let visit = self.visit;
        let answers = visit.answers.clone();
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(visit.clone());
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_time)
            .max_header_size(Listener::HEAD_LIMIT)
            .max_buf_size(Listener::HEAD_LIMIT)
            .serve_connection(
                TokioIo::new(Stalled::new(stream, self.send_time, turned_away.clone())),
                service,
            )
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = late => return,
            () = answers.expired() => return,
            () = slot.evicted() => {
                turned_away.store(true, Ordering::Release);
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
            .field("gate", &self.gate)
            .field("limits", &self.limits)
            .field("encrypted", &self.is_encrypted())
            .finish_non_exhaustive()
    }
}
