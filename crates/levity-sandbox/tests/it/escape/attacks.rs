use super::Op::{Below, Entry, List, Mkdir, Read, Remove, Rename, Stat, Write, WriteDeep};
use super::Set::{Dir, File, Hard, Link, Pipe, Socket};
use super::{Fixture, Op, SECRET, Set, kind, perform};

/// The setup, the operation, and the expected error variant, or `ok` if the attack is harmless.
type Attack = (&'static [Set], Op, &'static str);

const TEXT: &[Attack] = &[
    (&[], Read("../out/secret.txt"), "Outside"),
    (&[], Read("/etc/passwd"), "Outside"),
    (&[], Read("//etc/passwd"), "Outside"),
    (&[], Read("sub/../../out/secret.txt"), "Outside"),
    (&[], Read("sub/deep/../../../out/secret.txt"), "Outside"),
    (&[], Read("./../ws/../out/secret.txt"), "Outside"),
    (&[], Read("../ws/a.txt"), "Outside"),
    (&[], Read(".."), "Outside"),
    (&[], Read("a.txt\0/../../out/secret.txt"), "Invalid"),
    (&[], Read(""), "Invalid"),
    (&[], Read("..\\out\\secret.txt"), "NotFound"),
    (&[], Read("%2e%2e/out/secret.txt"), "NotFound"),
    (&[], Read("．．/out/secret.txt"), "NotFound"),
    (&[], Read("~/secret.txt"), "NotFound"),
    (&[], Read("$HOME/secret.txt"), "NotFound"),
    (&[], Read("/proc/self/cwd/a.txt"), "Outside"),
    (&[], Read("/proc/self/root/etc/passwd"), "Outside"),
    (&[], Read("/dev/zero"), "Outside"),
    (&[], Read("file:///etc/passwd"), "NotFound"),
    (&[], List(".."), "Outside"),
    (&[], List("/"), "Outside"),
    (&[], List("sub/../.."), "Outside"),
    (&[], Stat("../out"), "Outside"),
    (&[], Stat("/etc"), "Outside"),
    (&[], Write("../out/new.txt"), "Outside"),
    (&[], Write("/tmp/levity-escape-test"), "Outside"),
    (&[], WriteDeep("../out/new/deep.txt"), "Outside"),
    (&[], WriteDeep("new/../../out/deep.txt"), "Outside"),
    (&[], Mkdir("../out/new"), "Outside"),
    (&[], Remove("../out/secret.txt"), "Outside"),
    (&[], Remove("."), "NotAFile"),
    (&[], Remove("sub/.."), "NotAFile"),
    (&[], Rename("../out/secret.txt", "stolen.txt"), "Outside"),
    (&[], Rename("a.txt", "../out/gift.txt"), "Outside"),
    (&[], Rename("a.txt", "/tmp/levity-escape-test"), "Outside"),
    (&[], Entry("sub", "../../out/secret.txt"), "Invalid"),
    (&[], Entry("sub", ".."), "Invalid"),
    (&[], Below(".", ".."), "Invalid"),
    (&[], Below("sub", "/etc"), "Invalid"),
];

