//! TLS configuration from certificate files.
//!
//! Only HTTP/1.1 is offered in ALPN. The cryptography comes from `ring`, passed explicitly, so that
//! the process needs no global default provider.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::{Error, Result};

/// Creates a TLS acceptor from a certificate chain and its key, both PEM files.
pub(super) fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor> {
    let bad = |path: &Path, error: &dyn std::fmt::Display| Error::Io {
        what: format!("cannot use the TLS file `{}`", path.display()),
        source: io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    };
    if is_open_to_all(key) {
        let problem = format!(
            "`{0}` is readable by every user; run chmod 600 `{0}`",
            key.display()
        );
        return Err(Error::setting("tls-key", problem));
    }
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect)
        .map_err(|error| bad(certificates, &error))?;
    if chain.is_empty() {
        return Err(bad(certificates, &"it has no certificate"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(certificates, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| bad(certificates, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns `true` if users outside the owner and the group can access the key. A group is accepted,
/// because certificate tools often share keys through one.
#[cfg(unix)]
fn is_open_to_all(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).is_ok_and(|file| file.mode() & 0o007 != 0)
}

#[cfg(not(unix))]
fn is_open_to_all(path: &Path) -> bool {
    let _ = fs::metadata(path);
    false
}
