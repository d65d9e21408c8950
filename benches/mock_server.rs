//! A mock server of chat completions in a separate process, so that its work does not affect the
//! measurements.
//!
//! `POST /TURNS/DELAY/chat/completions` calls a tool until the conversation has `TURNS` results,
//! and then answers. Each reply takes `DELAY` milliseconds, and is complete or a stream.
//! `GET /accepted` returns the number of accepted connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream as Plain;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;
use tokio::task::JoinSet;

/// The text of the model before a call, in the pieces of a stream.
const WORDS: [&str; 9] = [
    "I", " will", " look", " up", " the", " weather", " there", " first", ".",
];

/// The arguments of a call, in the pieces of a stream.
const ARGUMENTS: [&str; 7] = [
    "{\"",
    "city",
    "\": \"",
    "Reykjavík",
    "\", \"days\"",
    ": ",
    "3}",
];

/// The answer, in the pieces of a stream.
pub const ANSWER: &str =
    "It will be cool and windy for three days, with some rain on the last of them.";

/// A handle to the server process, which stops when the handle is dropped.
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub fn start() -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("the output is piped"));
        out.read_line(&mut line)
            .expect("the server prints its port");
        Self {
            child,
            port: line.trim().parse().expect("the port is a number"),
        }
    }

    /// Returns the URL for conversations with this number of tool turns.
    pub fn url(&self, turns: usize, delay: Duration) -> String {
        format!(
            "http://127.0.0.1:{}/{turns}/{}",
            self.port,
            delay.as_millis()
        )
    }

    /// Returns the number of accepted connections, without the one of this request.
    pub fn accepted(&self) -> usize {
        let mut stream = Plain::connect(("127.0.0.1", self.port)).expect("the server is there");
        stream
            .write_all(b"GET /accepted HTTP/1.1\r\nconnection: close\r\n\r\n")
            .expect("it is asked");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it answers");
        let count = reply.rsplit("\r\n").next().expect("there is a last line");
        count.parse::<usize>().expect("it is a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends when its standard input closes.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves until the input ends.
pub fn main() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let tokio = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime is built");
    tokio.block_on(accept());
}

async fn accept() {
    let socket = TcpSocket::new_v4().expect("there is a socket");
    socket
        .bind(([127, 0, 0, 1], 0).into())
        .expect("a port is free");
    let listener = socket.listen(4_096).expect("the port can be listened to");
    println!(
        "{}",
        listener.local_addr().expect("it has an address").port()
    );
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut open = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        open.spawn(serve(stream, accepted.clone()));
        while open.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, accepted: Arc<AtomicUsize>) {
    let mut buffer = Vec::new();
    let mut counts = true;
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await else {
            return;
        };
        if buffer.starts_with(b"GET") {
            let count = accepted.load(Ordering::Relaxed).to_string();
            let reply = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{count}",
                count.len()
            );
            let _ = stream.write_all(reply.as_bytes()).await;
            return;
        }
        if std::mem::take(&mut counts) {
            accepted.fetch_add(1, Ordering::Relaxed);
        }
        let Some(asked) = RequestHead::read(&buffer[..head]) else {
            return;
        };
        while buffer.len() < head + asked.length {
            if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
        }
        let reply = asked.reply(&buffer[head..head + asked.length]);
        buffer.drain(..head + asked.length);
        if asked.delay > 0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "the mock server waits in real time"
            )]
            tokio::time::sleep(Duration::from_millis(asked.delay)).await;
        }
        if stream.write_all(&reply).await.is_err() {
            return;
        }
    }
}

/// Reads until the end of a request's head, and returns its position.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(end) = memmem::find(buffer, b"\r\n\r\n") {
            return Some(end + 4);
        }
        if !matches!(stream.read_buf(buffer).await, Ok(1..)) {
            return None;
        }
    }
}

/// The parsed head of a request.
struct RequestHead {
    turns: usize,
    delay: u64,
    length: usize,
}

impl RequestHead {
    fn read(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let mut path = head.split(' ').nth(1)?.split('/').skip(1);
        let turns = path.next()?.parse().ok()?;
        let delay = path.next()?.parse().ok()?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().ok())?
        });
        Some(Self {
            turns,
            delay,
            length: length?,
        })
    }

    fn reply(&self, body: &[u8]) -> Vec<u8> {
        let results = memmem::find_iter(body, b"\"role\":\"tool\"").count();
        let call = (results < self.turns).then(|| format!("call_Yx3Kq0ZrTn8bVdL2mW{results:05}"));
        match memmem::find(body, b"\"stream\":true") {
            Some(_) => stream(call.as_deref()),
            None => complete_reply(call.as_deref()),
        }
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ndate: Sun, 15 Nov 2026 10:00:00 GMT\r\nx-request-id: \
    req_0123456789abcdef\r\n\
                    cache-control: no-cache\r\n";

fn usage() -> Value {
    json!({
        "prompt_tokens": 420, "completion_tokens": 31, "total_tokens": 451,
        "prompt_tokens_details": {"cached_tokens": 384, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    })
}

/// Returns a complete reply.
fn complete_reply(call: Option<&str>) -> Vec<u8> {
    let (message, finish) = match call {
        Some(id) => {
            let function = json!({"name": "weather", "arguments": ARGUMENTS.concat()});
            let calls = json!([{"id": id, "type": "function", "function": function}]);
            let text = WORDS.concat();
            (
                json!({"role": "assistant", "content": text, "refusal": null, "tool_calls": calls}),
                "tool_calls",
            )
        }
        None => (
            json!({"role": "assistant", "content": ANSWER, "refusal": null}),
            "stop",
        ),
    };
    let body = json!({
        "id": "chatcmpl-9sKd83jfKs02mxPq", "object": "chat.completion", "created": 1_794_736_800,
        "model": "mock",
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}],
        "usage": usage(), "service_tier": "default", "system_fingerprint": "fp_44709d6fcb",
    });
    let body = body.to_string();
    let head = format!(
        "{HEAD}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

/// Returns a reply of about twenty chunks. All of them are sent at once, because the number of
/// wake-ups of the client would otherwise be random.
fn stream(call: Option<&str>) -> Vec<u8> {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    let text_delta = |word: &str| json!({"content": word});
    let finish = match call {
        Some(id) => {
            deltas.extend(WORDS.map(text_delta));
            let function = json!({"name": "weather", "arguments": ""});
            deltas.push(json!({"tool_calls": [
                {"index": 0, "id": id, "type": "function", "function": function},
            ]}));
            let more =
                |text: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
            deltas.extend(ARGUMENTS.map(more));
            "tool_calls"
        }
        None => {
            deltas.extend(ANSWER.split_inclusive(' ').map(text_delta));
            "stop"
        }
    };
    let mut bytes =
        format!("{HEAD}content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
    let mut event = |data: &str| {
        let event = format!("data: {data}\n\n");
        bytes += &format!("{:x}\r\n{event}\r\n", event.len());
    };
    for delta in deltas {
        event(&piece(
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]),
            Value::Null,
        ));
    }
    event(&piece(
        json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": finish}]),
        Value::Null,
    ));
    event(&piece(json!([]), usage()));
    event("[DONE]");
    bytes += "0\r\n\r\n";
    bytes.into_bytes()
}

fn piece(choices: Value, usage: Value) -> String {
    let piece = json!({
        "id": "chatcmpl-9sKd83jfKs02mxPq", "object": "chat.completion.chunk",
        "created": 1_794_736_800,
        "model": "mock", "service_tier": "default", "system_fingerprint": "fp_44709d6fcb",
        "choices": choices,
        "usage": usage,
    });
    piece.to_string()
}
