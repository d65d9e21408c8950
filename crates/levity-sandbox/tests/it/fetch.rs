//! Requests, redirects, bodies and timeouts of a guarded client.

use std::time::Duration;

use levity_sandbox::{AddressError, NetError};

use super::loopback::{Answer, Server, moved, ok};

#[tokio::test]
async fn request_sends_only_required_headers() {
    let server = Server::start(&[("/", ok("hello"))]).await;
    let client = server
        .guard()
        .user_agent("tester/1")
        .build()
        .unwrap()
        .client()
        .unwrap();
    let mut reply = client
        .get(&server.url("/#part"))
        .unwrap()
        .send()
        .await
        .unwrap();
    assert_eq!(
        (
            reply.status(),
            reply.redirects(),
            reply.header("content-length")
        ),
        (200, 0, Some("5"))
    );
    assert_eq!(reply.url().as_str(), server.url("/"));
    assert_eq!(reply.read(100).await.unwrap().bytes, b"hello");
    let head = server.heads().remove(0).to_ascii_lowercase();
    let mut names: Vec<_> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .collect();
    names.sort_unstable();
    let host = format!("127.0.0.1:{}", server.port());
    let expected = [
        ("accept", "*/*"),
        ("accept-encoding", "identity"),
        ("host", &*host),
        ("user-agent", "tester/1"),
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn custom_headers_are_sent_to_first_server_only() {
    let other = Server::start(&[("/there", ok("there"))]).await;
    let away = other.url("/there");
    let first = Server::start(&[("/a", moved(302, "/b")), ("/b", moved(302, &away))]).await;
    let guard = first.guard().allow_port(other.port()).build().unwrap();
    let client = guard.client().unwrap();
    let mut reply = client
        .get(&first.url("/a"))
        .unwrap()
        .header("x-key", "s3cret")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (reply.read(100).await.unwrap().bytes, reply.redirects()),
        (b"there".to_vec(), 2)
    );
    assert!(first.heads().iter().all(|head| head.contains("s3cret")) && first.heads().len() == 2);
    let head = other.heads().remove(0).to_ascii_lowercase();
    assert!(
        !head.contains("s3cret") && !head.contains("referer") && !head.contains("cookie"),
        "{head}"
    );
    let bad = client
        .get(&first.url("/a"))
        .unwrap()
        .header("x-key", "a\nb")
        .send()
        .await;
    assert!(matches!(bad, Err(NetError::Header(name)) if name == "x-key"));
    let shown = format!(
        "{:?}",
        client
            .get(&first.url("/a"))
            .unwrap()
            .header("x-key", "s3cret")
    );
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn maximum_time_limit_is_accepted() {
    let server = Server::start(&[("/", ok("hello"))]).await;
    let client = server
        .guard()
        .time_limit(Duration::MAX)
        .build()
        .unwrap()
        .client()
        .unwrap();
    let mut reply = client.get(&server.url("/")).unwrap().send().await.unwrap();
    assert_eq!(reply.read(100).await.unwrap().bytes, b"hello");
}

async fn fails(server: &Server, path: &str) -> NetError {
    let client = server.guard().build().unwrap().client().unwrap();
    let sent = client.get(&server.url(path)).unwrap().send().await;
    match sent {
        Ok(mut reply) => reply.read(1000).await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn too_many_redirects_return_error() {
    let chain: Vec<_> = (0..9)
        .map(|at| (format!("/{at}"), moved(302, &format!("/{}", at + 1))))
        .collect();
    let mut answers: Vec<_> = chain
        .iter()
        .map(|(path, answer)| (&**path, answer.clone()))
        .collect();
    answers.extend([
        ("/self", moved(301, "/self")),
        ("/x", moved(301, "/y")),
        ("/y", moved(308, "/x#z")),
    ]);
    answers.extend([("/4x", moved(302, "/5x")), ("/9", ok("end"))]);
    let server = Server::start(&answers).await;
    assert!(matches!(
        fails(&server, "/0").await,
        NetError::TooManyRedirects(5)
    ));
    assert_eq!(server.touched(), 6);
    assert!(matches!(
        fails(&server, "/self").await,
        NetError::RedirectLoop
    ));
    assert!(matches!(fails(&server, "/x").await, NetError::RedirectLoop));
    let client = server
        .guard()
        .max_redirects(5)
        .build()
        .unwrap()
        .client()
        .unwrap();
    let reply = client.get(&server.url("/4")).unwrap().send().await.unwrap();
    assert_eq!(
        (reply.redirects(), reply.url().as_str()),
        (5, &*server.url("/9"))
    );
    let client = server
        .guard()
        .max_redirects(0)
        .build()
        .unwrap()
        .client()
        .unwrap();
    let none = client.get(&server.url("/8")).unwrap().send().await;
    assert!(matches!(none, Err(NetError::TooManyRedirects(0))));
}

#[tokio::test]
async fn status_that_is_not_a_redirect_returns_reply() {
    let bare = Answer::Say(b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n".to_vec());
    let server = Server::start(&[
        ("/bare", bare),
        ("/304", moved(304, "/")),
        ("/201", moved(201, "/")),
    ])
    .await;
    let client = server.guard().build().unwrap().client().unwrap();
    for (path, status) in [("/bare", 302), ("/304", 304), ("/201", 201)] {
        let reply = client.get(&server.url(path)).unwrap().send().await.unwrap();
        assert_eq!((reply.status(), reply.redirects()), (status, 0), "{path}");
    }
    let odd = Answer::Say(
        b"HTTP/1.1 302 Found\r\nlocation: http://[\r\ncontent-length: 0\r\n\r\n".to_vec(),
    );
    let server = Server::start(&[("/", odd)]).await;
    assert!(matches!(
        fails(&server, "/").await,
        NetError::Address(AddressError::Redirect(_))
    ));
}

#[tokio::test]
async fn body_is_read_up_to_limit() {
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
    let lies = Answer::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nshort".to_vec());
    let server = Server::start(&[
        ("/endless", Answer::Endless(head, vec![b'x'; 8192])),
        ("/ten", ok("0123456789")),
    ])
    .await;
    let client = server.guard().build().unwrap().client().unwrap();
    let read = async |path: &str, max| {
        client
            .get(&server.url(path))
            .unwrap()
            .send()
            .await
            .unwrap()
            .read(max)
            .await
            .unwrap()
    };
    let body = read("/endless", 100_000).await;
    assert!(body.is_truncated && body.bytes.len() == 100_000);
    let (whole, cut) = (read("/ten", 10).await, read("/ten", 9).await);
    assert_eq!(
        (
            whole.bytes.len(),
            whole.is_truncated,
            cut.bytes.len(),
            cut.is_truncated
        ),
        (10, false, 9, true)
    );
    let server = Server::start(&[("/lies", lies)]).await;
    let client = server
        .guard()
        .time_limit(Duration::from_millis(300))
        .build()
        .unwrap()
        .client()
        .unwrap();
    let mut reply = client
        .get(&server.url("/lies"))
        .unwrap()
        .send()
        .await
        .unwrap();
    assert!(matches!(reply.read(1000).await, Err(NetError::Timeout(_))));
}

#[tokio::test]
async fn unresponsive_servers_time_out() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
    let server = Server::start(&[
        ("/silent", Answer::Stall(Vec::new())),
        ("/loris", Answer::Stall(half.clone())),
        ("/reset", Answer::Reset(half)),
        (
            "/junk",
            Answer::Reset(b"220 mail.example.org ESMTP\r\n".to_vec()),
        ),
        (
            "/headers",
            Answer::Endless(
                b"HTTP/1.1 200 OK\r\n".to_vec(),
                b"x-filler: aaaaaaaaaaaaaaaaaaaa\r\n".to_vec(),
            ),
        ),
        (
            "/header",
            Answer::Endless(b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; 8192]),
        ),
    ])
    .await;
    let client = server
        .guard()
        .time_limit(Duration::from_millis(300))
        .build()
        .unwrap()
        .client()
        .unwrap();
    let silent = client.get(&server.url("/silent")).unwrap().send().await;
    assert!(matches!(silent, Err(NetError::Timeout(_))));
    let mut reply = client
        .get(&server.url("/loris"))
        .unwrap()
        .send()
        .await
        .unwrap();
    let error = reply.read(1000).await.unwrap_err();
    assert!(matches!(error, NetError::Timeout(_)) && error.is_retryable());
    for path in ["/reset", "/junk", "/headers", "/header"] {
        let error = fails(&server, path).await;
        assert!(matches!(error, NetError::Transfer), "{path}: {error:?}");
        assert!(!error.to_string().contains("127."));
    }
    let gone = server.url("/");
    let guard = server.guard().build().unwrap();
    drop(server);
    tokio::task::yield_now().await;
    let error = guard
        .client()
        .unwrap()
        .get(&gone)
        .unwrap()
        .send()
        .await
        .unwrap_err();
    assert!(
        matches!(error, NetError::Connect | NetError::Transfer) && error.is_retryable(),
        "{error:?}"
    );
}
