//! Workspaces that are seen by several paths, since somebody mounted them, or a part of them, once
//! more.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;

use levity_sandbox::{CommandError, Sandbox, Workspace};

use super::lower;

/// Names the folder in which the mounts are, for a run of a test in mounts of its own.
pub(super) const PLACE: &str = "LEVITY_TEST_MOUNTS";

/// Runs a test of this file again where `script` has mounted things in a folder that `furnish`
/// filled. Whether that could be done.
fn again(test: &str, furnish: fn(&Path), script: &str) -> bool {
    again_with(
        &format!("commands::mounts::{test}"),
        furnish,
        script,
        "exec",
    )
}

/// As [`again`], for any test, which is started by `exec`: a word of the shell and arguments before
/// the program. It has a process namespace of its own.
pub(super) fn again_with(test: &str, furnish: fn(&Path), script: &str, exec: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    furnish(folder.path());
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let flags = if is_root { "-mpf" } else { "-Urmpf" };
    let mounted = |rest: &str| {
        let mut command = Command::new("unshare");
        command.args([
            flags,
            "sh",
            "-ec",
            &format!("cd \"${PLACE}\"; {script}; {rest}"),
            "sh",
        ]);
        command.env(PLACE, folder.path());
        command
    };
    if !mounted(&format!("{exec} true"))
        .output()
        .is_ok_and(|done| done.status.success())
    {
        println!("not tried: nothing can be mounted here");
        return false;
    }
    let mut command = mounted(&format!("{exec} \"$@\""));
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"]);
    let done = command.output().unwrap();
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    print!("{said}");
    true
}

fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn furnish(root: &Path) {
    for name in [
        "work/.env",
        "work/.ssh/keys/id",
        "work/sub/id_rsa",
        "work/docs/plan.txt",
        "work/deep/under/.env",
        "outer/settings",
    ] {
        put(root, name, "hush\n");
    }
    for name in [
        "work/plain/file",
        "work/docs/other.txt",
        "work/note",
        "work/settings",
        "work/.git/HEAD",
        "file",
    ] {
        put(root, name, "open\n");
    }
    for name in [
        "second",
        "above",
        "part",
        "plain",
        "under",
        "work/again",
        "work/docs2",
        "work/keys",
        "work/.git/hooks",
        "work/h",
    ] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    symlink("settings", root.join("work/.npmrc")).unwrap();
    symlink("keys", root.join("work/.aws")).unwrap();
    put(root, "outer/keys/id", "hush\n");
}

/// Each shows a part of the workspace a second time, or puts something into it.
const MOUNTS: &str = "mount --bind work second; mount --bind . above; mount --bind work/sub part;
    mount --bind work/plain plain; mount --bind work/.env file; mount --bind work/.ssh/keys \
    work/again;
    mount --bind work/.env work/note; mount --bind work/docs work/docs2; mount --bind \
    outer/settings work/settings;
    mount --bind outer/keys work/keys; mount --bind work/.git/hooks work/h; mount -t tmpfs none \
    work/deep;
    mount --make-private work/h";

const SECRETS: &[&str] = &[
    ".env",
    "../second/.env",
    "../second/.ssh/keys/id",
    "../second/sub/id_rsa",
    "../second/docs/plan.txt",
    // What a mount in the workspace hides.
    "../second/deep/under/.env",
    "../above/work/.env",
    "../above/work/sub/id_rsa",
    "../above/work/deep/under/.env",
    "../part/id_rsa",
    "../file",
    "again/id",
    "note",
    "docs2/plan.txt",
    // A link with a denied name leads to something that is mounted.
    "settings",
    "keys/id",
    "../outer/keys/id",
];

