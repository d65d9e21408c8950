//! The content of files that runs wrote, and graphs of runs as images.

use std::fs;
use std::path::Path;

use levity_builtin_tools::FileTools;
use levity_core::RunId;
use levity_runtime::MemoryJournal;
use levity_sandbox::Workspace;
use levity_serve::Runs;
use levity_test::ScriptedModel;
use levity_tools::Policy;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{Client, TOKEN};
use super::support::{Server, agent};

/// Returns the head and the body of a response, which may be no JSON.
async fn get(client: Client, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(client.0).await.unwrap();
    let host = client.0;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    (head.to_ascii_lowercase(), all.split_off(end + 4))
}

fn content(path: &str) -> String {
    format!("/v1/runs/r1/artifacts/content?path={path}")
}

/// Runs an agent that writes these files into a folder.
async fn server(folder: &Path, files: &[(&str, &str)]) -> Server {
    let write = |model: ScriptedModel, (path, text): &(&str, &str)| {
        model.call("write_file", json!({"path": path, "content": text}))
    };
    let model = files
        .iter()
        .fold(ScriptedModel::new(), write)
        .reply("Done.");
    let workspace = Workspace::open(folder).unwrap();
    let agent = agent(model, &MemoryJournal::new())
        .to_builder()
        .tools(FileTools::new(workspace.clone()))
        .policy(Policy::allow_all())
        .build()
        .unwrap();
    let server = Server::with(Runs::new(agent), |api| api.workspace(workspace)).await;
    let order = json!({"goal": "Write <files> & \"more\".", "id": "r1"});
    server.client.post("/v1/runs", order).await.is(201);
    let run = server.runs.get(&RunId::new("r1")).unwrap();
    assert_eq!(run.outcome().await.ending().unwrap().text, "Done.");
    server
}

#[tokio::test]
async fn listed_artifact_can_be_read_with_safe_headers() {
    let folder = tempfile::tempdir().unwrap();
    let html = "<script>alert(1)</script>";
    let files = [
        ("notes.md", "High water."),
        ("page.html", html),
        ("p.png", html),
    ];
    let server = server(folder.path(), &files).await;
    let client = server.client;

    let (head, body) = get(client, &content("notes.md")).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, b"High water.");
    for header in [
        "content-type: text/plain; charset=utf-8",
        "content-disposition: inline; filename=\"notes.md\"",
        "content-length: 11",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    for path in ["page.html", "p.png"] {
        let (head, body) = get(client, &content(path)).await;
        assert_eq!(body, html.as_bytes());
        for header in [
            "content-type: application/octet-stream",
            "content-disposition: attachment;",
            "content-security-policy: default-src 'none'; sandbox",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{header}: {head}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn only_listed_and_unchanged_artifacts_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::write(folder.path().join("other.txt"), "not of the run").unwrap();
    let files = [
        ("a.txt", "one"),
        ("b.txt", "two"),
        ("c.txt", "three"),
        ("d/e.txt", "four"),
    ];
    let server = server(folder.path(), &files).await;
    let client = server.client;
    for path in [
        "other.txt",
        "..%2Fsecret",
        "%2Fetc%2Fpasswd",
        ".%2Fa.txt",
        "d%2F..%2Fa.txt",
        "a.txt%00",
        "",
    ] {
        let answer = client.get(&content(path)).await;
        answer.assert_error(404, "no_artifact");
    }
    client
        .get("/v1/runs/r1/artifacts/content")
        .await
        .assert_error(400, "bad_query");
    let both = format!("{}&path=b.txt", content("a.txt"));
    client.get(&both).await.assert_error(400, "bad_query");
    let missing = "/v1/runs/none/artifacts/content?path=a.txt";
    client.get(missing).await.assert_error(404, "no_run");

    fs::write(folder.path().join("a.txt"), "changed").unwrap();
    client
        .get(&content("a.txt"))
        .await
        .assert_error(409, "artifact_changed");
    fs::remove_file(folder.path().join("b.txt")).unwrap();
    client
        .get(&content("b.txt"))
        .await
        .assert_error(404, "no_artifact");
    let big = vec![b'x'; 9 << 20];
    fs::write(folder.path().join("b.txt"), big).unwrap();
    client
        .get(&content("b.txt"))
        .await
        .assert_error(413, "artifact_too_large");
    #[cfg(unix)]
    {
        let link = folder.path().join("c.txt");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), &link).unwrap();
        client
            .get(&content("c.txt"))
            .await
            .assert_error(409, "artifact_unreadable");
    }
    let (head, body) = get(client, &content("d%2Fe.txt")).await;
    assert!(
        head.starts_with("http/1.1 200") && body == b"four",
        "{head}"
    );
    server.stop().await;
}

#[tokio::test]
async fn server_without_workspace_reads_no_artifacts() {
    let model = ScriptedModel::new().reply("Done.");
    let server = Server::new(Runs::new(agent(model, &MemoryJournal::new()))).await;
    server
        .client
        .get(&content("a.txt"))
        .await
        .assert_error(409, "no_workspace");
    server.stop().await;
}

#[tokio::test]
async fn graph_is_an_image_without_markup_of_models() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[("a.txt", "one")]).await;
    let (head, body) = get(server.client, "/v1/runs/r1/graph.svg").await;
    for header in [
        "content-type: image/svg+xml",
        "content-security-policy: default-src 'none'; sandbox",
        "x-content-type-options: nosniff",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    let image = String::from_utf8(body).unwrap();
    assert!(
        image.starts_with("<svg ") && image.ends_with("</svg>\n"),
        "{image}"
    );
    assert!(
        image.contains("Write &lt;files&gt; &amp; &quot;more&quot;."),
        "{image}"
    );
    assert!(image.contains("completed</text>"), "{image}");
    let missing = server.client.get("/v1/runs/none/graph.svg").await;
    missing.assert_error(404, "no_run");
    server.stop().await;
}
