//! A watchdog that ends servers when the host ends without stopping them: killed, aborted, or
//! through `exit`.
//!
//! A killed host cannot clean up, so another process has to. While servers run, a small shell waits
//! at the end of a pipe that only the host holds open. The host sends it the process groups of the
//! servers. When the pipe closes, the host has ended. The shell then ends these groups and, on
//! Linux, all processes with the host's mark in their environment.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The environment variable that marks a server and all its descendants.
pub(super) const VARIABLE: &str = "LEVITY_MCP_SERVER";

/// The script of the shell, which reads lines: `= MARK` sets the mark of all servers of this host,
/// `+ GROUP` and `- GROUP` add and remove a group.
///
/// The shell ignores signals for the host and its terminal. After SIGTERM the groups have a second
/// to exit. A group that has ended by then is left alone, because its id may be reused.
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

static WATCHDOG: Mutex<Watchdog> = Mutex::new(Watchdog {
    shell: None,
    groups: BTreeSet::new(),
    guards: 0,
});

/// The state of the watchdog.
struct Watchdog {
    shell: Option<Child>,
    groups: BTreeSet<i32>,
    guards: usize,
}

/// Protects one group: the group ends with the host while the guard exists. The watchdog runs while
/// there are guards.
pub(super) struct Guard {
    group: Option<i32>,
}

/// Creates a mark for one server, which starts with the host's mark.
pub(super) fn mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}.{}", host_mark(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the mark of this host. It must differ from every other host's, even in tests that make
/// everything else repeatable, so it does not use the `World`.
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
    /// Starts the watchdog, unless it is running. If it cannot be started, servers end with the
    /// host only if they notice that their stdin is closed.
    pub(super) fn new() -> Self {
        let mut watchdog = lock();
        watchdog.guards += 1;
        watchdog.ensure_running();
        Self { group: None }
    }

    /// Sets the group to protect.
    pub(super) fn protect(&mut self, group: i32) {
        self.group = Some(group);
        let mut watchdog = lock();
        watchdog.groups.insert(group);
        watchdog.send_line(&format!("+ {group}\n"));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut watchdog = lock();
        watchdog.guards -= 1;
        if let Some(group) = self.group {
            watchdog.groups.remove(&group);
            watchdog.send_line(&format!("- {group}\n"));
        }
        if watchdog.guards == 0 {
            watchdog.stop();
        }
    }
}

impl Watchdog {
    fn ensure_running(&mut self) {
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
        // Its own group protects it from Ctrl-C in the host's terminal. The empty environment keeps
        // it free of marks.
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
        let written = write(&mut shell, &format!("= {}\n{known}", host_mark()));
        match written {
            Ok(()) => Ok(shell),
            Err(error) => {
                kill_shell(shell);
                Err(error)
            }
        }
    }

    /// Sends a line to the watchdog, or starts another one with the full state.
    fn send_line(&mut self, line: &str) {
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
            kill_shell(shell);
        }
    }
}

/// Writes a line without blocking. A pipe accepts such a short line completely or not at all, and a
/// watchdog that does not read is replaced.
fn write(shell: &mut Child, line: &str) -> io::Result<()> {
    let stdin = shell.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
    rustix::fs::fcntl_setfl(&*stdin, rustix::fs::OFlags::NONBLOCK)?;
    stdin.write_all(line.as_bytes())
}

/// Kills the shell before its pipe is closed, so that it does not treat that as the end of the
/// host.
fn kill_shell(mut shell: Child) {
    let _ = shell.kill();
    let _ = shell.wait();
}

fn lock() -> MutexGuard<'static, Watchdog> {
    WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the process id of the watchdog.
#[cfg(test)]
pub(super) fn shell() -> Option<i32> {
    lock()
        .shell
        .as_ref()
        .and_then(|shell| i32::try_from(shell.id()).ok())
}
