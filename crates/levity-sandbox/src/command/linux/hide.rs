//! Finds the denied files of a workspace, and every folder that cannot be searched for them.
//!
//! The rule: a command sees a folder only if every entry of it was checked. A folder is hidden as a
//! whole in three cases: it cannot be listed and entered, the paths of its entries are too long to
//! be mounted on, or it contains too many denied files. If that folder is the workspace itself, no
//! command runs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::job::{Cover, CoverKind, Identity};
use super::mounts::{Mounts, SearchError};
use super::placeholders;
use super::search_limit::SearchLimit;
use crate::Workspace;
use crate::workspace::{
    CONTROL_FILES, GitPlaces, MOVES, Trail, TrailEnd, Tree, is_bare, real_path,
};

/// Limits of a search and of its covers. Beyond them, no command runs: otherwise a command could
/// create many files to make the next command see hidden ones.
#[derive(Clone, Copy)]
struct Bounds {
    /// The number of entries of the workspace.
    entries: usize,
    /// The total number of covers. Linux allows 100,000 mounts in a namespace by default.
    covers: usize,
    /// The number of denied entries of one folder; with more, the folder is hidden.
    in_folder: usize,
    /// The total length in bytes of the paths of pending folders.
    pending: usize,
    /// The length of a path in bytes, with the zero at its end.
    path: usize,
}

const BOUNDS: Bounds = Bounds {
    entries: 1_000_000,
    covers: 16_384,
    in_folder: 1024,
    pending: 64 << 20,
    path: libc::PATH_MAX as usize,
};

/// The result of searching a workspace.
#[derive(Debug, Default)]
pub(super) struct SearchResult {
    /// The paths that must be hidden from a command, or protected.
    pub(super) covers: Vec<Cover>,
    /// The folders whose entries were all checked.
    pub(super) searched: HashSet<Identity>,
    /// Folders, relative to the workspace, that contain a git repository, whatever their names.
    pub(super) repositories: Vec<Vec<u8>>,
    /// Repositories with working trees next to git's own files. One of them may be the workspace.
    pub(super) shared: HashSet<Vec<u8>>,
    /// The repositories that the user's git would use.
    pub(super) guarded: Vec<Vec<u8>>,
    /// Paths, relative to the workspace, that a command must not create, because a link of such a
    /// repository leads there.
    pub(super) missing: BTreeMap<Vec<u8>, MissingKind>,
    /// Other paths of the workspace, outside of it, that must be hidden from a command.
    pub(super) elsewhere: Vec<Cover>,
    /// Files and folders outside the workspace that links with a denied name lead to.
    pub(super) outside: BTreeSet<PathBuf>,
}

impl SearchResult {
    /// Fails if there are more mounts than a command may have.
    pub(super) fn check(&self) -> io::Result<()> {
        self.check_within(&BOUNDS)
    }

    fn check_within(&self, bounds: &Bounds) -> io::Result<()> {
        let covers = self.covers.len() + self.elsewhere.len();
        if covers > bounds.covers {
            return Err(refusal(
                "the workspace has too many denied files to hide them one by one",
            ));
        }
        let placeholders =
            self.missing.len() + self.guarded.len() * placeholders::MAX_PER_REPOSITORY;
        match covers + placeholders > bounds.covers {
            true => Err(refusal(
                "the workspace has too many repositories to protect them one by one",
            )),
            false => Ok(()),
        }
    }
}

/// The type of a path that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingKind {
    Folder,
    File,
}

/// The number of entries between two checks of the clock.
const CHECK_EVERY: usize = 256;

/// The maximum number of passes that follow links with denied names, as long as each pass finds
/// more.
const MAX_PASSES: usize = 8;

/// Searches a workspace for paths that must be hidden from a command, or protected.
///
/// Git needs the contents of `.git`, which file tools must not access. Files in it that would be
/// executed outside the sandbox later are protected instead, and the rest is searched like any
/// other folder.
///
/// # Errors
/// Returns an error if the search takes longer than `limit` allows, or if the workspace exceeds the
/// bounds.
pub(super) fn search(
    workspace: &Workspace,
    limit: &SearchLimit<'_>,
) -> Result<SearchResult, SearchError> {
    search_within(workspace, BOUNDS, limit)
}

/// Repeats passes until one learns nothing new. A pass may learn that a file which it passed has a
/// denied name elsewhere, by a link or by a hard link; the next pass then covers all names of that
/// file. After eight passes the search is refused.
fn search_within(
    workspace: &Workspace,
    bounds: Bounds,
    limit: &SearchLimit<'_>,
) -> Result<SearchResult, SearchError> {
    let _still = MOVES.read().unwrap_or_else(PoisonError::into_inner);
    let mounts = Mounts::read(workspace.root())?;
    let (known, paths) = workspace.targets();
    let mut covered: HashSet<Identity> = known.into_iter().collect();
    let paths: HashSet<Vec<u8>> = paths.into_iter().map(String::into_bytes).collect();
    let mut counts_names = false;
    for _ in 0..MAX_PASSES {
        let mut scan = Scan::new(workspace, bounds, limit, &covered, &paths)?;
        scan.names = counts_names.then(HashMap::new);
        scan.run()?;
        // A file may also have a denied name that was not found, in a folder that was not searched.
        let names = scan.names.iter().flatten();
        let doubtful = names
            .filter(|(_, (found, all))| found < all)
            .map(|(identity, _)| *identity);
        let more: Vec<Identity> = scan
            .linked
            .iter()
            .copied()
            .chain(doubtful)
            .filter(|it| !covered.contains(it))
            .collect();
        let must_count = scan.is_partial && !counts_names;
        if more.is_empty() && !must_count {
            return scan.finish(&mounts);
        }
        counts_names |= must_count;
        // The scan may have passed other names of a denied file before it found the denied one.
        covered.extend(more);
    }
    Err(refusal("links with denied names change during the search; run it again").into())
}

