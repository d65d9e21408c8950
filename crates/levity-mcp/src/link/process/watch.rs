//! What ends servers when the host ends without ending them: killed, aborted, or gone by `exit`.
//!
//! A host that is killed can do nothing any more, so another process has to. While servers run, one
//! small shell waits at the end of a pipe that only the host holds open. It is told which process
//! groups there are. When the pipe closes, the host is gone, and the shell ends these groups and,
//! on Linux, all that bear the host's mark in their environment.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The environment variable that marks a server and all that it starts.
pub(super) const VARIABLE: &str = "LEVITY_MCP_SERVER";

/// It goes by lines: `= MARK` names the mark of all servers of this host, `+ GROUP` and `- GROUP`
/// add and remove a group.
///
/// It outlives signals that are meant for the host and its terminal. After SIGTERM the groups have
/// a second; one that is gone by then is left alone, since its number may be another's.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
groups=
mark=
while read -r what it; do
    case $what in
        =) mark=$it ;;
        +) groups="$groups $it" ;;
        -)
            rest=
            for group in $groups; do [ "$group" = "$it" ] || rest="$rest $group"; done
            groups=$rest
            ;;
    esac
done
marked() {
    [ -n "$mark" ] || return 0
    for file in $(grep -l -s -F -e "LEVITY_MCP_SERVER=$mark" /proc/[0-9]*/environ 2>/dev/null); do
        id=${file#/proc/}
        echo "${id%/environ}"
    done
}
living() {
    rest=
    for group in $groups; do kill -s 0 -- "-$group" 2>/dev/null && rest="$rest $group"; done
    groups=$rest
    [ -n "$groups$(marked)" ]
}
for group in $groups; do kill -s TERM -- "-$group" 2>/dev/null; done
for id in $(marked); do kill -s TERM "$id" 2>/dev/null; done
for _ in 1 2 3 4 5 6 7 8 9 10; do
    living || exit 0
    sleep 0.1 2>/dev/null || sleep 1
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
for _ in 1 2 3 4 5 6 7 8 9 10; do
    left=$(marked)
    [ -n "$left" ] || exit 0
    for id in $left; do kill -s KILL "$id" 2>/dev/null; done
    sleep 0.1 2>/dev/null || sleep 1
done
"#;

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    shell: None,
    groups: BTreeSet::new(),
    guards: 0,
});

/// The watcher, and what it knows.
struct Watch {
    shell: Option<Child>,
    groups: BTreeSet<i32>,
    guards: usize,
}

/// While it lives, the host's end is the end of its group. The watcher runs while there are guards.
pub(super) struct Guard {
    group: Option<i32>,
}

/// A new mark for one server, which begins with the host's.
pub(super) fn mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}.{}", host_mark(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// It has to differ from every other host's, also where a test has made all else repeatable, so it
/// is not the `World`'s.
fn host_mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    let random = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    MARK.get_or_init(|| format!("{:016x}{:016x}", random(), random()))
}

impl Guard {
    /// Starts the watcher, unless it runs. Where it cannot be started, servers end with the host
    /// only if they notice that their stdin is closed.
    pub(super) fn new() -> Self {
        let mut watch = lock();
        watch.guards += 1;
        watch.ensure();
        Self { group: None }
    }

    /// Names the group.
    pub(super) fn watch(&mut self, group: i32) {
        self.group = Some(group);
        let mut watch = lock();
        watch.groups.insert(group);
        watch.tell(&format!("+ {group}\n"));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut watch = lock();
        watch.guards -= 1;
        if let Some(group) = self.group {
            watch.groups.remove(&group);
            watch.tell(&format!("- {group}\n"));
        }
        if watch.guards == 0 {
            watch.stop();
        }
    }
}

impl Watch {
    fn ensure(&mut self) {
        let ended = self
            .shell
            .as_mut()
            .is_none_or(|shell| !matches!(shell.try_wait(), Ok(None)));
        if ended {
            self.stop();
            self.shell = self.start().ok();
        }
    }

    fn start(&self) -> io::Result<Child> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "levity-mcp-watch"]);
        // Its own group, so that Ctrl-C in the host's terminal is not for it; an empty environment,
        // so that it bears no mark.
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .current_dir("/")
            .process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut shell = command.spawn()?;
        let known: String = self
            .groups
            .iter()
            .map(|group| format!("+ {group}\n"))
            .collect();
        let told = write(&mut shell, &format!("= {}\n{known}", host_mark()));
        match told {
            Ok(()) => Ok(shell),
            Err(error) => {
                end(shell);
                Err(error)
            }
        }
    }

    /// Tells the watcher, or starts another that is told all.
    fn tell(&mut self, line: &str) {
        if self
            .shell
            .as_mut()
            .is_some_and(|shell| write(shell, line).is_ok())
        {
            return;
        }
        self.stop();
        if self.guards > 0 {
            self.shell = self.start().ok();
        }
    }

    fn stop(&mut self) {
        if let Some(shell) = self.shell.take() {
            end(shell);
        }
    }
}

/// A pipe takes a line this short whole or not at all, and the host never waits: a watcher that
/// does not read is replaced.
fn write(shell: &mut Child, line: &str) -> io::Result<()> {
    let stdin = shell.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
    rustix::fs::fcntl_setfl(&*stdin, rustix::fs::OFlags::NONBLOCK)?;
    stdin.write_all(line.as_bytes())
}

/// It is killed before its pipe is closed, so that it does not take that for the host's end.
fn end(mut shell: Child) {
    let _ = shell.kill();
    let _ = shell.wait();
}

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watcher's number.
#[cfg(test)]
pub(super) fn shell() -> Option<i32> {
    lock()
        .shell
        .as_ref()
        .and_then(|shell| i32::try_from(shell.id()).ok())
}
