use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use levity_core::CancelToken;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::gate::Gate;

mod stalled;

use stalled::Stalled;

/// An address that is listened on, and who is let in.
///
/// ```
/// # use levity_serve::{Gate, Listener, Token};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_serve::Result<()> {
/// let listener = Listener::bind("127.0.0.1:0", Gate::new(Token::generate()?)).await?;
/// println!("listening on {}", listener.address());
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    gate: Gate,
    connections: usize,
    header_time: Duration,
    send_time: Duration,
    stop: CancelToken,
}

impl Listener {
    /// How many connections there may be at once: 2,048. Further ones are closed at once.
    pub const DEFAULT_CONNECTIONS: usize = 2048;
    /// How long a client may take to send the head of a request, and how long a connection may be idle between two: 20 seconds.
    pub const DEFAULT_HEADER_TIME: Duration = Duration::from_secs(20);
    /// How long a client may take nothing of what waits to be sent to it: 60 seconds. It is closed then.
    pub const DEFAULT_SEND_TIME: Duration = Duration::from_secs(60);
    /// How long those who are being served have to come to an end when the listener is stopped: 2 seconds.
    pub const GRACE: Duration = Duration::from_secs(2);

    /// Listens on an address such as `127.0.0.1:8888`; port 0 is any that is free.
    ///
    /// # Errors
    /// When the address makes no sense, is taken, or can be reached from other machines while the gate asks for no token.
    pub async fn bind(address: &str, gate: Gate) -> Result<Self> {
        let failed = |source| Error::Listen { address: address.to_owned(), source };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let bound = tcp.local_addr().map_err(failed)?;
        if !bound.ip().is_loopback() && !gate.has_token() {
            let problem = "can be reached from other machines; give it a token, or listen on 127.0.0.1";
            return Err(Error::setting("address", problem));
        }
        Ok(Self {
            tcp,
            address: bound,
            gate,
            connections: Self::DEFAULT_CONNECTIONS,
            header_time: Self::DEFAULT_HEADER_TIME,
            send_time: Self::DEFAULT_SEND_TIME,
            stop: CancelToken::new(),
        })
    }

    /// How many connections there may be at once; [`DEFAULT_CONNECTIONS`](Self::DEFAULT_CONNECTIONS) by default.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// How long a client may take to send the head of a request; [`DEFAULT_HEADER_TIME`](Self::DEFAULT_HEADER_TIME) by default.
    #[must_use]
    pub fn header_time(mut self, time: Duration) -> Self {
        self.header_time = time;
        self
    }

    /// How long a client may take nothing of what waits to be sent to it; [`DEFAULT_SEND_TIME`](Self::DEFAULT_SEND_TIME) by
    /// default.
    #[must_use]
    pub fn send_time(mut self, time: Duration) -> Self {
        self.send_time = time;
        self
    }

    /// Stops when this is cancelled: nobody is let in any more, and those who are being served have [`GRACE`](Self::GRACE).
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

    /// Serves until it is told to stop. Dropping the future closes all connections.
    pub(crate) async fn serve(self, router: Router) -> Result<()> {
        let service = TowerToHyperService::new(self.gate.clone().before(router));
        let room = Arc::new(Semaphore::new(self.connections));
        let mut served = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = self.stop.cancelled() => break,
            };
            while served.try_join_next().is_some() {}
            match (accepted, room.clone().try_acquire_owned()) {
                (Ok((stream, _)), Ok(permit)) => {
                    let connection = Connection {
                        header_time: self.header_time,
                        send_time: self.send_time,
                        stop: self.stop.clone(),
                        _permit: permit,
                    };
                    served.spawn(connection.serve(stream, service.clone()));
                }
                // There is no room: whoever it is may come again.
                (Ok(_), Err(_)) => {}
                // Such as too many open files: those who are being served go on, and others wait.
                (Err(error), _) => breathe(&error).await,
            }
        }
        let _ =
            tokio::time::timeout(Self::GRACE, async { while served.join_next().await.is_some() {} }).await;
        Ok(())
    }
}

/// Lets some time pass after an accept that failed, unless only that one client is concerned.
async fn breathe(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        let mut pause = tokio::time::interval(Duration::from_millis(50));
        pause.tick().await;
        pause.tick().await;
    }
}

struct Connection {
    header_time: Duration,
    send_time: Duration,
    stop: CancelToken,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Serves one client. How that ends concerns only the client.
    async fn serve(self, stream: TcpStream, service: TowerToHyperService<Router>) {
        // Small answers go out at once; otherwise a client that waits with its next request has each of them 40 ms late.
        let _ = stream.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_time)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(Stalled::new(stream, self.send_time)), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
