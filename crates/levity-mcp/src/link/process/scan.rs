//! Search for processes in the process table of Linux.

use std::fs;

use rustix::process::Pid;

use super::watchdog::VARIABLE;

/// A process, with its start time, which tells it from a later process with the same id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: Pid,
    start: u64,
}

/// Returns the running processes of a group, those with its mark in their environment, and those of
/// `earlier` that still run.
///
/// A killed process gives up its memory before it ends, and then has no environment any more.
pub(super) fn find_family(group: Option<Pid>, mark: &str, earlier: &[Found]) -> Vec<Found> {
    let group = group.map(|group| group.as_raw_nonzero().get());
    let mark = [VARIABLE.as_bytes(), b"=", mark.as_bytes(), b"\0"].concat();
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter_map(|id| {
        let process = process(id)?;
        let found = Found {
            id: Pid::from_raw(id)?,
            start: process.start,
        };
        let belongs =
            Some(process.group) == group || earlier.contains(&found) || has_mark(id, &mark);
        (process.is_running && belongs).then_some(found)
    })
    .collect()
}

/// What the kernel says about a process.
struct ProcessState {
    /// False for zombies, which only wait for their parent.
    is_running: bool,
    group: i32,
    start: u64,
}

fn process(id: i32) -> Option<ProcessState> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses and may contain any characters, including parentheses.
    let rest = &stat[memchr::memrchr(b')', &stat)? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    Some(ProcessState {
        is_running: !matches!(fields.next()?, "Z" | "X"),
        group: fields.nth(1)?.parse().ok()?,
        start: fields.nth(16)?.parse().ok()?,
    })
}

fn has_mark(id: i32, mark: &[u8]) -> bool {
    let environ = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    memchr::memmem::find(&environ, mark).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_process_without_mark_is_found_until_it_ends() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let earlier = Found {
            id: Pid::from_raw(id).unwrap(),
            start: process(id).unwrap().start,
        };
        let find =
            |earlier: &[Found]| find_family(None, "no such mark", earlier).contains(&earlier[0]);
        assert!(find(&[earlier]));
        let other = Found {
            start: earlier.start + 1,
            ..earlier
        };
        assert!(!find(&[other]), "a later process with the same id");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!find(&[earlier]));
    }
}
