//! Secrets must not appear in any output.

use std::sync::{Arc, Mutex};

use levity_core::{
    CallId, EffectId, Ending, Event, EventKind, Failure, Finish, Message, ModelError,
    ModelErrorKind, Part, Role, Secrets, Status, ToolCall, ToolError, ToolResult, Usage,
};
use levity_log::{LineLayer, LogFiles};
use serde_json::json;

use crate::support::{PATIENCE, all, event, with};

/// A registered secret, and a text that only looks like one. The first has characters that JSON
/// escapes.
const KNOWN: &str = "c4nary\"with\\marks";
const SHAPED: &str = "sk-ant-api03-Zq8Lr2Wm5Nc7Xv1Kb9Td4Hs6Gf3Jp0Yu";

fn secrets() -> Secrets {
    Secrets::new().known(KNOWN)
}

#[track_caller]
fn assert_clean(text: &str) {
    for secret in [KNOWN, SHAPED, "c4nary", "Zq8Lr2Wm5Nc7Xv1", "with\\\\marks"] {
        assert!(!text.contains(secret), "`{secret}` in {text}");
    }
}

/// Returns every event that can contain external text, with both secrets in all of it.
fn events() -> Vec<Event> {
    let text = || format!("before {KNOWN} between {SHAPED} behind");
    let effect = EffectId::new(1);
    let call = || {
        ToolCall::new(
            CallId::new(text()),
            text(),
            json!({"a": text(), (text()): 1, "password": "c4nary"}),
        )
    };
    let failed = ToolResult::new(&call(), Err(ToolError::failed(text())));
    let thinking = Message::new(
        Role::Assistant,
        vec![Part::thinking(text()), Part::text(text())],
    );
    let error = ModelError::new(ModelErrorKind::Auth, text()).with_source(text());
    let mut ending = Ending::new(Status::Failed(Failure::Model(error.clone())));
    ending.text = text();
    let kinds = vec![
        EventKind::Goal { text: text() },
        EventKind::Plan {
            steps: vec![text()],
        },
        EventKind::Note { text: text() },
        EventKind::ModelStarted {
            effect,
            slot: text().into(),
        },
        EventKind::ModelFinished {
            effect,
            message: Arc::new(thinking),
            finish: Finish::Other(text()),
            usage: Usage::default(),
        },
        EventKind::ModelFailed { effect, error },
        EventKind::ToolStarted {
            effect,
            call: call(),
        },
        EventKind::ToolFinished {
            effect,
            result: failed,
        },
        EventKind::Denied {
            effect,
            reason: text(),
        },
        EventKind::MessageReceived {
            message: Arc::new(Message::user(text())),
        },
        EventKind::Custom {
            name: text(),
            data: json!({"deep": [{"er": text()}]}),
        },
        EventKind::RunEnded(Box::new(ending)),
    ];
    kinds.into_iter().map(|kind| event("r1", 0, kind)).collect()
}

#[test]
fn log_files_contain_no_secret_in_any_format() {
    for json in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let builder = LogFiles::builder(dir.path())
            .secrets(secrets())
            .max_file(600)
            .keep(100)
            .max_text(2_000);
        let builder = if json { builder.json() } else { builder };
        assert_clean(&format!("{builder:?}"));
        let logs = builder.open().unwrap();
        let (session, runs) = (logs.session("s"), logs.runs());
        for event in events() {
            session(&event);
            runs(&event);
        }
        assert!(logs.flush(PATIENCE));
        logs.session(&format!("talk of {SHAPED}"))(&event(SHAPED, 0, EventKind::Paused));
        runs(&event(SHAPED, 0, EventKind::Paused));
        assert!(logs.flush(PATIENCE));
        let names = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names.for_each(|name| assert_clean(name.to_str().unwrap()));
        let text = all(dir.path());
        assert_clean(&text);
        assert!(
            text.matches("[secret: ").count() > 40,
            "the entries are there: {text}"
        );
        assert!(text.contains("before") && text.contains("behind"));
        assert!(
            dir.path().join("s/general.log.3").exists()
                && dir.path().join("s/reasoning.log").exists()
        );
        assert_clean(&format!("{logs:?} {:?}", logs.layer()));
    }
}

#[test]
fn clipped_text_shows_no_part_of_secret() {
    for at in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogFiles::builder(dir.path())
            .secrets(secrets())
            .max_text(40)
            .open()
            .unwrap();
        let text = format!("{}{KNOWN} {SHAPED} {}", "x".repeat(at), "y".repeat(100));
        logs.session("s")(&event("r1", 0, EventKind::Goal { text }));
        assert!(logs.flush(PATIENCE));
        assert_clean(&all(dir.path()));
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log_secrets() {
    let header = format!("Bearer {SHAPED}");
    tracing::info!(header, known = KNOWN, debug = ?KNOWN, "said {KNOWN} and {SHAPED}");
    tracing::warn!(api_key = 12345, password = "short", "a name is enough");
}

#[test]
fn tracing_output_contains_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::builder(dir.path())
        .secrets(secrets())
        .open()
        .unwrap();
    tracing::dispatcher::with_default(&with(logs.layer()), log_secrets);
    assert!(logs.flush(PATIENCE));
    let shown = Shared::default();
    tracing::dispatcher::with_default(&with(LineLayer::new(shown.clone(), secrets())), log_secrets);
    let shown = String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
    for text in [all(dir.path()), shown] {
        assert_clean(&text);
        assert!(!text.contains("short") && !text.contains("12345"), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}
