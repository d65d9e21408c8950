//! Spans and metrics as a collector receives them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use levity_core::Secrets;
use levity_log::{Otlp, OtlpBuilder};
use levity_loop::Agent;
use levity_runtime::Runtime;
use levity_test::ScriptedModel;
use serde_json::Value;

use crate::support::{PATIENCE, lead, with, within};

/// A received request.
#[derive(Clone)]
struct Post {
    path: String,
    headers: String,
    body: Value,
}

/// A local OTLP collector.
struct Collector {
    address: String,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Collector {
    /// Creates a collector that answers each request with the code from `status`.
    fn new(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (posts, status) = (Arc::new(Mutex::new(Vec::new())), Arc::new(status));
        let shared = posts.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, status, stream) = (shared.clone(), status.clone(), stream.unwrap());
                std::thread::spawn(move || serve(stream, &shared, &*status));
            }
        });
        Self { address, posts }
    }

    fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for post in self
            .posts()
            .into_iter()
            .filter(|post| post.path == "/v1/traces")
        {
            spans.extend(
                post.body["resourceSpans"][0]["scopeSpans"][0]["spans"]
                    .as_array()
                    .unwrap()
                    .clone(),
            );
        }
        spans
    }

    /// Returns the data points of a metric from the last request.
    #[track_caller]
    fn points(&self, name: &str) -> Vec<Value> {
        let posts = self.posts();
        let last = posts
            .iter()
            .rfind(|post| post.path == "/v1/metrics")
            .expect("no metrics came");
        let metrics = last.body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
            .as_array()
            .unwrap();
        let metric = metrics
            .iter()
            .find(|metric| metric["name"] == name)
            .unwrap_or_else(|| panic!("no `{name}`"));
        let data = if metric["histogram"].is_null() {
            &metric["sum"]
        } else {
            &metric["histogram"]
        };
        assert_eq!(data["aggregationTemporality"], 2);
        data["dataPoints"].as_array().unwrap().clone()
    }
}

fn serve(stream: TcpStream, posts: &Mutex<Vec<Post>>, status: &dyn Fn(usize) -> u16) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut headers, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).unwrap_or(0) > 0 && line != "\r\n" {
            headers.push_str(&std::mem::take(&mut line));
        }
        let Some(path) = headers.split(' ').nth(1).map(str::to_owned) else {
            return;
        };
        let size = headers.lines().find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        let mut body = vec![0; size.unwrap()];
        reader.read_exact(&mut body).unwrap();
        let body = serde_json::from_slice(&body).expect("it is JSON");
        let number = {
            let mut posts = posts.lock().unwrap();
            posts.push(Post {
                path,
                headers,
                body,
            });
            posts.len()
        };
        let status = status(number);
        write!(
            reader.get_mut(),
            "HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n{{}}"
        )
        .unwrap();
    }
}

fn attribute<'a>(of: &'a Value, name: &str) -> Option<&'a Value> {
    let all = of["attributes"].as_array().unwrap();
    all.iter()
        .find(|pair| pair["key"] == name)
        .map(|pair| &pair["value"])
}

#[track_caller]
fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    spans
        .iter()
        .find(|span| span["name"] == name)
        .unwrap_or_else(|| panic!("no span `{name}` in {spans:#?}"))
}

fn manual_export(collector: &Collector) -> OtlpBuilder {
    // The intervals are so long that only a flush sends.
    Otlp::builder(&collector.address)
        .delay(PATIENCE * 10)
        .interval(PATIENCE * 10)
}

fn run_lead(otlp: &Otlp) {
    within(&with(otlp.layer()), async {
        let agent = lead().build().unwrap();
        agent
            .run("Weather and sum")
            .conversation("talk")
            .await
            .unwrap();
    });
}

