//! Files that the command line or the environment names for levity itself. A tool that can write a
//! journal could approve its own calls. A tool that can read a token file could impersonate any
//! caller. A tool that can write a settings file could control the next start.
//!
//! Protection works in two steps. `register` runs once at the start and collects all paths of a
//! fixed list of options and variables. `deny` then excludes those that lie below a workspace,
//! together with the files that databases and writers place next to them, and refuses
//! constellations in which exclusion is not enough: a workspace inside such a folder, or a link
//! that an agent could replace.
//!
//! A command can create a file that does not exist, because the kernel hides existing files only.
//! `deny` therefore creates a missing state folder, reserves the paths of settings, `.env`,
//! databases and the files next to them, and refuses a workspace in which a file is missing that a
//! variable names.
//!
//! Data that levity writes, such as journals, stays protected in later calls that do not name it: a
//! call without `--journal` could otherwise forge an approval that a later call uses. The paths of
//! such data are remembered in the state folder. Another call may name such data while this process
//! runs, so `denied_later` reads the list again when it has changed.
//!
//! Files that a `levity.toml` names are protected in each workspace to which they belong, even if
//! the call ignores the settings or runs in another folder.
//!
//! The list of options is explicit. A new option that names a file of levity must be added to it;
//! options that name files for the agent, such as `--file`, must not.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use clap::ArgMatches;
use levity::llm::Models;
use levity::sandbox::{DeniedPaths, WorkspaceBuilder};
use levity_system::{Replace, files};

/// Options whose files only levity itself may read and write. They hold conversations or secrets,
/// or control what levity does and which programs it starts.
///
/// These are the ids that clap gives to options, with underscores.
const OPTIONS: [&str; 24] = [
    "journal",
    "memory",
    "sessions",
    "logs",
    "cache",
    "debug_log",
    "facts",
    "index",
    "recall",
    "bus",
    "out",
    "junit",
    "token_file",
    "named_tokens",
    "tls_key",
    "access_log",
    "mcp",
    "config",
    "tools",
    "agents",
    "prompts",
    "script",
    "plan",
    "tls_cert",
];

/// Options whose files levity remembers for later calls: it writes them itself and trusts their
/// content, or they name programs that levity starts without a sandbox.
const REMEMBERED_OPTIONS: [&str; 11] = [
    "journal",
    "memory",
    "sessions",
    "facts",
    "index",
    "recall",
    "token_file",
    "named_tokens",
    "cache",
    "mcp",
    "config",
];

/// The maximum number of remembered files. When it is exceeded, those that no longer exist and the
/// oldest ones are forgotten.
const MAX_REMEMBERED: usize = 2_000;

/// The maximum size of the list of remembered files.
const MAX_LIST: u64 = 16 << 20;

