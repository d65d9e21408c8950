//! `ChromaStore` with a hostile server in this process, and with a real one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::{VectorEntry, VectorFilter, VectorStore, VectorStoreErrorKind};
use levity_docs::ChromaStore;

mod real;

/// What the server in this process does with a request.
enum Answer {
    Reply(u16, String),
    /// Closes the connection without a reply.
    Close,
    /// Sends the first bytes of a reply, and then nothing for this time.
    Stall(Duration),
    /// Sends a reply of this many megabytes.
    Large(usize),
}

/// A request: `METHOD /path`, the head, and the body.
struct Request {
    line: String,
    head: String,
    body: String,
}

/// A server that answers with a function, and its requests.
struct Fake {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (all, answer) = (requests.clone(), Arc::new(answer));
        // The thread ends with the process.
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (all, answer) = (all.clone(), answer.clone());
                std::thread::spawn(move || serve(socket, &all, &*answer));
            }
        });
        Self { address, requests }
    }

    fn lines(&self) -> Vec<String> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|request| request.line.clone())
            .collect()
    }
}

fn serve(
    socket: TcpStream,
    all: &Mutex<Vec<Request>>,
    answer: &dyn Fn(&Request) -> Answer,
) -> Option<()> {
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    let (mut head, mut line) = (String::new(), String::new());
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        head.push_str(&line);
    }
    let head = head
        .to_lowercase()
        .lines()
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let line = head
        .lines()
        .next()?
        .trim_end_matches(" http/1.1")
        .to_owned();
    let request = Request {
        line,
        head,
        body: String::from_utf8(body).ok()?,
    };
    let reply = answer(&request);
    all.lock().unwrap().push(request);
    let mut socket = socket;
    let start = |socket: &mut TcpStream, status: u16, length: usize| {
        let head = "content-type: application/json\r\nconnection: close\r\ncontent-length";
        write!(socket, "HTTP/1.1 {status} X\r\n{head}: {length}\r\n\r\n").ok()
    };
    match reply {
        Answer::Close => {}
        Answer::Reply(status, body) => {
            start(&mut socket, status, body.len())?;
            socket.write_all(body.as_bytes()).ok()?;
        }
        Answer::Stall(time) => {
            start(&mut socket, 200, 100)?;
            socket.write_all(b"{").ok()?;
            std::thread::sleep(time);
        }
        Answer::Large(megabytes) => {
            start(&mut socket, 200, megabytes << 20)?;
            for _ in 0..megabytes {
                socket.write_all(&vec![b' '; 1 << 20]).ok()?;
            }
        }
    }
    Some(())
}

const COLLECTION: &str = r#"{"id": "c1", "configuration_json": {"hnsw": {"space": "cosine"}}}"#;

