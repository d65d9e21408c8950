use levity_core::Status;

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    space: Workspace,
    task_store: TaskStore,
}

fn stage() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let space = Workspace::open(folder.path()).unwrap();
    Fixture {
        folder,
        space,
        task_store: TaskStore::in_memory(),
    }
}

fn record(done: &str) -> TaskRecord {
    let (task, failed) = ("t".to_owned(), "FAILED_t".to_owned());
    let made = Timestamp::default();
    TaskRecord {
        task,
        prompt: String::new(),
        made,
        done: done.into(),
        failed,
        stage: Stage::Open,
    }
}

fn ending(status: Status, text: &str) -> Ending {
    let mut ending = Ending::new(status);
    ending.text = text.to_owned();
    ending
}

impl Fixture {
    fn signal(&self, record: TaskRecord, ending: &Ending) -> Option<String> {
        let record = signal(
            &self.space,
            &self.task_store,
            record,
            ending,
            Timestamp::default(),
        )
        .unwrap();
        assert!(record.is_signalled() && self.task_store.get("t") == Some(record.clone()));
        match record.stage {
            Stage::Signalled { path, .. } => path,
            _ => None,
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn signal_writes_file_for_answer_and_failure() {
    let stage = stage();
    let done = ending(Status::Complete, &"ä".repeat(20_000));
    assert_eq!(
        stage.signal(record("below/READY"), &done).unwrap(),
        "below/READY"
    );
    let text = String::from_utf8(stage.space.read("below/READY", 1 << 20).unwrap()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&value["task"], &value["status"], &value["complete"]),
        (&"t".into(), &"complete".into(), &false.into())
    );
    assert_eq!(value["answer"].as_str().unwrap().len(), MAX_ANSWER);
    let failed = ending(
        Status::Cancelled {
            reason: "no".into(),
        },
        "",
    );
    assert_eq!(stage.signal(record("DONE_x"), &failed).unwrap(), "FAILED_t");
    assert_eq!(stage.names(), ["FAILED_t", "below"]);
}

#[test]
fn signal_does_not_overwrite_existing_file() {
    let stage = stage();
    stage.space.write("READY", b"mine").unwrap();
    assert_eq!(
        stage
            .signal(record("READY"), &ending(Status::Complete, ""))
            .unwrap(),
        "DONE_t"
    );
    assert_eq!(stage.space.read("READY", 10).unwrap(), b"mine");
    assert_eq!(stage.names(), ["DONE_t", "READY"]);
    stage.space.write("DONE_t", b"mine, too").unwrap();
    assert_eq!(
        stage.signal(record("READY"), &ending(Status::Complete, "")),
        None,
        "no unused file name was found"
    );
    assert_eq!(stage.space.read("DONE_t", 10).unwrap(), b"mine, too");
    assert_eq!(stage.names(), ["DONE_t", "READY"]);
}

#[test]
fn signal_falls_back_to_default_name_if_folder_is_a_file() {
    let stage = stage();
    stage.space.write("below", b"a file").unwrap();
    assert_eq!(
        stage
            .signal(record("below/READY"), &ending(Status::Complete, ""))
            .unwrap(),
        "DONE_t"
    );
}

/// After a crash at any point, the next process publishes the file exactly once.
#[test]
fn signal_after_crash_at_any_point_leaves_one_file() {
    let end = ending(Status::Complete, "yes");
    // The crash came before the record was written, but after the temporary file was.
    let first = stage();
    first.space.write(".levity-signal-t", b"half").unwrap();
    assert_eq!(first.signal(record("READY"), &end).unwrap(), "READY");
    assert_eq!(first.names(), ["READY"]);
    // The record was written, but the file was not renamed.
    let signalling = Stage::Signalling {
        from: ".levity-signal-t".into(),
        path: "READY".into(),
        good: true,
    };
    let signalling_record = TaskRecord {
        stage: signalling,
        ..record("READY")
    };
    let second = stage();
    second.space.write(".levity-signal-t", b"whole").unwrap();
    assert_eq!(
        second.signal(signalling_record.clone(), &end).unwrap(),
        "READY"
    );
    assert_eq!(second.space.read("READY", 10).unwrap(), b"whole");
    assert_eq!(second.names(), ["READY"]);
    // The file was renamed but not recorded, and the waiting client has removed it.
    let third = stage();
    assert_eq!(
        third.signal(signalling_record.clone(), &end).unwrap(),
        "READY"
    );
    assert_eq!(third.names(), [] as [&str; 0]);
    // Two files exist, because the rename was not atomic.
    let fourth = stage();
    fourth.space.write(".levity-signal-t", b"whole").unwrap();
    fourth.space.write("READY", b"whole").unwrap();
    assert_eq!(fourth.signal(signalling_record, &end).unwrap(), "READY");
    assert_eq!(fourth.names(), ["READY"]);
}

#[track_caller]
fn assert_rejected(stage: &Fixture, done: &str, kind: ErrorKind) {
    assert_eq!(
        validate_name(&stage.space, done).map_err(|error| error.kind()),
        Err(kind),
        "{done:?}"
    );
}

#[test]
fn validate_name_accepts_only_plain_unused_paths() {
    let stage = stage();
    stage.space.write("there", b"").unwrap();
    stage.space.create_dir("folder").unwrap();
    std::os::unix::fs::symlink("/etc", stage.folder.path().join("out")).unwrap();
    for good in ["DONE_plan", "a/b/UI_FIXED", "DONE.md", "完了"] {
        assert_eq!(validate_name(&stage.space, good).unwrap(), good);
    }
    for outside in ["../x", "/etc/x", "a/../../x", "..", "a/../b", "out/x"] {
        assert_rejected(&stage, outside, ErrorKind::Outside);
    }
    for denied in [
        ".git/hooks/post-commit",
        ".git",
        ".env",
        ".ssh/authorized_keys",
        "sub/.GIT/config",
    ] {
        assert_rejected(&stage, denied, ErrorKind::Denied);
    }
    let long = "x".repeat(401);
    for invalid in [
        "",
        ".",
        "a/",
        "a//b",
        "./a",
        "a\0b",
        "a\nb",
        "C:\\x",
        "a\\b",
        "x.",
        "x ",
        "a*",
        long.as_str(),
    ] {
        assert_rejected(&stage, invalid, ErrorKind::Invalid);
    }
    assert_rejected(&stage, "there", ErrorKind::Exists);
    assert_rejected(&stage, "folder", ErrorKind::Exists);
    assert_rejected(&stage, "there/below", ErrorKind::NotAFile);
}
