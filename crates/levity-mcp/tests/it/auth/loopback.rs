//! Tests of the browser login with a redirect to a local port.

use std::sync::Mutex;

use levity_mcp::{Browser, LoopbackBrowser};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Requests a path like a browser.
async fn get(browser: &LoopbackBrowser, path: &str) -> String {
    let redirect = browser.redirect_url();
    let address = redirect
        .trim_start_matches("http://")
        .trim_end_matches("/callback");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn visit_accepts_only_redirect_of_login() {
    let (to, mut shown) = mpsc::unbounded_channel();
    let browser = LoopbackBrowser::bind(move |url| to.send(url.to_owned()).unwrap()).unwrap();
    let page = "https://login.example/authorize?state=abc";
    let person = async {
        assert_eq!(shown.recv().await.unwrap(), page);
        for stray in [
            "/favicon.ico",
            "/callback?code=1&state=other",
            "/callback?code=1",
            "/callbacks?state=abc",
        ] {
            assert!(
                get(&browser, stray).await.starts_with("HTTP/1.1 404 "),
                "{stray}"
            );
        }
        get(&browser, "/callback?code=1&state=abc").await
    };
    let (answer, reply) = tokio::join!(browser.visit(page), person);
    assert_eq!(
        answer.unwrap(),
        format!("{}?code=1&state=abc", browser.redirect_url())
    );
    assert!(
        reply.starts_with("HTTP/1.1 200 ") && reply.contains("close this page"),
        "{reply}"
    );
}

#[tokio::test]
async fn visit_ignores_garbage() {
    let shown = Mutex::new(None);
    let browser = LoopbackBrowser::bind(|_| {}).unwrap();
    let person = async {
        let address = browser
            .redirect_url()
            .replace("http://", "")
            .replace("/callback", "");
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&[b'x'; 40_000]).await.unwrap();
        drop(TcpStream::connect(&address).await.unwrap());
        *shown.lock().unwrap() =
            Some(get(&browser, "/callback?error=access_denied&state=abc").await);
    };
    let (answer, ()) = tokio::join!(browser.visit("https://login.example/?state=abc"), person);
    assert!(answer.unwrap().ends_with("error=access_denied&state=abc"));
    assert!(
        shown
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn visit_rejects_page_without_state() {
    let browser = LoopbackBrowser::bind(|_| panic!("the page was shown")).unwrap();
    browser
        .visit("https://login.example/authorize")
        .await
        .unwrap_err();
}
