use super::*;

/// An index of version 4 whose first path has this length, and whose others are the same.
fn index(length: usize, count: u32) -> Vec<u8> {
    let mut bytes = [b"DIRC".as_slice(), &4_u32.to_be_bytes(), &count.to_be_bytes()].concat();
    for number in 0..count {
        bytes.extend([0; 24]);
        bytes.extend(0o100_644_u32.to_be_bytes());
        bytes.extend([0; 12 + 20]);
        bytes.extend(u16::try_from(length.min(0xfff)).unwrap().to_be_bytes());
        // Nothing is left out of the path before.
        bytes.push(0);
        bytes.extend(std::iter::repeat_n(b'a', if number == 0 { length } else { 0 }));
        bytes.push(0);
    }
    bytes.extend([0; 20]);
    bytes
}

#[cfg(unix)]
#[test]
fn file_that_is_none_or_too_long_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "ref: refs/heads/main").unwrap();
    assert_eq!(read(&path("file"), 20).unwrap().map(|bytes| bytes.len()), Some(20));
    assert_eq!(read(&path("none"), 20), Ok(None));
    std::os::unix::fs::symlink("/dev/zero", path("zeros")).unwrap();
    std::os::unix::fs::symlink("/proc/self/pagemap", path("pages")).unwrap();
    std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    for (name, max) in [("file", 19), ("zeros", 20), ("pages", 20), ("link", 20), ("pipe", 20), ("", 20)] {
        assert!(read(&path(name), max).is_err(), "{name}");
    }
}

#[test]
fn repository_is_looked_at_once_for_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let git = folder.path().join(".git");
    fs::create_dir_all(git.join("objects")).unwrap();
    fs::create_dir_all(git.join("refs")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(git.join("index"), index(10, 1)).unwrap();
    let space = Workspace::builder(folder.path()).build().unwrap();
    let mut line = patient();
    for _ in 0..1000 {
        let found = inspect(&space, "", true, &mut line);
        assert_eq!(found, Ok(false));
    }
    for number in 0..100 {
        let name = format!("d{number}");
        fs::create_dir(folder.path().join(&name)).unwrap();
        assert!(inspect(&space, &name, true, &mut line).is_ok());
    }
    assert_eq!(line.repositories, MAX_REPOSITORIES - 1);
    assert_eq!(line.names, MAX_NAMES - 1);
}

/// A line that has all the time that a slow machine needs.
fn patient() -> Inspected {
    Inspected { until: after(Duration::from_secs(3600)), ..Inspected::default() }
}

/// The index of a repository in a new folder.
fn folder_with(bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let git = folder.path().join(".git");
    fs::create_dir_all(git.join("objects")).unwrap();
    fs::create_dir_all(git.join("refs")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(git.join("index"), bytes).unwrap();
    folder
}

#[test]
fn index_of_deep_paths_is_matched_with_rules_once() {
    // The path `a/a/a/..`, 16,000 times.
    let mut bytes = index(4095, 16_000);
    let start = bytes.iter().position(|byte| *byte == b'a').unwrap();
    bytes[start..start + 4095].iter_mut().skip(1).step_by(2).for_each(|byte| *byte = b'/');
    let folder = folder_with(&bytes);
    let space = Workspace::open(folder.path()).unwrap();
    let mut line = patient();
    assert!(inspect(&space, "", true, &mut line).unwrap());
    assert_eq!(line.names, MAX_NAMES - 1);
}

#[test]
fn index_with_more_names_than_may_be_matched_is_not_looked_into() {
    let mut bytes = index(255, 40_000);
    let start = bytes.iter().position(|byte| *byte == b'a').unwrap();
    bytes[start..start + 255].iter_mut().skip(1).step_by(2).for_each(|byte| *byte = b'/');
    let folder = folder_with(&bytes);
    let space = Workspace::open(folder.path()).unwrap();
    let mut line = Inspected { names: 128 * 1000, ..patient() };
    assert!(inspect(&space, "", true, &mut line).unwrap_err().contains("too long"));
    assert_eq!(line.names, 0);
}

#[test]
fn repository_that_takes_too_long_is_asked_about() {
    let folder = folder_with(&index(10, 1));
    let space = Workspace::open(folder.path()).unwrap();
    assert!(inspect(&space, "", true, &mut patient()).is_ok());
    let mut late = Inspected { until: after(Duration::ZERO), ..Inspected::default() };
    assert!(inspect(&space, "", true, &mut late).unwrap_err().contains("too long"));
    let index = folder.path().join(".git/index");
    assert!(tracked(&space, folder.path(), &index, 20, &mut late).is_err());
    // The answer stays the same for the rest of the line.
    late.until = patient().until;
    assert!(inspect(&space, "", true, &mut late).is_err());
}

#[test]
fn folder_that_takes_too_long_may_have_an_option_in_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a/1", "a/2", "b/1", "b/2", "c/-x", "d/1"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let mut line = Inspected { entries: 4, ..patient() };
    // What is known of a folder costs nothing.
    for (name, found) in
        [("a", false), ("a", false), ("b", false), ("a", false), ("d", true), ("none", false)]
    {
        assert_eq!(line.has_option(folder.path(), name), found, "{name}");
    }
    assert!(patient().has_option(folder.path(), "c"));
    let mut late = Inspected { until: after(Duration::ZERO), ..Inspected::default() };
    assert!(late.has_option(folder.path(), "a"));
}

