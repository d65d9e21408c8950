//! Another thread replaces a folder or a file with a link during a call, thousands of times a
//! second.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use levity_sandbox::Workspace;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Op::{Entry, List, Mkdir, Read, Remove, Rename, Stat, Write, WriteDeep};
use super::{Fixture, Op, SECRET, Set, perform};

/// Exchanges two entries until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    /// Returns `None` if the file system cannot exchange entries.
    fn start(one: PathBuf, other: PathBuf) -> Option<Self> {
        let swap = move || renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
        if let Err(error) = swap() {
            eprintln!("SKIPPED: entries cannot be exchanged here: {error}");
            return None;
        }
        let (stop, swaps) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (end, count) = (stop.clone(), swaps.clone());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                swap().unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Some(Self {
            stop,
            swaps,
            thread: Some(thread),
        })
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Performs the calls while `one` and `other` are swapped; nothing outside is ever visible or
/// changed.
fn race(sets: &[Set], one: &str, other: &str, calls: &[Op]) {
    for which in 0..2 {
        let fixture = Fixture::new();
        sets.iter().for_each(|set| fixture.prepare(set));
        let before = fixture.untouchable();
        let space: &Workspace = &fixture.workspaces()[which];
        let Some(swapper) =
            Swapper::start(fixture.path("ws").join(one), fixture.path("ws").join(other))
        else {
            return;
        };
        let (mut good, mut rounds) = (0, 0);
        // The race needs enough successful calls, and enough swaps.
        let enough = |good: usize| good > 0 && swapper.swaps.load(Ordering::Relaxed) >= 400;
        while rounds < 400 || (!enough(good) && rounds < 200_000) {
            rounds += 1;
            if rounds > 400 {
                // On a busy machine, the swapper may not have run yet.
                std::thread::yield_now();
            }
            for op in calls {
                match perform(space, *op) {
                    Ok(seen) => {
                        good += 1;
                        let secret = [SECRET, "DENIED-SECRET", "empty", "secret.txt"];
                        assert!(
                            !secret.iter().any(|secret| seen.contains(secret)),
                            "{op:?} by way {which}: {seen}"
                        );
                    }
                    Err(error) => assert!(!format!("{error:?}{error}").contains(SECRET)),
                }
            }
        }
        drop(swapper);
        assert!(good > 0, "no call ever succeeded");
        assert_eq!(
            fixture.untouchable(),
            before,
            "something outside was changed by way {which}"
        );
        let mut left = std::collections::BTreeMap::new();
        super::collect(&fixture.path("ws"), &mut left);
        let left: Vec<_> = left
            .into_keys()
            .filter(|path| path.to_string_lossy().contains(".levity-"))
            .collect();
        assert!(left.is_empty(), "half-written files remain: {left:?}");
    }
}

const DOOR: Set = Set::Link("door", "../out/dir");

#[test]
fn read_stays_inside_while_folder_becomes_link() {
    race(
        &[DOOR],
        "sub",
        "door",
        &[Read("sub/b.txt"), Stat("sub/b.txt"), Entry("sub", "b.txt")],
    );
}

#[test]
fn list_stays_inside_while_folder_becomes_link() {
    race(
        &[Set::Link("door", "../out")],
        "sub",
        "door",
        &[List("sub"), List("sub/.")],
    );
}

#[test]
fn write_stays_inside_while_folder_becomes_link() {
    let calls = [
        Write("sub/new.txt"),
        WriteDeep("sub/x/y/new.txt"),
        Mkdir("sub/z"),
        Write("sub/b.txt"),
    ];
    race(&[DOOR], "sub", "door", &calls);
}

#[test]
fn remove_and_rename_stay_inside_while_folder_becomes_link() {
    let calls = [
        Write("sub/b.txt"),
        Remove("sub/b.txt"),
        Write("sub/c.txt"),
        Rename("sub/c.txt", "sub/b.txt"),
        Rename("a.txt", "sub/moved.txt"),
        Rename("sub/moved.txt", "a.txt"),
    ];
    race(&[DOOR], "sub", "door", &calls);
}

#[test]
fn read_stays_inside_while_file_becomes_link() {
    race(
        &[Set::Link("door", "../out/secret.txt")],
        "a.txt",
        "door",
        &[Read("a.txt"), Stat("a.txt")],
    );
    race(
        &[Set::Link("door", "../out/secret.txt"), Set::File("b")],
        "a.txt",
        "door",
        &[Write("a.txt"), Read("b")],
    );
}

#[test]
fn write_is_whole_while_file_becomes_folder() {
    race(
        &[Set::Dir("dir")],
        "a.txt",
        "dir",
        &[Write("a.txt"), List("a.txt")],
    );
}

#[test]
fn read_stays_inside_while_link_changes_target() {
    let sets = [Set::Link("way", "sub"), Set::Link("door", "../out/dir")];
    race(
        &sets,
        "way",
        "door",
        &[
            Read("way/b.txt"),
            Write("way/new.txt"),
            WriteDeep("way/n/m.txt"),
            List("way"),
        ],
    );
}

#[test]
fn read_stays_inside_while_middle_folder_becomes_link() {
    let sets = [Set::Dir("sub/deep/deeper"), Set::Link("door", "../out")];
    let calls = [
        Write("sub/deep/deeper/f.txt"),
        Read("sub/deep/c.txt"),
        Stat("sub/deep"),
        Remove("sub/deep/deeper/f.txt"),
    ];
    race(&sets, "sub", "door", &calls);
}

#[test]
fn link_swap_does_not_expose_denied_file() {
    race(
        &[Set::Link("door", ".git"), Set::File("sub/config")],
        "sub",
        "door",
        &[Read("sub/config"), Write("sub/x")],
    );
    race(
        &[Set::Link("door", ".env")],
        "a.txt",
        "door",
        &[Read("a.txt"), Stat("a.txt")],
    );
}
