//! TLS connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levity_core::CancelToken;
use levity_runtime::MemoryJournal;
use levity_serve::{AccessControl, ConnectionLimits, Listener, Runs, Token, check_exposure};
use levity_test::ScriptedModel;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::client::TOKEN;
use super::support::{Server, agent};

const CERTIFICATE: &str = include_str!("../fixtures/tls.pem");
const KEY: &str = include_str!("../fixtures/tls.key");

fn files(folder: &Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("tls.pem"), folder.join("tls.key"));
    fs::write(&certificate, CERTIFICATE).unwrap();
    fs::write(&key, KEY).unwrap();
    mode(&key, 0o600);
    (certificate, key)
}

fn mode(path: &Path, mode: u32) {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    #[cfg(not(unix))]
    let _ = (path, mode);
}

async fn listener() -> Listener {
    Listener::bind(
        "127.0.0.1:0",
        AccessControl::new(Token::new(TOKEN).unwrap()),
    )
    .await
    .unwrap()
}

#[tokio::test]
async fn tls_server_answers_only_tls_clients() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = files(folder.path());
    let stop = CancelToken::new();
    let limits = ConnectionLimits {
        unauthenticated_time: Duration::from_secs(3),
        ..ConnectionLimits::default()
    };
    let listener = listener()
        .await
        .limits(limits)
        .tls(&certificate, &key)
        .unwrap()
        .stop_on(stop.clone());
    assert!(listener.is_encrypted());
    let runs = Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    ));
    let server = Server::on(listener, stop, runs, |api| api);
    let address = server.client.0;

    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap())
        .unwrap();
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = connector
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
        .unwrap();
    let ask = format!(
        "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: \
            close\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"runs\""),
        "{answer}"
    );

    // A plain-text client learns nothing, and a silent client times out.
    let plain = server.client.get("/v1/health").await;
    assert_eq!(plain.status, 0, "{plain:?}");
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn unusable_tls_files_are_rejected_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = files(folder.path());
    let (none, empty) = (folder.path().join("none"), folder.path().join("empty"));
    fs::write(&empty, "").unwrap();
    mode(&empty, 0o600);
    for (certificate, key, named) in [
        (&none, &key, "none"),
        (&empty, &key, "empty"),
        (&certificate, &none, "none"),
        (&certificate, &empty, "empty"),
        (&certificate, &certificate, "tls.pem"),
    ] {
        let error = listener()
            .await
            .tls(certificate, key)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(named) && !error.contains("PRIVATE"),
            "{error}"
        );
    }
    #[cfg(unix)]
    {
        mode(&key, 0o644);
        let error = listener()
            .await
            .tls(&certificate, &key)
            .unwrap_err()
            .to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
}

#[test]
fn plain_text_beyond_the_loopback_must_be_allowed() {
    for (address, reachable) in [
        ("127.0.0.1:80", false),
        ("127.8.8.8:80", false),
        ("[::1]:80", false),
        ("[::ffff:127.0.0.1]:80", false),
        ("0.0.0.0:80", true),
        ("[::]:80", true),
        ("10.0.0.1:80", true),
        ("[::ffff:10.0.0.1]:80", true),
        ("192.168.1.1:80", true),
    ] {
        let address = address.parse().unwrap();
        assert_eq!(
            check_exposure(address, false, false).is_err(),
            reachable,
            "{address}"
        );
        assert_eq!(
            check_exposure(address, false, true).unwrap().is_some(),
            reachable,
            "{address}"
        );
        assert_eq!(
            check_exposure(address, true, false).unwrap(),
            None,
            "{address}"
        );
    }
}