#[cfg(unix)]
#[test]
fn repository_that_a_link_leads_back_to_is_looked_at_once() {
    let mut bytes = index(3, 1);
    let mode = REPOSITORY.to_be_bytes();
    bytes[12 + 24..12 + 28].copy_from_slice(&mode);
    let folder = folder_with(&bytes);
    std::os::unix::fs::symlink(".", folder.path().join("aaa")).unwrap();
    let space = Workspace::open(folder.path()).unwrap();
    let mut line = patient();
    assert!(!inspect(&space, "", true, &mut line).unwrap());
    assert_eq!(line.repositories, MAX_REPOSITORIES - 1);
}

#[test]
fn index_whose_paths_mean_more_than_they_may_is_not_understood() {
    assert_eq!(entries(&index(4096, 3), 20).unwrap().len(), 3);
    assert!(entries(&index(4097, 1), 20).is_none());
    // A megabyte that means a hundred.
    assert!(entries(&index(4096, 25_000), 20).is_none());
}

#[test]
fn index_that_git_reads_in_another_way_is_not_understood() {
    let good = index(10, 1);
    assert_eq!(entries(&good, 20).unwrap().len(), 1);
    // Git goes by the length in the flags, and so finds the next entry in another place.
    let mut longer = good.clone();
    longer[12 + 61] += 8;
    assert!(entries(&longer, 20).is_none());
    let mut longest = index(0xfff, 1);
    assert_eq!(entries(&longest, 20).unwrap().len(), 1);
    longest[12 + 61] -= 1;
    assert!(entries(&longest, 20).is_none());
    // Both name places of the file from which git reads if it does so with several threads.
    for (name, is_understood) in [(b"TREE", true), (b"EOIE", false), (b"IEOT", false), (b"link", false)] {
        let mut bytes = good[..good.len() - 20].to_vec();
        bytes.extend([name.as_slice(), &4_u32.to_be_bytes(), &[0; 4 + 20]].concat());
        assert_eq!(entries(&bytes, 20).is_some(), is_understood, "{name:?}");
    }
}

#[test]
fn repository_whose_hashes_have_an_unclear_length_is_asked_about() {
    let long = "[extensions]\nobjectformat = sha256\n";
    let first = "[core]\nrepositoryformatversion = 1\n";
    let file = |name: &str, config: &str| {
        let folder = folder_with(&index(10, 1));
        fs::write(folder.path().join(".git").join(name), config).unwrap();
        let space = Workspace::open(folder.path()).unwrap();
        inspect(&space, "", true, &mut patient())
    };
    assert!(file("config", &format!("{first}[extensions]\nobjectformat = sha1\n")).is_ok());
    for config in [
        long.to_owned(),
        format!("[core]\nrepositoryformatversion = 0\n{long}"),
        format!("{first}{long}objectformat = sha1\n"),
        format!("{first}repositoryformatversion = 0\n"),
        format!("{first}[extensions]\nobjectformat = \"sha256\"\n"),
    ] {
        assert!(file("config", &config).unwrap_err().contains("not looked into"), "{config}");
    }
    // Git does not look there for it.
    assert!(file("config.worktree", "[core]\nfilemode = true\n").is_ok());
    for config in [first, long] {
        assert!(file("config.worktree", config).unwrap_err().contains("not looked into"), "{config}");
    }
}

#[cfg(unix)]
#[test]
fn tracked_file_behind_a_link_may_be_a_denied_one() {
    let mut bytes = index(10, 1);
    let start = bytes.iter().position(|byte| *byte == b'a').unwrap();
    bytes[start + 3] = b'/';
    let folder = folder_with(&bytes);
    let space = Workspace::open(folder.path()).unwrap();
    let tracks_denied = || inspect(&space, "", true, &mut patient()).unwrap();
    assert!(!tracks_denied());
    fs::create_dir(folder.path().join("aaa")).unwrap();
    assert!(!tracks_denied());
    fs::remove_dir(folder.path().join("aaa")).unwrap();
    std::os::unix::fs::symlink(".git", folder.path().join("aaa")).unwrap();
    assert!(tracks_denied());
    fs::write(folder.path().join("b"), "").unwrap();
    let policy = crate::CommandPolicy::new().within(&space);
    for (line, is_allowed) in [("git blame aaa/HEAD", false), ("git blame b", true), ("git blame c", true)] {
        let ruling = policy.judge(crate::Line::Shell(line));
        assert_eq!(ruling == levity_core::Permit::Allow, is_allowed, "{line}");
    }
}