/// The state of one pass. Paths in it are bytes relative to the workspace, since names need not be
/// UTF-8.
struct Scan<'a> {
    workspace: &'a Workspace,
    bounds: Bounds,
    limit: &'a SearchLimit<'a>,
    tree: Tree,
    seen: usize,
    covers: Vec<Cover>,
    pending: Vec<Folder>,
    waiting_bytes: usize,
    searched: HashSet<Identity>,
    repositories: Vec<Repository>,
    /// Denied files that have more than one name, and targets of links with a denied name.
    linked: HashSet<Identity>,
    /// The same files from earlier passes: all their names are covered.
    covered_links: &'a HashSet<Identity>,
    /// Paths of such targets, relative to the workspace.
    covered_paths: &'a HashSet<Vec<u8>>,
    /// All folders that are called `.git`.
    git_folders: Vec<Vec<u8>>,
    /// All entries called `.git`.
    git_entries: Vec<Vec<u8>>,
    /// Repositories that a `.git` link or file leads to.
    used_by_git: HashSet<Identity>,
    trails: Vec<Trail>,
    /// Paths on trails that are covered as fixed, and `.git` links and files.
    fixed: HashSet<Vec<u8>>,
    missing: BTreeMap<Vec<u8>, MissingKind>,
    outside: BTreeSet<PathBuf>,
    /// `true` if a folder could not be searched into which a command may have put a denied file.
    is_partial: bool,
    /// Files with more than one name: the number of names that were found, and the total. Filled
    /// only on request.
    names: Option<HashMap<Identity, (u64, u64)>>,
    /// Folders whose names were counted. A mount may show a folder twice.
    counted: HashSet<Identity>,
    is_counted: bool,
    buffer: Vec<u8>,
}

/// A pending folder of the search.
struct Folder {
    /// The path relative to the workspace.
    path: Vec<u8>,
    /// `true` if the folder is hidden, so only its links are checked.
    is_hidden: bool,
}

/// A folder that looks like the inside of a repository.
struct Repository {
    path: Vec<u8>,
    identity: Identity,
    looks: Looks,
}

/// The degree to which a folder looks like a repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// It has its own objects.
    Whole,
    /// It is the folder of a linked worktree.
    Worktree,
    /// It contains protected files, and may be the rest of a repository from which a command
    /// removed files.
    Rest,
    /// It contains other files of a repository.
    Part,
}

/// The reason why a folder is not searched.
enum SkipReason {
    /// The folder cannot be searched, so it is hidden.
    Hide,
    /// The folder no longer exists.
    Missing,
    /// No command may run.
    Refuse(io::Error),
}

