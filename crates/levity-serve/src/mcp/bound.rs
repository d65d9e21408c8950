use std::net::SocketAddr;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::McpServer;
use super::error::{Error, ErrorKind};
use super::http::Gate;

/// How many connections there are at a time; others wait until one ends.
const CONNECTIONS: usize = 1024;

/// A server that has a port, and answers at it once it [runs](Self::run).
#[derive(Debug)]
pub struct Bound {
    server: McpServer,
    listener: TcpListener,
    address: SocketAddr,
}

impl McpServer {
    /// Takes a port: `127.0.0.1:0` for one that is free. Only programs on this computer are answered, and pages served from it.
    ///
    /// # Errors
    /// When the port cannot be had.
    pub async fn bind(&self, address: &str) -> Result<Bound, Error> {
        let failed = |error| {
            Error::new(ErrorKind::Transport, format!("`{address}` cannot be listened at")).with_source(error)
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Bound { server: self.clone(), listener, address })
    }
}

impl Bound {
    /// The address it has.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for clients.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Answers clients until the future is dropped.
    pub async fn run(self) {
        let router = self.server.http(Gate::default());
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => {
                    // A connection that broke before it was there is its client's concern.
                    if let Ok((stream, _)) = accepted {
                        connections.spawn(serve(stream, router.clone()));
                    }
                }
            }
        }
    }
}

async fn serve(stream: TcpStream, router: axum::Router) {
    let _ = stream.set_nodelay(true);
    let connection =
        http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // What goes wrong with a connection ends it.
    let _ = connection.await;
}