const LINKS: &[Attack] = &[
    (&[Link("l", "../out/secret.txt")], Read("l"), "Outside"),
    (&[Link("l", "{out}/secret.txt")], Read("l"), "Outside"),
    (&[Link("l", "{ws}/a.txt")], Read("l"), "Outside"),
    (&[Link("l", "/etc/passwd")], Read("l"), "Outside"),
    (
        &[Link("l", "/proc/self/cwd")],
        Read("l/Cargo.toml"),
        "Outside",
    ),
    (
        &[Link("l", "/proc/self/root")],
        Read("l/etc/passwd"),
        "Outside",
    ),
    (&[Link("l", "/proc/self/fd")], List("l"), "Outside"),
    (&[Link("l", "/dev/zero")], Read("l"), "Outside"),
    (&[Link("l", "..")], Read("l/out/secret.txt"), "Outside"),
    (&[Link("l", "../out")], Read("l/secret.txt"), "Outside"),
    (&[Link("l", "../out")], List("l"), "Outside"),
    (&[Link("l", "../out")], Stat("l"), "Outside"),
    (&[Link("l", "../out")], Stat("l/secret.txt"), "Outside"),
    (&[Link("l", "../ws/a.txt")], Read("l"), "Outside"),
    (
        &[Link("l", "sub/../../out/secret.txt")],
        Read("l"),
        "Outside",
    ),
    (
        &[Link("l", "./sub/./../..//out/secret.txt")],
        Read("l"),
        "Outside",
    ),
    (
        &[Link("sub/l", "../../out/secret.txt")],
        Read("sub/l"),
        "Outside",
    ),
    (
        &[Link("sub/l", "deep/../../../out/secret.txt")],
        Read("sub/l"),
        "Outside",
    ),
    (
        &[Link("k", "l"), Link("l", "../out/secret.txt")],
        Read("k"),
        "Outside",
    ),
    (
        &[
            Link("k", "sub/l"),
            Link("sub/l", "../m"),
            Link("m", "/etc/passwd"),
        ],
        Read("k"),
        "Outside",
    ),
    (
        &[Link("up", "sub/.."), Link("l", "up/../out/secret.txt")],
        Read("l"),
        "Outside",
    ),
    (
        &[Link("up", "."), Link("l", "up/up/up/../out/secret.txt")],
        Read("l"),
        "Outside",
    ),
    (&[Link("l", "l")], Read("l"), "Invalid"),
    (
        &[Link("k", "l"), Link("l", "k")],
        Read("k/a.txt"),
        "Invalid",
    ),
    (&[Link("l", "l/l")], List("l"), "Invalid"),
    (&[Link("l", "../out/secret.txt")], Write("l"), "Outside"),
    (&[Link("l", "../out/new.txt")], Write("l"), "Outside"),
    (&[Link("l", "{out}/new.txt")], Write("l"), "Outside"),
    (&[Link("l", "../out/dir")], Write("l/new.txt"), "Outside"),
    (
        &[Link("l", "../out/dir")],
        WriteDeep("l/x/y/new.txt"),
        "Outside",
    ),
    (
        &[Link("l", "../out/newdir")],
        WriteDeep("l/new.txt"),
        "Outside",
    ),
    (
        &[Link("sub/l", "../../out")],
        WriteDeep("sub/l/new/new.txt"),
        "Outside",
    ),
    (&[Link("l", "../out/newdir")], Mkdir("l"), "Outside"),
    (&[Link("l", "../out")], Mkdir("l/newdir"), "Outside"),
    (&[Link("l", "../out/dir")], Remove("l/b.txt"), "Outside"),
    (&[Link("l", "../out/empty")], Remove("l/."), "ok"),
    (&[Link("l", "../out/secret.txt")], Remove("l"), "ok"),
    (
        &[Link("l", "../out")],
        Rename("l/secret.txt", "stolen.txt"),
        "Outside",
    ),
    (
        &[Link("l", "../out/dir")],
        Rename("a.txt", "l/gift.txt"),
        "Outside",
    ),
    (
        &[Link("l", "../out/secret.txt")],
        Rename("a.txt", "l"),
        "ok",
    ),
    (
        &[Link("l", "../out/secret.txt")],
        Entry(".", "l"),
        "NotAFile",
    ),
    (&[Link("l", "../out")], Below(".", "l"), "NotADirectory"),
    (&[Link("l", "sub")], Below(".", "l"), "NotADirectory"),
    (&[Link("l", "../out/secret.txt/")], Read("l"), "Outside"),
    (&[Link("l", "../out/secret.txt")], List("l"), "Outside"),
    (&[Link("l", "../out/secret.txt")], Read("l/x"), "Outside"),
];

const DENIED: &[Attack] = &[
    (&[], Read(".env"), "Denied"),
    (&[], Read("./.env"), "Denied"),
    (&[], Read("sub/../.env"), "Denied"),
    (&[], Read("sub/.env"), "Denied"),
    (&[], Read(".ENV"), "Denied"),
    (&[], Read(".e\u{200b}nv"), "Denied"),
    (&[], Read(".env."), "Denied"),
    (&[], Read(".env "), "Denied"),
    (&[], Read(".env::$DATA"), "Denied"),
    (&[], Read("．env"), "Denied"),
    (&[], Read(".git/config"), "Denied"),
    (&[], Read(".GIT/config"), "Denied"),
    (&[], Read("git~1/config"), "Denied"),
    (&[], Read(".git/./config"), "Denied"),
    (&[], List(".git"), "Denied"),
    (&[], List(".ssh"), "Denied"),
    (&[], Stat(".env"), "Denied"),
    (&[], Write(".env"), "Denied"),
    (&[], Write(".git/hooks/pre-commit"), "Denied"),
    (&[], WriteDeep("new/.git/hooks/pre-commit"), "Denied"),
    (&[], Mkdir(".ssh/new"), "Denied"),
    (&[], Remove(".env"), "Denied"),
    (&[], Rename(".env", "open.txt"), "Denied"),
    (&[], Rename(".git", "open"), "Denied"),
    (&[], Rename("a.txt", ".git/hooks/pre-commit"), "Denied"),
    (&[], Rename("sub", ".ssh"), "Denied"),
    (&[], Entry(".", ".env"), "Denied"),
    (&[], Entry("sub", ".env"), "Denied"),
    (&[], Below(".", ".git"), "Denied"),
    (&[Link("notes", ".env")], Read("notes"), "Denied"),
    (&[Link("notes", "sub/../.env")], Read("notes"), "Denied"),
    (&[Link("notes", ".git")], Read("notes/config"), "Denied"),
    (&[Link("notes", ".git")], List("notes"), "Denied"),
    (
        &[Link("notes", ".git/hooks")],
        WriteDeep("notes/pre-commit"),
        "Denied",
    ),
    (&[Link("notes", ".git/new")], Write("notes"), "Denied"),
    (
        &[Link("k", "l"), Link("l", ".git")],
        Stat("k/config"),
        "Denied",
    ),
    (&[Link("sub/up", "..")], Read("sub/up/.env"), "Denied"),
    (&[Link("sub/up", "../.ssh")], Mkdir("sub/up/new"), "Denied"),
    (
        &[Link("notes", ".git/hooks")],
        Rename("a.txt", "notes/pre-commit"),
        "Denied",
    ),
    (&[Hard("copy", "{ws}/.env")], Read("copy"), "HardLink"),
];

