//! Tests of `--logs`, `LEVITY_LOG` and `levity logs clean`.

use std::fs;

use crate::chat::script;
use crate::{check, command, levity, text};

#[test]
fn logs_contain_no_keys_and_are_cleaned_up() {
    let folder = format!("{}/logs-of-a-run", env!("CARGO_TARGET_TMPDIR"));
    let _ = fs::remove_dir_all(&folder);
    let script = script(
        "logs.json",
        r#"[{"reply": "The key is correct-horse-battery."}]"#,
    );
    let args = [
        "run", "Say it", "-q", "--script", &script, "--logs", &folder,
    ];
    let output = command(&args)
        .env("MY_API_KEY", "correct-horse-battery")
        .output()
        .unwrap();
    check(&output, 0, "");
    let run = fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let general = fs::read_to_string(run.join("general.log")).unwrap();
    assert!(
        general.contains("run ended status=complete") && general.contains("[secret: known]"),
        "{general}"
    );
    assert!(!general.contains("correct-horse"));

    check(&levity(&["logs", "clean", &folder]), 2, "");
    assert_eq!(
        text(&levity(&["logs", "clean", &folder, "--older-than", "1d"])),
        "0 removed (0 bytes), 1 remaining\n"
    );
    let cleaned = levity(&["logs", "clean", &folder, "--max-size", "0"]);
    assert_eq!(
        text(&cleaned),
        format!("1 removed ({} bytes), 0 remaining\n", general.len())
    );
    assert!(!run.exists());
}

#[test]
fn invalid_log_filter_is_rejected() {
    let output = command(&["run", "Hi", "-q"])
        .env("LEVITY_LOG", "levity=loud=very")
        .output()
        .unwrap();
    check(&output, 2, "LEVITY_LOG");
}

#[test]
fn missing_collector_is_reported_without_failure() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let script = script("collector.json", r#"[{"reply": "Hello."}]"#);
    let mut run = command(&["run", "Hi", "-q", "--script", &script]);
    let output = run
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        .output()
        .unwrap();
    check(&output, 0, "did not accept all traces");
    assert_eq!(text(&output), "Hello.\n");
}
