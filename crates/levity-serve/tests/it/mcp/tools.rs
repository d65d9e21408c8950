//! Tools, as clients of both eras call them.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{Hints, Media, ToolError, ToolOutput};
use levity_serve::ErrorKind;
use levity_serve::mcp::{HandlerReply, McpLimits, RequestError, Resource};
use levity_test::{FaultyTool, ManualWorld, RecordingTool};
use levity_tools::{Policy, Rule};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::fixture::{ERAS, Era, Peer, TestHandler, builder};

fn add() -> RecordingTool {
    let number = json!({"type": "number", "format": "double"});
    RecordingTool::new("add", |args| {
        let sum = args["a"].as_f64().unwrap_or_default() + args["b"].as_f64().unwrap_or_default();
        Ok(ToolOutput::value(json!({ "sum": sum })))
    })
    .with_input(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": number, "b": number},
        "required": ["a", "b"],
        "additionalProperties": false,
    }))
    .with_hints(Hints::new().read_only())
}

#[tokio::test]
async fn tools_can_be_listed_and_called() {
    let server = builder()
        .tool(add())
        .handler(TestHandler::new("talk", |_| async {
            Ok(HandlerReply::text("hi"))
        }))
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let listed = peer.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 2);
        assert_eq!(tools[0]["name"], "add");
        assert_eq!(tools[0]["annotations"], json!({"readOnlyHint": true}));
        assert_eq!(
            tools[0]["inputSchema"]["properties"]["a"],
            json!({"type": "number"})
        );
        assert!(tools[0]["inputSchema"].get("$schema").is_none());
        let sum = peer.call("add", json!({"a": 2, "b": 5})).await;
        assert_eq!(sum["result"]["structuredContent"], json!({"sum": 7.0}));
        assert_eq!(sum["result"]["content"][0]["text"], r#"{"sum":7.0}"#);
        assert_eq!(sum["result"]["isError"], false);
        assert_eq!(peer.text("talk", json!({})).await, "hi");
        assert!(peer.close().await.is_empty());
    }
}

#[tokio::test]
async fn invalid_calls_return_descriptive_errors() {
    let strict =
        TestHandler::new("strict", |_| async { Ok(HandlerReply::default()) }).spec(|spec| {
            spec.with_input(json!({"type": "object",
            "properties": {"n": {"type": "integer"}}, "required": ["n"],
            "additionalProperties": false}))
        });
    let server = builder().tool(add()).handler(strict).build().unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        for (tool, args, word) in [
            ("add", json!({"a": 2}), "\"b\" is missing"),
            ("add", json!({"a": 2, "b": "5"}), "\"5\""),
            ("add", json!({"a": 2, "b": 5, "c": 1}), "no property \"c\""),
            ("strict", json!({}), "\"n\" is missing"),
            ("strict", json!({"n": 1, "m": 2}), "no property \"m\""),
        ] {
            let answer = peer.call(tool, args).await;
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            assert!(
                answer["result"]["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .contains(word),
                "{answer}"
            );
        }
        let answer = peer.call("subtract", json!({})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let answer = peer.ask("tools/dance", json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        let answer = peer.ask("prompts/list", json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "there are none: {answer}");
    }
}

#[tokio::test]
async fn tool_failures_are_results_for_the_model() {
    let server = builder()
        .tool(FaultyTool::panics().named("panics"))
        .tool(RecordingTool::new("fails", |_| {
            Err(ToolError::failed("no luck"))
        }))
        .handler(TestHandler::new("panics_too", |_| async {
            panic!("s3cret")
        }))
        .handler(TestHandler::new("refuses", |_| async {
            Err(RequestError::invalid("not like this"))
        }))
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        for (tool, word) in [
            ("panics", "panicked"),
            ("fails", "no luck"),
            ("panics_too", "panicked"),
        ] {
            let answer = peer.call(tool, json!({})).await;
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.contains(word) && !text.contains("s3cret"), "{text}");
        }
        let answer = peer.call("refuses", json!({})).await;
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["message"]),
            (&json!(-32602), &json!("not like this"))
        );
    }
}

#[tokio::test]
async fn slow_tools_time_out() {
    let world = Arc::new(ManualWorld::auto());
    let slow = TestHandler::new("slow", |_| std::future::pending())
        .spec(|spec| spec.with_hints(Hints::new().timeout(Duration::from_secs(3))));
    let server = builder()
        .tool(FaultyTool::hangs().named("hangs"))
        .handler(slow)
        .world(world)
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        assert!(
            peer.text("hangs", json!({}))
                .await
                .contains("timed out after 300s")
        );
        assert!(
            peer.text("slow", json!({}))
                .await
                .contains("timed out after 3s")
        );
    }
}

#[tokio::test]
async fn cancelled_call_is_dropped() {
    struct NotifyOnDrop(Arc<Notify>);

    impl Drop for NotifyOnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    for era in ERAS {
        let (started, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, drops) = (started.clone(), dropped.clone());
        let talk = TestHandler::new("wait", move |call| {
            let (begins, drops) = (begins.clone(), drops.clone());
            async move {
                let _dropped = NotifyOnDrop(drops);
                begins.notify_one();
                call.cancel.cancelled().await;
                std::future::pending().await
            }
        });
        let server = builder()
            .handler(talk)
            .tool(FaultyTool::hangs().named("hangs"))
            .build()
            .unwrap();
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let id = peer.send("tools/call", json!({"name": "wait"})).await;
        started.notified().await;
        let hangs = peer.send("tools/call", json!({"name": "hangs"})).await;
        for id in [id, hangs] {
            peer.tell(
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": id}}),
            )
            .await;
        }
        dropped.notified().await;
        let answer = peer.ask("tools/list", json!({})).await;
        assert!(
            answer["result"]["tools"].is_array(),
            "the connection stays open"
        );
        assert!(
            peer.heard.is_empty(),
            "a cancelled call gets no response: {:?}",
            peer.heard
        );
    }
}

