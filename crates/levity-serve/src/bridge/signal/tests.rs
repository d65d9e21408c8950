use levity_core::Status;

use super::*;

struct Stage0 {
    folder: tempfile::TempDir,
    space: Workspace,
    book: Book,
}

fn stage() -> Stage0 {
    let folder = tempfile::tempdir().unwrap();
    let space = Workspace::open(folder.path()).unwrap();
    Stage0 {
        folder,
        space,
        book: Book::in_memory(),
    }
}

fn note(done: &str) -> Note {
    let (task, failed) = ("t".to_owned(), "FAILED_t".to_owned());
    let made = Timestamp::default();
    Note {
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

impl Stage0 {
    fn signal(&self, note: Note, ending: &Ending) -> Option<String> {
        let note = signal(&self.space, &self.book, note, ending, Timestamp::default()).unwrap();
        assert!(note.is_over() && self.book.get("t") == Some(note.clone()));
        match note.stage {
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
fn the_end_is_seen_by_a_file() {
    let stage = stage();
    let done = ending(Status::Complete, &"ä".repeat(20_000));
    assert_eq!(
        stage.signal(note("below/READY"), &done).unwrap(),
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
    assert_eq!(stage.signal(note("DONE_x"), &failed).unwrap(), "FAILED_t");
    assert_eq!(stage.names(), ["FAILED_t", "below"]);
}

#[test]
fn a_file_of_somebody_else_stays() {
    let stage = stage();
    stage.space.write("READY", b"mine").unwrap();
    assert_eq!(
        stage
            .signal(note("READY"), &ending(Status::Complete, ""))
            .unwrap(),
        "DONE_t"
    );
    assert_eq!(stage.space.read("READY", 10).unwrap(), b"mine");
    assert_eq!(stage.names(), ["DONE_t", "READY"]);
    stage.space.write("DONE_t", b"mine, too").unwrap();
    assert_eq!(
        stage.signal(note("READY"), &ending(Status::Complete, "")),
        None,
        "there is no name left"
    );
    assert_eq!(stage.space.read("DONE_t", 10).unwrap(), b"mine, too");
    assert_eq!(stage.names(), ["DONE_t", "READY"]);
}

#[test]
fn a_folder_that_became_a_file_is_no_obstacle() {
    let stage = stage();
    stage.space.write("below", b"a file").unwrap();
    assert_eq!(
        stage
            .signal(note("below/READY"), &ending(Status::Complete, ""))
            .unwrap(),
        "DONE_t"
    );
}

/// Whatever was done before the process died, the next one brings it to its end, and once only.
#[test]
fn a_crash_at_any_point_leaves_one_file() {
    let end = ending(Status::Complete, "yes");
    // Before anything was noted, though the file beside was written.
    let first = stage();
    first.space.write(".levity-signal-t", b"half").unwrap();
    assert_eq!(first.signal(note("READY"), &end).unwrap(), "READY");
    assert_eq!(first.names(), ["READY"]);
    // Noted, and not named.
    let signalling = Stage::Signalling {
        from: ".levity-signal-t".into(),
        path: "READY".into(),
        good: true,
    };
    let noted = Note {
        stage: signalling,
        ..note("READY")
    };
    let second = stage();
    second.space.write(".levity-signal-t", b"whole").unwrap();
    assert_eq!(second.signal(noted.clone(), &end).unwrap(), "READY");
    assert_eq!(second.space.read("READY", 10).unwrap(), b"whole");
    assert_eq!(second.names(), ["READY"]);
    // Named, not noted, and whoever waited has taken it away.
    let third = stage();
    assert_eq!(third.signal(noted.clone(), &end).unwrap(), "READY");
    assert_eq!(third.names(), [] as [&str; 0]);
    // Two names, where one cannot be given in one go.
    let fourth = stage();
    fourth.space.write(".levity-signal-t", b"whole").unwrap();
    fourth.space.write("READY", b"whole").unwrap();
    assert_eq!(fourth.signal(noted, &end).unwrap(), "READY");
    assert_eq!(fourth.names(), ["READY"]);
}

#[track_caller]
fn refused(stage: &Stage0, done: &str, kind: ErrorKind) {
    assert_eq!(
        checked(&stage.space, done).map_err(|error| error.kind()),
        Err(kind),
        "{done:?}"
    );
}

#[test]
fn only_a_plain_name_that_is_free_can_be_wished_for() {
    let stage = stage();
    stage.space.write("there", b"").unwrap();
    stage.space.create_dir("folder").unwrap();
    std::os::unix::fs::symlink("/etc", stage.folder.path().join("out")).unwrap();
    for good in ["DONE_plan", "a/b/UI_FIXED", "DONE.md", "完了"] {
        assert_eq!(checked(&stage.space, good).unwrap(), good);
    }
    for outside in ["../x", "/etc/x", "a/../../x", "..", "a/../b", "out/x"] {
        refused(&stage, outside, ErrorKind::Outside);
    }
    for denied in [
        ".git/hooks/post-commit",
        ".git",
        ".env",
        ".ssh/authorized_keys",
        "sub/.GIT/config",
    ] {
        refused(&stage, denied, ErrorKind::Denied);
    }
    let long = "x".repeat(401);
    for odd in [
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
        refused(&stage, odd, ErrorKind::Invalid);
    }
    refused(&stage, "there", ErrorKind::Exists);
    refused(&stage, "folder", ErrorKind::Exists);
    refused(&stage, "there/below", ErrorKind::NotAFile);
}
