use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::SinkExt as _;
use levity_core::{ToolCx, Toolbox as _};
use levity_serve::bridge::{BridgeTools, ErrorKind, HostLimits};
use rustix::fs::{CWD, RenameFlags};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{TestHost, within};

async fn empty() -> TestHost {
    TestHost::loading(HostLimits::new().read(1000)).await
}

#[tokio::test]
async fn files_can_be_written_read_and_listed() {
    let stage = empty().await;
    let client = stage.client();
    let written = client
        .request(
            "fs/write",
            json!({"path": "src/a.rs", "content": "fn a() {}\r\n"}),
        )
        .await
        .unwrap();
    assert_eq!(
        written,
        json!({"path": "src/a.rs", "bytes": 11, "created": true})
    );
    client
        .request(
            "fs/write",
            json!({"path": ".gitignore", "content": "target\n"}),
        )
        .await
        .unwrap();
    client
        .request("fs/write", json!({"path": "target/x", "content": "x"}))
        .await
        .unwrap();
    let read = client
        .request("fs/read", json!({"path": "./src/../src/a.rs"}))
        .await
        .unwrap();
    assert_eq!(read["content"], "fn a() {}\r\n", "to the byte");
    let listed = client
        .request("fs/list", json!({"recursive": true}))
        .await
        .unwrap();
    let paths: Vec<_> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["path"])
        .collect();
    assert_eq!(paths, ["src", "src/a.rs"]);
    let all = json!({"pattern": "*", "hidden": true, "ignored": true});
    assert_eq!(
        client.request("fs/list", all).await.unwrap()["entries"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    assert!(
        stage.was_notified("created src/a.rs (11 bytes)"),
        "the operator gets a notice"
    );
}

#[tokio::test]
async fn long_file_is_rejected_whole_and_read_in_parts() {
    let stage = empty().await;
    let lines: String = (1..=300).map(|line| format!("line {line}\n")).collect();
    fs::write(stage.folder.path().join("long"), &lines).unwrap();
    fs::write(stage.folder.path().join("exact"), "x".repeat(1000)).unwrap();
    fs::write(stage.folder.path().join("binary"), b"\x7fELF\0\x01").unwrap();
    fs::write(stage.folder.path().join("wide"), b"\xff\xfea\0b\0").unwrap();
    let mut raw = stage.raw().await;
    let error = raw
        .request("fs/read", json!({"path": "long"}))
        .await
        .unwrap_err();
    assert_eq!(error["data"]["kind"], "too_large");
    assert!(
        error["message"].as_str().unwrap().contains("--read-limit"),
        "{error}"
    );
    let part = raw
        .request(
            "fs/read",
            json!({"path": "long", "start_line": 299, "lines": 1}),
        )
        .await
        .unwrap();
    assert_eq!(
        (&part["content"], &part["total_lines"]),
        (&json!("line 299\n"), &json!(300))
    );
    assert_eq!(
        raw.request("fs/read", json!({"path": "exact"}))
            .await
            .unwrap()["bytes"],
        1000
    );
    assert_eq!(
        raw.refusal("fs/read", json!({"path": "binary"})).await,
        "binary"
    );
    assert_eq!(
        raw.request("fs/read", json!({"path": "wide"}))
            .await
            .unwrap()["content"],
        "ab"
    );
    let long = json!({"path": "w", "content": "x".repeat(500_001)});
    assert_eq!(raw.refusal("fs/write", long).await, "too_large");
}

#[tokio::test]
async fn paths_outside_the_workspace_are_rejected() {
    let stage = empty().await;
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("key"), "secret").unwrap();
    let root = stage.folder.path();
    symlink(secret.path(), root.join("out")).unwrap();
    symlink(secret.path().join("key"), root.join("key-link")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    fs::create_dir(root.join("folder")).unwrap();
    rustix::fs::mkfifoat(CWD, root.join("pipe"), 0o600.into()).unwrap();
    let mut raw = stage.raw().await;
    let key = secret.path().join("key").to_str().unwrap().to_owned();
    let long = "x/".repeat(3000);
    let name = "x".repeat(300);
    let cases: &[(&str, &[&str])] = &[
        ("../key", &["outside"]),
        ("folder/../../key", &["outside"]),
        (&key, &["outside"]),
        ("/etc/passwd", &["outside"]),
        ("/", &["outside"]),
        ("out/key", &["outside"]),
        ("key-link", &["outside"]),
        ("loop", &["outside", "not_found", "busy", "invalid"]),
        ("a\0b", &["invalid"]),
        ("", &["invalid"]),
        (&long, &["invalid"]),
        (&name, &["invalid"]),
        (".git/hooks/post-commit", &["denied"]),
        (".env", &["denied"]),
        ("id_rsa", &["denied"]),
        ("folder", &["not_a_file"]),
        ("pipe", &["not_a_file"]),
        (".", &["not_a_file"]),
    ];
    for (path, kinds) in cases {
        for (method, params) in [
            ("fs/read", json!({"path": path})),
            ("fs/read", json!({"path": path, "lines": 1})),
            ("fs/write", json!({"path": path, "content": "x"})),
        ] {
            let kind = raw.refusal(method, params).await;
            assert!(kinds.contains(&kind.as_str()), "{method} {path:?}: {kind}");
        }
    }
    for path in ["..", "/", "out", "/etc", "../..", "a\0"] {
        let kind = raw.refusal("fs/list", json!({"path": path})).await;
        assert!(
            ["outside", "invalid"].contains(&kind.as_str()),
            "{path:?}: {kind}"
        );
        let kind = raw
            .refusal("fs/wait", json!({"path": path, "timeout": 5}))
            .await;
        assert!(
            ["outside", "invalid", "not_a_file"].contains(&kind.as_str()),
            "{path:?}: {kind}"
        );
    }
    // On this system these are plain names, and stay inside the workspace.
    for odd in ["C:\\Windows\\x", "..\\key", "CON", "a:b"] {
        assert_eq!(
            raw.request("fs/write", json!({"path": odd, "content": "x"}))
                .await
                .unwrap()["path"],
            odd
        );
        assert!(root.join(odd).exists());
    }
    assert_eq!(
        fs::read_to_string(secret.path().join("key")).unwrap(),
        "secret"
    );
    assert_eq!(fs::read_dir(secret.path()).unwrap().count(), 1);
}

#[cfg(target_os = "linux")]
/// One task swaps a folder for a link that leads out, while another reads and writes through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn symlink_swapped_during_access_does_not_escape() {
    let stage = empty().await;
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("f"), "secret").unwrap();
    let root = stage.folder.path().to_owned();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "mine").unwrap();
    symlink(secret.path(), root.join("evil")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = stop.clone();
    let swapper = std::thread::spawn(move || {
        let mut swaps = 0u64;
        while !swapping.load(Ordering::Relaxed) {
            let (d, evil) = (root.join("d"), root.join("evil"));
            rustix::fs::renameat_with(CWD, d, CWD, evil, RenameFlags::EXCHANGE).unwrap();
            swaps += 1;
        }
        swaps
    });
    let mut raw = stage.raw().await;
    for _ in 0..1500 {
        if let Ok(read) = raw.request("fs/read", json!({"path": "d/f"})).await {
            assert_eq!(read["content"], "mine");
        }
        let _ = raw
            .request("fs/write", json!({"path": "d/f", "content": "mine"}))
            .await;
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 10);
    assert_eq!(
        fs::read_to_string(secret.path().join("f")).unwrap(),
        "secret"
    );
    assert_eq!(fs::read_dir(secret.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn write_notifies_all_clients_except_the_writer() {
    let stage = empty().await;
    let (mut writer, mut other) = (stage.raw().await, stage.raw().await);
    other.request("ping", json!({})).await.unwrap();
    writer
        .request("fs/write", json!({"path": "a", "content": "1"}))
        .await
        .unwrap();
    let was_notified = other.next().await.unwrap();
    assert_eq!(was_notified["method"], "fs/changed");
    assert_eq!(
        (
            &was_notified["params"]["path"],
            &was_notified["params"]["kind"]
        ),
        (&json!("a"), &json!("written"))
    );
    assert!(was_notified["params"]["by"]["client"].is_u64());
    other
        .request("fs/write", json!({"path": "b", "content": "1"}))
        .await
        .unwrap();
    assert!(
        writer.was_notified.is_empty(),
        "the writer was notified of its own write: {:?}",
        writer.was_notified
    );
    assert_eq!(writer.next().await.unwrap()["params"]["path"], "b");
}

#[tokio::test]
async fn wait_returns_when_the_file_appears() {
    let stage = empty().await;
    let client = stage.client();
    let found = |value: Value| value["found"].clone();
    let none = client
        .request("fs/wait", json!({"path": "x", "timeout": 0.05}))
        .await
        .unwrap();
    assert_eq!(none, json!({"found": [], "timed_out": true}));
    // The file is written by a process that is not a client.
    let late = client.request("fs/wait", json!({"path": "signals/x", "timeout": 30}));
    let path = stage.folder.path().join("signals");
    let (late, ()) = within(async {
        tokio::join!(late, async {
            client.request("ping", json!({})).await.unwrap();
            fs::create_dir(&path).unwrap();
            fs::write(path.join("x"), "").unwrap();
        })
    })
    .await;
    assert_eq!(found(late.unwrap()), json!(["signals/x"]));
    // Ignored files in the workspace's root folder are found as well.
    fs::write(stage.folder.path().join(".gitignore"), "DONE_*\n").unwrap();
    fs::write(stage.folder.path().join("DONE_1"), "").unwrap();
    let glob = client
        .request(
            "fs/wait",
            json!({"glob": "{DONE_*,FAILED_*}", "timeout": 30}),
        )
        .await
        .unwrap();
    assert_eq!(found(glob), json!(["DONE_1"]));
    for params in [
        json!({}),
        json!({"path": "a", "glob": "b"}),
        json!({"path": "a", "timeout": -1}),
        json!({"glob": "["}),
    ] {
        let error = client.request("fs/wait", params.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{params}");
    }
}

#[tokio::test]
async fn cancelled_wait_releases_its_slot() {
    let stage = empty().await;
    let mut raw = stage.raw().await;
    raw.send(
        r#"{"jsonrpc":"2.0","id":"w","method":"fs/wait","params":{"path":"x","timeout":3000}}"#,
    )
    .await;
    raw.request("ping", json!({})).await.unwrap();
    raw.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"w"}}"#)
        .await;
    let answer = raw.next().await.unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["kind"]),
        (&json!("w"), &json!("cancelled"))
    );
    // Dropping the future does the same: the slot is free again.
    let client = stage.client();
    client.request("ping", json!({})).await.unwrap();
    for _ in 0..100 {
        let wait = client.request("fs/wait", json!({"path": "x", "timeout": 3000}));
        tokio::time::timeout(Duration::from_millis(1), wait)
            .await
            .unwrap_err();
    }
    within(client.request("fs/list", json!({}))).await.unwrap();
}

