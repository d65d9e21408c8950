//! Tests of clients with and without certificates of authorities on the system.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use levity_http::NoCertificates;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures");

/// Answers one request with `hello`. Returns the port.
fn server(encrypted: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        if !encrypted {
            return answer(stream);
        }
        let certificate = CertificateDer::from_pem_file(format!("{FIXTURES}/tls.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(format!("{FIXTURES}/tls.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        answer(StreamOwned::new(connection, stream));
    });
    port
}

fn answer(mut stream: impl Read + Write) {
    // A refused handshake ends the stream.
    let mut request = [0; 4096];
    if stream.read(&mut request).is_ok_and(|size| size > 0) {
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
        stream.write_all(reply).unwrap();
        let _ = stream.flush();
    }
}

async fn get(url: String) -> Result<String, reqwest::Error> {
    let client = levity_http::client(reqwest::ClientBuilder::no_proxy)?;
    client.get(url).send().await?.text().await
}

/// The variable that is set in a process for one test, which has its own certificates.
const OWN_PROCESS: &str = "LEVITY_TEST_OWN_PROCESS";

/// Runs a test of this binary in a process of its own, with other certificates.
fn run_with(test: &str, certificates: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(OWN_PROCESS, "1")
        .env("SSL_CERT_FILE", certificates)
        .env("SSL_CERT_DIR", "/nonexistent")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn client_without_certificates_reaches_http_only() {
    run_with("without_certificates", Path::new("/nonexistent/file"));
}

#[test]
fn client_with_empty_file_of_certificates_reaches_http_only() {
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    run_with("without_certificates", &empty);
}

#[test]
fn client_with_certificates_reaches_https() {
    run_with(
        "with_certificates",
        Path::new(&format!("{FIXTURES}/tls.pem")),
    );
}

/// Checks nothing unless another test starts it in a process of its own.
#[tokio::test]
async fn without_certificates() {
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    assert_eq!(NoCertificates::check(), Err(NoCertificates));
    let plain = server(false);
    assert_eq!(
        get(format!("http://127.0.0.1:{plain}")).await.unwrap(),
        "hello"
    );

    let encrypted = server(true);
    let error = get(format!("https://localhost:{encrypted}"))
        .await
        .unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    assert!(NoCertificates::caused(&error), "{error:?}");
    // The message is that of the last cause.
    let mut last: &dyn Error = &error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    assert!(last.to_string().contains("SSL_CERT_FILE"), "{last}");
}

/// Checks nothing unless another test starts it in a process of its own.
#[tokio::test]
async fn with_certificates() {
    if std::env::var_os(OWN_PROCESS).is_none() {
        return;
    }
    assert_eq!(NoCertificates::check(), Ok(()));
    let encrypted = server(true);
    assert_eq!(
        get(format!("https://localhost:{encrypted}")).await.unwrap(),
        "hello"
    );
}

#[tokio::test]
async fn refused_connection_is_no_missing_certificate() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    assert!(TcpStream::connect(address).is_err());
    let error = get(format!("http://{address}")).await.unwrap_err();
    assert!(!NoCertificates::caused(&error), "{error:?}");
}