#[test]
fn collector_receives_span_tree_and_metrics() {
    let collector = Collector::new(|_| 200);
    let otlp = manual_export(&collector)
        .service("tests")
        .attribute("team", "red")
        .header("x-key", "k")
        .open()
        .unwrap();
    run_lead(&otlp);
    assert!(otlp.flush(PATIENCE));
    assert_eq!(otlp.dropped(), 0);
    let spans = collector.spans();
    let (run, chat) = (
        named(&spans, "invoke_agent lead"),
        named(&spans, "chat big"),
    );
    assert_eq!(run["parentSpanId"], Value::Null);
    assert_eq!(
        (run["kind"].as_u64(), chat["kind"].as_u64()),
        (Some(1), Some(3))
    );
    assert_eq!(
        (
            run["traceId"].as_str().unwrap().len(),
            run["spanId"].as_str().unwrap().len()
        ),
        (32, 16)
    );
    for child in [
        "chat big",
        "execute_tool weather",
        "execute_tool broken",
        "invoke_agent adder",
    ] {
        assert_eq!(
            named(&spans, child)["parentSpanId"],
            run["spanId"],
            "{child}"
        );
    }
    assert_eq!(
        named(&spans, "chat small")["parentSpanId"],
        named(&spans, "invoke_agent adder")["spanId"]
    );
    assert!(spans.iter().all(|span| span["traceId"] == run["traceId"]));
    assert_eq!(
        attribute(chat, "gen_ai.request.model").unwrap()["stringValue"],
        "big"
    );
    assert_eq!(
        attribute(chat, "gen_ai.usage.input_tokens").unwrap()["intValue"],
        "100"
    );
    let reasons = attribute(chat, "gen_ai.response.finish_reasons").unwrap();
    assert_eq!(
        reasons["arrayValue"]["values"][0]["stringValue"],
        "tool_calls"
    );
    assert_eq!(
        attribute(run, "gen_ai.conversation.id").unwrap()["stringValue"],
        "talk"
    );
    let broken = named(&spans, "execute_tool broken");
    assert_eq!(
        (
            &broken["status"]["code"],
            attribute(broken, "error.type").unwrap()["stringValue"].as_str()
        ),
        (&2.into(), Some("failed"))
    );
    let logged = &named(&spans, "execute_tool weather")["events"][0];
    assert_eq!(logged["name"], "looked at the sky");
    assert_eq!(attribute(logged, "station").unwrap()["stringValue"], "LFPG");
    for span in &spans {
        let nanos = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"));
    }
    metrics(&collector);
    let first = &collector.posts()[0];
    assert!(
        first.headers.contains("x-key: k") && first.headers.contains("application/json"),
        "{}",
        first.headers
    );
    let resource = &first.body["resourceSpans"][0]["resource"];
    assert_eq!(
        attribute(resource, "service.name").unwrap()["stringValue"],
        "tests"
    );
    assert_eq!(attribute(resource, "team").unwrap()["stringValue"], "red");
}