/// Answers like a server with one collection; requests to it are answered by `action`.
fn with_collection(action: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Fake {
    Fake::start(move |request| {
        let line = &request.line;
        if line.contains("pre-flight") {
            return Answer::Reply(200, r#"{"max_batch_size": 3}"#.into());
        }
        match line.contains("/collections/c1/") {
            true => action(request),
            false => Answer::Reply(200, COLLECTION.into()),
        }
    })
}

async fn nearest(store: &ChromaStore) -> Result<Vec<(i64, f32)>, levity_core::VectorStoreError> {
    let found = store
        .nearest("guide", &[1.0, 0.0], &VectorFilter::new(), 5)
        .await?;
    Ok(found
        .iter()
        .map(|found| (found.key, found.cosine))
        .collect())
}

#[tokio::test]
async fn errors_name_the_address_and_the_next_step() {
    use VectorStoreErrorKind::{Auth, Malformed, Rejected, Unavailable};
    let chroma = |text: &str| format!(r#"{{"error": "SomeError", "message": "{text}"}}"#);
    for (status, body, kind, text) in [
        (401, chroma("who are you"), Auth, "check the token"),
        (403, String::new(), Auth, "check the token"),
        (
            400,
            chroma("expecting dimension 2"),
            Rejected,
            "expecting dimension 2",
        ),
        (
            404,
            "<html>no page</html>".into(),
            Rejected,
            "check the address",
        ),
        (404, String::new(), Rejected, "check the address"),
        (422, chroma("no"), Rejected, "422: no"),
        (302, String::new(), Rejected, "302"),
        (429, chroma("slow down"), Unavailable, "try again later"),
        (500, chroma("internal"), Unavailable, "try again later"),
        (503, "busy".into(), Unavailable, "try again later"),
        (
            200,
            "<html>hello</html>".into(),
            Malformed,
            "Chroma 1.0 or later",
        ),
        (200, String::new(), Malformed, "Chroma 1.0 or later"),
        (200, "{}".into(), Malformed, "Chroma 1.0 or later"),
        (
            200,
            r#"{"ids": "1", "distances": []}"#.into(),
            Malformed,
            "Chroma 1.0 or later",
        ),
        (
            200,
            r#"{"ids": [["1"]], "distances": [[]]}"#.into(),
            Malformed,
            "other numbers",
        ),
        (
            200,
            r#"{"ids": [["1"]], "distances": null}"#.into(),
            Malformed,
            "other numbers",
        ),
        (200, "[".repeat(1 << 20), Malformed, "Chroma 1.0 or later"),
    ] {
        let shown = format!("{status} {}", body.chars().take(60).collect::<String>());
        let fake = with_collection(move |_| Answer::Reply(status, body.clone()));
        let error = nearest(&ChromaStore::new(&fake.address))
            .await
            .expect_err(&shown);
        assert_eq!(error.kind(), kind, "{shown}: {error}");
        assert_eq!(error.is_retryable(), kind == Unavailable);
        let message = error.to_string();
        assert!(
            message.contains(&fake.address) && message.contains(text),
            "{shown}: {message}"
        );
        assert!(message.len() < 600 && !message.contains('\n'), "{message}");
    }
}

#[tokio::test]
async fn unusual_matches_are_left_out() {
    let fake = with_collection(|_| {
        let ids = r#""1","01x","-","99999999999999999999","note","2","3","4","5","6","7""#;
        let distances = "0.25,0,0,0,0,null,1e300,-1e300,2.0,0.5,0.5";
        Answer::Reply(
            200,
            format!(r#"{{"ids": [[{ids}],["8"]], "distances": [[{distances}]]}}"#),
        )
    });
    let found = nearest(&ChromaStore::new(&fake.address)).await.unwrap();
    // The index leaves out impossible cosines.
    let expected = [
        (1, 0.75),
        (3, f32::NEG_INFINITY),
        (4, f32::INFINITY),
        (5, -1.0),
        (6, 0.5),
    ];
    assert_eq!(found, expected, "at most five, and only ids that are keys");
}

#[tokio::test]
async fn hanging_endless_and_closed_replies_end() {
    let fake = with_collection(|_| Answer::Stall(Duration::from_secs(20)));
    let store = ChromaStore::new(&fake.address).timeout(Duration::from_millis(300));
    let error = nearest(&store).await.unwrap_err();
    assert_eq!(error.kind(), VectorStoreErrorKind::Timeout, "{error}");
    assert!(
        error.is_retryable() && error.to_string().contains("`timeout`"),
        "{error}"
    );

    let fake = with_collection(|_| Answer::Large(80));
    let error = nearest(&ChromaStore::new(&fake.address)).await.unwrap_err();
    assert_eq!(error.kind(), VectorStoreErrorKind::Malformed, "{error}");
    assert!(error.to_string().contains("more than"), "{error}");

    let fake = with_collection(|_| Answer::Close);
    let error = nearest(&ChromaStore::new(&fake.address)).await.unwrap_err();
    assert_eq!(error.kind(), VectorStoreErrorKind::Unavailable, "{error}");
    assert_eq!(
        fake.lines().len(),
        3,
        "the search is sent twice: {:?}",
        fake.lines()
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = nearest(&ChromaStore::new(&address)).await.unwrap_err();
    assert_eq!(error.kind(), VectorStoreErrorKind::Unavailable, "{error}");
    let message = error.to_string();
    assert!(
        message.contains(&address) && message.contains("is it running"),
        "{message}"
    );
}

#[tokio::test]
async fn interrupted_request_is_sent_once_more() {
    let answers = Mutex::new(vec![
        Answer::Reply(200, r#"{"ids": [["7"]], "distances": [[0]]}"#.into()),
        Answer::Close,
    ]);
    let fake = with_collection(move |_| answers.lock().unwrap().pop().unwrap_or(Answer::Close));
    assert_eq!(
        nearest(&ChromaStore::new(&fake.address)).await.unwrap(),
        [(7, 1.0)]
    );
}

#[tokio::test]
async fn invalid_settings_are_rejected() {
    for address in [
        "",
        "localhost",
        "ftp://127.0.0.1",
        "http://",
        "no address",
        "http://a b",
    ] {
        let error = nearest(&ChromaStore::new(address)).await.unwrap_err();
        assert_eq!(
            error.kind(),
            VectorStoreErrorKind::Rejected,
            "{address}: {error}"
        );
        assert!(
            error.to_string().contains("http://127.0.0.1:8000"),
            "{error}"
        );
    }
    for (name, value) in [("a b", "c"), ("x-team", "a\nb"), ("", "c")] {
        let store = ChromaStore::new("http://127.0.0.1:1").header(name, value);
        let error = nearest(&store).await.unwrap_err();
        assert_eq!(
            error.kind(),
            VectorStoreErrorKind::Rejected,
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn collection_that_compares_distances_is_rejected() {
    for space in ["l2", "ip", "other\\nlines"] {
        let body = COLLECTION.replace("cosine", space);
        let fake = Fake::start(move |_| Answer::Reply(200, body.clone()));
        let store = ChromaStore::new(&fake.address);
        let added = store
            .upsert("guide", &[VectorEntry::new(1, vec![1.0])])
            .await;
        for error in [added.unwrap_err(), nearest(&store).await.unwrap_err()] {
            assert_eq!(error.kind(), VectorStoreErrorKind::Rejected, "{error}");
            let message = error.to_string();
            assert!(
                message.contains("delete the collection `guide`"),
                "{message}"
            );
            assert!(!message.contains('\n'), "{message}");
        }
    }
}

#[tokio::test]
async fn secrets_are_sent_and_never_shown() {
    let fake = Fake::start(|request| {
        let all = request.head.replace('\n', " ");
        Answer::Reply(
            400,
            format!(r#"{{"error": "Bad", "message": "you sent {all}"}}"#),
        )
    });
    let address = fake.address.replace("http://", "http://me:hushhush@");
    let store = ChromaStore::new(&address)
        .token("token-0123456789")
        .header("authorization", "bearer correcthorse")
        .header("x-proxy", "open sesame");
    for error in [
        nearest(&store).await.unwrap_err(),
        store.count("guide").await.unwrap_err(),
    ] {
        let shown = format!("{error} {error:?} {store:?}");
        for secret in ["hushhush", "token-0123456789", "correcthorse", "sesame"] {
            assert!(!shown.contains(secret), "{secret} is in {shown}");
        }
        assert!(shown.contains("you sent"), "{shown}");
    }
    let head = fake.requests.lock().unwrap()[0].head.clone();
    for part in [
        "x-chroma-token: token-0123456789",
        "bearer correcthorse",
        "open sesame",
    ] {
        assert!(head.contains(part), "{head}");
    }
}

#[tokio::test]
async fn requests_are_bounded_and_name_tenant_and_database() {
    let fake = with_collection(|request| {
        let body = match request.line.rsplit('/').next() {
            Some("get") => r#"{"ids": [], "embeddings": []}"#,
            _ => "{}",
        };
        Answer::Reply(200, body.into())
    });
    let store = ChromaStore::new(format!("{}/base/", fake.address))
        .tenant("my team")
        .database("../a?b/c");
    let entries: Vec<_> = (0..10)
        .map(|key| VectorEntry::new(key, vec![1.0, 0.0]))
        .collect();
    store.upsert("guide", &entries).await.unwrap();
    let keys: Vec<i64> = (0..1_000).collect();
    store.remove("guide", &keys).await.unwrap();
    store.get("guide", &keys).await.unwrap();
    let requests = fake.requests.lock().unwrap();
    let prefix = "/base/api/v2/tenants/my%20team/databases/..%2fa%3fb%2fc/collections";
    let mut sizes = Vec::new();
    for request in requests
        .iter()
        .filter(|request| !request.line.contains("pre-flight"))
    {
        assert!(request.line.contains(prefix), "{}", request.line);
        let body: serde_json::Value = serde_json::from_str(&request.body).unwrap_or_default();
        if let Some(ids) = body["ids"].as_array() {
            sizes.push(ids.len());
        }
    }
    // The server accepts three vectors, and records are read and removed in bounded parts.
    assert_eq!(
        sizes,
        [3, 3, 3, 1, 300, 300, 300, 100, 200, 200, 200, 200, 200]
    );
}
