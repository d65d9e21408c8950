//! Somebody puts a link in the place of a folder or a file while a call is under way, thousands of
//! times a second.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use levity_sandbox::Workspace;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Op::{Entry, List, Mkdir, Read, Remove, Rename, Stat, Write, WriteDeep};
use super::{Op, SECRET, Scene, Set, perform};

/// Exchanges two entries until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    /// Nothing where the file system cannot exchange entries.
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

/// Performs the calls while `one` and `other` change places; nothing outside is ever seen or
/// changed.
fn race(sets: &[Set], one: &str, other: &str, calls: &[Op]) {
    for which in 0..2 {
        let scene = Scene::new();
        sets.iter().for_each(|set| scene.prepare(set));
        let before = scene.untouchable();
        let space: &Workspace = &scene.workspaces()[which];
        let Some(swapper) =
            Swapper::start(scene.path("ws").join(one), scene.path("ws").join(other))
        else {
            return;
        };
        let (mut good, mut rounds) = (0, 0);
        // Enough of both: calls that came through, and swaps meanwhile.
        let enough = |good: usize| good > 0 && swapper.swaps.load(Ordering::Relaxed) >= 400;
        while rounds < 400 || (!enough(good) && rounds < 200_000) {
            rounds += 1;
            if rounds > 400 {
                // On a busy machine the swapper may not have had its turn.
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
        assert!(good > 0, "no call ever came through");
        assert_eq!(
            scene.untouchable(),
            before,
            "something outside was changed by way {which}"
        );
        let mut left = std::collections::BTreeMap::new();
        super::collect(&scene.path("ws"), &mut left);
        let left: Vec<_> = left
            .into_keys()
            .filter(|path| path.to_string_lossy().contains(".levity-"))
            .collect();
        assert!(left.is_empty(), "half-written files are left: {left:?}");
    }
}

const DOOR: Set = Set::Link("door", "../out/dir");

#[test]
fn a_folder_that_becomes_a_link_while_files_are_read() {
    race(
        &[DOOR],
        "sub",
        "door",
        &[Read("sub/b.txt"), Stat("sub/b.txt"), Entry("sub", "b.txt")],
    );
}

#[test]
fn a_folder_that_becomes_a_link_while_it_is_listed() {
    race(
        &[Set::Link("door", "../out")],
        "sub",
        "door",
        &[List("sub"), List("sub/.")],
    );
}

#[test]
fn a_folder_that_becomes_a_link_while_files_are_written() {
    let calls = [
        Write("sub/new.txt"),
        WriteDeep("sub/x/y/new.txt"),
        Mkdir("sub/z"),
        Write("sub/b.txt"),
    ];
    race(&[DOOR], "sub", "door", &calls);
}

#[test]
fn a_folder_that_becomes_a_link_while_files_are_removed_and_renamed() {
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
fn a_file_that_becomes_a_link() {
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
fn a_file_that_becomes_a_folder_while_it_is_written() {
    race(
        &[Set::Dir("dir")],
        "a.txt",
        "dir",
        &[Write("a.txt"), List("a.txt")],
    );
}

#[test]
fn a_link_that_changes_where_it_leads() {
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
fn a_folder_in_the_middle_that_becomes_a_link() {
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
fn a_link_to_what_is_denied_gains_nothing_by_haste() {
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
