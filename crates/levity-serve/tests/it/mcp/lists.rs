//! Lists, resources, prompts, completions, and notifications of changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use levity_core::ToolOutput;
use levity_serve::TextPrompts;
use levity_serve::mcp::{HandlerReply, McpLimits, McpServer};
use levity_test::{ManualWorld, RecordingTool};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::fixture::{
    Changing, ERAS, Era, Greetings, NumberedResources, Peer, TestHandler, builder,
};

fn full() -> McpServer {
    builder()
        .resources(NumberedResources(5))
        .resources(NumberedResources(20))
        .prompts(Greetings)
        .completions(Greetings)
        .build()
        .unwrap()
}

/// Returns all items of a list, page by page.
async fn collect_items(peer: &mut Peer, method: &str, list: &str, key: &str) -> Vec<String> {
    let (mut found, mut params) = (Vec::new(), json!({}));
    loop {
        let answer = peer.ask(method, params.clone()).await;
        let items = answer["result"][list]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"));
        found.extend(
            items
                .iter()
                .map(|item| item[key].as_str().unwrap().to_owned()),
        );
        match answer["result"].get("nextCursor") {
            Some(next) => params["cursor"] = next.clone(),
            None => return found,
        }
    }
}

#[tokio::test]
async fn server_reports_its_info_and_capabilities() {
    let server = builder()
        .instructions("Be kind.")
        .resources(NumberedResources(1))
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::New, json!({})).await;
    let found = peer.ask("server/discover", json!({})).await;
    let info = &found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(
        (&info["name"], &info["version"], &info["title"]),
        (&json!("fixture"), &json!("1.2.3"), &json!("A fixture"))
    );
    assert_eq!(
        found["result"]["capabilities"]["resources"],
        json!({"listChanged": true, "subscribe": true})
    );
    assert!(found["result"]["capabilities"].get("tools").is_none());
    assert_eq!(
        found["result"]["supportedVersions"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    assert_eq!(found["result"]["instructions"], "Be kind.");
    let (here, there) = tokio::io::duplex(1 << 16);
    let mut peer = Peer::raw(&server, there, here, Era::Old, json!({}));
    assert_eq!(peer.ask("ping", json!({})).await["result"], json!({}));
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let params = json!({"protocolVersion": asked, "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"}});
        let answer = peer.ask("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], agreed);
        assert_eq!(answer["result"]["serverInfo"]["name"], "fixture");
    }
}

