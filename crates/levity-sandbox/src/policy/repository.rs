//! What git would show because a repository says so.
//!
//! A repository's settings name programs that git runs while it only reads: filters, `textconv`, hooks. Those can change
//! nothing, but they can read `.git`, and print what was ever committed. So a command of git is allowed unasked only where
//! all settings are known to name none.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::judge::{join, short};
use crate::Workspace;

/// How long a file with settings may be.
const MAX_CONFIG: u64 = 256 << 10;

/// How long an index may be.
const MAX_INDEX: u64 = 64 << 20;

/// How many repositories are looked at for one command line.
const MAX_REPOSITORIES: usize = 64;

/// How many names the paths of all indexes may have together, for one command line. Each is matched with every rule.
const MAX_NAMES: usize = 4_000_000;

/// How many bytes the paths of repositories inside others may have together.
const MAX_INNER: usize = 1 << 20;

/// How many entries of folders are looked at for one command line.
const MAX_ENTRIES: usize = 10_000;

/// How long all repositories of one command line are looked at. Whoever decides on a command makes its run wait.
const MAX_TIME: Duration = Duration::from_secs(1);

/// What a line may still look at, and what it has found out.
#[derive(Debug)]
pub(super) struct Inspected {
    repositories: usize,
    /// Bytes of indexes.
    bytes: u64,
    /// Names in the paths of indexes.
    names: usize,
    until: Instant,
    /// Entries of folders.
    entries: usize,
    /// By folder, whether it has an entry whose name looks like an option, or may have.
    options: HashMap<String, bool>,
    /// True if files that are tracked are looked at, too: one with several names may be a denied one.
    looks_at_files: bool,
    /// By folder that git begins in, and by whether files are looked at.
    known: HashMap<(String, bool), Result<bool, String>>,
    /// By folder with the files of a repository, and by whether they are looked at. Many folders, and links, lead to the same one.
    trees: HashMap<(PathBuf, bool), Result<bool, String>>,
}

impl Default for Inspected {
    fn default() -> Self {
        Self {
            repositories: MAX_REPOSITORIES,
            bytes: MAX_INDEX,
            names: MAX_NAMES,
            until: after(MAX_TIME),
            entries: MAX_ENTRIES,
            options: HashMap::new(),
            looks_at_files: false,
            known: HashMap::new(),
            trees: HashMap::new(),
        }
    }
}

impl Inspected {
    /// Returns whether a folder below `root` has an entry, or may, whose name looks like an option.
    pub(super) fn has_option(&mut self, root: &Path, folder: &str) -> bool {
        if let Some(known) = self.options.get(folder) {
            return *known;
        }
        let found = self.look_for_option(&root.join(folder));
        self.options.insert(folder.to_owned(), found);
        found
    }

    fn look_for_option(&mut self, folder: &Path) -> bool {
        let Ok(entries) = fs::read_dir(folder) else { return false };
        for entry in entries {
            let Some(left) = self.entries.checked_sub(1).filter(|_| self.check_time().is_ok()) else {
                return true;
            };
            self.entries = left;
            if entry
                .is_ok_and(|entry| matches!(entry.file_name().as_encoded_bytes().first(), Some(b'-' | b'@')))
            {
                return true;
            }
        }
        false
    }

