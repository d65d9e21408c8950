//! Commands that try to change other processes of the same user.

use super::DISABLED;
use super::attacks::{Needs, holds};
use super::fixture::Fixture;

/// Changes that a command at `guarded` might make to another process of the same user (`$VICTIM`).
const HARM: &[(&str, &str)] = &[
    ("renice", "renice -n 19 -p $VICTIM"),
    ("renice the group", "renice -n 19 -g $VICTIM"),
    ("renice the user", "renice -n 19 -u $(id -u)"),
    ("ionice", "ionice -c 3 -p $VICTIM"),
    ("ionice the group", "ionice -c 3 -P $VICTIM"),
    ("ionice the user", "ionice -c 3 -u $(id -u)"),
    ("chrt batch", "chrt -b -p 0 $VICTIM"),
    ("chrt idle", "chrt -i -p 0 $VICTIM"),
    ("taskset", "taskset -p 1 $VICTIM"),
    ("prlimit", "prlimit --pid $VICTIM --nofile=5:5"),
    ("prlimit of memory", "prlimit --pid $VICTIM --as=1:1"),
    ("choom", "choom -p $VICTIM -n 1000"),
    ("kill", "kill -9 $VICTIM"),
    ("stop", "kill -STOP $VICTIM"),
    ("stop the group", "kill -STOP -$VICTIM"),
];

/// A process of the same user, in its own group.
struct Victim(std::process::Child);

impl Victim {
    fn new() -> Self {
        let mut victim = std::process::Command::new("sleep");
        std::os::unix::process::CommandExt::process_group(&mut victim, 0);
        let null = std::process::Stdio::null;
        Self(
            victim
                .arg("1000")
                .stdin(null())
                .stdout(null())
                .stderr(null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug, PartialEq)]
struct Condition {
    state: String,
    scheduling: Vec<String>,
    limits: String,
    affinity: String,
}

/// Returns the condition of a process.
fn condition(pid: u32) -> Condition {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let field = |number: usize| {
        fields
            .get(number - 3)
            .copied()
            .unwrap_or_default()
            .to_owned()
    };
    let affinity = read("status")
        .lines()
        .find(|line| line.starts_with("Cpus_allowed:"))
        .unwrap_or("")
        .to_owned();
    let stopped = ["T", "Z", "X", ""].contains(&field(3).as_str());
    let state = if stopped { "stopped or gone" } else { "alive" };
    Condition {
        state: state.to_owned(),
        // Priority, nice value, policy.
        scheduling: [18, 19, 41].map(field).to_vec(),
        limits: read("limits") + &read("oom_score_adj"),
        affinity,
    }
}

#[tokio::test]
async fn command_is_ended_first_if_memory_runs_out_at_every_level() {
    for disabled in DISABLED {
        // Without its own `/proc`, a command could not read the score.
        let fixture = Fixture::new(disabled, |builder| builder.allow_read("/proc"));
        let finished = fixture.shell("cat /proc/self/oom_score_adj").await.unwrap();
        let score: i32 = finished.stdout.to_string().trim().parse().unwrap();
        assert!(score >= 500, "without {disabled:?}: {finished:?}");
    }
}

#[tokio::test]
async fn command_cannot_change_other_processes_of_user() {
    for disabled in DISABLED {
        let victim = Victim::new();
        let pid = victim.0.id();
        // The condition is comparable only after the process has executed its program.
        while std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        let before = condition(pid);
        let fixture = Fixture::new(disabled, |builder| builder.env("VICTIM", pid.to_string()));
        let report = fixture.sandbox.report();
        for (name, line) in HARM {
            let needs = match line.split(' ').next() {
                Some("kill") => Needs::Others,
                // It writes to a file of the process.
                Some("choom") => Needs::Files,
                _ => Needs::Seccomp,
            };
            if !holds(report, needs) {
                println!(
                    "without {disabled:?}, `{name}` is not tried: {}",
                    report.other_processes
                );
                continue;
            }
            let finished = fixture.shell(line).await.unwrap();
            assert_eq!(
                condition(pid),
                before,
                "without {disabled:?}, `{name}`: {finished:?}"
            );
        }
    }
}

/// Changes that programs make to themselves, and to each other.
const ALLOWED: &[(&str, &str)] = &[
    ("nice", "nice -n 5 true"),
    ("ionice", "ionice -c 3 true"),
    ("chrt", "chrt -b 0 true"),
    (
        "taskset",
        "taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') true",
    ),
    ("ulimit", "ulimit -n 100"),
    ("prlimit", "prlimit --nofile=100:100 true"),
    ("kill a child", "sleep 1000 & kill $! && ! wait $!"),
    (
        "stream pairs",
        "perl -MSocket -e 'socketpair(A,B,1,1,0) && syswrite(A,q(x)) && sysread(B,$_,1) or die'",
    ),
    (
        "packet pairs",
        "perl -MSocket -e 'socketpair(A,B,1,5,0) && syswrite(A,q(x)) && sysread(B,$_,1) or die'",
    ),
];

#[tokio::test]
async fn command_can_change_its_own_processes() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        for (name, line) in ALLOWED {
            let program = line.split(' ').next().unwrap();
            if !fixture
                .shell(&format!("command -v {program}"))
                .await
                .unwrap()
                .is_success()
            {
                println!("`{name}` is not tried: there is no `{program}`");
                continue;
            }
            let finished = fixture.shell(line).await.unwrap();
            assert!(
                finished.is_success(),
                "without {disabled:?}, `{name}`: {finished:?}"
            );
        }
    }
}
