//! Workspaces that are visible under several paths, because they, or a part of them, are mounted
//! again.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;

use levity_sandbox::{CommandError, Sandbox, Workspace};

use super::disable;

/// The variable with the folder of the mounts, for a run of a test in its own mount namespace.
pub(super) const PLACE: &str = "LEVITY_TEST_MOUNTS";

/// Runs a test of this file again after `script` has mounted something in a folder that `prepare`
/// filled. Returns `true` if that was possible.
fn again(test: &str, prepare: fn(&Path), script: &str) -> bool {
    again_with(
        &format!("commands::mounts::{test}"),
        prepare,
        script,
        "exec",
    )
}

/// Like [`again`], for any test. `exec` starts it: a shell word and the arguments before the
/// program. The test has its own process namespace.
pub(super) fn again_with(test: &str, prepare: fn(&Path), script: &str, exec: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
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

fn prepare(root: &Path) {
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

/// Each mount shows a part of the workspace a second time, or adds something to it.
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
    // Files that a mount in the workspace hides.
    "../second/deep/under/.env",
    "../above/work/.env",
    "../above/work/sub/id_rsa",
    "../above/work/deep/under/.env",
    "../part/id_rsa",
    "../file",
    "again/id",
    "note",
    "docs2/plan.txt",
    // A link with a denied name leads to a mounted file.
    "settings",
    "keys/id",
    "../outer/keys/id",
];

#[tokio::test(flavor = "multi_thread")]
async fn second_mount_of_workspace_shows_no_denied_file() {
    let Some(place) = std::env::var_os(PLACE) else {
        again(
            "second_mount_of_workspace_shows_no_denied_file",
            prepare,
            MOUNTS,
        );
        return;
    };
    let place = Path::new(&place).canonicalize().unwrap();
    let workspace = Workspace::builder(place.join("work"))
        .deny("docs/plan.txt")
        .build()
        .unwrap();
    // Without this, most of it is out of reach anyway.
    let builder = || Sandbox::builder(&workspace).allow_read(&place);
    for disabled in [&[][..], &["namespaces"]] {
        let sandbox = disable(builder(), disabled).build().unwrap();
        let (hidden, held) = (
            sandbox.report().hidden_files.is_enforced,
            sandbox.report().read_only.is_enforced,
        );
        println!("without {disabled:?}: hidden files {hidden}, read-only runs {held}");
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
                    "without {disabled:?}, `{path}`: {finished:?}"
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
                    "without {disabled:?}, `{path}`: {finished:?}"
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
async fn name_shown_twice_by_mount_counts_once() {
    let prepare = |root: &Path| {
        put(root, "work/sub/.env", "hush\n");
        put(root, "work/pub/other", "open\n");
        fs::create_dir(root.join("work/again")).unwrap();
        fs::hard_link(root.join("work/sub/.env"), root.join("work/pub/copy")).unwrap();
        fs::hard_link(root.join("work/pub/other"), root.join("work/pub/both")).unwrap();
    };
    let Some(place) = std::env::var_os(PLACE) else {
        again(
            "name_shown_twice_by_mount_counts_once",
            prepare,
            "mount --bind work/pub work/again",
        );
        return;
    };
    let work = Path::new(&place).canonicalize().unwrap().join("work");
    let sandbox = disable(Sandbox::builder(Workspace::open(&work).unwrap()), &[])
        .build()
        .unwrap();
    // The folder can no longer be searched.
    let dig =
        "d=$(printf %0250d 0); for i in $(seq 17); do mkdir $d; cd $d; done; mv \"$WORK/sub\" .";
    let moved = Command::new("sh")
        .args(["-c", dig])
        .env("WORK", &work)
        .current_dir(&work)
        .status()
        .unwrap();
    assert!(moved.success());
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    let finished = sandbox
        .shell("cat pub/other pub/both; cat pub/copy again/copy")
        .run()
        .await
        .unwrap();
    assert_eq!(finished.stdout.text, "open\nopen\n", "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_that_cannot_be_hidden_is_named_in_error() {
    let prepare = |root: &Path| {
        put(root, "up/work/.env", "hush\n");
        fs::create_dir_all(root.join("up/work/all")).unwrap();
    };
    let Some(place) = std::env::var_os(PLACE) else {
        let name = "mount_that_cannot_be_hidden_is_named_in_error";
        // A mount in the workspace appears again in a folder that contains the workspace.
        again(
            name,
            prepare,
            "mount --bind up up; mount --bind up up/work/all",
        );
        return;
    };
    let work = Path::new(&place).canonicalize().unwrap().join("up/work");
    let sandbox = disable(Sandbox::builder(Workspace::open(work).unwrap()), &[])
        .build()
        .unwrap();
    if !sandbox.report().hidden_files.is_enforced {
        return println!("not tried: {}", sandbox.report().hidden_files);
    }
    let error = sandbox.shell("echo ran").run().await.unwrap_err();
    assert!(
        matches!(&error, CommandError::SecondMount(mount) if mount.ends_with("up")),
        "{error:?}"
    );
    assert!(error.to_string().contains("unmount it"), "{error}");
}