#[tokio::test]
async fn wait_with_reused_id_is_cancellable_after_the_first_ended() {
    let stage = empty().await;
    let mut raw = stage.raw().await;
    for path in ["first", "second"] {
        let params = json!({"path": path, "timeout": 3000});
        let wait = json!({"jsonrpc": "2.0", "id": "w", "method": "fs/wait", "params": params});
        raw.send(wait.to_string()).await;
    }
    raw.request("ping", json!({})).await.unwrap();
    fs::write(stage.folder.path().join("first"), "").unwrap();
    let found = within(raw.next()).await.unwrap();
    assert_eq!(found["result"]["found"], json!(["first"]));
    raw.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"w"}}"#)
        .await;
    let answer = within(raw.next()).await.unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["kind"]),
        (&json!("w"), &json!("cancelled"))
    );
}

/// The cancellation may arrive together with the request, before the request starts.
#[tokio::test]
async fn request_cancelled_at_once_has_no_effect() {
    let stage = empty().await;
    let mut raw = stage.raw().await;
    for (method, params) in [
        ("fs/wait", json!({"path": "x", "timeout": 3000})),
        ("fs/write", json!({"path": "x", "content": "y"})),
    ] {
        let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        let back = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": method}});
        for message in [request, back] {
            raw.socket
                .feed(Message::Text(message.to_string().into()))
                .await
                .unwrap();
        }
        raw.socket.flush().await.unwrap();
        let answer = raw.next().await.unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["data"]["kind"]),
            (&json!(method), &json!("cancelled"))
        );
    }
    assert!(!stage.folder.path().join("x").exists());
}

/// The tool reports the range of lines that it returns, and where to continue.
#[tokio::test]
async fn partial_read_reports_its_line_range() {
    let stage = TestHost::loading(HostLimits::new()).await;
    fs::write(stage.folder.path().join("long"), "one\ntwo\nthree\n").unwrap();
    let tools = BridgeTools::new(stage.client()).into_tools();
    let tool = tools
        .iter()
        .find(|tool| tool.spec().name == "read_file")
        .unwrap();
    for (args, expected) in [
        (json!({"path": "long"}), "one\ntwo\nthree\n"),
        (
            json!({"path": "long", "lines": 2}),
            "one\ntwo\n[lines 1-2 of 3; continue with start_line 3]",
        ),
        (
            json!({"path": "long", "start_line": 3}),
            "three\n[lines 3-3 of 3]",
        ),
        (json!({"path": "long", "lines": 3}), "one\ntwo\nthree\n"),
    ] {
        let read = tool.call(args.clone(), &ToolCx::detached()).await.unwrap();
        assert_eq!(read.as_text(), expected, "{args}");
    }
}