    /// Fails when there is no time left.
    fn check_time(&self) -> Result<(), String> {
        match after(Duration::ZERO) < self.until {
            true => Ok(()),
            false => Err("the repository takes too long to be looked into".to_owned()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long files take is known from a real clock only")]
fn after(time: Duration) -> Instant {
    Instant::now() + time
}

/// Looks at all repositories that git may use from a folder of the workspace on, and returns whether they track a file that the workspace
/// denies, or may; that is known for sure only if files are looked at.
///
/// # Errors
/// Why git may run something for it.
pub(super) fn inspect(
    space: &Workspace,
    folder: &str,
    looks_at_files: bool,
    line: &mut Inspected,
) -> Result<bool, String> {
    let key = (folder.to_owned(), looks_at_files);
    if let Some(known) = line.known.get(&key) {
        return known.clone();
    }
    line.looks_at_files = looks_at_files;
    let found = search(space, folder, line);
    line.known.insert(key, found.clone());
    found
}

fn search(space: &Workspace, folder: &str, line: &mut Inspected) -> Result<bool, String> {
    let start = match space.root().join(folder).canonicalize() {
        Ok(start) if start.starts_with(space.root()) => start,
        Err(error) if is_absent(&error) => return Ok(false),
        _ => return Err(format!("`{}` lies elsewhere, or cannot be looked at", short(folder))),
    };
    let mut tracks_denied = false;
    // Git goes on with the folders above where it does not use a repository: one of another user, or one whose `HEAD` is hidden from it.
    for folder in start.ancestors().take_while(|folder| folder.starts_with(space.root())) {
        if has(&folder.join(".git"))? {
            tracks_denied |= look(space, folder, line)?;
        }
        let is_bare = has(&folder.join("HEAD"))?
            && (has(&folder.join("objects"))?
                || has(&folder.join("refs"))?
                || has(&folder.join("commondir"))?);
        if is_bare {
            let name = relative(space, folder).unwrap_or_default();
            return Err(format!("git would take `{}` for a repository, and run what it says", short(&name)));
        }
    }
    Ok(tracks_denied)
}

/// Looks at the repository whose files are in `tree`, and at those inside it.
fn look(space: &Workspace, tree: &Path, line: &mut Inspected) -> Result<bool, String> {
    let tree = inside(space, tree)?;
    let key = (tree.clone(), line.looks_at_files);
    if let Some(known) = line.trees.get(&key) {
        return known.clone();
    }
    // A link may lead from a repository back to itself, which adds nothing to what it tracks.
    line.trees.insert(key.clone(), Ok(false));
    let found = look_into(space, &tree, line);
    line.trees.insert(key, found.clone());
    found
}

fn look_into(space: &Workspace, tree: &Path, line: &mut Inspected) -> Result<bool, String> {
    line.check_time()?;
    line.repositories =
        line.repositories.checked_sub(1).ok_or("there are too many repositories to look at")?;
    let git = directory(space, tree, &tree.join(".git"))?;
    let common = match text(&git.join("commondir"), MAX_CONFIG)? {
        Some(path) => inside(space, &git.join(path.trim_end_matches('\n')))?,
        None => git.clone(),
    };
    if !is_repository(&git, &common) {
        // Git would go on with the folders above, and the next git may decide otherwise.
        return Err(format!("`{}` may be no repository", short(&git.to_string_lossy())));
    }
    let mut format = Format::default();
    for file in [common.join("config"), git.join("config"), git.join("config.worktree")] {
        if let Some(config) = text(&file, MAX_CONFIG)? {
            // Git takes the format from the first of them alone.
            let mut said = Format::default();
            harmless(&config, &git, tree, &mut said)?;
            match file.parent() == Some(&*common) && file.ends_with("config") {
                true => format = said,
                false if said == Format::default() => {}
                false => return Err(odd()),
            }
        }
    }
    let hash = format.hash().ok_or_else(odd)?;
    // The only hook that commands run which change nothing but the index.
    if has(&common.join("hooks/post-index-change"))? {
        return Err("git would run the hook `post-index-change` of the repository".to_owned());
    }
    let (mut tracks_denied, inner) = tracked(space, tree, &git.join("index"), hash, line)?;
    for inner in inner {
        if has(&inner.join(".git"))? {
            tracks_denied |= look(space, &inner, line)?;
        }
    }
    Ok(tracks_denied)
}

/// Returns whether an index names a denied file, or may, and where the repositories are that it names.
fn tracked(
    space: &Workspace,
    tree: &Path,
    index: &Path,
    hash: usize,
    line: &mut Inspected,
) -> Result<(bool, Vec<PathBuf>), String> {
    let Some(bytes) = read(index, line.bytes)? else { return Ok((false, Vec::new())) };
    line.bytes -= bytes.len() as u64;
    let entries = entries(&bytes, hash).ok_or("the repository's index cannot be looked into")?;
    let prefix = relative(space, tree).unwrap_or_default();
    let (mut tracks_denied, mut inner, mut inner_bytes) = (false, Vec::new(), 0);
    let mut last_folder = tree.to_owned();
    for entry in entries {
        line.check_time()?;
        if !tracks_denied {
            let names = entry.path.iter().filter(|byte| **byte == b'/').count() + 1;
            // A workspace refuses deeper paths, so this needs no look at their names.
            let is_deep = names > MAX_DEPTH;
            let spent = if is_deep { 1 } else { names };
            line.names = line
                .names
                .checked_sub(spent)
                .ok_or("the repository's index is too long to be looked into")?;
            tracks_denied = is_deep
                || entry.mode & KIND == FOLDER
                || space.denies(&join(&prefix, &String::from_utf8_lossy(&entry.path)));
            if line.looks_at_files && !tracks_denied {
                let file = tree.join(path_of(entry.path.clone()));
                let folder = file.parent().unwrap_or(tree);
                if folder != last_folder {
                    // Git also reads a tracked file behind a link, which may lead into `.git`.
                    tracks_denied = folder.canonicalize().is_ok_and(|real| real != folder);
                    folder.clone_into(&mut last_folder);
                }
                tracks_denied |= has_other_names(&file);
            }
        }
        if entry.mode & KIND == REPOSITORY {
            inner_bytes += entry.path.len();
            if inner_bytes > MAX_INNER {
                return Err("there are too many repositories to look at".to_owned());
            }
            inner.push(tree.join(path_of(entry.path)));
        }
    }
    Ok((tracks_denied, inner))
}

/// Returns whether a file has more than one hard link, and so may be a denied one.
#[cfg(unix)]
fn has_other_names(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file() && meta.nlink() > 1)
}

#[cfg(not(unix))]
fn has_other_names(_: &Path) -> bool {
    false
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
}

#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether git surely takes a folder for the inside of a repository.
fn is_repository(git: &Path, common: &Path) -> bool {
    let head = text(&git.join("HEAD"), MAX_CONFIG).ok().flatten().unwrap_or_default();
    let head = head.trim_end_matches('\n');
    let is_hash = matches!(head.len(), 40 | 64) && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    (head.starts_with("ref: refs/") || is_hash)
        && ["objects", "refs"].iter().all(|name| can_enter(&common.join(name)))
}

/// Returns whether there is such a folder, which git may enter.
#[cfg(unix)]
fn can_enter(folder: &Path) -> bool {
    folder.is_dir() && rustix::fs::access(folder, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn can_enter(folder: &Path) -> bool {
    folder.is_dir()
}

/// A path relative to the workspace; nothing if it lies elsewhere.
pub(super) fn relative(space: &Workspace, real: &Path) -> Option<String> {
    real.strip_prefix(space.root()).ok()?.to_str().map(str::to_owned)
}

/// Whether there is no such file.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The folder in which git keeps a repository: `.git`, or what a file of that name says.
fn directory(space: &Workspace, tree: &Path, git: &Path) -> Result<PathBuf, String> {
    if fs::metadata(git).is_ok_and(|meta| meta.is_dir()) {
        let real = inside(space, git)?;
        // A link may lead to a folder that tools for files can change.
        let is_own = fs::symlink_metadata(git).is_ok_and(|meta| meta.is_dir());
        return if is_own || is_kept(space, &real) { Ok(real) } else { Err(elsewhere(git)) };
    }
    let link = text(git, MAX_CONFIG)?.ok_or_else(|| elsewhere(git))?;
    let path = link.strip_prefix("gitdir: ").ok_or_else(|| elsewhere(git))?.trim_end_matches(['\n', '\r']);
    let real = inside(space, &tree.join(path))?;
    if is_kept(space, &real) { Ok(real) } else { Err(elsewhere(git)) }
}

fn is_kept(space: &Workspace, real: &Path) -> bool {
    relative(space, real).is_some_and(|path| !path.is_empty() && space.denies(&path))
}

fn inside(space: &Workspace, path: &Path) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|_| elsewhere(path))?;
    if real.starts_with(space.root()) { Ok(real) } else { Err(elsewhere(path)) }
}

fn elsewhere(path: &Path) -> String {
    format!("the repository of `{}` lies elsewhere", short(&path.to_string_lossy()))
}

fn has(path: &Path) -> Result<bool, String> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(_) => Err(format!("`{}` cannot be looked at", short(&path.to_string_lossy()))),
    }
}

fn text(path: &Path, max: u64) -> Result<Option<String>, String> {
    let unclear = || format!("`{}` cannot be looked at", short(&path.to_string_lossy()));
    read(path, max)?.map(|bytes| String::from_utf8(bytes).map_err(|_| unclear())).transpose()
}

/// The bytes of a file, which must be one itself: a link may lead to a device, and a pipe never ends.
fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>, String> {
    let unclear = |_| format!("`{}` cannot be looked at", short(&path.to_string_lossy()));
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(unclear(error)),
    };
    let is_file = file.metadata().map_err(unclear)?.is_file();
    let mut bytes = Vec::new();
    if is_file {
        file.take(max + 1).read_to_end(&mut bytes).map_err(unclear)?;
    }
    match is_file && bytes.len() as u64 <= max {
        true => Ok(Some(bytes)),
        false => Err(unclear(io::Error::other("it is no file, or too long"))),
    }
}

