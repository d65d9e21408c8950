//! Search for processes in the process table of Linux.

use std::fs;

use rustix::process::Pid;

use super::watchdog::VARIABLE;

/// Returns the running processes of a group, and those with its mark in their environment.
pub(super) fn find_family(group: Option<Pid>, mark: &str) -> Vec<Pid> {
    let group = group.map(|group| group.as_raw_nonzero().get());
    let mark = [VARIABLE.as_bytes(), b"=", mark.as_bytes(), b"\0"].concat();
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| belongs(*id, group, &mark))
        .filter_map(Pid::from_raw)
        .collect()
}

fn belongs(id: i32, group: Option<i32>, mark: &[u8]) -> bool {
    let Some((state, own_group)) = state(id) else {
        return false;
    };
    // Zombies only wait for their parent and can be ignored.
    !matches!(state, 'Z' | 'X') && (Some(own_group) == group || has_mark(id, mark))
}

/// Returns the state and the group of a process.
fn state(id: i32) -> Option<(char, i32)> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses and may contain any characters, including parentheses.
    let rest = &stat[memchr::memrchr(b')', &stat)? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

fn has_mark(id: i32, mark: &[u8]) -> bool {
    let environ = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    memchr::memmem::find(&environ, mark).is_some()
}
