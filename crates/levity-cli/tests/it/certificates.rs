//! Tests of the command on systems without certificates of authorities.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output, Stdio};

use serde_json::json;

use crate::complete::server;
use crate::{check, command, file};

const CERTIFICATE: &str = include_str!("fixtures/tls.pem");
const KEY: &str = include_str!("fixtures/tls.key");

const REPLY: &str = r#"{"choices": [{"message": {"content": "Seven."}, "finish_reason": "stop"}]}"#;

/// Calls the command as on a system without certificates.
fn levity(args: &[&str], collector: Option<&str>) -> Output {
    let mut command = command(args);
    command
        .env("SSL_CERT_FILE", "/nonexistent")
        .env("SSL_CERT_DIR", "/nonexistent");
    if let Some(collector) = collector {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector);
    }
    command.output().unwrap()
}

fn complete(address: &str) -> Output {
    let args = ["complete", "--model", "compatible:m", "--base-url"];
    levity(&[&args[..], &[address, "Hi"]].concat(), None)
}

fn health(address: &str) -> Output {
    let config = json!({"mcpServers": {"far": {"url": format!("{address}/mcp"), "retries": 0}}});
    let config = file("certificates-mcp.json", &config.to_string());
    let config = config.to_str().unwrap();
    levity(&["mcp", "health", "far", "--config", config], None)
}

fn run(collector: &str) -> Output {
    let script = file("certificates-script.json", r#"[{"reply": "Hello."}]"#);
    let script = script.to_str().unwrap();
    levity(&["run", "Hi", "-q", "--script", script], Some(collector))
}

#[test]
fn addresses_without_tls_need_no_certificates() {
    let (url, _asked) = server(200, "application/json", REPLY);
    check(&complete(&url), 0, "Seven.");

    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    check(&health(&nobody), 1, "is the server running?");
    check(&run(&nobody), 0, "did not accept all traces");
}

/// A server that only answers by TLS.
struct TlsServer {
    child: Child,
    _files: tempfile::TempDir,
}

impl TlsServer {
    fn start() -> (Self, String) {
        let files = tempfile::tempdir().unwrap();
        let (certificate, key) = (files.path().join("tls.pem"), files.path().join("tls.key"));
        fs::write(&certificate, CERTIFICATE).unwrap();
        fs::write(&key, KEY).unwrap();
        #[cfg(unix)]
        fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let mut serve = command(&["serve", "http", "--listen", "127.0.0.1:0"]);
        let mut child = serve
            .arg("--tls-cert")
            .arg(certificate)
            .arg("--tls-key")
            .arg(key)
            .env("LEVITY_TOKEN", "0123456789abcdef-of-a-test")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let address = address.strip_suffix("/v1").unwrap().to_owned();
        let server = Self {
            child,
            _files: files,
        };
        (server, address)
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn addresses_with_tls_report_missing_certificates_and_remedy() {
    let (_server, address) = TlsServer::start();
    assert!(address.starts_with("https://"), "{address}");
    let missing = "`https` needs the certificates of authorities, and this system has none; \
        install the package `ca-certificates`, or set `SSL_CERT_FILE`";
    check(&complete(&address), 1, missing);
    check(&health(&address), 1, missing);
    check(&run(&address), 2, missing);
}
