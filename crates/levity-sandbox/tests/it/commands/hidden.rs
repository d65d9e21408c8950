use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use levity_sandbox::{Sandbox, Workspace};

use super::{DISABLED, disable};

pub(super) fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Lines that would show a denied file, or change it.
const LINES: &[&str] = &[
    "cat .env sub/deep/.env id_rsa",
    "cat .ssh/id_ed25519 .ssh/config",
    "ls .ssh | grep .",
    "cat < .env",
    "cp .env copy && cat copy",
    "mv .env plain && cat plain",
    "ln .env hard && cat hard",
    "ln -s .env soft && cat soft",
    "cat /proc/self/cwd/.env",
    "cat /proc/self/root$PWD/.env",
    "cd sub && cat ../.env",
    "mv sub other && cat other/deep/.env",
    "grep -rh hush .",
    "umount .env && cat .env",
    "rm -f .env && echo changed",
    "echo changed > .env && echo changed",
    "chmod 777 .env; cat .env",
    "tar cf - . | grep -a hush",
];

#[tokio::test(flavor = "multi_thread")]
async fn denied_files_are_hidden_from_commands() {
    for disabled in DISABLED {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = disable(
            Sandbox::builder(Workspace::open(folder.path()).unwrap()),
            disabled,
        )
        .build()
        .unwrap();
        if !sandbox.report().hidden_files.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                sandbox.report().hidden_files
            );
            continue;
        }
        for line in LINES {
            empty(folder.path());
            for name in [
                ".env",
                "sub/deep/.env",
                "id_rsa",
                ".ssh/id_ed25519",
                ".ssh/config",
            ] {
                put(folder.path(), name, "hush\n");
            }
            put(folder.path(), "plain.txt", "open\n");
            let finished = sandbox.shell(*line).run().await.unwrap();
            assert!(
                !finished.stdout.text.contains("hush"),
                "without {disabled:?}, `{line}`: {finished:?}"
            );
            assert!(
                !finished.stdout.text.contains("changed"),
                "without {disabled:?}, `{line}`: {finished:?}"
            );
            let after = ["", "other", "sub"]
                .map(|it| fs::read_to_string(folder.path().join(it).join(".env")));
            assert_eq!(
                after[0].as_deref().unwrap(),
                "hush\n",
                "without {disabled:?}, `{line}`"
            );
            let finished = sandbox.command(["cat", "plain.txt"]).run().await.unwrap();
            assert_eq!(finished.stdout.text, "open\n");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_workspace_cannot_be_changed_by_commands() {
    for disabled in DISABLED {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "f", "kept\n");
        let workspace = Workspace::builder(folder.path())
            .read_only()
            .build()
            .unwrap();
        let sandbox = disable(Sandbox::builder(workspace), disabled)
            .build()
            .unwrap();
        let finished = sandbox
            .shell("cat f && echo x > $TMPDIR/t")
            .run()
            .await
            .unwrap();
        assert!(
            finished.is_success() && finished.stdout.text == "kept\n",
            "without {disabled:?}: {finished:?}"
        );
        if !sandbox.report().files.is_enforced {
            println!("without {disabled:?} not tried: {}", sandbox.report().files);
            continue;
        }
        for line in [
            "echo x > f",
            "echo x > n",
            "rm -f f",
            "mv f g",
            "mkdir d",
            "ln -s f l",
            "chmod 0 f",
            "mkfifo p",
        ] {
            // Landlock does not cover modes.
            if line.starts_with("chmod") && sandbox.report().files.note.is_some() {
                continue;
            }
            let finished = sandbox.shell(line).run().await.unwrap();
            assert!(
                !finished.is_success(),
                "without {disabled:?}, `{line}`: {finished:?}"
            );
        }
        assert_eq!(
            fs::read_to_string(folder.path().join("f")).unwrap(),
            "kept\n"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

/// Tricks of two commands: the first prepares the files that the second reads. `$W` is the
/// workspace.
const TRICKS: &[(&str, &str, &str)] = &[
    ("shut", "chmod 000 sub", "chmod 700 sub; cat sub/id_rsa"),
    (
        "enter only",
        "chmod 100 sub",
        "cat sub/id_rsa; chmod 700 sub; cat sub/id_rsa",
    ),
    (
        "enter and write only",
        "chmod 300 sub",
        "cat sub/id_rsa sub/deep/.env",
    ),
    (
        "list only",
        "chmod 400 sub",
        "chmod 700 sub; cat sub/id_rsa",
    ),
    (
        "list and write only",
        "chmod 600 sub/deep",
        "chmod 700 sub/deep; cat sub/deep/.env",
    ),
    (
        "write only",
        "chmod 200 sub",
        "chmod 700 sub; cat sub/id_rsa",
    ),
    (
        "others may, the owner may not",
        "chmod 077 sub",
        "chmod 777 sub; cat sub/id_rsa",
    ),
    (
        "special bits",
        "chmod 7000 sub",
        "chmod 700 sub; cat sub/id_rsa",
    ),
    (
        "shut twice",
        "chmod 000 sub/deep sub",
        "chmod 700 sub sub/deep; cat sub/deep/.env",
    ),
    (
        "shut below",
        "mkdir a; mv sub a; chmod 000 a",
        "chmod 700 a; cat a/sub/id_rsa",
    ),
    (
        "shut denied folder",
        "chmod 000 keys",
        "chmod 700 keys; cat keys/.ssh/config",
    ),
    (
        "shut and renamed",
        "chmod 000 sub; mv sub b",
        "chmod 700 b; cat b/id_rsa",
    ),
    (
        "shut workspace",
        "chmod 300 .",
        "cat sub/id_rsa .env; chmod 700 .; cat sub/id_rsa .env",
    ),
    (
        "renamed",
        "mv sub other",
        "cat other/id_rsa other/deep/.env",
    ),
    (
        "renamed with a denied folder",
        "mv keys other",
        "cat other/.ssh/config",
    ),
    (
        "replaced",
        "mv sub b; mkdir sub; echo x > sub/id_rsa",
        "cat b/id_rsa b/deep/.env",
    ),
    (
        "replaced by a link",
        "mv sub b; ln -s b sub",
        "cat sub/id_rsa b/id_rsa",
    ),
    (
        "moved into a new repository",
        "mkdir -p n/.git && mv sub n/.git/sub",
        "cat n/.git/sub/id_rsa",
    ),
    (
        "moved into a repository",
        "mkdir .git && mv sub .git/",
        "cat .git/sub/id_rsa .git/sub/deep/.env",
    ),
    (
        "moved into hooks",
        "mkdir -p .git/hooks && mv sub .git/hooks/",
        "cat .git/hooks/sub/id_rsa",
    ),
    (
        "a repository shut",
        "mkdir .git && mv sub .git/ && chmod 0 .git",
        "chmod 700 .git; cat .git/sub/id_rsa",
    ),
    (
        "a folder made a repository",
        "mv sub .git",
        "cat .git/id_rsa .git/deep/.env",
    ),
    (
        "a name of two lines",
        "mv sub \"$(printf 'a\\nb')\"",
        "cat a?b/id_rsa a?b/deep/.env",
    ),
    (
        "a name that is no text",
        "mv sub \"$(printf 'a\\377b')\"",
        "cat a*b/id_rsa a*b/deep/.env",
    ),
    (
        "a long name that is no text",
        "perl -e 'rename q(sub), qq(\\xff) x 250'",
        "cat */id_rsa */deep/.env",
    ),
    (
        "a name with marks",
        "mv sub '[a]*?{b}\\'",
        "cat */id_rsa */deep/.env",
    ),
    (
        "a name with a space at its end",
        "mv sub 'a '",
        "cat a*/id_rsa a*/deep/.env",
    ),
    ("capitals", "mv sub/deep sub/DEEP", "cat sub/DEEP/.env"),
    (
        "loops of links",
        "ln -s . l; ln -s m m; ln -s ../sub sub/s",
        "cat l/l/sub/id_rsa sub/s/s/id_rsa m/id_rsa",
    ),
    (
        "a link to it",
        "ln -s sub/id_rsa l; ln -s $W/sub k",
        "cat l k/id_rsa",
    ),
    (
        "a hard link",
        "ln sub/id_rsa hard; ln .env sub/hard",
        "cat hard sub/hard",
    ),
    (
        "a crowd",
        "cd sub; seq 1500 | xargs touch",
        "cat sub/id_rsa sub/deep/.env",
    ),
    (
        "a crowd of denied files",
        "cd sub; seq -f %g.pem 1100 | xargs touch",
        "cat sub/id_rsa sub/deep/.env",
    ),
    (
        "a crowd of folders",
        "cd sub; seq 600 | xargs mkdir",
        "cat sub/id_rsa sub/deep/.env",
    ),
    (
        "moved to the temporary folder",
        "mv sub keys .env $TMPDIR",
        "cat $TMPDIR/sub/id_rsa $TMPDIR/keys/.ssh/config",
    ),
    (
        "moved home",
        "mv sub keys $HOME",
        "cat $HOME/sub/id_rsa $HOME/keys/.ssh/config",
    ),
    (
        "copied",
        "cp -r . $TMPDIR/c; cp -rl sub l",
        "cat $TMPDIR/c/.env $TMPDIR/c/sub/id_rsa l/id_rsa",
    ),
    (
        "packed",
        "tar cf t . ; cp sub/id_rsa u; dd if=.env of=v",
        "grep -ah hush t u v",
    ),
    (
        "300 levels deep",
        "p=$(printf 'd/%.0s' $(seq 300)); mkdir -p $p && mv sub $p",
        "cat $(printf 'd/%.0s' $(seq 300))sub/id_rsa",
    ),
    ("paths of 3.8 KB", "DIG(19)", "FETCH(19)"),
    ("paths of 4 KB", "DIG(20)", "FETCH(20)"),
    ("paths of 4.2 KB", "DIG(21)", "FETCH(21)"),
    ("paths of 12 KB", "DIG(60)", "FETCH(60)"),
    ("paths of 200 KB", "DIG(1000)", "FETCH(1000)"),
];

/// Moves `sub` below nested folders with names of 200 bytes, or reads the files there.
fn expand(line: &str) -> String {
    let depth = |prefix| {
        line.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(')'))
    };
    let down = |depth, make| format!("for (1..{depth}) {{ {make} chdir(q(x) x 200) or die }}");
    if let Some(depth) = depth("DIG(") {
        // A folder cannot be moved by a path that is too long, so it is moved down step by step.
        let step = "mkdir(q(x) x 200); rename(q(sub), (q(x) x 200).q(/sub)) or die;";
        return format!("perl -e '{}'", down(depth, step));
    }
    if let Some(depth) = depth("FETCH(") {
        return format!(
            "perl -e '{} exec qw(cat sub/id_rsa sub/deep/.env)'",
            down(depth, "")
        );
    }
    line.to_owned()
}

fn furnish(root: &Path) {
    for name in [".env", "sub/id_rsa", "sub/deep/.env", "keys/.ssh/config"] {
        put(root, name, "hush\n");
    }
    put(root, "plain.txt", "open\n");
}

/// Removes everything in a folder, at any depth.
fn empty(root: &Path) {
    let entries = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let removed = std::process::Command::new("rm")
        .args(["-rf", "--"])
        .args(entries)
        .status();
    assert!(removed.unwrap().success());
}

/// Restores the owner's permissions, so that the folder can be removed.
fn unlock(root: &Path) {
    let _ = std::process::Command::new("chmod")
        .args(["-R", "u+rwX"])
        .arg(root)
        .status();
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_command_cannot_read_denied_file_moved_by_another() {
    // Without root's rights, the first round already uses a user namespace.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let rungs: &[&[&'static str]] = if is_root { &[&[], &["root"]] } else { &[&[]] };
    for disabled in rungs {
        let folder = tempfile::tempdir().unwrap();
        let builder =
            Sandbox::builder(Workspace::open(folder.path()).unwrap()).env("W", folder.path());
        let sandbox = disable(builder, disabled).build().unwrap();
        if !sandbox.report().hidden_files.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                sandbox.report().hidden_files
            );
            continue;
        }
        for (name, first, second) in TRICKS {
            empty(folder.path());
            furnish(folder.path());
            let first = sandbox.shell(expand(first)).run().await.unwrap();
            // A command that does not run reads nothing either.
            let second = sandbox.shell(expand(second)).run().await;
            for text in second
                .iter()
                .flat_map(|it| [&it.stdout.text, &it.stderr.text])
            {
                assert!(
                    !text.contains("hush"),
                    "without {disabled:?}, `{name}`: {first:?} {second:?}"
                );
            }
            unlock(folder.path());
            let after = sandbox.command(["cat", "plain.txt"]).run().await.unwrap();
            assert_eq!(
                after.stdout.text, "open\n",
                "without {disabled:?}, `{name}`: {after:?}"
            );
        }
    }
}

#[test]
fn trick_table_has_expected_size() {
    assert!(TRICKS.len() >= 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_denied_by_path_stay_denied_when_folders_move() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "docs/sub/plan.txt", "hush\n");
    put(folder.path(), "docs/sub/open.txt", "open\n");
    put(folder.path(), "secrets/x.pem", "hush\n");
    let workspace = Workspace::builder(folder.path())
        .deny("docs/sub/plan.txt")
        .allow("certs/*.pem")
        .build()
        .unwrap();
    let sandbox = disable(Sandbox::builder(workspace), &[]).build().unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    for (first, second) in [
        ("mv docs other", "cat other/sub/plan.txt"),
        ("mv docs/sub docs/other", "cat docs/other/plan.txt"),
        ("mv docs/sub .", "cat sub/plan.txt"),
        ("mv docs/sub/plan.txt p", "cat p"),
        ("mv secrets certs", "cat certs/x.pem"),
        ("mkdir certs; mv secrets/x.pem certs", "cat certs/x.pem"),
    ] {
        sandbox.shell(first).run().await.unwrap();
        let finished = sandbox.shell(second).run().await.unwrap();
        assert!(
            !finished.stdout.text.contains("hush"),
            "`{first}`, `{second}`: {finished:?}"
        );
    }
    let finished = sandbox
        .shell("cat docs/sub/open.txt && mv docs/sub/open.txt docs/o")
        .run()
        .await
        .unwrap();
    assert!(
        finished.is_success() && finished.stdout.text == "open\n",
        "{finished:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hard_link_of_denied_file_is_hidden() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "sub/.env", "hush\n");
    put(folder.path(), "sub/plain", "open\n");
    for name in ["0", "sub/notes", "zzz"] {
        fs::hard_link(folder.path().join("sub/.env"), folder.path().join(name)).unwrap();
    }
    let sandbox = disable(
        Sandbox::builder(Workspace::open(folder.path()).unwrap()),
        &[],
    )
    .build()
    .unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    let finished = sandbox
        .shell("cat 0 sub/.env sub/notes zzz; cat sub/plain")
        .run()
        .await
        .unwrap();
    assert_eq!(finished.stdout.text, "open\n", "{finished:?}");
}

/// Ways to give a secret a second name: files, hard links to them, and lines that run in sequence.
const SECOND_NAMES: &[(&str, &str, &str, &[&str])] = &[
    (
        "a denied folder",
        ".aws/credentials",
        "pub/copy",
        &["cat pub/copy"],
    ),
    (
        "a folder below a denied one",
        "x/.ssh/deep/id",
        "0",
        &["cat 0", "mv x y; cat 0", "cat 0"],
    ),
    (
        "a folder that gets a denied name",
        "sub/.env",
        "pub/copy",
        &["cat pub/copy; mv sub .ssh", "cat pub/copy"],
    ),
    (
        "a folder that is shut",
        "sub/.env",
        "pub/copy",
        &["cat pub/copy; chmod 000 sub", "cat pub/copy"],
    ),
    (
        "a denied folder that is shut",
        ".ssh/id",
        "pub/copy",
        &["cat pub/copy; chmod 000 .ssh", "cat pub/copy"],
    ),
    (
        "a folder in one that is shut",
        "sub/deep/id_rsa",
        "pub/copy",
        &[
            "mkdir s; mv sub s; chmod 100 s",
            "cat pub/copy",
            "mv pub p; cat p/copy",
            "cat p/copy",
        ],
    ),
    (
        "a folder that is moved into a denied one",
        "sub/.env",
        "copy",
        &["mkdir .gnupg; mv sub .gnupg", "cat copy"],
    ),
    (
        "a folder that is moved too deep",
        "sub/.env",
        "copy",
        &[
            "d=$(printf %0250d 0); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do mkdir \
                $d; cd $d; done; mv $WORK/sub .",
            "cat copy",
        ],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn second_name_of_denied_file_shows_nothing() {
    for disabled in [&[][..], &["root"], &["namespaces"]] {
        for (name, secret, copy, lines) in SECOND_NAMES {
            let folder = tempfile::tempdir().unwrap();
            put(folder.path(), secret, "hush\n");
            put(folder.path(), "plain", "open\n");
            put(folder.path(), "plain.txt", "open\n");
            fs::remove_file(folder.path().join("plain.txt")).unwrap();
            fs::hard_link(folder.path().join("plain"), folder.path().join("plain.txt")).unwrap();
            put(folder.path(), copy, "");
            fs::remove_file(folder.path().join(copy)).unwrap();
            fs::hard_link(folder.path().join(secret), folder.path().join(copy)).unwrap();
            let builder = Sandbox::builder(Workspace::open(folder.path()).unwrap())
                .env("WORK", folder.path());
            let sandbox = disable(builder, disabled).build().unwrap();
            let (hidden, held) = (
                sandbox.report().hidden_files.is_enforced,
                sandbox.report().read_only.is_enforced,
            );
            for line in *lines {
                let finished = sandbox.shell(*line).run().await.unwrap();
                let is_shown = finished.stdout.text.contains("hush");
                assert!(
                    !hidden || !is_shown,
                    "without {disabled:?}, {name}, `{line}`: {finished:?}"
                );
                if !held {
                    println!(
                        "without {disabled:?} not tried: {}",
                        sandbox.report().read_only
                    );
                    continue;
                }
                let reads = sandbox.shell(format!(
                    "grep -rs hush .; cat {copy} p/copy; cat plain plain.txt"
                ));
                let finished = reads.read_only().run().await.unwrap();
                assert_eq!(
                    finished.stdout.text, "open\nopen\n",
                    "without {disabled:?}, {name}, `{line}`: {finished:?}"
                );
            }
            unlock(folder.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_link_to_allowed_place_shows_nothing() {
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), "opened/app.env", "hush\n");
    put(outside.path(), "opened/keys/id", "hush\n");
    put(outside.path(), "opened/plain", "open\n");
    let place = outside.path().canonicalize().unwrap().join("opened");
    for disabled in [&[][..], &["root"], &["namespaces"]] {
        let folder = tempfile::tempdir().unwrap();
        for (to, from) in [("app.env", ".env"), ("keys", ".ssh")] {
            symlink(place.join(to), folder.path().join(from)).unwrap();
        }
        let builder = Sandbox::builder(Workspace::open(folder.path()).unwrap())
            .allow_read(&place)
            .env("P", &place);
        let sandbox = disable(builder, disabled).build().unwrap();
        let line = "cat .e* .ssh/id $P/app.env $P/keys/id; cat $P/plain";
        if sandbox.report().hidden_files.is_enforced {
            let finished = sandbox.shell(line).run().await.unwrap();
            assert_eq!(
                finished.stdout.text, "open\n",
                "without {disabled:?}: {finished:?}"
            );
        }
        if sandbox.report().read_only.is_enforced {
            let finished = sandbox.shell(line).read_only().run().await.unwrap();
            assert_eq!(
                finished.stdout.text, "open\n",
                "without {disabled:?}: {finished:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn target_of_denied_link_stays_hidden_after_link_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["settings", "conf/keys/id", "vault/a"] {
        put(folder.path(), name, "hush\n");
    }
    put(folder.path(), ".aws/config", "hush\n");
    for (to, from) in [
        ("settings", ".env.local"),
        ("conf/keys", ".ssh"),
        ("../vault/a", ".aws/link"),
    ] {
        symlink(to, folder.path().join(from)).unwrap();
    }
    let workspace = Workspace::open(folder.path()).unwrap();
    let sandbox = disable(Sandbox::builder(&workspace), &[]).build().unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    for line in [
        "cat settings conf/keys/id vault/a",
        "rm .env.local .ssh; mv conf moved; mv settings plain; mv vault v; true",
        "cat settings plain conf/keys/id moved/keys/id vault/a v/a",
        // A link that a command creates takes effect for the next command.
        "echo hush > late; ln -s late id_rsa; echo done",
        "rm id_rsa; mkdir sub; mv late sub; cat late sub/late",
        "cat late sub/late",
    ] {
        let finished = sandbox.shell(line).run().await.unwrap();
        assert!(
            !finished.stdout.text.contains("hush"),
            "`{line}`: {finished:?}"
        );
    }
    assert!(workspace.read("late", 9).is_err());
}

/// Folders that a command moves while others start: a name, the preparation, the folder that moves,
/// and a line that reads it as `$d`.
const MOVED: &[(&str, &str, &str, &str)] = &[
    ("a folder", "true", "sub", "cat $d/id_rsa $d/deep/.env"),
    ("a denied folder", "true", "keys", "cat $d/.ssh/config"),
    (
        "a shut folder",
        "chmod 300 sub && mkdir p && mv sub p/u",
        "p",
        "chmod 700 $d/u; cat $d/u/id_rsa $d/u/deep/.env",
    ),
    ("a hard link", "true", "links", "cat $d/other"),
];

#[tokio::test(flavor = "multi_thread")]
async fn command_started_during_folder_moves_reads_no_denied_file() {
    for (name, first, moved, read) in MOVED {
        let folder = tempfile::tempdir().unwrap();
        furnish(folder.path());
        for name in ["a/1", "m/2", "z/3", "links/4"] {
            put(folder.path(), name, "open\n");
        }
        fs::hard_link(
            folder.path().join(".env"),
            folder.path().join("links/other"),
        )
        .unwrap();
        let sandbox = disable(
            Sandbox::builder(Workspace::open(folder.path()).unwrap()),
            &[],
        )
        .build()
        .unwrap();
        if !sandbox.report().hidden_files.is_enforced {
            return println!("not tried: {}", sandbox.report().hidden_files);
        }
        assert!(sandbox.shell(*first).run().await.unwrap().is_success());
        let (begun, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let code = "$| = 1; print 1; my $at = $ARGV[0];
            while () { for (qw(a/d m/d z/d), $ARGV[0]) { rename $at, $_ and $at = $_ } }";
        let mover = sandbox.command(["perl", "-e", code, moved]);
        let mover = mover.on_output(move |_, _| _ = begun.send(())).run();
        let line = format!("for i in 1 2 3 4; do for d in {moved} */d; do {read}; done; done");
        let readers = async {
            if heard.recv().await.is_none() {
                return println!("not tried: there is no Perl");
            }
            let mut ran = 0;
            for _ in 0..20 {
                if let Ok(finished) = sandbox.shell(line.as_str()).run().await {
                    ran += 1;
                    assert!(
                        !finished.stdout.text.contains("hush"),
                        "`{name}`: {finished:?}"
                    );
                }
            }
            println!("`{name}`: {ran} of 20 ran");
        };
        tokio::select! {
            ended = mover => println!("not tried: {ended:?}"),
            () = readers => {}
        }
        // The mover is killed, but on a busy machine it may move the folder once more.
        let mut attempts = 0;
        let finished = loop {
            attempts += 1;
            match sandbox.shell(format!("{line}; cat plain.txt")).run().await {
                Err(error) if attempts < 100 => println!("attempt {attempts}: {error:?}"),
                ended => break ended.unwrap(),
            }
        };
        assert_eq!(finished.stdout.text, "open\n", "`{name}`");
        unlock(folder.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_links_to_outside_folder_do_not_stop_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (place, root) = (
        folder.path().join("place"),
        folder.path().join("place/deep/work"),
    );
    put(&place, "keys/one/id", "hush\n");
    put(&root, "other.txt", "open\n");
    for (name, target) in [
        ("a.key", "keys"),
        ("b.key", "keys/one"),
        ("c.key", "keys/one/id"),
        ("d.key", "deep"),
    ] {
        symlink(place.join(target), root.join(name)).unwrap();
    }
    let builder =
        disable(Sandbox::builder(Workspace::open(&root).unwrap()), &[]).allow_write(&place);
    let sandbox = builder.build().unwrap();
    let line = format!("cat other.txt {}/keys/one/id c.key", place.display());
    let finished = sandbox.shell(line).run().await.unwrap();
    if sandbox.report().hidden_files.is_enforced {
        assert_eq!(finished.stdout.text, "open\n");
    }
}