const KINDS: &[Attack] = &[
    (&[Hard("h", "{out}/secret.txt")], Read("h"), "HardLink"),
    (
        &[Hard("h", "{out}/secret.txt")],
        Entry(".", "h"),
        "HardLink",
    ),
    (
        &[Hard("h", "{out}/secret.txt"), Link("l", "h")],
        Read("l"),
        "HardLink",
    ),
    (&[Hard("h", "{out}/secret.txt")], Write("h"), "ok"),
    (&[Hard("h", "{out}/secret.txt")], Remove("h"), "ok"),
    (&[Pipe("p")], Read("p"), "NotAFile"),
    (&[Pipe("p")], Write("p"), "NotAFile"),
    (&[Pipe("p")], Entry(".", "p"), "NotAFile"),
    (&[Pipe("p")], List("p"), "NotADirectory"),
    (&[Pipe("p"), Link("l", "p")], Read("l"), "NotAFile"),
    (&[Socket("s")], Read("s"), "NotAFile"),
    (&[Socket("s")], Write("s"), "NotAFile"),
    (&[], Read("sub"), "NotAFile"),
    (&[], Write("sub"), "NotAFile"),
    (&[], List("a.txt"), "NotADirectory"),
    (&[], Read("a.txt/b"), "NotFound"),
    (&[], WriteDeep("a.txt/b"), "NotADirectory"),
    (&[Dir("empty")], Write("empty"), "NotAFile"),
    (&[], Remove("sub"), "NotEmpty"),
    (&[File("f")], Mkdir("f"), "Exists"),
    (&[Dir("dir"), Link("l", "missing")], Read("l"), "NotFound"),
    (&[Link("l", "sub/deep")], Read("l/c.txt"), "ok"),
    (&[Link("sub/l", "../a.txt")], Read("sub/l"), "ok"),
    (&[Link("l", "new.txt")], Write("l"), "ok"),
    (&[Link("l", "newdir")], WriteDeep("l/new.txt"), "ok"),
];

#[track_caller]
fn check(attacks: &[Attack]) {
    for (sets, op, expected) in attacks {
        for which in 0..2 {
            let fixture = Fixture::new();
            sets.iter().for_each(|set| fixture.prepare(set));
            let before = fixture.untouchable();
            let result = perform(&fixture.workspaces()[which], *op);
            let found = result.as_ref().map_or_else(kind, |_| "ok".to_owned());
            assert_eq!(
                found, *expected,
                "{sets:?} {op:?} by way {which}: {result:?}"
            );
            let shown = format!(
                "{result:?} {}",
                result
                    .as_ref()
                    .err()
                    .map(ToString::to_string)
                    .unwrap_or_default()
            );
            for secret in [SECRET, "DENIED-SECRET", "root:"] {
                assert!(
                    !shown.contains(secret),
                    "{sets:?} {op:?} by way {which}: {shown}"
                );
            }
            assert_eq!(
                fixture.untouchable(),
                before,
                "{sets:?} {op:?} by way {which} changed something"
            );
        }
    }
}

#[test]
fn no_path_text_leads_out() {
    check(TEXT);
}

#[test]
fn no_link_leads_out() {
    check(LINKS);
}

#[test]
fn no_path_leads_to_denied_files() {
    check(DENIED);
}

#[test]
fn only_regular_files_of_workspace_are_opened() {
    check(KINDS);
}