/// Variables that name such files by their absolute paths. levity remembers these files as well.
const VARIABLES: [&str; 4] = [
    "LEVITY_MCP_SERVERS",
    "MCP_SERVERS_CONFIG",
    "LEVITY_MODELS",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// Prefixes and suffixes of files next to such a file, as globs. They match files of databases,
/// tasks of a journal, an older log, and temporary or lock files.
///
/// The first pair is the file itself. For `runs.db` the list denies, among others, `runs.db-wal`,
/// `runs.db.tasks` and `.runs.db.new`.
const NEIGHBORS: [(&str, &str); 10] = [
    ("", ""),
    ("", "-wal"),
    ("", "-shm"),
    ("", "-journal"),
    ("", "-owners"),
    ("", ".tasks"),
    ("", ".1"),
    ("", ".*.part"),
    (".", ".new"),
    (".", ".levity"),
];

/// Options that may name an SQLite file.
const DATABASE_OPTIONS: [&str; 5] = ["journal", "memory", "facts", "index", "recall"];

/// Suffixes of the files that SQLite keeps next to an open database. SQLite applies a log at the
/// next start, whoever wrote it. levity refuses a database with a rollback journal (`X-journal`),
/// so a placeholder with that name would make the database unusable.
const OF_DATABASE: [&str; 2] = ["-wal", "-shm"];

/// The maximum number of paths that commands must not create. Each is a mount.
const MAX_RESERVED: usize = 1_024;

/// The number of links that are followed in a path, as in the kernel.
///
/// A path with more links, such as a cycle, has no target and cannot be opened either.
const MAX_LINKS: usize = 40;

/// A file, and the option or variable that names it.
struct Registered {
    /// The option or variable with its value, for errors.
    source: String,
    /// The path as the user wrote it, which may be relative.
    path: PathBuf,
    /// `true` if a command that creates the file would control the next start.
    must_exist: bool,
    /// `true` if the path may be that of an SQLite file.
    may_be_database: bool,
    /// `true` if levity protects the file in later calls too.
    is_remembered: bool,
}

/// The files that options and variables name.
///
/// Global, because workspaces are opened deep inside of commands and each of them must see the same
/// list; forgetting to pass it would be a hole.
static REGISTERED: OnceLock<Vec<Registered>> = OnceLock::new();

/// Data of earlier calls, by absolute paths.
static REMEMBERED: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Data of calls that started after this one.
static NEWER: Mutex<NewerFiles> = Mutex::new(NewerFiles {
    list: None,
    state: None,
    lines: 0,
    own: Vec::new(),
    paths: Vec::new(),
});

/// The paths in the list of remembered files that other processes added.
struct NewerFiles {
    /// The list, if there is a state folder.
    list: Option<PathBuf>,
    /// The state of the list when it was read last.
    state: Option<ListState>,
    /// The number of lines that are no news.
    lines: usize,
    /// The paths that this call names, which are denied from the start.
    own: Vec<PathBuf>,
    /// The paths, which only become more.
    paths: Vec<PathBuf>,
}

/// Identifies a version of the list.
#[derive(Clone, PartialEq, Eq)]
struct ListState {
    length: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: u64,
}

impl ListState {
    fn of(list: &Path) -> Option<Self> {
        let found = fs::metadata(list).ok()?;
        Some(Self {
            length: found.len(),
            modified: found.modified().ok(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(&found),
        })
    }
}

impl NewerFiles {
    fn lock() -> MutexGuard<'static, Self> {
        NEWER.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the list if it has changed, and returns the paths.
    fn update(&mut self) -> &[PathBuf] {
        let state = self.list.as_deref().and_then(ListState::of);
        if let Some(list) = self.list.as_deref().filter(|_| state != self.state) {
            let remembered = REMEMBERED.get().map(Vec::as_slice).unwrap_or_default();
            let all = read_list(list);
            // A list that was shortened has been replaced.
            self.lines = self.lines.min(all.len());
            for (at, path) in all.iter().enumerate() {
                let is_new = at >= self.lines || !remembered.contains(path);
                if is_new && !self.own.contains(path) && !self.paths.contains(path) {
                    self.paths.push(path.clone());
                }
            }
            self.state = state;
        }
        &self.paths
    }
}

/// Registers the files that the command line and the environment name.
///
/// Descends through all subcommands, since options belong to the level at which they are declared.
/// Variables of options count even if this command does not have the option, because a later one
/// may. A second call has no effect.
pub(crate) fn register(mut matches: &ArgMatches) {
    let mut named = in_environment();
    named.extend(credentials_in_env_file());
    loop {
        for option in OPTIONS {
            let paths = matches
                .try_get_many::<PathBuf>(option)
                .ok()
                .flatten()
                .into_iter()
                .flatten();
            let source =
                |path: &PathBuf| format!("--{} {}", option.replace('_', "-"), path.display());
            named.extend(paths.map(|path| Registered {
                source: source(path),
                path: path.clone(),
                must_exist: false,
                may_be_database: DATABASE_OPTIONS.contains(&option),
                is_remembered: REMEMBERED_OPTIONS.contains(&option),
            }));
        }
        match matches.subcommand() {
            Some((_, inner)) => matches = inner,
            None => break,
        }
    }
    if crate::settings::has_settings(Path::new("")) {
        named.push(Registered {
            source: crate::settings::FILE.to_owned(),
            path: PathBuf::from(crate::settings::FILE),
            must_exist: false,
            may_be_database: false,
            is_remembered: false,
        });
    }
    let data = named.iter().filter(|file| file.is_remembered);
    let data = data.flat_map(|file| places(&file.path)).collect();
    let _ = REGISTERED.set(named);
    let _ = REMEMBERED.set(remember(data));
}

/// Returns the files that variables name. Relative paths in [`VARIABLES`] are ignored here, as
/// their readers ignore them.
fn in_environment() -> Vec<Registered> {
    let own = VARIABLES
        .iter()
        .map(|name| ((*name).to_owned(), true, true, (false, true)));
    let options = OPTIONS.iter().map(|option| {
        let setting = option.replace('_', "-");
        let controls = crate::settings::names_control_file(&setting);
        let is_data = DATABASE_OPTIONS.contains(option);
        (
            crate::settings::variable_name(&setting),
            controls,
            false,
            (is_data, REMEMBERED_OPTIONS.contains(option)),
        )
    });
    let named = own.chain(options).filter_map(
        |(name, must_exist, is_absolute, (may_be_database, is_remembered))| {
            let text = std::env::var(&name).ok()?;
            let path = PathBuf::from(text.trim());
            let is_path = !matches!(text.trim(), "" | "0" | "1" | "false" | "true");
            (is_path && (path.is_absolute() || !is_absolute)).then(|| Registered {
                source: format!("{name}={}", path.display()),
                path,
                must_exist,
                may_be_database,
                is_remembered,
            })
        },
    );
    named.collect()
}

/// Returns the file with Google credentials that a `.env` file names.
fn credentials_in_env_file() -> Option<Registered> {
    // A broken file is reported when a model is chosen.
    let models = Models::from_env().ok()?;
    let path = models.credentials_file()?;
    Some(Registered {
        source: format!("GOOGLE_APPLICATION_CREDENTIALS={}", path.display()),
        path: path.to_owned(),
        must_exist: true,
        may_be_database: false,
        is_remembered: true,
    })
}

/// Returns `true` if the setting or option of this name has a file that only levity may use.
pub(crate) fn is_own(name: &str) -> bool {
    OPTIONS.contains(&&*name.replace('-', "_"))
}

/// Adds paths to the list of remembered files, and returns the list as it was before.
///
/// Without a state folder nothing is remembered. levity then resumes no run either, because it
/// cannot tell whose run it is.
fn remember(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let Ok(folder) = crate::state::folder() else {
        return Vec::new();
    };
    let list = folder.join("data-files");
    let known = read_list(&list);
    // A path that is not UTF-8 cannot be stored, and tools cannot name it. A missing file is added
    // again, because processes that run now do not protect it.
    let is_new = |path: &PathBuf| {
        path.to_str().is_some() && (!known.contains(path) || path.symlink_metadata().is_err())
    };
    let mut new: Vec<_> = paths.iter().filter(|path| is_new(path)).cloned().collect();
    new.dedup();
    let mut newer = NewerFiles::lock();
    (newer.list, newer.lines, newer.own) = (Some(list.clone()), known.len(), paths);
    if !new.is_empty() && crate::state::create(&folder).is_ok() {
        // A list that cannot be written leaves later calls without this protection, and no other.
        let _ = store(&list, &known, &new);
    }
    known
}

/// Returns the paths of the list, one for each line.
fn read_list(list: &Path) -> Vec<PathBuf> {
    let text = files::read_at_most(list, MAX_LIST).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Appends to the list, so that two processes do not lose each other's paths; a long list is
/// replaced by a shorter one.
fn store(list: &Path, known: &[PathBuf], new: &[PathBuf]) -> io::Result<()> {
    let lines = |paths: &[PathBuf]| -> io::Result<String> {
        let line = |path: &PathBuf| Ok(format!("{}\n", serde_json::to_string(path)?));
        paths.iter().map(line).collect()
    };
    if known.len() + new.len() <= MAX_REMEMBERED {
        let mut file = files::options().append(true).create(true).open(list)?;
        return file.write_all(lines(new)?.as_bytes());
    }
    let mut seen = BTreeSet::new();
    let existing = known
        .iter()
        .filter(|path| path.exists() && seen.insert(*path));
    let existing: Vec<_> = existing.cloned().collect();
    let newest = existing.len().saturating_sub(MAX_REMEMBERED / 2);
    let all = [&existing[newest..], new].concat();
    Replace::new(list).write(lines(&all)?.as_bytes())
}

/// Returns the remembered files that still exist.
///
/// A missing one needs no protection: levity resumes only runs that it marked, so a forged journal
/// in its place has no effect.
fn remembered<'a>() -> impl Iterator<Item = &'a PathBuf> {
    let all = REMEMBERED.get().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|path| path.symlink_metadata().is_ok())
}

/// Denies all tools of a workspace access to levity's own files in it.
///
/// Each file is denied as written and with its links resolved, together with the files that
/// databases and atomic writes create next to it.
///
/// # Errors
/// Returns an error if the workspace is inside one of these files or folders, or if a link in the
/// workspace leads to one of them. A command can replace such a link, and the next start would
/// follow the new one.
pub(crate) fn deny(folder: &Path, builder: WorkspaceBuilder) -> Result<WorkspaceBuilder, String> {
    // Opening a folder that does not exist reports the error.
    let Ok(root) = folder.canonicalize() else {
        return Ok(builder);
    };
    let named = REGISTERED.get().map(Vec::as_slice).unwrap_or_default();
    for Registered {
        source,
        path,
        must_exist,
        ..
    } in named
    {
        refuse_link(&root, source, path)?;
        if places(path).iter().any(|place| root.starts_with(place)) {
            return Err(format!(
                "`{source}` contains the workspace `{}`, so its tools could change it; choose \
                    another place",
                folder.display()
            ));
        }
        if *must_exist && !path.exists() && places(path).iter().any(|p| p.starts_with(&root)) {
            return Err(format!(
                "`{source}` does not exist, and a command in the workspace `{}` could create it; \
                    create the file, or unset the variable",
                folder.display()
            ));
        }
    }
    create_state(&root);
    // These files count even if this call ignores the settings.
    for path in crate::settings::named_by_trusted_settings(&root) {
        refuse_link(&root, &path.display().to_string(), &path)?;
        create_database(&root, &path);
    }
    let trusted = crate::settings::trusted_files(&root);
    let builder = globs(&root, &trusted)?
        .into_iter()
        .fold(builder, WorkspaceBuilder::deny)
        .deny_from(denied_later(root.clone()));
    Ok(reserved(&root, trusted)?
        .into_iter()
        .fold(builder, WorkspaceBuilder::reserve))
}

/// Returns a source of the paths in a workspace that other calls name from now on. Tools can
/// access them until then.
///
/// A file may be missing when it is named. It is denied at once, but commands may create it until
/// it exists: an empty folder in its place would be in the way of the process that creates it.
fn denied_later(root: PathBuf) -> impl Fn() -> Option<DeniedPaths> + Send + Sync + 'static {
    let seen = Mutex::new(LaterState::default());
    move || {
        let mut newer = NewerFiles::lock();
        let paths = newer.update();
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_within = |path: &Path| places(path).iter().any(|place| place.starts_with(&root));
        let added: Vec<_> = paths[seen.paths..]
            .iter()
            .filter(|path| is_within(path))
            .cloned()
            .collect();
        seen.paths = paths.len();
        drop(newer);
        let missing_before = seen.missing.len();
        seen.missing.retain(|path| path.symlink_metadata().is_err());
        if added.is_empty() && missing_before == seen.missing.len() {
            return None;
        }
        let missing = added.iter().filter(|path| path.symlink_metadata().is_err());
        seen.missing.extend(missing.cloned());
        seen.within.extend(added);
        Some(denied_paths(&root, &seen.within))
    }
}

/// The paths that a source has returned.
#[derive(Default)]
struct LaterState {
    /// The number of paths of the list that were compared with the workspace.
    paths: usize,
    within: Vec<PathBuf>,
    /// Those that did not exist yet.
    missing: Vec<PathBuf>,
}

/// Returns the globs of files in a workspace, and the paths of existing databases among them and of
/// links that commands must not create.
fn denied_paths(root: &Path, paths: &[PathBuf]) -> DeniedPaths {
    // A path that is not UTF-8 is not in the list.
    let globs = paths
        .iter()
        .flat_map(|path| globs_of(root, path).unwrap_or_default());
    let denied = globs.fold(DeniedPaths::new(), DeniedPaths::deny);
    let databases = paths
        .iter()
        .filter(|path| path.exists() && is_database(path));
    let databases = databases
        .flat_map(|path| places(path))
        .flat_map(|path| with_neighbors(&path));
    let links = paths
        .iter()
        .filter(|path| link_within(root, path).is_some());
    let reserved = databases.chain(links.flat_map(|path| places(path)));
    let reserved: BTreeSet<_> = reserved
        .filter_map(|place| Some(place.strip_prefix(root).ok()?.to_str()?.to_owned()))
        .filter(|below| !below.is_empty())
        .collect();
    // Each is a mount. The files themselves are denied in any case.
    let reserved = reserved.into_iter().take(MAX_RESERVED);
    reserved.fold(denied, DeniedPaths::reserve)
}

/// Refuses a path that leads through a link in the workspace.
fn refuse_link(root: &Path, source: &str, path: &Path) -> Result<(), String> {
    match link_within(root, path) {
        Some(link) => Err(format!(
            "`{source}` leads through the link `{}` in the workspace, which a command could \
                replace; give the path without the link",
            link.display()
        )),
        None => Ok(()),
    }
}

/// Creates a missing database in a workspace, as an empty file, so that no command can create it.
/// If its folder is missing, the folder is reserved instead.
fn create_database(root: &Path, path: &Path) {
    let is_within = places(path).iter().any(|place| place.starts_with(root));
    if is_within && has_database_name(path) {
        let _ = files::options().write(true).create_new(true).open(path);
    }
}

/// Creates the state folder if it is missing in a workspace. If that fails, a command cannot create
/// it either.
fn create_state(root: &Path) {
    if let Ok(folder) = crate::state::path()
        && places(&folder).iter().any(|place| place.starts_with(root))
    {
        let _ = crate::state::create(&folder);
    }
}

/// Returns the paths in a workspace that commands must not create: settings, `.env`, databases that
/// do not exist yet, and the files of SQLite next to databases.
///
/// The settings of a folder that was never trusted name no databases in use, so they do not count.
///
/// # Errors
/// Returns an error if there are too many of these paths.
fn reserved(root: &Path, trusted: Vec<PathBuf>) -> Result<Vec<String>, String> {
    let named = REGISTERED.get().into_iter().flatten();
    let named = named.filter(|one| one.may_be_database && is_file_or_database(&one.path));
    let settings = crate::settings::named_by_trusted_settings(root);
    let others = remembered()
        .chain(&settings)
        .filter(|path| is_database(path));
    let databases = named.map(|one| &one.path).chain(others);
    let databases = databases.flat_map(|path| places(path));
    let mut paths: Vec<_> = databases.flat_map(|path| with_neighbors(&path)).collect();
    // A link that an earlier call used is protected itself.
    let linked = remembered().filter(|path| link_within(root, path).is_some());
    paths.extend(linked.cloned());
    let env = [PathBuf::from(".env"), root.join(".env")];
    let env = env
        .into_iter()
        .flat_map(|path| [link_target(&path), Some(path)]);
    let others = trusted.into_iter().chain(env.flatten());
    paths.extend(others.flat_map(|path| places(&path)));
    let below = paths
        .iter()
        .filter_map(|place| Some(place.strip_prefix(root).ok()?.to_str()?.to_owned()));
    let below: BTreeSet<String> = below.filter(|path| !path.is_empty()).collect();
    if below.len() > MAX_RESERVED {
        return Err(format!(
            "levity would have to keep commands from creating more than {MAX_RESERVED} files in \
                the workspace `{}`, next to journals and databases of earlier calls and in trusted \
                folders; choose a smaller workspace",
            root.display()
        ));
    }
    Ok(below.into_iter().collect())
}

/// Returns the path of a database and of the files next to it.
fn with_neighbors(database: &Path) -> Vec<PathBuf> {
    let suffixes = [""].into_iter().chain(OF_DATABASE);
    let path = |suffix| {
        let mut path = database.as_os_str().to_owned();
        path.push(suffix);
        PathBuf::from(path)
    };
    suffixes.map(path).collect()
}

/// Returns `true` if a path ends like that of an SQLite file. `--recall` accepts any name.
fn has_database_name(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| matches!(extension, "db" | "sqlite" | "sqlite3"))
}