#[cfg(unix)]
fn open(path: &Path) -> io::Result<fs::File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<fs::File> {
    match fs::symlink_metadata(path)?.is_file() {
        true => fs::File::open(path),
        false => Err(io::Error::other("it is no file")),
    }
}

/// Settings that name no program, no other file and no other place: section and keys; none for all keys.
const HARMLESS: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "abbrev",
            "quotepath",
            "compression",
            "bigfilethreshold",
            "longpaths",
            "protecthfs",
            "protectntfs",
            "preloadindex",
            "untrackedcache",
            "sparsecheckout",
            "sparsecheckoutcone",
            "commitgraph",
            "multipackindex",
            "trustctime",
            "checkstat",
            "hidedotfiles",
            "whitespace",
            "commentchar",
            "sharedrepository",
        ],
    ),
    ("remote", &["url", "fetch", "pushurl", "tagopt", "prune", "mirror", "gh-resolved"]),
    ("branch", &[]),
    ("user", &["name", "email", "signingkey", "useconfigonly"]),
    ("author", &["name", "email"]),
    ("committer", &["name", "email"]),
    ("submodule", &["url", "active", "branch", "ignore", "shallow", "fetchrecursesubmodules"]),
    ("init", &["defaultbranch"]),
    ("pull", &["rebase", "ff"]),
    ("push", &["default", "autosetupremote", "followtags"]),
    ("fetch", &["prune", "prunetags"]),
    ("rebase", &["autostash", "autosquash", "updaterefs"]),
    ("merge", &["conflictstyle", "ff"]),
    ("rerere", &["enabled", "autoupdate"]),
    ("commit", &["gpgsign", "verbose"]),
    ("tag", &["gpgsign"]),
    ("gc", &["auto", "autodetach"]),
    ("maintenance", &["auto", "strategy"]),
    ("advice", &[]),
    ("alias", &[]),
    ("color", &[]),
    ("column", &[]),
    ("diff", &["algorithm", "renames", "renamelimit", "colormoved", "mnemonicprefix", "noprefix", "context"]),
    ("log", &["date", "decorate", "abbrevcommit", "mailmap"]),
    ("status", &["short", "branch", "showuntrackedfiles"]),
    ("index", &["version", "threads"]),
    ("feature", &["manyfiles"]),
    ("lfs", &["repositoryformatversion"]),
    ("extensions", &["objectformat", "refstorage", "worktreeconfig", "preciousobjects", "relativeworktrees"]),
];

