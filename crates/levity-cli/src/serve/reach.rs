//! Who reaches a server, and how.

use std::path::{Path, PathBuf};

use clap::Args;
use levity::serve::{
    AccessControl, AccessLog, ConnectionLimits, Listener, Token, Tokens, check_exposure,
};

use crate::terminal::{chain, note};
use crate::token::token;

/// Tokens, encryption and the access log of a server.
#[derive(Args)]
pub(super) struct Reach {
    /// The file with tokens that have names and scopes; `levity serve token` writes it. The
    /// server's own token is then only taken where `--token-file` or `LEVITY_TOKEN` gives one.
    #[arg(long, value_name = "FILE")]
    named_tokens: Option<PathBuf>,
    /// How much of each limit the tokens of one tenant may take together, in percent; 25 by
    /// default, one place at least. It counts for runs, requests, tool calls, event streams, large
    /// bodies, connections and MCP sessions. Tokens with the scope `admin`, and the server's own,
    /// may take all.
    #[arg(long, value_name = "PERCENT", requires = "named_tokens", value_parser = clap::value_parser!(u8).range(1..=100))]
    token_share: Option<u8>,
    /// Encrypt connections: the file with the certificate chain, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The file with the certificate's private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let other machines reach the server without encryption, such as behind a proxy that
    /// encrypts.
    #[arg(long)]
    allow_plaintext: bool,
    /// Note each request in this file, as JSON lines: who, what, status, duration. `-` is standard
    /// error.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
}

/// What else a listener is made of.
pub(super) struct At<'a> {
    pub(super) address: &'a str,
    pub(super) token_file: Option<&'a Path>,
    /// The token's file in the user's state folder.
    pub(super) token_name: &'a str,
    pub(super) hosts: &'a [String],
    pub(super) origins: &'a [String],
}

impl Reach {
    /// How much of each limit one tenant may take, in percent, where that is said.
    pub(super) fn token_share(&self) -> Option<u8> {
        self.token_share
    }

    pub(super) async fn listen(&self, at: At<'_>) -> Result<Listener, String> {
        let gate = self.gate(&at)?.hosts(at.hosts).origins(at.origins);
        let mut listener = Listener::bind(at.address, gate)
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

    fn gate(&self, at: &At<'_>) -> Result<AccessControl, String> {
        const VARIABLE: &str = "LEVITY_TOKEN";
        let Some(path) = &self.named_tokens else {
            return Ok(AccessControl::new(token(
                VARIABLE,
                at.token_file,
                at.token_name,
            )?));
        };
        let tokens = Tokens::from_file(path).map_err(|error| chain(&error))?;
        let given = Token::from_env(VARIABLE).map_err(|error| chain(&error))?;
        if at.token_file.is_some() || given.is_some() {
            return Ok(
                AccessControl::new(token(VARIABLE, at.token_file, at.token_name)?).tokens(tokens),
            );
        }
        match tokens.list().as_slice() {
            [] => Err(format!(
                "`{}` has no tokens; add one by `levity serve token add`",
                path.display()
            )),
            list => {
                note(&format!(
                    "clients show one of the {} tokens in `{}`",
                    list.len(),
                    path.display()
                ));
                Ok(AccessControl::named(tokens))
            }
        }
    }
}