/// Returns `true` for an existing file, and for the name of a database that does not exist yet.
fn is_file_or_database(path: &Path) -> bool {
    fs::metadata(path).map_or(has_database_name(path), |found| found.is_file())
}

/// Returns `true` if this file begins like an SQLite file, or has the name of one and is empty or
/// missing.
fn is_database(path: &Path) -> bool {
    let is_named_so = has_database_name(path);
    let Ok(found) = fs::metadata(path) else {
        return is_named_so;
    };
    if !found.is_file() || found.len() == 0 {
        return found.is_file() && is_named_so;
    }
    let mut start = [0; 16];
    let mut read = || fs::File::open(path)?.read_exact(&mut start);
    read().is_ok() && start == *b"SQLite format 3\0"
}

/// Returns the path to which a link leads, even if nothing is there.
fn link_target(link: &Path) -> Option<PathBuf> {
    let mut path = link.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => {
                let above = path.parent().unwrap_or(Path::new(""));
                path = above.join(target);
            }
            Err(_) => break,
        }
    }
    (path != link).then_some(path)
}

/// Returns the globs of levity's own files in a folder of tools, for its executables.
///
/// The folder is itself one of levity's own files, and executables can only read it, so neither
/// links in it nor a folder that contains it are errors.
///
/// # Errors
/// Returns an error if a path below the folder is not UTF-8.
pub(crate) fn globs_in_tools(folder: &Path) -> Result<Vec<String>, String> {
    // Opening a folder that does not exist reports the error.
    folder
        .canonicalize()
        .map_or_else(|_| Ok(Vec::new()), |root| globs(&root, &[]))
}

