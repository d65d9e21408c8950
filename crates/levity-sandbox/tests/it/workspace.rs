//! Operations of a workspace on files that are allowed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use levity_sandbox::{EntryKind, PathError, Workspace, WriteOptions};
use tempfile::TempDir;

fn open() -> (TempDir, Workspace) {
    let temp = tempfile::tempdir().unwrap();
    let space = Workspace::open(temp.path()).unwrap();
    (temp, space)
}

fn names(space: &Workspace, path: &str) -> Vec<String> {
    space
        .list(path, 100)
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}

#[test]
fn write_replaces_whole_file_and_preserves_mode() {
    let (temp, space) = open();
    let written = space.write("a.sh", b"one").unwrap();
    assert!(written.created && written.path == "a.sh");
    fs::set_permissions(temp.path().join("a.sh"), fs::Permissions::from_mode(0o4750)).unwrap();
    assert!(
        !space
            .write_with("a.sh", b"two", WriteOptions::new().synced())
            .unwrap()
            .created
    );
    assert_eq!(space.read("a.sh", 100).unwrap(), b"two");
    let mode = fs::metadata(temp.path().join("a.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(
        mode & 0o7777,
        0o750,
        "the permissions are preserved, but not the set-user-ID bit"
    );
    assert_eq!(
        fs::read_dir(temp.path()).unwrap().count(),
        1,
        "nothing else is left"
    );
}

#[test]
fn failed_write_leaves_no_temporary_file() {
    let (temp, space) = open();
    space.write("a", b"old").unwrap();
    fs::set_permissions(temp.path().join("a"), fs::Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(
        space.write("a", b"new"),
        Err(PathError::ReadOnlyFile(_))
    ));
    assert!(matches!(
        space.write("missing/a", b"new"),
        Err(PathError::NotFound(_))
    ));
    fs::create_dir(temp.path().join("dir")).unwrap();
    assert!(matches!(
        space.write("dir", b"new"),
        Err(PathError::NotAFile(_))
    ));
    assert_eq!(space.read("a", 100).unwrap(), b"old");
    assert_eq!(names(&space, "."), ["a", "dir"]);
    let everything: Vec<_> = fs::read_dir(temp.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(everything.len(), 2, "{everything:?}");
}

#[test]
fn write_with_parents_creates_folders() {
    let (_temp, space) = open();
    space
        .write_with("a/b/c.txt", b"x", WriteOptions::new().parents())
        .unwrap();
    assert_eq!(space.read("a/b/c.txt", 10).unwrap(), b"x");
    space.create_dir("a/d/e").unwrap();
    space.create_dir("a/d/e").unwrap();
    assert_eq!(names(&space, "a"), ["b", "d"]);
    assert!(matches!(
        space.create_dir("a/b/c.txt"),
        Err(PathError::Exists(_))
    ));
}

#[test]
fn read_is_limited_to_max_bytes() {
    let (temp, space) = open();
    fs::write(temp.path().join("f"), vec![b'x'; 5000]).unwrap();
    for max in [0, 1, 63, 64, 65, 4999] {
        let part = space.read_prefix("f", max).unwrap();
        assert_eq!(
            (part.bytes.len() as u64, part.size, part.truncated),
            (max, 5000, true)
        );
        let error = space.read("f", max).unwrap_err();
        assert!(
            matches!(error, PathError::TooLarge { size: 5000, .. }),
            "{error:?}"
        );
    }
    for max in [5000, 5001, u64::MAX] {
        assert_eq!(space.read("f", max).unwrap().len(), 5000);
    }
    fs::write(temp.path().join("empty"), "").unwrap();
    assert_eq!(space.read("empty", 0).unwrap(), b"");
}

#[test]
fn read_of_growing_file_is_limited() {
    let (temp, space) = open();
    fs::write(temp.path().join("f"), "12345").unwrap();
    let mut file = space.open_file("f").unwrap();
    fs::write(temp.path().join("f"), "x".repeat(1 << 20)).unwrap();
    let part = file.read_up_to(1000).unwrap();
    assert_eq!((part.bytes.len(), part.truncated), (1000, true));
}

#[test]
fn denied_entries_are_not_listed() {
    let (temp, space) = open();
    for name in [".env", ".env.example", "key.pem", "a.txt", ".hidden"] {
        fs::write(temp.path().join(name), "x").unwrap();
    }
    fs::create_dir(temp.path().join(".git")).unwrap();
    assert_eq!(names(&space, "."), [".env.example", ".hidden", "a.txt"]);
    assert!(
        space.denies(".env")
            && space.denies("a/.git/b")
            && space.denies("../x")
            && !space.denies("a.txt")
    );
    let listing = space.list(".", 2).unwrap();
    assert!(listing.truncated && listing.entries.len() == 2);
    assert!(!space.list(".", 3).unwrap().truncated);
}

#[test]
fn builder_rules_change_denied_paths() {
    let temp = tempfile::tempdir().unwrap();
    for dir in [".git", "private"] {
        fs::create_dir(temp.path().join(dir)).unwrap();
        fs::write(temp.path().join(dir).join("f"), "x").unwrap();
    }
    let space = Workspace::builder(temp.path())
        .allow(".git")
        .deny("private/f")
        .build()
        .unwrap();
    assert_eq!(space.read(".git/f", 10).unwrap(), b"x");
    assert_eq!(names(&space, "private"), [""; 0]);
    assert!(matches!(
        space.read("private/f", 10),
        Err(PathError::Denied(_))
    ));
    // Under another name of the folder, the file would have another path.
    assert!(matches!(
        space.rename("private", "public"),
        Err(PathError::Denied(_))
    ));
    let open = Workspace::builder(temp.path()).allow_all().build().unwrap();
    open.rename("private", "public").unwrap();
    assert_eq!(open.read("public/f", 10).unwrap(), b"x");
}

#[test]
fn read_only_workspace_refuses_changes() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("a"), "x").unwrap();
    let space = Workspace::builder(temp.path()).read_only().build().unwrap();
    assert!(space.is_read_only());
    assert_eq!(space.read("a", 10).unwrap(), b"x");
    let refused = [
        space.write("a", b"y").map(drop),
        space.write("b", b"y").map(drop),
        space.remove("a"),
        space.rename("a", "b"),
        space.create_dir("c"),
    ];
    for result in refused {
        assert!(matches!(result, Err(PathError::ReadOnly(_))), "{result:?}");
    }
    assert_eq!(names(&space, "."), ["a"]);
}

