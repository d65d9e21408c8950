//! Finding processes in Linux's process table.

use std::fs;

use rustix::process::Pid;

use super::watch::VARIABLE;

/// The living processes of a group, and those whose environment bears its mark, wherever they went.
pub(super) fn family(group: Option<Pid>, mark: &str) -> Vec<Pid> {
    let group = group.map(|group| group.as_raw_nonzero().get());
    let mark = [VARIABLE.as_bytes(), b"=", mark.as_bytes(), b"\0"].concat();
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| is_of(*id, group, &mark))
        .filter_map(Pid::from_raw)
        .collect()
}

fn is_of(id: i32, group: Option<i32>, mark: &[u8]) -> bool {
    let Some((state, of)) = state(id) else {
        return false;
    };
    // Those that are dead and wait for their parent to notice are nobody's concern.
    !matches!(state, 'Z' | 'X') && (Some(of) == group || bears(id, mark))
}

/// A process's state and group.
fn state(id: i32) -> Option<(char, i32)> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    // The name stands in brackets and may hold anything, brackets too.
    let rest = &stat[memchr::memrchr(b')', &stat)? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

fn bears(id: i32, mark: &[u8]) -> bool {
    let environ = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    memchr::memmem::find(&environ, mark).is_some()
}
