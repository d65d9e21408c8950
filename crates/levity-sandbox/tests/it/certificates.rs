//! A guarded client on a system without certificates of authorities.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use levity_sandbox::{NetError, NetGuard};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::loopback::{Server, ok};

/// Accepts one encrypted connection. Returns the port.
fn encrypted_server() -> u16 {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures");
    let certificate = CertificateDer::from_pem_file(format!("{fixtures}/tls.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(format!("{fixtures}/tls.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        // The client refuses the handshake, so nothing is read.
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.flush();
    });
    port
}

/// The variable that is set in a process for one test, which has its own certificates.
const OWN_PROCESS: &str = "LEVITY_TEST_OWN_PROCESS";

#[test]
fn client_without_certificates_reaches_http_only() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "certificates::without_certificates"])
        .arg("--nocapture")
        .env(OWN_PROCESS, "1")
        .env("SSL_CERT_FILE", "/nonexistent/file")
        .env("SSL_CERT_DIR", "/nonexistent")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("1 passed"), "{text}");
}

/// Checks nothing unless another test starts it in a process of its own.
#[tokio::test]
async fn without_certificates() {
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    let plain = Server::start(&[("/", ok("hello"))]).await;
    let client = plain.guard().build().unwrap().client().unwrap();
    let request = client.get(&plain.url("/")).unwrap();
    let mut reply = request.send().await.unwrap();
    assert_eq!(reply.read(100).await.unwrap().bytes, b"hello");

    let port = encrypted_server();
    let guard = NetGuard::builder()
        .allow_port(port)
        .allow_address("127.0.0.1")
        .build()
        .unwrap();
    let client = guard.client().unwrap();
    let request = client.get(&format!("https://127.0.0.1:{port}/")).unwrap();
    let error = request.send().await.unwrap_err();
    assert!(matches!(error, NetError::NoCertificates), "{error:?}");
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("SSL_CERT_FILE"), "{error}");
}