#[test]
fn attack_lists_have_expected_size() {
    let count: usize = [TEXT, LINKS, DENIED, KINDS]
        .iter()
        .map(|attacks| attacks.len())
        .sum();
    assert!(count >= 60, "{count}");
}

/// Checks that existing and missing files give the same error.
#[track_caller]
fn check_silent(there: &[Set], missing: &[Set], op: Op) {
    for which in 0..2 {
        let [yes, no] = [there, missing].map(|sets| {
            let fixture = Fixture::new();
            sets.iter().for_each(|set| fixture.prepare(set));
            let error = perform(&fixture.workspaces()[which], op).unwrap_err();
            (error.to_string(), format!("{error:?}"))
        });
        assert_eq!(yes, no, "{there:?} {op:?} by way {which}");
    }
}

#[test]
fn errors_do_not_reveal_files_outside() {
    let pairs: &[(&[Set], &[Set])] = &[
        (
            &[Link("l", "../out/secret.txt")],
            &[Link("l", "../out/missing.txt")],
        ),
        (
            &[Link("l", "{out}/secret.txt")],
            &[Link("l", "{out}/missing.txt")],
        ),
        (&[Link("l", "/etc/passwd")], &[Link("l", "/etc/missing")]),
        (&[Link("l", "../out/dir")], &[Link("l", "../missing/dir")]),
        (
            &[Link("l", "/proc/self/cwd")],
            &[Link("l", "/proc/missing")],
        ),
        (
            &[Link("l", "../out/secret.txt/below")],
            &[Link("l", "../missing/below")],
        ),
    ];
    for (there, missing) in pairs {
        let ops = [
            Read("l"),
            Read("l/x"),
            Write("l"),
            WriteDeep("l/x/y"),
            List("l"),
            List("l/x"),
            Stat("l"),
            Stat("l/x"),
            Mkdir("l"),
            Mkdir("l/x"),
            Remove("l/x"),
            Rename("l/x", "y"),
            Rename("a.txt", "l/x"),
            Entry(".", "l"),
            Below(".", "l"),
        ];
        for op in ops {
            check_silent(there, missing, op);
        }
    }
}

#[test]
fn errors_do_not_reveal_denied_files() {
    for which in 0..2 {
        let (full, empty) = (Fixture::new(), Fixture::new());
        std::fs::remove_dir_all(empty.path("ws/.git")).unwrap();
        std::fs::remove_file(empty.path("ws/.env")).unwrap();
        for fixture in [&full, &empty] {
            fixture.prepare(&Link("notes", ".env"));
            fixture.prepare(&Link("inside", ".git"));
        }
        for op in [
            Read(".env"),
            Stat(".env"),
            Write(".env"),
            Remove(".env"),
            Rename(".env", "x"),
            Rename("a.txt", ".env"),
            Read(".git/config"),
            List(".git"),
            List(".git/hooks"),
            Mkdir(".git"),
            WriteDeep(".git/hooks/x"),
            Entry(".", ".env"),
            Below(".", ".git"),
            Read("notes"),
            Stat("notes"),
            Write("notes"),
            List("inside"),
            Read("inside/config"),
            Remove("inside/config"),
            Mkdir("inside"),
        ] {
            let [yes, no] = [&full, &empty].map(|fixture| {
                format!(
                    "{:?}",
                    perform(&fixture.workspaces()[which], op).unwrap_err()
                )
            });
            assert_eq!(yes, no, "{op:?} by way {which}");
        }
    }
}

#[test]
fn device_is_not_a_file() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

    let fixture = Fixture::new();
    let made = mknodat(
        CWD,
        fixture.path("ws/zero"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(1, 5),
    );
    if made.is_err() {
        eprintln!("SKIPPED: this user cannot create devices");
        return;
    }
    for space in fixture.workspaces() {
        for op in [
            Read("zero"),
            Write("zero"),
            Entry(".", "zero"),
            List("zero"),
        ] {
            let error = perform(&space, op).unwrap_err();
            // A file system mounted without devices refuses to open one.
            assert!(
                ["NotAFile", "NotADirectory", "Io"].contains(&&*kind(&error)),
                "{op:?}: {error:?}"
            );
        }
    }
}

#[test]
fn root_below_link_stays_same_folder() {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink(fixture.path("ws"), fixture.path("ws/../door")).unwrap();
    let space = levity_sandbox::Workspace::open(fixture.path("door")).unwrap();
    std::fs::remove_file(fixture.path("door")).unwrap();
    std::os::unix::fs::symlink(fixture.path("out"), fixture.path("door")).unwrap();
    assert_eq!(perform(&space, Read("a.txt")).unwrap(), "inside a");
    assert_eq!(
        kind(&perform(&space, Read("secret.txt")).unwrap_err()),
        "NotFound"
    );
}