#[tokio::test]
async fn progress_arrives_before_the_result() {
    let talk = TestHandler::new("steps", |call| async move {
        for step in 1..=3 {
            call.client
                .progress(f64::from(step), Some(3.0), Some(format!("step {step}")));
        }
        call.client.progress(1.0, Some(3.0), None);
        call.progress.report("and more");
        Ok(HandlerReply::text("done"))
    });
    let server = builder().handler(talk).build().unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        peer.ask(
            "tools/call",
            json!({"name": "steps", "_meta": {"progressToken": "t"}}),
        )
        .await;
        let progress_values: Vec<(f64, Value)> = peer
            .heard
            .iter()
            .map(|note| {
                (
                    note["params"]["progress"].as_f64().unwrap(),
                    note["params"]["message"].clone(),
                )
            })
            .collect();
        assert_eq!(progress_values.len(), 5, "{:?}", peer.heard);
        assert!(
            progress_values.windows(2).all(|two| two[0].0 <= two[1].0),
            "progress never decreases: {progress_values:?}"
        );
        assert_eq!(progress_values[1], (2.0, json!("step 2")));
        assert_eq!(progress_values[4], (4.0, json!("and more")));
        assert!(
            peer.heard
                .iter()
                .all(|note| note["params"]["progressToken"] == "t")
        );
        peer.heard.clear();
        peer.call("steps", json!({})).await;
        assert!(
            peer.heard.is_empty(),
            "no progress was requested: {:?}",
            peer.heard
        );
    }
}

#[tokio::test]
async fn plain_tools_report_progress() {
    let server = builder().tool(Slow).build().unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let answer = peer
            .ask(
                "tools/call",
                json!({"name": "slow", "_meta": {"progressToken": 7}}),
            )
            .await;
        assert_eq!(answer["result"]["content"][0]["text"], "done");
        assert_eq!(peer.heard.len(), 1);
        assert_eq!(
            peer.heard[0]["params"],
            json!({"progressToken": 7, "progress": 1.0, "message": "half done"})
        );
    }
}

struct Slow;

#[async_trait::async_trait]
impl levity_core::Tool for Slow {
    fn spec(&self) -> &levity_core::ToolSpec {
        static SPEC: std::sync::OnceLock<levity_core::ToolSpec> = std::sync::OnceLock::new();
        SPEC.get_or_init(|| levity_core::ToolSpec::new("slow", "Takes its time."))
    }

    async fn call(&self, _: Value, cx: &levity_core::ToolCx) -> Result<ToolOutput, ToolError> {
        cx.progress.report("half done");
        Ok(ToolOutput::text("done"))
    }
}

#[tokio::test]
async fn all_kinds_of_content_are_sent() {
    let talk = TestHandler::new("show", |_| async {
        let document = Media::bytes("application/pdf", vec![1, 2, 3]);
        let reply = HandlerReply::text("text")
            .with(Media::bytes("image/png", vec![1]))
            .with(Media::bytes("audio/wav", vec![2]));
        Ok(reply
            .with(document)
            .with(Resource::new("file:///a", "a"))
            .with(Media::url("image/png", "https://h/p.png")))
    });
    let server = builder().handler(talk).build().unwrap();
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    let answer = peer.call("show", json!({})).await;
    let kinds: Vec<&str> = answer["result"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "text",
            "image",
            "audio",
            "resource",
            "resource_link",
            "resource_link"
        ]
    );
    assert_eq!(answer["result"]["content"][3]["resource"]["blob"], "AQID");
}

#[tokio::test]
async fn policy_asks_the_clients_user_for_approval() {
    let policy = Policy::allow_all().rule(Rule::tool("add").ask("it costs money"));
    let server = builder().tool(add()).policy(policy).build().unwrap();
    let mut peer = Peer::connect(&server, Era::New, json!({"elicitation": {}})).await;
    let args = json!({"name": "add", "arguments": {"a": 1, "b": 1}});
    for (said, goes) in [
        (
            json!({"action": "accept", "content": {"allow": true}}),
            true,
        ),
        (json!({"action": "decline"}), false),
    ] {
        let asked = peer.ask("tools/call", args.clone()).await;
        let (key, question) = asked["result"]["inputRequests"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        assert!(
            question["params"]["message"]
                .as_str()
                .unwrap()
                .contains("it costs money"),
            "{question}"
        );
        let mut again = args.clone();
        again["requestState"] = asked["result"]["requestState"].clone();
        again["inputResponses"] = json!({key: said});
        let answer = peer.ask("tools/call", again).await;
        assert_eq!(answer["result"]["isError"], !goes, "{answer}");
    }
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    assert!(
        peer.text("add", json!({"a": 1, "b": 1}))
            .await
            .contains("cannot ask its user")
    );
}

#[test]
fn build_rejects_invalid_tools_and_limits() {
    let talk = |name: &str| TestHandler::new(name, |_| async { Ok(HandlerReply::default()) });
    let built = |builder: levity_serve::mcp::McpServerBuilder, word: &str| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(word), "{error}");
    };
    built(
        builder().handler(talk("a")).handler(talk("a")),
        "second tool named `a`",
    );
    built(
        builder().tool(add()).handler(talk("add")),
        "second tool named `add`",
    );
    built(builder().handler(talk("no spaces")), "letters, digits");
    built(
        builder().handler(talk("bad").spec(|spec| spec.with_input(json!({"type": 5})))),
        "cannot be used",
    );
    built(
        builder().limits(McpLimits::default().calls(0)),
        "limits.calls",
    );
}