#[test]
fn hard_links_can_be_allowed() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("a"), "x").unwrap();
    fs::hard_link(temp.path().join("a"), temp.path().join("b")).unwrap();
    let space = Workspace::open(temp.path()).unwrap();
    assert!(matches!(space.read("b", 10), Err(PathError::HardLink(_))));
    let space = Workspace::builder(temp.path())
        .allow_hard_links()
        .build()
        .unwrap();
    assert_eq!(space.read("b", 10).unwrap(), b"x");
    // A write creates a new file, so the other hard link is unchanged.
    space.write("b", b"y").unwrap();
    assert_eq!(fs::read(temp.path().join("a")).unwrap(), b"x");
}

#[test]
fn listener_is_notified_of_changes() {
    let (_temp, space) = open();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = heard.clone();
    space.clone().on_change(move |change| {
        listener
            .lock()
            .unwrap()
            .push(format!("{} {}", change.path, change.kind));
    });
    space
        .write_with("a/./b.txt", b"x", WriteOptions::new().parents())
        .unwrap();
    space.rename("a/b.txt", "c.txt").unwrap();
    space.remove("c.txt").unwrap();
    space.create_dir("d").unwrap();
    assert!(space.remove("missing").is_err());
    let expected = [
        "a made",
        "a/b.txt written",
        "a/b.txt removed",
        "c.txt written",
        "c.txt removed",
        "d made",
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[test]
fn absolute_path_below_root_is_accepted() {
    let (temp, space) = open();
    space.write("a.txt", b"x").unwrap();
    let absolute = temp.path().join("a.txt");
    assert_eq!(space.read(absolute.to_str().unwrap(), 10).unwrap(), b"x");
    assert_eq!(names(&space, space.root().to_str().unwrap()), ["a.txt"]);
}

#[test]
fn open_without_folder_returns_error() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("a"), "x").unwrap();
    assert!(matches!(
        Workspace::open(temp.path().join("missing")),
        Err(PathError::NotFound(_))
    ));
    assert!(matches!(
        Workspace::open(temp.path().join("a")),
        Err(PathError::NotADirectory(_))
    ));
    assert!(matches!(
        Workspace::builder(temp.path()).deny("a[").build(),
        Err(PathError::Glob { .. })
    ));
}

#[test]
fn names_that_are_not_utf8_are_counted() {
    use std::os::unix::ffi::OsStrExt as _;

    let (temp, space) = open();
    if fs::write(temp.path().join(std::ffi::OsStr::from_bytes(b"a\xff")), "x").is_err() {
        eprintln!("SKIPPED: this file system takes UTF-8 only");
        return;
    }
    fs::write(temp.path().join("b"), "x").unwrap();
    let listing = space.list(".", 10).unwrap();
    assert_eq!((listing.entries.len(), listing.unreadable), (1, 1));
}

#[test]
fn metadata_reports_kind_and_size() {
    let (temp, space) = open();
    space.write("b", b"12345").unwrap();
    space.create_dir("dir").unwrap();
    std::os::unix::fs::symlink("dir", temp.path().join("link")).unwrap();
    std::os::unix::fs::symlink(".", temp.path().join("here")).unwrap();
    let meta = space.metadata("b").unwrap();
    assert_eq!(
        (meta.kind(), meta.size(), meta.links()),
        (EntryKind::File, 5, 1)
    );
    assert!(meta.modified() > std::time::SystemTime::UNIX_EPOCH);
    for path in ["dir", "link", ".", "here", "here/here/link"] {
        assert_eq!(
            space.metadata(path).unwrap().kind(),
            EntryKind::Dir,
            "{path}"
        );
    }
    assert_eq!(
        space.dir(".").unwrap().metadata("link").unwrap().kind(),
        EntryKind::Link
    );
}