#[tokio::test]
async fn lists_are_paginated() {
    let mut many = builder()
        .resources(NumberedResources(5))
        .resources(NumberedResources(3))
        .limits(McpLimits::default().page(7));
    for at in 0..20 {
        many = many.tool(RecordingTool::new(format!("tool-{at:02}"), |_| {
            Ok(ToolOutput::text(""))
        }));
    }
    let server = many.build().unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let tools = collect_items(&mut peer, "tools/list", "tools", "name").await;
        assert_eq!(tools.len(), 20);
        assert_eq!(tools.iter().collect::<BTreeSet<_>>().len(), 20);
        assert_eq!(
            collect_items(&mut peer, "resources/list", "resources", "uri")
                .await
                .len(),
            8
        );
        assert_eq!(
            collect_items(
                &mut peer,
                "resources/templates/list",
                "resourceTemplates",
                "uriTemplate"
            )
            .await
            .len(),
            2
        );
        for (method, cursor) in [
            ("tools/list", "x"),
            ("resources/list", "9:"),
            ("resources/list", "0:x"),
            ("resources/list", ""),
        ] {
            let answer = peer.ask(method, json!({ "cursor": cursor })).await;
            assert_eq!(
                answer["error"]["code"], -32602,
                "{method} {cursor}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn resources_can_be_read() {
    let server = full();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let page = |at: usize| json!({"uri": format!("page://{at}")});
        let read = peer.ask("resources/read", page(3)).await;
        assert_eq!(read["result"]["contents"][0]["text"], "This is page 3.");
        let read = peer.ask("resources/read", page(10)).await;
        assert_eq!(
            read["result"]["contents"][0]["text"], "This is page 10.",
            "the second shelf has it"
        );
        let missing = peer.ask("resources/read", page(99)).await;
        let code = if era == Era::Old { -32002 } else { -32602 };
        assert_eq!(
            (&missing["error"]["code"], &missing["error"]["data"]),
            (&json!(code), &json!({"uri": "page://99"}))
        );
        let broken = peer.ask("resources/read", page(13)).await;
        assert!(
            broken["error"]["message"]
                .as_str()
                .unwrap()
                .contains("panicked"),
            "{broken}"
        );
    }
}

#[tokio::test]
async fn prompts_are_filled_and_completed() {
    let server = full();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let listed = peer.ask("prompts/list", json!({})).await;
        assert_eq!(
            listed["result"]["prompts"][0]["arguments"],
            json!([{"name": "name", "required": true}])
        );
        let greeted = peer
            .ask(
                "prompts/get",
                json!({"name": "greet", "arguments": {"name": "Ada"}}),
            )
            .await;
        assert_eq!(
            greeted["result"]["messages"][0],
            json!({"role": "user", "content": {"type": "text", "text": "Greet Ada."}})
        );
        for bad in [json!({"name": "greet"}), json!({"name": "curse"})] {
            assert_eq!(
                peer.ask("prompts/get", bad.clone()).await["error"]["code"],
                -32602,
                "{bad}"
            );
        }
        let typed = json!({"ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": "A"}});
        let completion = &peer.ask("completion/complete", typed).await["result"]["completion"];
        assert_eq!(
            completion["values"].as_array().unwrap().len(),
            100,
            "no more than the protocol has"
        );
        assert_eq!(
            (&completion["total"], &completion["hasMore"]),
            (&json!(150), &json!(true))
        );
    }
}

#[tokio::test]
async fn prompt_beyond_the_output_limit_is_rejected() {
    let repeated = TextPrompts::new().prompt("repeat", "", "{{name}}".repeat(10));
    let server = builder()
        .prompts(Greetings)
        .prompts(repeated)
        .limits(McpLimits::default().output(1_000))
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        for (prompt, fits) in [("greet", 900), ("repeat", 100)] {
            let ask =
                |length: usize| json!({"name": prompt, "arguments": {"name": "x".repeat(length)}});
            let filled = peer.ask("prompts/get", ask(fits)).await;
            let text = filled["result"]["messages"][0]["content"]["text"].as_str();
            assert!(text.is_some_and(|text| text.len() > 900), "{filled}");
            let error = peer.ask("prompts/get", ask(fits + 100)).await["error"].clone();
            assert_eq!(error["code"], -32602, "{error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("more than 1000 bytes"), "{message}");
        }
    }
}

#[tokio::test]
async fn arguments_of_prompts_and_reads_count_against_the_memory_limit() {
    let held = Arc::new(Notify::new());
    let (started, hold) = (Arc::new(Notify::new()), held.clone());
    let told = started.clone();
    let waiter = TestHandler::new("wait", move |_| {
        let (told, hold) = (told.clone(), hold.clone());
        async move {
            told.notify_one();
            hold.notified().await;
            Ok(HandlerReply::text("done"))
        }
    });
    let server = builder()
        .handler(waiter)
        .resources(NumberedResources(5))
        .prompts(Greetings)
        .completions(Greetings)
        .limits(McpLimits::default().arguments(4_000))
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        let wait = json!({"name": "wait", "arguments": {}});
        let waiting = peer.send("tools/call", wait).await;
        started.notified().await;
        let long = "x".repeat(5_000);
        let typed = json!({"ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": long}});
        for (method, params) in [
            (
                "prompts/get",
                json!({"name": "greet", "arguments": {"name": long}}),
            ),
            ("resources/read", json!({"uri": long})),
            ("completion/complete", typed),
        ] {
            let answer = peer.ask(method, params).await;
            assert_eq!(answer["error"]["code"], -32000, "{method}: {answer}");
        }
        let short = json!({"name": "greet", "arguments": {"name": "Ada"}});
        let greeted = peer.ask("prompts/get", short).await;
        assert!(greeted["result"].is_object(), "{greeted}");
        held.notify_one();
        peer.answer(waiting).await;
    }
}

