//! Attempts to leave a workspace. Each is made twice: with the kernel resolving paths, and name by
//! name.

mod attacks;
mod races;
mod random;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use levity_sandbox::{PathError, Workspace};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

/// The content of a file outside, which no file inside has.
const SECRET: &str = "OUTSIDE-SECRET";

/// A workspace `ws` and a folder `out` next to it.
pub(crate) struct Fixture {
    temp: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let fixture = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        for dir in [
            "ws/sub/deep",
            "ws/.git/hooks",
            "ws/.ssh",
            "out/dir",
            "out/empty",
        ] {
            fs::create_dir_all(fixture.path(dir)).unwrap();
        }
        for (file, text) in [
            ("ws/a.txt", "inside a"),
            ("ws/sub/b.txt", "inside b"),
            ("ws/sub/deep/c.txt", "inside c"),
            ("ws/.env", "DENIED-SECRET"),
            ("ws/.git/config", "DENIED-SECRET"),
            ("ws/.ssh/known", "DENIED-SECRET"),
            ("ws/sub/.env", "DENIED-SECRET"),
            ("out/secret.txt", SECRET),
            ("out/dir/b.txt", SECRET),
            ("out/dir/c.txt", SECRET),
        ] {
            fs::write(fixture.path(file), text).unwrap();
        }
        fixture
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    /// Returns one workspace for each way to resolve a path.
    pub(crate) fn workspaces(&self) -> [Workspace; 2] {
        let builder = Workspace::builder(self.path("ws"));
        [
            builder.clone().build().unwrap(),
            builder.walk_only().build().unwrap(),
        ]
    }

    /// Returns everything outside the workspace, and all denied files in it.
    fn untouchable(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        for place in ["out", "ws/.git", "ws/.ssh"] {
            collect(&self.path(place), &mut found);
        }
        found.insert(self.path("ws/.env"), fs::read(self.path("ws/.env")).ok());
        let beside: Vec<_> = fs::read_dir(self.temp.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(
            beside.len(),
            2,
            "something was made beside the workspace: {beside:?}"
        );
        found
    }

    /// Adds something to the workspace; `{out}` and `{ws}` are replaced with absolute paths.
    fn prepare(&self, set: &Set) {
        let fill = |text: &str| {
            let text = text.replace("{out}", self.path("out").to_str().unwrap());
            text.replace("{ws}", self.path("ws").to_str().unwrap())
        };
        let at = |path: &str| self.path("ws").join(path);
        match *set {
            Set::Link(path, target) => symlink(fill(target), at(path)).unwrap(),
            Set::Hard(path, target) => fs::hard_link(fill(target), at(path)).unwrap(),
            Set::Dir(path) => fs::create_dir_all(at(path)).unwrap(),
            Set::File(path) => fs::write(at(path), "made").unwrap(),
            Set::Pipe(path) => {
                mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
            }
            Set::Socket(path) => drop(UnixListener::bind(at(path)).unwrap()),
        }
    }
}

fn collect(path: &Path, found: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
    if path.is_dir() {
        found.insert(path.to_owned(), None);
        fs::read_dir(path)
            .unwrap()
            .for_each(|entry| collect(&entry.unwrap().path(), found));
    } else {
        found.insert(path.to_owned(), fs::read(path).ok());
    }
}

/// A file or link that an attacker creates first.
#[derive(Debug)]
enum Set {
    Link(&'static str, &'static str),
    Hard(&'static str, &'static str),
    Dir(&'static str),
    File(&'static str),
    Pipe(&'static str),
    Socket(&'static str),
}

/// An operation on the workspace.
#[derive(Clone, Copy, Debug)]
enum Op {
    Read(&'static str),
    Write(&'static str),
    WriteDeep(&'static str),
    List(&'static str),
    Stat(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    Mkdir(&'static str),
    /// Opens a file by its name in an open folder.
    Entry(&'static str, &'static str),
    /// Opens a folder by its name in an open folder.
    Below(&'static str, &'static str),
}

/// Performs an operation, and returns the visible result or the error.
fn perform(space: &Workspace, op: Op) -> Result<String, PathError> {
    let shown = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    match op {
        Op::Read(path) => space.read(path, 1000).map(shown),
        Op::Write(path) => space.write(path, b"written").map(|written| written.path),
        Op::WriteDeep(path) => {
            let options = levity_sandbox::WriteOptions::new().parents();
            space
                .write_with(path, b"written", options)
                .map(|written| written.path)
        }
        Op::List(path) => space
            .list(path, 100)
            .map(|listing| format!("{:?}", listing.entries)),
        Op::Stat(path) => space.metadata(path).map(|meta| format!("{meta:?}")),
        Op::Remove(path) => space.remove(path).map(|()| "removed".into()),
        Op::Rename(from, to) => space.rename(from, to).map(|()| "renamed".into()),
        Op::Mkdir(path) => space.create_dir(path).map(|()| "made".into()),
        Op::Entry(dir, name) => space
            .dir(dir)?
            .file(name)?
            .read_up_to(1000)
            .map(|read| shown(read.bytes))
            .map_err(|source| PathError::Io {
                path: name.into(),
                source,
            }),
        Op::Below(dir, name) => space
            .dir(dir)?
            .dir(name)?
            .entries(100)
            .map(|listing| format!("{:?}", listing.entries)),
    }
}

/// Returns the name of the error's variant.
fn kind(error: &PathError) -> String {
    let text = format!("{error:?}");
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}