#[test]
fn rename_new_does_not_replace_existing_file() {
    let folder = tempfile::tempdir().unwrap();
    let space = Workspace::open(folder.path()).unwrap();
    space.write("new", b"new").unwrap();
    space.write("old", b"old").unwrap();
    space.create_dir("below").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
    for taken in ["old", "below", "link"] {
        assert!(
            matches!(space.rename_new("new", taken), Err(PathError::Exists(_))),
            "{taken}"
        );
    }
    assert!(matches!(
        space.rename_new("below", "b"),
        Err(PathError::NotAFile(_))
    ));
    assert!(matches!(
        space.rename_new("new", "../new"),
        Err(PathError::Outside(_))
    ));
    assert!(matches!(
        space.rename_new("new", ".git"),
        Err(PathError::Denied(_))
    ));
    assert_eq!(space.read("old", 9).unwrap(), b"old");
    space.rename_new("new", "below/new").unwrap();
    space.sync_names("below/new").unwrap();
    space.sync_names("below/gone").unwrap();
    assert!(matches!(
        space.sync_names("gone/new"),
        Err(PathError::NotFound(_))
    ));
    assert!(matches!(
        space.sync_names("../new"),
        Err(PathError::Outside(_))
    ));
    assert_eq!(space.read("below/new", 9).unwrap(), b"new");
    assert!(matches!(space.read("new", 9), Err(PathError::NotFound(_))));
}

#[test]
fn target_of_denied_link_is_denied_by_every_path() {
    use std::os::unix::fs::symlink;

    for walks in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for file in [
            "settings",
            "conf/keys/id",
            "vault/a/b",
            "store/HEAD",
            "tree/HEAD",
            "other",
            ".env.example",
        ] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "text").unwrap();
        }
        fs::create_dir_all(root.join(".aws/deep")).unwrap();
        fs::create_dir_all(root.join("sub")).unwrap();
        for (to, from) in [
            ("settings", ".env.local"),
            ("conf/keys", ".ssh"),
            // In a folder that is itself denied.
            ("../../vault/a", ".aws/deep/link"),
            ("store", ".git"),
            // A rule allows these by their own names.
            (".env.example", ".env"),
            ("/etc/hostname", ".npmrc"),
            ("nowhere", ".netrc"),
        ] {
            symlink(to, root.join(from)).unwrap();
        }
        fs::write(root.join("sub/.git"), "gitdir: ../tree\n").unwrap();
        let builder = Workspace::builder(root);
        let space = if walks { builder.walk_only() } else { builder }
            .build()
            .unwrap();
        let denied = |path: &str| {
            let read = matches!(space.read(path, 9), Err(PathError::Denied(_)));
            let written = matches!(space.write(path, b"new"), Err(PathError::Denied(_)));
            let removed = matches!(space.remove(path), Err(PathError::Denied(_)));
            assert!(
                read == written && written == removed,
                "{path}: {read} {written} {removed}"
            );
            read
        };
        for path in [
            "settings",
            "./settings",
            "conf/keys/id",
            "vault/a/b",
            "store/HEAD",
            "store/hooks",
            "tree/HEAD",
        ] {
            assert!(denied(path), "{path}");
        }
        let names = |path: &str| {
            let listing = space.list(path, 99).unwrap();
            listing
                .entries
                .into_iter()
                .map(|entry| entry.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("."),
            [".env.example", "conf", "other", "sub", "vault"]
        );
        assert!(names("conf").is_empty() && names("vault").is_empty());
        assert!(matches!(
            space.dir("conf").unwrap().dir("keys"),
            Err(PathError::Denied(_))
        ));
        for path in ["other", ".env.example"] {
            assert_eq!(space.read(path, 9).unwrap(), b"text", "{path}");
        }
        // They stay denied without the link, and under another name.
        fs::remove_file(root.join(".env.local")).unwrap();
        fs::remove_file(root.join(".ssh")).unwrap();
        fs::rename(root.join("settings"), root.join("plain")).unwrap();
        fs::rename(root.join("conf"), root.join("moved")).unwrap();
        for path in ["plain", "moved/keys/id"] {
            assert!(
                matches!(space.read(path, 9), Err(PathError::Denied(_))),
                "{path}"
            );
        }
        assert!(matches!(
            space.list("moved/keys", 9),
            Err(PathError::Denied(_))
        ));
        // A new file that reuses the inode number of a removed one is not a secret.
        fs::remove_file(root.join("plain")).unwrap();
        for number in 0..20 {
            let name = format!("new{number}");
            space.write(&name, b"text").unwrap();
            assert_eq!(space.read(&name, 9).unwrap(), b"text");
        }
    }
}