/// Returns the globs of these files, and of all others of levity, below a folder.
fn globs(root: &Path, trusted: &[PathBuf]) -> Result<Vec<String>, String> {
    // Keys, tokens and marks of this user.
    let state = crate::state::path()
        .ok()
        .into_iter()
        .flat_map(|folder| places(&folder));
    let state = state.filter_map(|place| Some(place.strip_prefix(root).ok()?.to_str()?.to_owned()));
    let mut globs: Vec<String> = state
        .filter(|below| !below.is_empty())
        .map(|below| format!("/{}", literal(&below)))
        .collect();
    let named = REGISTERED.get().into_iter().flatten().map(|one| &one.path);
    let settings = crate::settings::named_files(root);
    for path in named.chain(remembered()).chain(&settings).chain(trusted) {
        globs.extend(globs_of(root, path)?);
    }
    Ok(globs)
}

/// Returns the globs of one of these files below a folder, and of the files next to it.
fn globs_of(root: &Path, path: &Path) -> Result<Vec<String>, String> {
    let mut globs = Vec::new();
    for place in places(path) {
        let below = place.strip_prefix(root).ok();
        let Some(below) = below.filter(|below| !below.as_os_str().is_empty()) else {
            continue;
        };
        let below = below
            .to_str()
            .ok_or_else(|| format!("`{}` is not UTF-8", path.display()))?;
        let (folder, name) = below
            .rsplit_once('/')
            .map_or(("", below), |(folder, name)| (folder, name));
        let folder = if folder.is_empty() {
            String::new()
        } else {
            format!("/{}", literal(folder))
        };
        let name = literal(name);
        let neighbors = NEIGHBORS
            .iter()
            .map(|(prefix, suffix)| format!("{folder}/{prefix}{name}{suffix}"));
        globs.extend(neighbors);
    }
    Ok(globs)
}