#[tokio::test(flavor = "multi_thread")]
async fn second_mount_of_the_workspace_shows_no_denied_file() {
    let Some(place) = std::env::var_os(PLACE) else {
        again(
            "second_mount_of_the_workspace_shows_no_denied_file",
            furnish,
            MOUNTS,
        );
        return;
    };
    let place = Path::new(&place).canonicalize().unwrap();
    let workspace = Workspace::builder(place.join("work"))
        .deny("docs/plan.txt")
        .build()
        .unwrap();
    // Without this, most of it is out of reach in any case.
    let builder = || Sandbox::builder(&workspace).read(&place);
    for rung in [&[][..], &["namespaces"]] {
        let sandbox = lower(builder(), rung).build().unwrap();
        let (hidden, held) = (
            sandbox.report().hidden.holds,
            sandbox.report().read_only.holds,
        );
        println!("without {rung:?}: hidden files {hidden}, read-only runs {held}");
        for read_only in [false, true] {
            if !(if read_only { held } else { hidden }) {
                continue;
            }
            let run = async |line: &str| {
                let command = sandbox.shell(line);
                let command = if read_only {
                    command.read_only()
                } else {
                    command
                };
                command.run().await.unwrap()
            };
            for path in SECRETS {
                let finished = run(&format!("cat {path}; grep -rs . {path}")).await;
                assert_eq!(
                    finished.stdout.text, "",
                    "without {rung:?}, `{path}`: {finished:?}"
                );
            }
            for path in [
                "plain/file",
                "../plain/file",
                "docs/other.txt",
                "docs2/other.txt",
            ] {
                let finished = run(&format!("cat {path}")).await;
                assert_eq!(
                    finished.stdout.text, "open\n",
                    "without {rung:?}, `{path}`: {finished:?}"
                );
            }
            let finished =
                run("echo planted > h/pre-commit; echo planted > ../second/.git/hooks/x").await;
            assert!(!finished.is_success(), "{finished:?}");
            assert_eq!(
                fs::read_dir(place.join("work/.git/hooks")).unwrap().count(),
                0
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn name_that_a_mount_shows_twice_counts_once() {
    let furnish = |root: &Path| {
        put(root, "work/sub/.env", "hush\n");
        put(root, "work/pub/other", "open\n");
        fs::create_dir(root.join("work/again")).unwrap();
        fs::hard_link(root.join("work/sub/.env"), root.join("work/pub/copy")).unwrap();
        fs::hard_link(root.join("work/pub/other"), root.join("work/pub/both")).unwrap();
    };
    let Some(place) = std::env::var_os(PLACE) else {
        again(
            "name_that_a_mount_shows_twice_counts_once",
            furnish,
            "mount --bind work/pub work/again",
        );
        return;
    };
    let work = Path::new(&place).canonicalize().unwrap().join("work");
    let sandbox = lower(Sandbox::builder(Workspace::open(&work).unwrap()), &[])
        .build()
        .unwrap();
    // The folder cannot be searched any more.
    let dig =
        "d=$(printf %0250d 0); for i in $(seq 17); do mkdir $d; cd $d; done; mv \"$WORK/sub\" .";
    let moved = Command::new("sh")
        .args(["-c", dig])
        .env("WORK", &work)
        .current_dir(&work)
        .status()
        .unwrap();
    assert!(moved.success());
    if !sandbox.report().hidden.holds {
        return println!("not tried: {}", sandbox.report().hidden);
    }
    let finished = sandbox
        .shell("cat pub/other pub/both; cat pub/copy again/copy")
        .run()
        .await
        .unwrap();
    assert_eq!(finished.stdout.text, "open\nopen\n", "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_that_cannot_be_hidden_is_named_and_nothing_runs() {
    let furnish = |root: &Path| {
        put(root, "up/work/.env", "hush\n");
        fs::create_dir_all(root.join("up/work/all")).unwrap();
    };
    let Some(place) = std::env::var_os(PLACE) else {
        let name = "mount_that_cannot_be_hidden_is_named_and_nothing_runs";
        // What is mounted in the workspace is seen once more in a folder that holds the workspace.
        again(
            name,
            furnish,
            "mount --bind up up; mount --bind up up/work/all",
        );
        return;
    };
    let work = Path::new(&place).canonicalize().unwrap().join("up/work");
    let sandbox = lower(Sandbox::builder(Workspace::open(work).unwrap()), &[])
        .build()
        .unwrap();
    if !sandbox.report().hidden.holds {
        return println!("not tried: {}", sandbox.report().hidden);
    }
    let error = sandbox.shell("echo ran").run().await.unwrap_err();
    assert!(
        matches!(&error, CommandError::SecondMount(mount) if mount.ends_with("up")),
        "{error:?}"
    );
    assert!(error.to_string().contains("unmount it"), "{error}");
}
