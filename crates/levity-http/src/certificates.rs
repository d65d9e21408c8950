//! TLS without certificates of authorities: every connection fails, with a message that helps.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use reqwest::Client;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};

/// The reason why a request to an `https` address failed: no certificate could be loaded.
///
/// ```
/// use levity_http::NoCertificates;
///
/// assert!(NoCertificates.to_string().contains("SSL_CERT_FILE"));
/// // Other errors have other causes.
/// let error = std::io::Error::other("refused");
/// assert!(!NoCertificates::caused(&error));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCertificates;

impl NoCertificates {
    /// Looks for certificates of authorities on this system.
    ///
    /// # Errors
    /// Returns an error if there are none.
    pub fn check() -> Result<(), Self> {
        crate::install_provider();
        match Client::builder().build() {
            Ok(_) => Ok(()),
            Err(_) => Err(Self),
        }
    }

    /// Returns `true` if this is the cause of an error.
    pub fn caused(error: &(dyn Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(rustls::Error::Other(OtherError(inner))) = error.downcast_ref() {
                return inner.is::<Self>();
            }
            // `io::Error` does not return the error inside as its source.
            let inner = error.downcast_ref().and_then(io::Error::get_ref);
            next = match inner {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        false
    }
}

impl fmt::Display for NoCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "`https` needs the certificates of authorities, and this system has none; install the \
             package `ca-certificates`, or set `SSL_CERT_FILE` to a file with certificates",
        )
    }
}

impl Error for NoCertificates {}

impl From<NoCertificates> for rustls::Error {
    fn from(error: NoCertificates) -> Self {
        OtherError(Arc::new(error)).into()
    }
}

/// Returns a configuration whose handshakes fail with [`NoCertificates`].
///
/// Returns `None` if the installed provider supports no version of TLS.
pub(crate) fn refuse_all() -> Option<ClientConfig> {
    let provider = Arc::clone(CryptoProvider::get_default()?);
    let verifier = Arc::new(RefuseAll(Arc::clone(&provider)));
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Some(
        versions
            .ok()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth(),
    )
}

/// A verifier that accepts no certificate.
#[derive(Debug)]
struct RefuseAll(Arc<CryptoProvider>);

impl ServerCertVerifier for RefuseAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Err(NoCertificates.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(NoCertificates.into())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(NoCertificates.into())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = self.0.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