fn metrics(collector: &Collector) {
    let of = |point: &Value, name: &str| {
        attribute(point, name).map(|value| value["stringValue"].as_str().unwrap().to_owned())
    };
    let usage = collector.points("gen_ai.client.token.usage");
    let sum = |model: &str, sort: &str| {
        let is_it = |point: &&Value| {
            of(point, "gen_ai.request.model").as_deref() == Some(model)
                && of(point, "gen_ai.token.type").as_deref() == Some(sort)
                && of(point, "gen_ai.provider.name").as_deref() == Some("anthropic")
        };
        let point = usage.iter().find(is_it).unwrap();
        (
            point["sum"].as_f64().unwrap(),
            point["count"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(sum("big", "input"), (450., "3".to_owned()));
    assert_eq!(sum("big", "output"), (35., "3".to_owned()));
    assert_eq!(sum("small", "input"), (30., "1".to_owned()));
    let buckets = |point: &Value| -> u64 {
        point["bucketCounts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_str().unwrap().parse::<u64>().unwrap())
            .sum()
    };
    for point in &usage {
        assert_eq!(
            point["explicitBounds"].as_array().unwrap().len() + 1,
            point["bucketCounts"].as_array().unwrap().len()
        );
        assert_eq!(buckets(point).to_string(), point["count"].as_str().unwrap());
    }
    let calls = collector.points("gen_ai.client.operation.duration");
    assert_eq!(calls.iter().map(buckets).sum::<u64>(), 4);
    let tools = collector.points("gen_ai.execute_tool.duration");
    let broken = tools
        .iter()
        .find(|point| of(point, "gen_ai.tool.name").as_deref() == Some("broken"))
        .unwrap();
    assert_eq!(of(broken, "error.type").as_deref(), Some("failed"));
    let runs = collector.points("levity.runs");
    assert_eq!(runs.len(), 2, "of `lead` and `adder`");
    assert!(
        runs.iter()
            .all(|run| run["asInt"] == "1"
                && of(run, "levity.status").as_deref() == Some("complete"))
    );
    assert_eq!(collector.points("levity.otlp.dropped")[0]["asInt"], "0");
}

#[test]
fn key_in_collector_address_is_never_shown() {
    for address in [
        "http://127.0.0.1:1?key=hush",
        "http://someone:hush@127.0.0.1:1/x",
        "http://127.0.0.1:1/#hush",
        "http://someone:hu/sh@127.0.0.1",
        "ftp://someone:hush@127.0.0.1",
    ] {
        let builder = Otlp::builder(address);
        let shown = format!("{builder:?}");
        let opened = match builder.open() {
            Ok(otlp) => format!("{otlp:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(
            !shown.contains("hush") && !opened.contains("hush"),
            "{shown} {opened}"
        );
        assert!(!shown.contains("sh@"), "{shown}");
    }
}

#[test]
fn exported_data_contains_no_secret() {
    let collector = Collector::new(|_| 200);
    let secrets = Secrets::new().known("c4nary-word");
    let otlp = manual_export(&collector)
        .secrets(secrets)
        .header("authorization", "Bearer c4nary-key")
        .open()
        .unwrap();
    within(&with(otlp.layer()), async {
        // The exporter alone must protect these contents.
        let runtime = Runtime::new().trace_contents(Secrets::new().known_only());
        let model = ScriptedModel::new()
            .reply("It is c4nary-word and sk-ant-api03-Zq8Lr2Wm5Nc7Xv1Kb9Td4Hs6Gf3Jp0Yu.");
        let agent = Agent::builder(model)
            .name("c4nary-word")
            .runtime(runtime)
            .build()
            .unwrap();
        agent
            .run("Say c4nary-word")
            .conversation("c4nary-word")
            .await
            .unwrap_err();
        agent.run("Say c4nary-word").await.unwrap();
        tracing::info_span!("host", password = "c4nary-password", note = "c4nary-word")
            .in_scope(|| tracing::warn!("c4nary-word {}", "c4nary-word"));
    });
    assert!(otlp.flush(PATIENCE));
    let posts = collector.posts();
    let bodies: String = posts.iter().map(|post| post.body.to_string()).collect();
    assert!(
        !bodies.contains("c4nary") && !bodies.contains("Zq8Lr2Wm5Nc7"),
        "{bodies}"
    );
    assert!(
        bodies.contains("[secret: known]")
            && bodies.contains("[secret: password]")
            && bodies.contains("It is")
    );
    assert!(
        posts[0].headers.contains("c4nary-key"),
        "headers are what they are for"
    );
    assert!(!format!("{otlp:?} {:?}", otlp.layer()).contains("c4nary"));
    let odd = Otlp::builder("http://me:c4nary@127.0.0.1:1/?key=c4nary").header("a", "c4nary\n");
    assert!(!format!("{odd:?}").contains("c4nary"));
    assert!(!format!("{:?}", odd.open().unwrap_err()).contains("c4nary"));
}

#[test]
fn hanging_collector_blocks_no_run() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let collector = Collector::new(move |_| {
        let _ = held.lock().unwrap().recv();
        200
    });
    let otlp = manual_export(&collector)
        .delay(Duration::ZERO)
        .timeout(PATIENCE * 10)
        .open()
        .unwrap();
    run_lead(&otlp);
    assert!(!otlp.flush(Duration::from_millis(20)));
    tracing::dispatcher::with_default(&with(otlp.layer()), || {
        (0..3 * OtlpBuilder::QUEUE).for_each(|_| drop(tracing::info_span!("flood")));
    });
    assert!(otlp.dropped() > 0, "what does not fit is counted");
    drop(release);
    assert!(otlp.flush(PATIENCE));
    let dropped: u64 = collector.points("levity.otlp.dropped")[0]["asInt"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(dropped, otlp.dropped());
    let flood = collector
        .spans()
        .iter()
        .filter(|span| span["name"] == "flood")
        .count() as u64;
    assert_eq!(
        flood + dropped,
        3 * OtlpBuilder::QUEUE as u64,
        "every span was sent or counted"
    );
}

#[test]
fn busy_response_is_retried_and_rejection_is_not() {
    let collector = Collector::new(|number| if number <= 2 { 503 } else { 200 });
    let otlp = manual_export(&collector).open().unwrap();
    let span = || {
        tracing::dispatcher::with_default(&with(otlp.layer()), || {
            drop(tracing::info_span!("once"));
        });
    };
    span();
    assert!(
        !otlp.flush(PATIENCE),
        "neither spans nor metrics were taken"
    );
    assert!(otlp.flush(PATIENCE));
    assert_eq!(collector.spans().len(), 2, "the same span, twice");
    assert_eq!(collector.spans()[0], collector.spans()[1]);

    let refusing = Collector::new(|_| 400);
    let otlp = manual_export(&refusing).open().unwrap();
    tracing::dispatcher::with_default(&with(otlp.layer()), || drop(tracing::info_span!("never")));
    assert!(!otlp.flush(PATIENCE));
    assert_eq!(otlp.dropped(), 1);
    otlp.flush(PATIENCE);
    assert_eq!(refusing.spans().len(), 1);

    let half = Collector::new(|number| if number == 1 { 400 } else { 200 });
    let otlp = manual_export(&half).open().unwrap();
    tracing::dispatcher::with_default(&with(otlp.layer()), || drop(tracing::info_span!("never")));
    assert!(
        !otlp.flush(PATIENCE),
        "the metrics were taken, the span was not"
    );
}

#[test]
fn unreachable_collector_blocks_no_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let otlp = Otlp::builder(address).open().unwrap();
    run_lead(&otlp);
    assert!(!otlp.flush(PATIENCE));
}

/// Parses the data with the protocol's own definitions: set `LEVITY_TEST_OTLP` to a folder that has
/// `opentelemetry-proto`.
#[test]
fn protocol_definitions_parse_exported_data() {
    let Some(package) = std::env::var_os("LEVITY_TEST_OTLP") else {
        println!("SKIPPED: LEVITY_TEST_OTLP names no folder with opentelemetry-proto");
        return;
    };
    let collector = Collector::new(|_| 200);
    let otlp = manual_export(&collector).open().unwrap();
    run_lead(&otlp);
    assert!(otlp.flush(PATIENCE));
    let script = r#"
import json, sys
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
Traces = trace_service_pb2.ExportTraceServiceRequest
Metrics = metrics_service_pb2.ExportMetricsServiceRequest
count = 0
for path, body in json.load(sys.stdin):
    kind = Traces if path == "/v1/traces" else Metrics
    read = ParseDict(body, kind(), ignore_unknown_fields=False)
    if kind is Traces:
        count += len(read.resource_spans[0].scope_spans[0].spans)
    else:
        names = [metric.name for metric in read.resource_metrics[0].scope_metrics[0].metrics]
        assert "gen_ai.client.token.usage" in names, names
print(count)
"#;
    let posts: Vec<Value> = collector
        .posts()
        .into_iter()
        .map(|post| serde_json::json!([post.path, post.body]))
        .collect();
    let mut child = Command::new("python3")
        .args(["-c", script])
        .env("PYTHONPATH", package)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(Value::from(posts).to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "it cannot be read");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        collector.spans().len().to_string()
    );
}

#[tokio::test]
async fn invalid_endpoint_within_runtime_returns_error() {
    for address in [
        "localhost:4317",
        "",
        "http://",
        "ftp://127.0.0.1",
        "127.0.0.1:4318",
    ] {
        let error = Otlp::builder(address)
            .open()
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("http://127.0.0.1:4318"),
            "{address}: {error}"
        );
    }
    let header = Otlp::builder("http://127.0.0.1:9")
        .header("a b", "c")
        .open();
    assert!(header.is_err());
}