/// Returns the option or variable of the first of levity's own files that is below a folder.
///
/// A file of settings that does not exist does not count. If it did, commands would be unavailable
/// in every folder without settings on a system that cannot hide files.
pub(crate) fn first_below(root: &Path) -> Option<String> {
    // `root/../x` begins with the root and is not in it.
    let is_resolved =
        |place: &PathBuf| !place.components().any(|part| part == Component::ParentDir);
    let is_below = |path: &Path| {
        let places = places(path).into_iter().filter(is_resolved);
        places.into_iter().any(|place| place.starts_with(root))
    };
    let named = REGISTERED.get().map(Vec::as_slice).unwrap_or_default();
    let named = named.iter().find(|one| is_below(&one.path));
    let state = crate::state::path().ok();
    let settings = crate::settings::named_files(root);
    let other = || {
        let mut others = state.iter().chain(remembered()).chain(&settings);
        let path = others.find(|path| is_below(path))?;
        Some(path.display().to_string())
    };
    named.map(|one| one.source.clone()).or_else(other)
}

/// Returns the places that a path may mean: as written, and with its links resolved.
///
/// A file may not exist yet, so the longest existing ancestor is resolved and the rest is appended.
/// Paths with `..` are also taken literally, because the meaning of `missing/../x` changes when the
/// missing folder is created. Denying one place too many costs nothing; one too few is a hole.
fn places(path: &Path) -> Vec<PathBuf> {
    let Ok(absolute) = std::path::absolute(path) else {
        return Vec::new();
    };
    // `missing/../x` becomes valid once `missing` exists.
    let mut normal = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    let mut places = vec![absolute.clone(), normal];
    let found = absolute
        .ancestors()
        .find_map(|above| Some((above, above.canonicalize().ok()?)));
    if let Some((above, real)) = found
        && let Ok(rest) = absolute.strip_prefix(above)
    {
        // Joining an empty path would add a slash.
        let is_whole = rest.as_os_str().is_empty();
        places.push(if is_whole { real } else { real.join(rest) });
    }
    if let (Some(folder), Some(name)) = (
        absolute
            .parent()
            .and_then(|folder| folder.canonicalize().ok()),
        absolute.file_name(),
    ) {
        places.push(folder.join(name));
    }
    places.dedup();
    places
}