/// Sections whose name may stand before a name of their own, such as a branch's.
const NAMED: [&str; 4] = ["remote", "branch", "submodule", "color"];

/// What settings say of the format of a repository.
#[derive(Debug, Default, PartialEq, Eq)]
struct Format {
    version: Option<String>,
    /// The names of hashes.
    hashes: Option<String>,
    /// True if something is said twice, so that it depends on git what counts.
    is_repeated: bool,
}

impl Format {
    fn add(&mut self, section: &str, key: &str, value: &str) {
        match (section, key) {
            ("core", "repositoryformatversion") => {
                self.is_repeated |= self.version.replace(value.to_owned()).is_some();
            }
            ("extensions", "objectformat") => {
                self.is_repeated |= self.hashes.replace(value.to_owned()).is_some();
            }
            _ => {}
        }
    }

    /// The length of hashes, if every git that uses the repository takes them to be that long.
    fn hash(&self) -> Option<usize> {
        match (self.version.as_deref(), self.hashes.as_deref()) {
            _ if self.is_repeated => None,
            (None | Some("0" | "1"), None) | (Some("1"), Some("sha1")) => Some(20),
            (Some("1"), Some("sha256")) => Some(32),
            _ => None,
        }
    }
}

fn odd() -> String {
    "the repository's settings are written in a way that is not looked into".to_owned()
}