#[tokio::test]
async fn changes_notify_listeners() {
    let talk = TestHandler::new("change", |call| async move {
        call.client.changes().tools();
        call.client.changes().prompts();
        call.client.changes().resources();
        call.client.changes().resource("page://1");
        call.client.changes().resource("page://2");
        Ok(HandlerReply::text("done"))
    });
    let server = builder()
        .handler(talk)
        .resources(NumberedResources(5))
        .prompts(Greetings)
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    peer.ask("resources/subscribe", json!({"uri": "page://1"}))
        .await;
    peer.ask("resources/subscribe", json!({"uri": "page://2"}))
        .await;
    peer.ask("resources/unsubscribe", json!({"uri": "page://2"}))
        .await;
    peer.call("change", json!({})).await;
    for what in ["tools", "prompts", "resources"] {
        peer.notified(&format!("notifications/{what}/list_changed"))
            .await;
    }
    let updated = peer.notified("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "page://1");

    let mut peer = Peer::connect(&server, Era::New, json!({})).await;
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": ["page://2"]});
    let id = peer
        .send("subscriptions/listen", json!({ "notifications": wanted }))
        .await;
    let acknowledged = peer.next().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    peer.call("change", json!({})).await;
    peer.notified("notifications/tools/list_changed").await;
    let updated = peer.notified("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "page://2");
    assert_eq!(
        updated["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        id
    );
    peer.ask("tools/list", json!({})).await;
    assert!(
        peer.heard.is_empty(),
        "nothing that was not asked for: {:?}",
        peer.heard
    );
}

#[tokio::test]
async fn new_tools_are_announced_and_callable() {
    let (world, source) = (Arc::new(ManualWorld::new()), Changing::default());
    let server = builder()
        .source(source.clone())
        .world(world.clone())
        .build()
        .unwrap();
    for era in ERAS {
        let mut peer = Peer::connect(&server, era, json!({})).await;
        if era == Era::New {
            let params = json!({"notifications": {"toolsListChanged": true}});
            peer.send("subscriptions/listen", params).await;
            peer.notified("notifications/subscriptions/acknowledged")
                .await;
        }
        peer.ask("tools/list", json!({})).await;
        while world.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        let name = format!("new-{}", era as u8);
        source.add(RecordingTool::new(name.clone(), |_| {
            Ok(ToolOutput::text("I am new"))
        }));
        world.advance(Duration::from_secs(1));
        peer.notified("notifications/tools/list_changed").await;
        assert!(
            collect_items(&mut peer, "tools/list", "tools", "name")
                .await
                .contains(&name)
        );
        assert_eq!(peer.text(&name, json!({})).await, "I am new");
    }
}

#[tokio::test]
async fn listeners_and_subscriptions_are_limited() {
    let limits = McpLimits::default().listeners(1).subscriptions(2);
    let server = builder()
        .resources(NumberedResources(5))
        .limits(limits)
        .build()
        .unwrap();
    let mut peer = Peer::connect(&server, Era::Old, json!({})).await;
    for (at, fits) in [(0, true), (1, true), (1, true), (2, false)] {
        let answer = peer
            .ask(
                "resources/subscribe",
                json!({"uri": format!("page://{at}")}),
            )
            .await;
        assert_eq!(answer.get("error").is_none(), fits, "{answer}");
    }
    let mut other = Peer::connect(&server, Era::New, json!({})).await;
    let wanted = json!({"notifications": {"resourcesListChanged": true}});
    let id = other.send("subscriptions/listen", wanted).await;
    assert_eq!(other.answer(id).await["error"]["code"], -32000);
    peer.close().await;
    let wanted: Value = json!({"notifications": {"resourcesListChanged": true}});
    other.send("subscriptions/listen", wanted).await;
    server.changes().resources();
    other
        .notified("notifications/subscriptions/acknowledged")
        .await;
}