/// Returns the first link below `root` that the path leads through.
///
/// Follows the path part by part, like the kernel does. Links outside of the workspace are resolved
/// and followed on; the agent cannot change them.
fn link_within(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut rest = std::path::absolute(path).ok()?;
    let mut real = PathBuf::new();
    for _ in 0..MAX_LINKS {
        let parts: Vec<_> = rest.iter().map(ToOwned::to_owned).collect();
        let mut parts = parts.iter();
        let (link, target) = parts.find_map(|part| {
            if *part == ".." {
                real.pop();
                return None;
            }
            real.push(part);
            let target = fs::read_link(&real).ok()?;
            let link = real.clone();
            real.pop();
            Some((link, target))
        })?;
        if link.starts_with(root) {
            return Some(link);
        }
        // An absolute target replaces the folders before it.
        rest = parts.fold(target, |target, part| target.join(part));
        if rest.is_absolute() {
            real.clear();
        }
    }
    None
}

/// Returns a glob that matches only this path.
///
/// For example, `a[1].db` becomes `a\[1\].db`.
fn literal(path: &str) -> String {
    let mut glob = String::new();
    for char in path.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!' | ',') {
            glob.push('\\');
        }
        glob.push(char);
    }
    glob
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::collections::BTreeSet;

    use clap::{Command, CommandFactory as _};

    use super::*;

    /// Options whose files a tool may read and change, since the user works on them.
    const OF_USER: [&str; 6] = ["data", "dir", "files", "images", "python", "workspace"];

    fn file_options(command: &Command, found: &mut BTreeSet<String>) {
        let is_file = |arg: &&clap::Arg| {
            !arg.is_positional() && arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()
        };
        let options = command.get_arguments().filter(is_file);
        found.extend(options.map(|arg| arg.get_id().to_string()));
        for inner in command.get_subcommands() {
            file_options(inner, found);
        }
    }

    #[test]
    fn each_option_with_file_is_protected_or_known_to_be_of_user() {
        let mut found = BTreeSet::new();
        file_options(&crate::Cli::command(), &mut found);
        assert!(found.contains("journal") && found.len() > 15, "{found:?}");
        found.retain(|id| !OPTIONS.contains(&&**id) && !OF_USER.contains(&&**id));
        assert!(found.is_empty(), "add to OPTIONS or OF_USER: {found:?}");
    }
}
