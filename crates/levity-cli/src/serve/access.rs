//! Access to a server: tokens, encryption and the access log.
//!
//! Both servers over TCP, HTTP and MCP, share these options and the one function that opens a
//! listener, so neither can be exposed with weaker rules than the other. A server always requires a
//! token; there is no option to turn it off.
//!
//! Two kinds of tokens exist. The server's own token belongs to its operator and may do everything.
//! Named tokens have scopes and a tenant, and a share of each limit, so that one tenant cannot
//! starve the others. With named tokens, the own token is accepted only if the operator provides it
//! explicitly; a forgotten default file must not be a second way in.
//!
//! An address that other machines reach requires encryption or `--allow-plaintext`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use levity::serve::mcp::McpServer;
use levity::serve::{
    AccessControl, AccessLog, ConnectionLimits, Listener, Token, Tokens, check_exposure,
};

use super::{scheme, serve_until_shutdown, shutdown_signal};
use crate::terminal::{chain, note, report_error};
use crate::token::token;

/// The variable that holds the server's own token.
const VARIABLE: &str = "LEVITY_TOKEN";

/// Tokens, encryption and the access log of a server.
#[derive(Args)]
pub(super) struct AccessArgs {
    /// File with tokens that have names and scopes; `levity serve token` writes it. The server's
    /// own token is then only accepted if `--token-file` or `LEVITY_TOKEN` provides one.
    #[arg(long, value_name = "FILE")]
    named_tokens: Option<PathBuf>,
    /// Share of each limit that the tokens of one tenant may use together, in percent; 25 by
    /// default, and at least one place. It applies to runs, requests, tool calls, event streams,
    /// large bodies, connections and MCP sessions. Tokens with the scope `admin`, and the server's
    /// own token, may use all.
    #[arg(
        long,
        value_name = "PERCENT",
        requires = "named_tokens",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    token_share: Option<u8>,
    /// Encrypt connections with the certificate chain in this file, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let other machines reach the server without encryption, such as behind a proxy that
    /// encrypts.
    #[arg(long)]
    allow_plaintext: bool,
    /// Log each request to this file, as JSON Lines: client, request, status, duration. `-` is
    /// standard error.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
}

/// The transport of an MCP server: standard input and output, or HTTP.
#[derive(Args)]
pub(super) struct TransportArgs {
    /// Listen on this address, such as `127.0.0.1:8000`, at `/mcp`, instead of stdin and stdout.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// File with the token that clients must send; created if it does not exist. By default
    /// `LEVITY_TOKEN`, or `levity/mcp.token` in the user's state folder.
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Host name that clients may use for this server, besides loopback names; may be given more
    /// than once.
    #[arg(long, value_name = "NAME", requires = "http")]
    allow_host: Vec<String>,
    /// Origin of web pages that may call this server, besides the loopback; may be given more than
    /// once.
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    #[command(flatten)]
    access: AccessArgs,
}

impl TransportArgs {
    /// Returns the share of each limit that one tenant may use, in percent, if it is set.
    pub(super) fn token_share(&self) -> Option<u8> {
        self.access.token_share()
    }

    /// Serves over HTTP if `--http` is given, else over standard input and output. A listener that
    /// cannot be opened is a wrong call, 2.
    pub(super) async fn serve(&self, server: McpServer) -> ExitCode {
        match self.listener().await {
            Ok(Some(listener)) => {
                let report = |listener: &Listener| {
                    note(&format!(
                        "MCP at {}://{}/mcp",
                        scheme(listener),
                        listener.address()
                    ));
                };
                serve_until_shutdown(listener, report, |listener| async move {
                    server.listen(listener).await
                })
                .await
            }
            Ok(None) => serve_stdio(server).await,
            Err(problem) => report_error(&problem, 2),
        }
    }

    /// Opens the listener of `--http`; none without it.
    async fn listener(&self) -> Result<Option<Listener>, String> {
        let Some(address) = &self.http else {
            return Ok(None);
        };
        let config = ListenerConfig {
            address,
            token_file: self.token_file.as_deref(),
            token_name: "mcp.token",
            hosts: &self.allow_host,
            origins: &self.allow_origin,
        };
        self.access.listen(&config).await.map(Some)
    }
}

