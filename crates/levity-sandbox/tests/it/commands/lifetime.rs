use std::process::{Command, Stdio};
use std::time::Duration;

use super::DISABLED;
use super::fixture::{Fixture, assert_gone, marked};

/// Ways for a process to outlive its command.
const DAEMONS: &[(&str, &str)] = &[
    ("a background job", "sleep 1000 &"),
    ("a job that holds the output", "sleep 1000 & echo hello"),
    ("nohup", "nohup sleep 1000 >/dev/null 2>&1 &"),
    ("setsid", "setsid sleep 1000 &"),
    ("setsid and fork", "setsid -f sleep 1000"),
    ("an orphan of an orphan", "(sh -c 'sleep 1000 &' &) & "),
    (
        "a session of an orphan",
        "(setsid sh -c '(setsid sleep 1000 &) &' &) &",
    ),
    ("disown", "bash -c 'sleep 1000 & disown -a' || sleep 1000 &"),
    ("closed streams", "setsid sleep 1000 <&- >&- 2>&- &"),
    (
        "deaf to signals",
        "trap '' TERM HUP INT QUIT; setsid sleep 1000 &",
    ),
    (
        "a daemon by the book",
        "perl -MPOSIX -e 'fork && exit; setsid(); fork && exit; chdir \"/\"; POSIX::close($_) for \
            0..255; sleep 1000'",
    ),
    ("a stopped process", "sh -c 'kill -STOP $$; sleep 1000' &"),
    (
        "a chain",
        "sh -c 'sh -c \"sh -c \\\"sleep 1000 & sleep 1000\\\" & sleep 1000\" & sleep 1000' &",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_command() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !fixture.sandbox.report().processes.is_enforced {
            println!(
                "without {disabled:?} not tried: {}",
                fixture.sandbox.report().processes
            );
            continue;
        }
        for (name, line) in DAEMONS {
            let finished = fixture
                .shell(line)
                .await
                .unwrap_or_else(|error| panic!("`{name}`: {error:?}"));
            // When `run` has returned, there is nothing to wait for.
            assert_eq!(
                fixture.left_running(),
                [0_i32; 0],
                "without {disabled:?}, `{name}` stays: {finished:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_future_kills_all_processes() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        if !fixture.sandbox.report().processes.is_enforced {
            continue;
        }
        let (begun, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let line = "setsid sleep 1000 & trap '' TERM; echo begun; sleep 1000; sleep 1000";
        let command = fixture
            .sandbox
            .shell(line)
            .on_output(move |_, _| begun.send(()).unwrap());
        tokio::select! {
            finished = command.run() => panic!("it ended: {finished:?}"),
            _ = heard.recv() => {}
        }
        fixture.assert_empty();
    }
}

/// Not a test: the host that the next test kills.
#[tokio::test]
async fn host_to_be_killed() {
    let Ok(disabled) = std::env::var("LEVITY_RUNG") else {
        return;
    };
    let disabled = disabled.parse::<usize>().unwrap();
    let fixture = Fixture::new(DISABLED[disabled], |builder| builder);
    println!("MARK {}", fixture.mark());
    let command = fixture
        .sandbox
        .shell("setsid sleep 1000 & trap '' TERM; echo begun; sleep 1000");
    command
        .on_output(|_, _| println!("BEGUN"))
        .run()
        .await
        .unwrap();
}

#[test]
fn killing_host_kills_all_processes() {
    for (number, disabled) in DISABLED.iter().enumerate() {
        if !Fixture::new(disabled, |builder| builder)
            .sandbox
            .report()
            .processes
            .is_enforced
        {
            continue;
        }
        let temp = tempfile::tempdir().unwrap();
        let mut host = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "commands::lifetime::host_to_be_killed",
                "--nocapture",
            ])
            .env("LEVITY_RUNG", number.to_string())
            .env("TMPDIR", temp.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut mark = None;
        for line in std::io::BufRead::lines(std::io::BufReader::new(host.stdout.take().unwrap())) {
            let line = line.unwrap();
            mark = line
                .split_once("MARK ")
                .map(|(_, mark)| mark.to_owned())
                .or(mark);
            if line.contains("BEGUN") {
                break;
            }
        }
        let mark = mark.unwrap();
        assert!(!marked(&mark).is_empty(), "nothing runs");
        host.kill().unwrap();
        host.wait().unwrap();
        assert_gone(&mark);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_run_concurrently() {
    let fixture = Fixture::new(&[], |builder| builder);
    let mut running = tokio::task::JoinSet::new();
    for number in 0..24 {
        let command = fixture
            .sandbox
            .shell(format!("sleep 0.05; echo {number}"))
            .time_limit(Duration::from_secs(20));
        running.spawn(async move { (number, command.run().await.unwrap()) });
    }
    while let Some(done) = running.join_next().await {
        let (number, finished) = done.unwrap();
        assert_eq!(finished.stdout.text, format!("{number}\n"));
    }
    fixture.assert_empty();
}

/// Returns the private folders in a folder for temporary files.
fn private_folders(temp: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(temp)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.to_string_lossy().contains("levity-sandbox-"))
        .collect()
}

/// Not a test: a host that builds a sandbox, runs a command that fills its private folder, and then
/// ends or waits to be killed.
#[tokio::test]
async fn host_with_a_private_folder() {
    let Ok(end) = std::env::var("LEVITY_END") else {
        return;
    };
    // Without mounts, a command can change the mode of the folder around its own.
    let disabled: &[_] = if end == "wait" { &["namespaces"] } else { &[] };
    let fixture = Fixture::new(disabled, |builder| builder);
    let depth = if end == "drop" { 4000 } else { 500 };
    let line = "perl -e 'chdir $ENV{TMPDIR}; mkdir q(d) and chdir q(d) or die for 1..$ENV{DEPTH}';
        mkdir -p ~/a/b && echo x > ~/a/b/c && chmod 0 ~/a/b ~/a; chmod 755 $TMPDIR/..; stat -c %a \
        $TMPDIR/..";
    let finished = fixture
        .sandbox
        .shell(line)
        .env("DEPTH", depth.to_string())
        .run()
        .await
        .unwrap();
    println!("READY {finished:?}");
    if end == "wait" {
        assert_eq!(finished.stdout.text, "755\n");
        std::future::pending::<()>().await;
    }
    let sandbox = fixture.into_sandbox();
    // When it ends, no descriptor is free, and the stack is small.
    let mut all = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        all.push(file);
    }
    let stack = 64 << 10;
    std::thread::Builder::new()
        .stack_size(stack)
        .spawn(move || drop(sandbox))
        .unwrap()
        .join()
        .unwrap();
    drop(all);
    println!("DROPPED");
}

fn host_with(end: &str, temp: &std::path::Path) -> Command {
    // Far fewer descriptors than there are folders.
    let mut host = Command::new("sh");
    host.args(["-c", "ulimit -n 200; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "commands::lifetime::host_with_a_private_folder",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("LEVITY_END", end)
        .env("TMPDIR", temp)
        .stdout(Stdio::piped());
    host
}

#[test]
fn deep_private_folder_is_removed_with_sandbox() {
    let temp = tempfile::tempdir().unwrap();
    let output = host_with("drop", temp.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("DROPPED"),
        "{output:?}"
    );
    assert_eq!(
        private_folders(temp.path()),
        [""; 0].map(std::path::PathBuf::from)
    );
}

/// A host that waits, and is killed with the test.
struct WaitingHost(std::process::Child);

impl WaitingHost {
    fn new(temp: &std::path::Path) -> Self {
        let mut host = Self(host_with("wait", temp).spawn().unwrap());
        let lines =
            std::io::BufRead::lines(std::io::BufReader::new(host.0.stdout.as_mut().unwrap()));
        assert!(
            lines
                .map_while(Result::ok)
                .any(|line| line.contains("READY"))
        );
        host
    }
}

impl Drop for WaitingHost {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn only_private_folder_of_killed_host_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    let (killed, live) = (WaitingHost::new(temp.path()), WaitingHost::new(temp.path()));
    assert_eq!(private_folders(temp.path()).len(), 2);
    drop(killed);
    assert_eq!(private_folders(temp.path()).len(), 2);
    let output = host_with("sweep", temp.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let left = private_folders(temp.path());
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].join("canary").exists());
    drop(live);
    let output = host_with("sweep", temp.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(private_folders(temp.path()).len(), 0);
}