impl<'a> Scan<'a> {
    fn new(
        workspace: &'a Workspace,
        bounds: Bounds,
        limit: &'a SearchLimit<'a>,
        covered_links: &'a HashSet<Identity>,
        covered_paths: &'a HashSet<Vec<u8>>,
    ) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            workspace,
            bounds,
            limit,
            tree: Tree::new(openat(CWD, workspace.root(), flags, Mode::empty())?),
            seen: 0,
            covers: Vec::new(),
            pending: vec![Folder {
                path: Vec::new(),
                is_hidden: false,
            }],
            waiting_bytes: 0,
            searched: HashSet::new(),
            repositories: Vec::new(),
            linked: HashSet::new(),
            covered_links,
            covered_paths,
            git_folders: Vec::new(),
            git_entries: Vec::new(),
            used_by_git: HashSet::new(),
            trails: Vec::new(),
            fixed: HashSet::new(),
            missing: BTreeMap::new(),
            outside: BTreeSet::new(),
            is_partial: false,
            names: None,
            counted: HashSet::new(),
            is_counted: false,
            buffer: Vec::with_capacity(32 << 10),
        })
    }

    /// Works through pending folders, the last found first. A folder that must be hidden discards
    /// what was found in it.
    fn run(&mut self) -> io::Result<()> {
        while let Some(folder) = self.pending.pop() {
            self.waiting_bytes -= folder.path.len();
            let (covers, pending, bytes) =
                (self.covers.len(), self.pending.len(), self.waiting_bytes);
            match self.search_folder(&folder) {
                Ok(()) | Err(SkipReason::Missing) => {}
                Err(SkipReason::Refuse(error)) => return Err(error),
                // The folder is already hidden.
                Err(SkipReason::Hide) if folder.is_hidden => {
                    let stat =
                        statat(self.tree.top(), &*folder.path, AtFlags::SYMLINK_NOFOLLOW).ok();
                    self.mark_unsearched(stat.as_ref());
                }
                Err(SkipReason::Hide) => {
                    // Covers that were found in it are hidden with it.
                    self.covers.truncate(covers);
                    self.pending.truncate(pending);
                    self.waiting_bytes = bytes;
                    self.hide_whole(&folder.path)?;
                }
            }
            if self.covers.len() > self.bounds.covers {
                return Err(refusal(
                    "the workspace has too many denied files to hide them one by one",
                ));
            }
        }
        Ok(())
    }

    /// Marks a folder as searched only after its last entry was checked.
    fn search_folder(&mut self, folder: &Folder) -> Result<(), SkipReason> {
        let fd = self.tree.open(&folder.path).map_err(stop)?;
        // A process that can list a folder but not search it learns only names.
        let stat = statat(&fd, c".", AtFlags::SYMLINK_NOFOLLOW).map_err(stop)?;
        self.is_counted = !self.counted.insert(Identity::of(&stat));
        let mut buffer = std::mem::take(&mut self.buffer);
        let room = buffer.spare_capacity_mut();
        let result = match folder.is_hidden {
            true => self.list_links(&folder.path, &fd, room),
            false => self.list(&folder.path, &fd, Identity::of(&stat), room),
        };
        self.buffer = buffer;
        result?;
        if !folder.is_hidden {
            self.searched.insert(Identity::of(&stat));
        }
        Ok(())
    }

    /// Counts an entry. Every 256 entries the time limit is checked.
    fn count(&mut self) -> Result<(), SkipReason> {
        self.seen += 1;
        if self.seen.is_multiple_of(CHECK_EVERY) {
            self.limit.check().map_err(SkipReason::Refuse)?;
        }
        match self.seen > self.bounds.entries {
            true => Err(SkipReason::Refuse(refusal(
                "the workspace has too many files to search for denied ones",
            ))),
            false => Ok(()),
        }
    }

    /// Records that a folder was not searched. Commands cannot change the folders of other users.
    fn mark_unsearched(&mut self, folder: Option<&Stat>) {
        let user = rustix::process::geteuid();
        self.is_partial |= user.is_root() || folder.is_none_or(|stat| stat.st_uid == user.as_raw());
    }

    /// Counts a name of a file that has several.
    fn count_name(&mut self, stat: &Stat) {
        if let Some(names) = &mut self.names
            && !self.is_counted
            && stat.st_nlink > 1
            && FileType::from_raw_mode(stat.st_mode) != FileType::Directory
        {
            #[allow(
                clippy::useless_conversion,
                clippy::unnecessary_cast,
                reason = "the types differ between machines"
            )]
            let entry = names
                .entry(Identity::of(stat))
                .or_insert((0, stat.st_nlink as u64));
            entry.0 += 1;
        }
    }

    /// Searches a hidden folder for links: other names of its files, and the targets of its links,
    /// are secret as well.
    fn list_links(
        &mut self,
        folder: &[u8],
        fd: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<(), SkipReason> {
        let mut entries = RawDir::new(fd, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(stop)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.count()?;
            let path = join(folder, name);
            if self.is_too_long(&path) {
                self.mark_unsearched(None);
                continue;
            }
            let Some(stat) = stat_entry(fd, name)? else {
                continue;
            };
            self.count_name(&stat);
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.follow(fd, name, &path)?,
                FileType::Directory => self.enqueue(path, true)?,
                _ if stat.st_nlink > 1 => _ = self.linked.insert(Identity::of(&stat)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Records the target of a link with a denied name: it is a secret, whatever its own name.
    fn follow(&mut self, fd: &OwnedFd, name: &[u8], path: &[u8]) -> Result<(), SkipReason> {
        // One link may lead through thousands of folders.
        self.limit.check().map_err(SkipReason::Refuse)?;
        let link = PathBuf::from(OsStr::from_bytes(&self.absolute(path)));
        let real = real_path(&link);
        let with_note = match real {
            Ok(real) if !real.starts_with(self.workspace.root()) => {
                self.outside.insert(real);
                Ok(None)
            }
            Ok(real) => self.workspace.record_target(&real),
            Err(error) => Err(error),
        };
        let target = with_note.unwrap_or_else(|_| {
            // It was moved meanwhile.
            statat(fd, name, AtFlags::empty())
                .ok()
                .map(|target| Identity::of(&target))
        });
        self.linked.extend(target);
        Ok(())
    }

    /// Checks the entries of a visible folder, and detects repositories: see [`Looks`].
    fn list(
        &mut self,
        folder: &[u8],
        fd: &OwnedFd,
        identity: Identity,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<(), SkipReason> {
        let text = String::from_utf8_lossy(folder).into_owned();
        let (mut denied, mut of_git, mut is_worktree, mut is_rest) = (0, 0, false, false);
        let mut entries = RawDir::new(fd, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(stop)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.count()?;
            of_git += usize::from(matches!(name, b"HEAD" | b"objects" | b"refs"));
            is_worktree |= name == b"commondir";
            is_rest |= CONTROL_FILES.iter().any(|file| name == file.as_bytes());
            if name == b".git" {
                self.git_entries.push(join(folder, name));
            }
            let path = join(folder, name);
            if self.is_too_long(&path) {
                return Err(SkipReason::Hide);
            }
            // A device from an archive is not a file of the workspace.
            let is_device = matches!(
                entry.file_type(),
                FileType::BlockDevice | FileType::CharacterDevice
            );
            let is_denied = is_device
                || self
                    .workspace
                    .denies_entry(&text, &String::from_utf8_lossy(name));
            // A folder reports a different inode number for an entry if something is mounted on it,
            // and on some file systems. So each entry is checked.
            let may_be_linked = !self.covered_links.is_empty()
                || self.covered_paths.contains(&path)
                || self.names.is_some();
            if is_denied || may_be_linked {
                denied += usize::from(self.deny(fd, name, &path, is_denied)?);
                if denied > self.bounds.in_folder {
                    return Err(SkipReason::Hide);
                }
            } else if is_folder(fd, name, entry.file_type())? {
                self.enqueue(path, false)?;
            }
        }
        let looks = match () {
            () if of_git == 3 => Looks::Whole,
            () if is_worktree => Looks::Worktree,
            () if is_rest => Looks::Rest,
            () if of_git > 0 => Looks::Part,
            () => return Ok(()),
        };
        self.repositories.push(Repository {
            path: folder.to_vec(),
            identity,
            looks,
        });
        Ok(())
    }

    /// The bytes of pending paths are bounded, so a wide and deep tree cannot use up the memory.
    fn enqueue(&mut self, path: Vec<u8>, is_hidden: bool) -> Result<(), SkipReason> {
        self.waiting_bytes += path.len();
        if self.waiting_bytes > self.bounds.pending {
            return Err(SkipReason::Refuse(refusal(
                "the workspace has too many folders with long names",
            )));
        }
        self.pending.push(Folder { path, is_hidden });
        Ok(())
    }

    /// Covers an entry that is denied, or seems to be another name of a denied one. Returns `true`
    /// if it did.
    fn deny(
        &mut self,
        fd: &OwnedFd,
        name: &[u8],
        path: &[u8],
        is_denied: bool,
    ) -> Result<bool, SkipReason> {
        let Some(stat) = stat_entry(fd, name)? else {
            return Ok(false);
        };
        self.count_name(&stat);
        let identity = Identity::of(&stat);
        let is_target = self.covered_links.contains(&identity) || self.covered_paths.contains(path);
        match FileType::from_raw_mode(stat.st_mode) {
            // Git needs the target of `.git`.
            FileType::Symlink if is_denied && name == b".git" => {
                self.cover(CoverKind::Fixed, path, identity);
                self.record_git(path)?;
                return Ok(false);
            }
            FileType::Symlink => {
                // The target is hidden, and the link itself cannot be replaced.
                if is_denied {
                    self.cover(CoverKind::Fixed, path, identity);
                    self.follow(fd, name, path)?;
                }
                return Ok(false);
            }
            FileType::Directory if !is_denied && !is_target => {
                self.enqueue(path.to_owned(), false)?;
                return Ok(false);
            }
            FileType::Directory if is_denied && name == b".git" => {
                self.cover(CoverKind::Pinned, path, identity);
                self.git_folders.push(path.to_owned());
                self.enqueue(path.to_owned(), false)?;
                return Ok(false);
            }
            _ if is_denied && name == b".git" => {
                // A file that contains the path of the folder.
                self.cover(CoverKind::Fixed, path, identity);
                self.record_git(path)?;
                return Ok(false);
            }
            FileType::Directory => {
                self.cover(CoverKind::Folder, path, identity);
                self.enqueue(path.to_owned(), true)?;
            }
            _ if !is_denied && !is_target => return Ok(false),
            _ => {
                if stat.st_nlink > 1 {
                    self.linked.insert(identity);
                }
                self.cover(CoverKind::File, path, identity);
            }
        }
        Ok(true)
    }

    /// Hides a folder with everything in it.
    fn hide_whole(&mut self, folder: &[u8]) -> io::Result<()> {
        if folder.is_empty() {
            return Err(refusal(
                "the workspace's folder cannot be listed and entered, or contains too many denied \
                    files",
            ));
        }
        match statat(self.tree.top(), folder, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                self.mark_unsearched(Some(&stat));
                self.cover(CoverKind::Unknown, folder, Identity::of(&stat));
                Ok(())
            }
            // Something else has its name now, or nothing has.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Records the places to which a `.git` file or link leads, which are protected as well.
    fn record_git(&mut self, git: &[u8]) -> Result<(), SkipReason> {
        let path = self.absolute(git);
        let record = || {
            let check = || self.limit.check();
            let mut places = self.workspace.record_git(os_path(&path), &check)?;
            // A repository outside the workspace may lead back into it.
            for outside in places.repositories.clone() {
                if !outside.starts_with(self.workspace.root()) {
                    let more = self.workspace.record_repository(&outside, &check)?;
                    places.repositories.extend(more.repositories);
                    places.trails.extend(more.trails);
                }
            }
            Ok(places)
        };
        let places = record().map_err(SkipReason::Refuse)?;
        let identities = places.repositories.iter().filter_map(|it| identity_of(it));
        self.used_by_git.extend(identities);
        self.trails.extend(places.trails);
        Ok(())
    }

    /// Protects the files that decide which programs git executes in the repositories that the
    /// user's git would use. Returns these repositories.
    ///
    /// A repository may lead to another one, which is then protected in the same way.
    fn protect(&mut self) -> io::Result<BTreeSet<Vec<u8>>> {
        let hidden: HashSet<CString> = self
            .covers
            .iter()
            .filter(|it| it.kind.hides())
            .map(|it| it.path.clone())
            .collect();
        let is_hidden = |path: &[u8]| {
            let ends = path.iter().enumerate();
            let ends = ends
                .filter(|(_, byte)| **byte == b'/')
                .map(|(end, _)| end)
                .chain([path.len()]);
            let mut above = ends.filter_map(|end| CString::new(&path[..end]).ok());
            above.any(|path| hidden.contains(&path))
        };
        let mut known: HashMap<Identity, Vec<Vec<u8>>> = HashMap::new();
        for it in &self.repositories {
            known.entry(it.identity).or_default().push(it.path.clone());
        }
        let mut pending: Vec<Vec<u8>> = self.git_folders.clone();
        pending.extend(
            self.repositories
                .iter()
                .filter(|it| it.is_in_git())
                .map(|it| it.path.clone()),
        );
        let used = self.used_by_git.iter().filter_map(|it| known.get(it));
        pending.extend(used.flatten().cloned());
        pending.extend(is_bare(self.workspace.root()).then(Vec::new));
        let mut protected = BTreeSet::new();
        while let Some(repository) = pending.pop() {
            let path = self.absolute(&repository);
            if is_hidden(&path) || protected.contains(&repository) {
                continue;
            }
            let check = || self.limit.check();
            let GitPlaces {
                repositories,
                trails,
            } = self.workspace.record_repository(os_path(&path), &check)?;
            let used = repositories.iter().filter_map(|it| identity_of(it));
            let used = used.filter_map(|it| known.get(&it));
            pending.extend(used.flatten().cloned());
            self.trails.extend(trails);
            self.protect_files(&repository);
            protected.insert(repository);
        }
        self.fixed.extend(self.git_entries.iter().cloned());
        for trail in std::mem::take(&mut self.trails) {
            if !is_hidden(trail.end.as_os_str().as_bytes()) {
                self.protect_trail(&trail)?;
            }
        }
        Ok(protected)
    }

    fn protect_files(&mut self, repository: &[u8]) {
        for name in CONTROL_FILES {
            let path = join(repository, name.as_bytes());
            if let Ok(stat) = statat(self.tree.top(), path.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
                self.cover(CoverKind::Fixed, &path, Identity::of(&stat));
            }
        }
        // Without them, the next search would not detect that the workspace is a repository.
        if repository.is_empty() {
            for name in ["objects", "refs"] {
                self.protect_entry(&self.workspace.root().join(name), CoverKind::Pinned);
            }
        }
    }

    /// Protects the links that lead to a file, and the file itself.
    fn protect_trail(&mut self, trail: &Trail) -> io::Result<()> {
        for link in &trail.links {
            self.protect_entry(link, CoverKind::Fixed);
        }
        for folder in &trail.left {
            self.protect_entry(folder, CoverKind::Anchored);
        }
        if trail.leads_to == TrailEnd::Repository {
            return Ok(());
        }
        let root = self.workspace.root();
        if trail.end == root {
            let link = trail
                .links
                .first()
                .map(|it| it.strip_prefix(root).unwrap_or(it));
            let link = link.unwrap_or(&trail.end).display().to_string();
            let link = link.escape_debug();
            return Err(io::Error::other(format!(
                "git would run programs from everywhere in the workspace, because `{link}` leads \
                    to its folder; remove this link"
            )));
        }
        let Some(missing) = &trail.missing else {
            self.protect_entry(&trail.end, CoverKind::Fixed);
            return Ok(());
        };
        if let Ok(path) = missing.strip_prefix(root) {
            let kind = match *missing == trail.end && trail.leads_to == TrailEnd::File {
                true => MissingKind::File,
                false => MissingKind::Folder,
            };
            let path = path.as_os_str().as_bytes().to_vec();
            self.missing.insert(path, kind);
        }
        Ok(())
    }

    /// Protects a path below the workspace, unless nothing is there. A link or a file cannot be
    /// pinned, so it is made read-only.
    fn protect_entry(&mut self, path: &Path, kind: CoverKind) {
        let Ok(below) = path.strip_prefix(self.workspace.root()) else {
            return;
        };
        let below = below.as_os_str().as_bytes();
        if let Ok(stat) = statat(self.tree.top(), below, AtFlags::SYMLINK_NOFOLLOW) {
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => kind,
                _ => CoverKind::Fixed,
            };
            if kind != CoverKind::Fixed || self.fixed.insert(below.to_vec()) {
                self.cover(kind, below, Identity::of(&stat));
            }
        }
    }

    /// Returns the folders that contain an entry called `.git`, and the folders above them.
    fn around_git(&self) -> HashSet<&[u8]> {
        let mut around = HashSet::new();
        for path in &self.git_entries {
            let ends = path.iter().enumerate().rev();
            let ends = ends.filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
            for end in ends.chain([0]) {
                if !around.insert(&path[..end]) {
                    break;
                }
            }
        }
        around
    }

    fn cover(&mut self, kind: CoverKind, path: &[u8], identity: Identity) {
        // A name contains no zero byte.
        if let Ok(path) = CString::new(self.absolute(path)) {
            self.covers.push(Cover {
                kind,
                path,
                identity,
            });
        }
    }

    fn is_too_long(&self, path: &[u8]) -> bool {
        self.workspace.root().as_os_str().len() + 1 + path.len() >= self.bounds.path
    }

    fn absolute(&self, path: &[u8]) -> Vec<u8> {
        let root = self.workspace.root().as_os_str().as_bytes();
        join(root.strip_suffix(b"/").unwrap_or(root), path)
    }

    /// Returns the result, with the covers in the order in which they can be mounted.
    fn finish(mut self, mounts: &Mounts) -> Result<SearchResult, SearchError> {
        let guarded = self.protect()?;
        let elsewhere = mounts.cover_views(&mut self.covers)?;
        let (bounds, mut covers) = (self.bounds, Vec::new());
        if self.workspace.denies_by_path() {
            // If a rule matches a path, moving a folder would take its files past the rule. So no
            // folder with a denied entry in it can be moved.
            let root = self.workspace.root().as_os_str().as_bytes().len();
            let mut above = BTreeSet::new();
            for cover in self.covers.iter().filter(|cover| cover.kind.hides()) {
                let path = cover.path.as_bytes();
                let ends = path
                    .iter()
                    .enumerate()
                    .filter(|(at, byte)| *at > root && **byte == b'/');
                above.extend(ends.map(|(end, _)| path[..end].to_vec()));
                if above.len() > bounds.covers {
                    break;
                }
            }
            covers.extend(above.iter().filter_map(|path| pin(path)));
        }
        let around_git = self.around_git();
        let is_shared = |path: &[u8]| path.is_empty() || around_git.contains(path);
        let whole = self.repositories.iter();
        let whole = whole.filter(|it| it.looks == Looks::Whole && !it.path.is_empty());
        let root = guarded.contains(&b""[..]).then_some(&b""[..]);
        let (shared, repositories): (Vec<&[u8]>, Vec<&[u8]>) = whole
            .map(|it| it.path.as_slice())
            .chain(root)
            .partition(|path| is_shared(path));
        let shared = shared.into_iter().map(<[u8]>::to_vec).collect();
        let repositories = repositories.into_iter().map(<[u8]>::to_vec).collect();
        let guarded = guarded.into_iter().collect();
        covers.extend(self.covers);
        let (searched, outside) = (self.searched, self.outside);
        let found = SearchResult {
            covers,
            searched,
            repositories,
            shared,
            guarded,
            missing: self.missing,
            elsewhere,
            outside,
        };
        found.check_within(&bounds)?;
        Ok(found)
    }
}

impl Repository {
    /// Returns `true` if it belongs to a folder called `.git`.
    fn is_in_git(&self) -> bool {
        match self.looks {
            Looks::Whole | Looks::Worktree => self
                .path
                .split(|byte| *byte == b'/')
                .any(|name| name == b".git"),
            Looks::Rest => is_rest_in_git(&self.path),
            Looks::Part => false,
        }
    }
}

fn os_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn identity_of(path: &Path) -> Option<Identity> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(Identity::of(&stat))
}

/// Returns `true` if a folder with protected files is where git keeps modules and worktrees, and
/// not where it keeps branches, which may have the same names.
fn is_rest_in_git(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    let is_in_git = names.any(|name| name == b".git");
    let is_in_store = names
        .next()
        .is_some_and(|name| matches!(name, b"modules" | b"worktrees"));
    is_in_git && is_in_store && !names.any(|name| matches!(name, b"refs" | b"logs" | b"objects"))
}

/// Adds covers for the folders above protected and reserved paths, so that no command can move such
/// a folder away and put another in its place. They come first, as they must be mounted first.
pub(super) fn pin_above(mut covers: Vec<Cover>, root: &Path) -> Vec<Cover> {
    let root = root.as_os_str().as_bytes();
    let start = root.strip_suffix(b"/").unwrap_or(root).len();
    let mut above = BTreeSet::new();
    for cover in covers.iter().filter(|cover| cover.kind.must_exist()) {
        let path = cover.path.as_bytes();
        let is_below = path.starts_with(root);
        let ends = path.iter().enumerate();
        let ends = ends.filter(|(at, byte)| is_below && *at > start && **byte == b'/');
        above.extend(ends.map(|(end, _)| path[..end].to_vec()));
    }
    for cover in &mut covers {
        let is_above = above.remove(cover.path.as_bytes());
        if is_above && cover.kind == CoverKind::Pinned {
            cover.kind = CoverKind::Anchored;
        }
    }
    let new = above.iter().filter_map(|path| pin(path));
    let anchored = new.map(|cover| Cover {
        kind: CoverKind::Anchored,
        ..cover
    });
    anchored.chain(covers).collect()
}

/// Fails if there are more covers than a command may have.
pub(super) fn check_number(covers: &[Cover]) -> io::Result<()> {
    match covers.len() > BOUNDS.covers {
        true => Err(refusal(
            "the workspace has too many denied files to hide them one by one",
        )),
        false => Ok(()),
    }
}

/// Creates a cover that makes a folder a mount point, which cannot be renamed; `None` if it no
/// longer exists.
fn pin(path: &[u8]) -> Option<Cover> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let path = CString::new(path).ok()?;
    Some(Cover {
        kind: CoverKind::Pinned,
        path,
        identity: Identity::of(&stat),
    })
}

/// Converts an error into the consequence for the folder that was being searched.
fn stop(error: Errno) -> SkipReason {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => SkipReason::Missing,
        // These errors do not depend on the folder.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR => {
            SkipReason::Refuse(error.into())
        }
        _ => SkipReason::Hide,
    }
}