/// Ends when the client closes standard input, or at a shutdown signal. Requests in progress are
/// dropped then, and runs stay in the journal, if one is used.
async fn serve_stdio(server: McpServer) -> ExitCode {
    tokio::select! {
        ended = server.stdio() => match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_error(&chain(&error), 1),
        },
        () = shutdown_signal() => ExitCode::SUCCESS,
    }
}

/// The other settings of a listener.
///
/// These settings differ between the servers: each has its own default address and its own token
/// file.
pub(super) struct ListenerConfig<'a> {
    pub(super) address: &'a str,
    pub(super) token_file: Option<&'a Path>,
    /// The token's file in the user's state folder.
    pub(super) token_name: &'a str,
    pub(super) hosts: &'a [String],
    pub(super) origins: &'a [String],
}

impl AccessArgs {
    /// Returns the share of each limit that one tenant may use, in percent, if it is set.
    pub(super) fn token_share(&self) -> Option<u8> {
        self.token_share
    }

    /// Binds the address and applies tokens, limits, TLS, the check of exposure and the access log,
    /// in this order. The share of connections is at least one, also for a small percentage.
    ///
    /// # Errors
    /// No token can be found or created, the address is in use, the certificate or key is unusable,
    /// the server would be reachable without encryption, or the access log cannot be opened. The
    /// caller reports each as a wrong call.
    pub(super) async fn listen(&self, config: &ListenerConfig<'_>) -> Result<Listener, String> {
        let access_control = self
            .access_control(config)?
            .hosts(config.hosts)
            .origins(config.origins);
        let mut listener = Listener::bind(config.address, access_control)
            .await
            .map_err(|error| chain(&error))?;
        if let Some(percent) = self.token_share {
            let mut limits = ConnectionLimits::default();
            limits.per_token = (limits.authenticated * usize::from(percent) / 100).max(1);
            listener = listener.limits(limits);
        }
        if let (Some(certificates), Some(key)) = (&self.tls_cert, &self.tls_key) {
            listener = listener
                .tls(certificates, key)
                .map_err(|error| chain(&error))?;
        }
        let exposed = check_exposure(
            listener.address(),
            listener.is_encrypted(),
            self.allow_plaintext,
        );
        if let Some(warning) = exposed.map_err(|error| chain(&error))? {
            note(&format!("warning: {warning}"));
        }
        if let Some(path) = &self.access_log {
            let log = match path.as_os_str() == "-" {
                true => AccessLog::new(|record| note(&record.line())),
                false => AccessLog::file(path).map_err(|error| chain(&error))?,
            };
            listener = listener.access_log(log);
        }
        Ok(listener.on_notice(|notice| note(&notice.to_string())))
    }

    /// Returns the server's own token, which [`listen`](Self::listen) has created if necessary.
    ///
    /// # Errors
    /// Fails if the server accepts only named tokens.
    pub(super) fn own_token(&self, config: &ListenerConfig<'_>) -> Result<Token, String> {
        let given = Token::from_env(VARIABLE).map_err(|error| chain(&error))?;
        if self.named_tokens.is_some() && config.token_file.is_none() && given.is_none() {
            return Err(format!(
                "the page needs the server's own token; set `{VARIABLE}` or `--token-file`"
            ));
        }
        token(VARIABLE, config.token_file, config.token_name)
    }

    /// Returns the tokens that clients may send, by the rules of the module. An empty file of named
    /// tokens without an own token is an error, since nobody could connect.
    fn access_control(&self, config: &ListenerConfig<'_>) -> Result<AccessControl, String> {
        let Some(path) = &self.named_tokens else {
            return Ok(AccessControl::new(token(
                VARIABLE,
                config.token_file,
                config.token_name,
            )?));
        };
        let tokens = Tokens::from_file(path).map_err(|error| chain(&error))?;
        let given = Token::from_env(VARIABLE).map_err(|error| chain(&error))?;
        if config.token_file.is_some() || given.is_some() {
            return Ok(
                AccessControl::new(token(VARIABLE, config.token_file, config.token_name)?)
                    .tokens(tokens),
            );
        }
        match tokens.list().as_slice() {
            [] => Err(format!(
                "`{}` has no tokens; add one with `levity serve token add`",
                path.display()
            )),
            list => {
                note(&format!(
                    "clients must send one of the {} tokens in `{}`",
                    list.len(),
                    path.display()
                ));
                Ok(AccessControl::named(tokens))
            }
        }
    }
}