/// Returns whether settings run nothing. What is written in an unusual way is not understood.
fn harmless(config: &str, git: &Path, tree: &Path, format: &mut Format) -> Result<(), String> {
    let mut section = String::new();
    for line in config.split('\n').map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            if line.ends_with('\\') {
                return Err(odd());
            }
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            section = header_of(header).ok_or_else(odd)?;
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        let is_key = !key.is_empty() && key.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
        if !is_key || value.ends_with('\\') {
            return Err(odd());
        }
        let key = key.to_ascii_lowercase();
        let fits_row =
            |(name, keys): &(&str, &[&str])| *name == section && (keys.is_empty() || keys.contains(&&*key));
        // Lists in the order of signatures have a program verify them.
        let known = HARMLESS.iter().any(fits_row) && key != "sort";
        let is_tree = || git.join(value).canonicalize().is_ok_and(|path| path == tree);
        let fits = known
            || (section == "core" && key == "fsmonitor" && value == "false")
            || (section == "core" && key == "worktree" && is_tree());
        if !fits {
            return Err(format!(
                "git may run what `{}.{}` of the repository says",
                short(&section),
                short(&key)
            ));
        }
        format.add(&section, &key, value);
    }
    Ok(())
}

/// The section that `[name]` or `[name "of its own"]` begins.
fn header_of(header: &str) -> Option<String> {
    let header = header.strip_suffix(']')?;
    let (name, own) = match header.split_once(' ') {
        None => (header, None),
        Some((name, own)) => (name, Some(own.trim_start().strip_prefix('"')?.strip_suffix('"')?)),
    };
    let name = name.to_ascii_lowercase();
    let is_name = !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    match own {
        Some(own) if own.contains(['"', '\\', ']']) || !NAMED.contains(&&*name) => {
            // It is no section that is known, but may be named in the reason.
            (is_name && !own.contains(['"', '\\', ']'])).then(|| format!("{name}.{own}"))
        }
        _ => is_name.then_some(name),
    }
}

/// What a mode says of the kind of an entry.
const KIND: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const REPOSITORY: u32 = 0o160_000;

struct Tracked {
    mode: u32,
    path: Vec<u8>,
}

/// How deep the path of an entry may go to be matched with rules.
const MAX_DEPTH: usize = 128;
/// Mask of the bits of an entry's flags that are the length of its path. A longer path has all of them set.
const LENGTH: u16 = 0xfff;
/// The longest path of an entry, as systems have them.
const LONGEST_PATH: usize = 4096;
/// How many bytes all paths may have together: version 4 writes a path as what differs from the one before, so that few bytes can mean many.
const LONGEST_PATHS: usize = 64 << 20;

/// The entries of an index; nothing if it is not understood, or means more than it may.
fn entries(bytes: &[u8], hash: usize) -> Option<Vec<Tracked>> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let version = number(4)?;
    if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let (mut at, mut entries, mut last, mut total) = (12, Vec::new(), Vec::new(), 0);
    for _ in 0..number(8)? {
        let mode = number(at + 24)?;
        let mut name = at + 40 + hash + 2;
        let flags = u16::from_be_bytes(bytes.get(name - 2..name)?.try_into().ok()?);
        if flags & 0x4000 != 0 {
            name += 2;
        }
        let mut path = Vec::new();
        if version == 4 {
            let (strip, next) = length(bytes, name)?;
            path.extend_from_slice(last.get(..Vec::len(&last).checked_sub(strip)?)?);
            name = next;
        }
        let end = name + bytes.get(name..)?.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(&bytes[name..end]);
        total += path.len();
        if path.len() > LONGEST_PATH || total > LONGEST_PATHS {
            return None;
        }
        // Git goes by the length that is said, as far as it can be said, and finds the next entry behind it.
        if usize::from(flags & LENGTH) != path.len().min(LENGTH.into()) {
            return None;
        }
        at = if version == 4 { end + 1 } else { at + (end - at) / 8 * 8 + 8 };
        last.clone_from(&path);
        entries.push(Tracked { mode, path });
    }
    // What follows may say that more entries are in another file, or that entries are in other places of this one.
    let content = bytes.len().checked_sub(hash)?;
    while at + 8 <= content {
        if [b"link", b"EOIE", b"IEOT"].iter().any(|other| bytes[at..].starts_with(*other)) {
            return None;
        }
        at = at.checked_add(8)?.checked_add(usize::try_from(number(at + 4)?).ok()?)?;
    }
    Some(entries)
}

/// A number of one byte or more, and where it ends.
fn length(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((value, at + 1))
}

#[cfg(test)]
mod tests;