fn stat_entry(fd: impl AsFd, name: &[u8]) -> Result<Option<Stat>, SkipReason> {
    match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) => match stop(error) {
            SkipReason::Missing => Ok(None),
            stop => Err(stop),
        },
    }
}

fn is_folder(fd: &OwnedFd, name: &[u8], kind: FileType) -> Result<bool, SkipReason> {
    let kind = match kind {
        FileType::Unknown => {
            stat_entry(fd, name)?.map(|stat| FileType::from_raw_mode(stat.st_mode))
        }
        kind => Some(kind),
    };
    Ok(kind == Some(FileType::Directory))
}

pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match (folder, name) {
        (b"", _) => name.to_vec(),
        (_, b"") => folder.to_vec(),
        _ => [folder, b"/", name].concat(),
    }
}

/// Removes covers for paths that another one hides: such a path then has different contents, or
/// does not exist. Of several covers for one path, those after the first that hides it are removed.
pub(super) fn without_hidden(covers: Vec<Cover>) -> Vec<Cover> {
    let hiding = covers.iter().filter(|cover| cover.kind.hides());
    let hidden: HashSet<CString> = hiding.map(|cover| cover.path.clone()).collect();
    let mut seen = HashSet::new();
    let is_seen = |it: &Cover| {
        let path = it.path.as_bytes();
        let ends = path.iter().enumerate();
        let mut ends = ends.filter(|(_, byte)| **byte == b'/');
        let is_below = ends.any(|(end, _)| {
            let above = CString::new(&path[..end]);
            above.is_ok_and(|above| hidden.contains(&above))
        });
        !is_below && !seen.contains(path) && {
            if it.kind.hides() {
                seen.insert(path.to_vec());
            }
            true
        }
    };
    covers.into_iter().filter(is_seen).collect()
}

fn refusal(reason: &'static str) -> io::Error {
    io::Error::other(reason)
}

/// Opens the target of a cover, if it is still the one that was found.
pub(super) fn open_found(cover: &Cover) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, &*cover.path, flags, Mode::empty()).ok()?;
    fstat(&fd)
        .is_ok_and(|stat| Identity::of(&stat) == cover.identity)
        .then_some(fd)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::time::Duration;

    use super::super::search_limit::unlimited;
    use super::*;

    fn put(root: &Path, names: &[&str]) {
        for name in names {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }

    fn found(workspace: &Workspace, bounds: Bounds) -> Vec<(CoverKind, PathBuf)> {
        let covers = search_within(workspace, bounds, &unlimited())
            .unwrap()
            .covers;
        let mut found: Vec<_> = covers
            .iter()
            .map(|cover| {
                let path = Path::new(OsStr::from_bytes(cover.path.as_bytes()));
                (
                    cover.kind,
                    path.strip_prefix(workspace.root()).unwrap().to_owned(),
                )
            })
            .collect();
        found.sort();
        found
    }

    #[track_caller]
    fn check(names: &[&str], bounds: Bounds, expected: &[(CoverKind, &str)]) {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), names);
        let workspace = Workspace::open(folder.path()).unwrap();
        let expected: Vec<_> = expected
            .iter()
            .map(|(kind, path)| (*kind, Path::new(path).to_owned()))
            .collect();
        assert_eq!(found(&workspace, bounds), expected);
    }

    #[test]
    fn scan_covers_denied_names_at_any_depth() {
        use CoverKind::{File, Fixed, Folder, Pinned};
        check(&["a", "b/c"], BOUNDS, &[]);
        check(&["b/.ENV", "b/id_rsa\nx"], BOUNDS, &[(File, "b/.ENV")]);
        check(
            &["b/.env.\nx", "x\n.pem"],
            BOUNDS,
            &[(File, "b/.env.\nx"), (File, "x\n.pem")],
        );
        check(&["b/.ssh/.env"], BOUNDS, &[(Folder, "b/.ssh")]);
        let git = ["b/.git/config", "b/.git/hooks/x", "b/.git/deep/.env"];
        let expected = [
            (File, "b/.git/deep/.env"),
            (Fixed, "b/.git/config"),
            (Fixed, "b/.git/hooks"),
            (Pinned, "b/.git"),
        ];
        check(&git, BOUNDS, &expected);
    }

    #[test]
    fn scan_hides_folder_with_too_many_denied_files() {
        let bounds = Bounds {
            in_folder: 2,
            ..BOUNDS
        };
        check(
            &["k/1.pem", "k/2.pem", "k/3.pem", "k/sub/4.pem"],
            bounds,
            &[(CoverKind::Unknown, "k")],
        );
    }

    #[test]
    fn scan_hides_folder_whose_entries_have_too_long_paths() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &["a/b/ccccccc", "a/.env"]);
        let workspace = Workspace::open(folder.path()).unwrap();
        let path = workspace.root().as_os_str().len() + "/a/b/cccc".len();
        let expected = vec![
            (CoverKind::File, PathBuf::from("a/.env")),
            (CoverKind::Unknown, PathBuf::from("a/b")),
        ];
        assert_eq!(found(&workspace, Bounds { path, ..BOUNDS }), expected);
    }

    #[test]
    fn scan_covers_every_name_of_a_denied_file() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &["a/.env", "a/other", "z/other"]);
        for name in ["0", "a/notes", "z/notes"] {
            fs::hard_link(folder.path().join("a/.env"), folder.path().join(name)).unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        let expected = ["0", "a/.env", "a/notes", "z/notes"]
            .map(|name| (CoverKind::File, PathBuf::from(name)));
        assert_eq!(found(&workspace, BOUNDS), expected);
    }

    #[test]
    fn scan_covers_every_name_of_a_file_in_a_denied_folder() {
        let folder = tempfile::tempdir().unwrap();
        put(
            folder.path(),
            &[".aws/credentials", "deep/.ssh/sub/id", "pub/other"],
        );
        for (from, to) in [(".aws/credentials", "pub/copy"), ("deep/.ssh/sub/id", "0")] {
            fs::hard_link(folder.path().join(from), folder.path().join(to)).unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        let expected = [
            (CoverKind::File, PathBuf::from("0")),
            (CoverKind::File, PathBuf::from("pub/copy")),
            (CoverKind::Folder, PathBuf::from(".aws")),
            (CoverKind::Folder, PathBuf::from("deep/.ssh")),
        ];
        assert_eq!(found(&workspace, BOUNDS), expected);
    }

    #[test]
    fn scan_covers_files_with_names_in_unsearchable_folders() {
        let folder = tempfile::tempdir().unwrap();
        put(
            folder.path(),
            &["a/b/.env-is-too-long", "x/one", "x/two", "x/three"],
        );
        for (from, to) in [
            ("a/b/.env-is-too-long", "x/copy"),
            ("x/one", "y"),
            ("x/two", "z"),
        ] {
            fs::hard_link(folder.path().join(from), folder.path().join(to)).unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        let path = workspace.root().as_os_str().len() + "/a/b/ccccc".len();
        // All names of the other files are known.
        let expected = [
            (CoverKind::File, PathBuf::from("x/copy")),
            (CoverKind::Unknown, PathBuf::from("a/b")),
        ];
        assert_eq!(found(&workspace, Bounds { path, ..BOUNDS }), expected);
    }

    #[test]
    fn scan_covers_targets_of_links_with_a_denied_name() {
        let folder = tempfile::tempdir().unwrap();
        put(
            folder.path(),
            &["a/secret", "a/other", "keys/1", "store/HEAD", "z/b"],
        );
        for (to, from) in [
            ("a/secret", ".env"),
            ("../keys", "z/.ssh"),
            ("/etc/hostname", ".npmrc"),
            ("store", ".git"),
        ] {
            std::os::unix::fs::symlink(to, folder.path().join(from)).unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        let expected = [
            (CoverKind::File, PathBuf::from("a/secret")),
            (CoverKind::Folder, PathBuf::from("keys")),
            (CoverKind::Fixed, PathBuf::from(".env")),
            (CoverKind::Fixed, PathBuf::from(".git")),
            (CoverKind::Fixed, PathBuf::from(".npmrc")),
            (CoverKind::Fixed, PathBuf::from("z/.ssh")),
        ];
        assert_eq!(found(&workspace, BOUNDS), expected);
    }

    #[test]
    fn scan_covers_devices() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &["sub/file"]);
        let device = rustix::fs::makedev(1, 3);
        let path = folder.path().join("sub/disk");
        let made = rustix::fs::mknodat(
            CWD,
            &path,
            FileType::CharacterDevice,
            Mode::RUSR | Mode::WUSR,
            device,
        );
        if made.is_err() {
            // Only root can create a device.
            return;
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        assert_eq!(
            found(&workspace, BOUNDS),
            [(CoverKind::File, PathBuf::from("sub/disk"))]
        );
    }

    #[test]
    fn scan_with_path_rule_pins_folders() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &["a/b/plan.txt", "a/b/other.txt"]);
        let workspace = Workspace::builder(folder.path())
            .deny("a/b/plan.*")
            .build()
            .unwrap();
        let expected = [
            (CoverKind::File, PathBuf::from("a/b/plan.txt")),
            (CoverKind::Pinned, PathBuf::from("a")),
            (CoverKind::Pinned, PathBuf::from("a/b")),
        ];
        assert_eq!(found(&workspace, BOUNDS), expected);
    }

    #[test]
    fn scan_refuses_more_repositories_than_can_be_protected() {
        let folder = tempfile::tempdir().unwrap();
        put(
            folder.path(),
            &[".git/HEAD", ".git/objects/x", ".git/refs/x"],
        );
        for n in 0..9 {
            let inside =
                ["HEAD", "objects/x", "refs/x"].map(|name| format!(".git/modules/{n}/{name}"));
            put(folder.path(), &inside.each_ref().map(String::as_str));
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        // `.git` itself, and four files for each of ten repositories.
        for (covers, allowed) in [(41, true), (40, false)] {
            assert_eq!(
                search_within(&workspace, Bounds { covers, ..BOUNDS }, &unlimited()).is_ok(),
                allowed
            );
        }
    }

    #[test]
    fn scan_counts_pinned_folders_as_covers() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &["a/b/c/d/plan.txt"]);
        let workspace = Workspace::builder(folder.path())
            .deny("a/b/c/d/plan.*")
            .build()
            .unwrap();
        for (covers, allowed) in [(5, true), (4, false)] {
            assert_eq!(
                search_within(&workspace, Bounds { covers, ..BOUNDS }, &unlimited()).is_ok(),
                allowed
            );
        }
    }

    #[test]
    fn scan_records_outside_target_once() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..3 {
            std::os::unix::fs::symlink("/etc/passwd", folder.path().join(format!("{n}.key")))
                .unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        let outside: Vec<_> = search(&workspace, &unlimited())
            .unwrap()
            .outside
            .into_iter()
            .collect();
        assert_eq!(outside, [Path::new("/etc/passwd").canonicalize().unwrap()]);
    }

    #[test]
    fn scan_over_bounds_returns_error() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &["a", "b", ".env", "d/.env"]);
        let workspace = Workspace::open(folder.path()).unwrap();
        for (bounds, allowed) in [
            (
                Bounds {
                    entries: 5,
                    ..BOUNDS
                },
                true,
            ),
            (
                Bounds {
                    entries: 4,
                    ..BOUNDS
                },
                false,
            ),
            (
                Bounds {
                    covers: 1,
                    ..BOUNDS
                },
                false,
            ),
            (
                Bounds {
                    in_folder: 0,
                    ..BOUNDS
                },
                false,
            ),
            (
                Bounds {
                    pending: 0,
                    ..BOUNDS
                },
                false,
            ),
        ] {
            assert_eq!(
                search_within(&workspace, bounds, &unlimited()).is_ok(),
                allowed
            );
        }
    }

    #[test]
    fn search_checks_time_limit_before_following_link() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        fs::write(folder.path().join("settings"), "").unwrap();
        let over = SearchLimit::start(Duration::ZERO, None);
        // A workspace of a few files without links is searched within the limit.
        assert!(search(&workspace, &over).is_ok());
        std::os::unix::fs::symlink("settings", folder.path().join(".env")).unwrap();
        let Err(SearchError::Io(error)) = search(&workspace, &over) else {
            panic!("the link was followed");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn search_ends_when_caller_drops_command() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        std::os::unix::fs::symlink("settings", folder.path().join(".env")).unwrap();
        let (control, alive) = io::pipe().unwrap();
        let limit = SearchLimit::start(Duration::MAX, Some(&control));
        assert!(search(&workspace, &limit).is_ok());
        drop(alive);
        assert!(search(&workspace, &limit).is_err());
    }
}
