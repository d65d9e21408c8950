//! The folder of session files: names, search and listings.
//!
//! The day of a run is part of its path, so a listing of the newest sessions reads a few folders
//! only. File names are derived from run ids reversibly for usual ids; bytes that a file system may
//! not accept become `%xx`, and a long id ends with its hash.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_core::{RunId, Timestamp};
use levity_runtime::{Observe, Observer};

use super::disk::run_blocking;
use super::error::{SessionError, SessionProblem};
use super::head::Head;
use super::writer::{OnError, SessionWriter};
use super::{Session, date};

/// A folder of session files: `YYYY/MM/DD/session_<id>.json`, by the UTC day on which the run
/// began.
///
/// ```
/// # use levity_observe::SessionFolder;
/// # async fn doc() -> Result<(), levity_observe::SessionError> {
/// let sessions = SessionFolder::open("sessions");
/// for found in sessions.list(&Default::default()).await? {
///     println!("{} {}: {}", found.id, found.status, found.query);
/// }
/// # Ok(()) }
/// ```
///
/// Several processes may share a folder, as long as each run is driven by one of them. Clones are
/// cheap and share nothing but the settings.
#[derive(Clone)]
pub struct SessionFolder {
    dir: Arc<Path>,
    max_bytes: u64,
    on_error: Option<Arc<OnError>>,
}

/// Metadata of a session, read without reading the whole file.
///
/// ```
/// use levity_core::{RunId, Timestamp};
/// use levity_observe::{SessionFilter, SessionFolder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_observe::SessionError> {
/// let folder = tempfile::tempdir().unwrap();
/// let sessions = SessionFolder::open(folder.path());
/// let path = sessions.path(&RunId::new("monday"), Timestamp::from_millis(0));
/// std::fs::create_dir_all(path.parent().unwrap()).unwrap();
/// std::fs::write(&path, "not JSON").unwrap();
///
/// // A file that cannot be read is listed, with the reason.
/// let found = sessions.list(&SessionFilter::new()).await?;
/// assert_eq!((&*found[0].id, found[0].bytes), ("monday", 8));
/// assert!(found[0].problem.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id of the session; for an unreadable file, the id from the file name.
    pub id: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The start time of the run.
    pub created: Option<Timestamp>,
    /// The goal of the run; the first 500 characters.
    pub query: String,
    /// The status when the file was written, such as `running` or `completed`.
    pub status: String,
    /// The reason why the file cannot be read, if it cannot.
    pub problem: Option<String>,
}

/// A filter for the list of sessions.
///
/// All conditions must hold.
///
/// ```
/// use levity_core::Timestamp;
/// use levity_observe::SessionFilter;
///
/// let filter = SessionFilter::new()
///     .status("failed")
///     .query("tides")
///     .since(Timestamp::from_millis(0))
///     .limit(5);
/// assert_eq!((filter.limit, filter.status.as_deref()), (5, Some("failed")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionFilter {
    /// The maximum number of sessions; 100 by default.
    pub limit: usize,
    /// Includes only sessions with this status.
    pub status: Option<String>,
    /// Includes only sessions whose query contains this text, ignoring case.
    pub query: Option<String>,
    /// Includes only sessions that began at this time or later.
    pub since: Option<Timestamp>,
}

impl Default for SessionFilter {
    fn default() -> Self {
        Self {
            limit: 100,
            status: None,
            query: None,
            since: None,
        }
    }
}

impl SessionFilter {
    /// Creates a filter for all sessions, with a limit of 100.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of sessions.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Includes only sessions with this status.
    #[must_use]
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Includes only sessions whose query contains this text, ignoring case.
    #[must_use]
    pub fn query(mut self, text: impl Into<String>) -> Self {
        self.query = Some(text.into());
        self
    }

    /// Includes only sessions that began at this time or later.
    #[must_use]
    pub fn since(mut self, at: Timestamp) -> Self {
        self.since = Some(at);
        self
    }

    fn matches(&self, info: &SessionInfo) -> bool {
        self.status
            .as_ref()
            .is_none_or(|status| *status == info.status)
            && self
                .since
                .is_none_or(|since| info.created.is_some_and(|at| at >= since))
            && self
                .query
                .as_ref()
                .is_none_or(|text| info.query.to_lowercase().contains(&text.to_lowercase()))
    }
}

/// Writes a session file for each observed run.
///
/// ```
/// # use levity_dag::Team;
/// # use levity_observe::SessionFolder;
/// let team = Team::builder().observe(SessionFolder::open("sessions"));
/// ```
///
/// A resumed run continues its file, and a fork starts one with the steps that it took over.
impl Observe for SessionFolder {
    fn observe(&self, run: &RunId) -> Observer {
        let writer = self.writer(run);
        let (earlier, flushed) = (writer.clone(), writer.clone());
        Observer::new(move |event| writer.apply(event))
            .on_earlier_events(move |events| earlier.begin_with(events))
            // A failed write does not end the run: the writer reports it, and the journal has
            // everything.
            .after(async move { _ = flushed.flush().await })
    }
}

impl SessionFolder {
    /// Opens this folder of sessions. The first write creates it.
    pub fn open(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().into(),
            max_bytes: Session::MAX_BYTES,
            on_error: None,
        }
    }

    /// Sets the maximum size of a session file; [`Session::MAX_BYTES`] by default.
    ///
    /// A write beyond the limit fails and leaves the last complete file in place.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets a handler for failed writes, called on the writing thread. The run continues
    /// regardless.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use levity_dag::{Plan, Step, StepInput, Team};
    /// use levity_observe::{SessionFolder, SessionProblem};
    /// use serde_json::Value;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let folder = tempfile::tempdir().unwrap();
    /// let errors = Arc::new(Mutex::new(0));
    /// let count = errors.clone();
    /// let sessions = SessionFolder::open(folder.path()).max_bytes(10).on_error(move |error| {
    ///     assert!(matches!(error.problem, SessionProblem::TooLarge { max_bytes: 10 }));
    ///     *count.lock().unwrap() += 1;
    /// });
    /// let team = Team::builder()
    ///     .function("noop", |_: StepInput| async { Ok(Value::Null) })
    ///     .observe(sessions)
    ///     .build()?;
    /// // The run completes although no file can be written.
    /// team.run(Plan::new().step(Step::new("a", "noop"))).await?;
    /// assert!(*errors.lock().unwrap() > 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_error(mut self, handler: impl Fn(&SessionError) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(handler));
        self
    }

    /// Returns the path of the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn byte_limit(&self) -> u64 {
        self.max_bytes
    }

    /// Returns the path of the session of a run that began at this time.
    ///
    /// ```
    /// use levity_core::{RunId, Timestamp};
    /// use levity_observe::SessionFolder;
    ///
    /// let sessions = SessionFolder::open("sessions");
    /// let path = sessions.path(&RunId::new("a/b"), Timestamp::from_millis(0));
    /// assert_eq!(path.to_str(), Some("sessions/1970/01/01/session_a%2fb.json"));
    /// ```
    pub fn path(&self, run: &RunId, began: Timestamp) -> PathBuf {
        let time = began.to_string();
        let day = time.split('T').next().unwrap_or_default();
        let folder = day
            .split('-')
            .fold(self.dir.to_path_buf(), |path, part| path.join(part));
        folder.join(file_name(run.as_str()))
    }

    /// Returns a writer that keeps the session file of a run up to date.
    pub fn writer(&self, run: &RunId) -> SessionWriter {
        SessionWriter::new(self.clone(), run.clone(), self.on_error.clone())
    }

    /// Lists the sessions, newest first. It reads only the beginning of each file, unless another
    /// program reordered the attributes. An unreadable file is listed with the reason.
    ///
    /// # Errors
    /// If the folder cannot be read. A folder that does not exist has no sessions.
    pub async fn list(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>, SessionError> {
        let (sessions, filter) = (self.clone(), filter.clone());
        run_blocking(move || sessions.list_now(&filter))
            .await
            .map_err(|problem| problem.at(&self.dir))
    }

    /// Returns the file of the session with this id, or of the only one whose id begins with it.
    ///
    /// An exact match has priority over a prefix. The error of an ambiguous prefix names five of
    /// the ids.
    ///
    /// ```
    /// use levity_core::{RunId, Timestamp};
    /// use levity_observe::{SessionFolder, SessionProblem};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_observe::SessionError> {
    /// let folder = tempfile::tempdir().unwrap();
    /// let sessions = SessionFolder::open(folder.path());
    /// for id in ["monday", "monsoon"] {
    ///     let path = sessions.path(&RunId::new(id), Timestamp::from_millis(0));
    ///     std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    ///     std::fs::write(&path, r#"{"nodes": []}"#).unwrap();
    /// }
    /// assert!(sessions.find("mond").await?.ends_with("session_monday.json"));
    /// let error = sessions.find("mon").await.unwrap_err();
    /// assert!(matches!(error.problem, SessionProblem::Ambiguous { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub async fn find(&self, id: &str) -> Result<PathBuf, SessionError> {
        let (sessions, name) = (self.clone(), id.to_owned());
        run_blocking(move || sessions.find_now(&name))
            .await
            .map_err(|problem| problem.at(&self.dir))
    }

    /// Loads the session with this id, or the only one whose id begins with it.
    ///
    /// # Errors
    /// If there is none, or more than one, or if its file is not a session.
    pub async fn load(&self, id: &str) -> Result<Session, SessionError> {
        let path = self.find(id).await?;
        Session::load_up_to(path, self.max_bytes).await
    }

    fn list_now(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>, SessionProblem> {
        let mut found: Vec<SessionInfo> = Vec::new();
        for day in self.days()? {
            if found.len() >= filter.limit {
                break;
            }
            let infos = files(&day)?
                .into_iter()
                .map(|(id, path)| info(id, path, self.max_bytes));
            let mut of_day: Vec<SessionInfo> = infos.filter(|info| filter.matches(info)).collect();
            of_day.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
            found.extend(of_day);
        }
        found.truncate(filter.limit);
        Ok(found)
    }

    /// Returns the file of exactly this run.
    pub(super) fn find_run(&self, run: &RunId) -> Result<PathBuf, SessionProblem> {
        let name = file_name(run.as_str());
        let existing = self
            .days()?
            .into_iter()
            .map(|day| day.join(&name))
            .find(|path| path.is_file());
        existing.ok_or_else(|| SessionProblem::Unknown(shorten_id(run.as_str())))
    }

    fn find_now(&self, id: &str) -> Result<PathBuf, SessionProblem> {
        let exact = file_name(id);
        let begin = exact.strip_suffix(SUFFIX).unwrap_or(&exact);
        let mut found = Vec::new();
        for day in self.days()? {
            for (id, path) in files(&day)? {
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                if name == exact {
                    return Ok(path);
                }
                if name.starts_with(begin) {
                    found.push((id, path));
                }
            }
        }
        match found.len() {
            0 => Err(SessionProblem::Unknown(shorten_id(id))),
            1 => Ok(found.swap_remove(0).1),
            _ => {
                let ids = found.into_iter().take(5).map(|(id, _)| id).collect();
                Err(SessionProblem::Ambiguous {
                    begin: shorten_id(id),
                    ids,
                })
            }
        }
    }

    /// Returns the folders of the days, newest first.
    fn days(&self) -> Result<Vec<PathBuf>, SessionProblem> {
        let mut folders = vec![self.dir.to_path_buf()];
        for digits in [4.., 2.., 2..] {
            let mut below = Vec::new();
            for folder in folders {
                let mut names = names(&folder)?;
                names.retain(|name| {
                    digits.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_digit())
                });
                names.sort_by_key(|name| std::cmp::Reverse((name.len(), name.clone())));
                below.extend(names.into_iter().map(|name| folder.join(name)));
            }
            folders = below;
        }
        Ok(folders)
    }
}

impl fmt::Debug for SessionFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionFolder")
            .field("dir", &self.dir)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

const PREFIX: &str = "session_";
const SUFFIX: &str = ".json";

/// Returns the names in a folder; none if it does not exist or is not a folder.
fn names(folder: &Path) -> Result<Vec<String>, SessionProblem> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect())
}

/// Returns the session files in a folder, with the ids from their names.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, SessionProblem> {
    let id = |name: &str| Some(name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.to_owned());
    Ok(names(folder)?
        .into_iter()
        .filter_map(|name| Some((id(&name)?, folder.join(name))))
        .collect())
}

fn info(id: String, path: PathBuf, max_bytes: u64) -> SessionInfo {
    let bytes = fs::metadata(&path).map_or(0, |data| data.len());
    let mut info = SessionInfo {
        id,
        path,
        bytes,
        created: None,
        query: String::new(),
        status: String::new(),
        problem: None,
    };
    match Head::read(&info.path, max_bytes) {
        Ok(head) => {
            info.id = head
                .session_id
                .filter(|id| !id.is_empty())
                .unwrap_or(info.id);
            info.created = head.created_at.as_deref().and_then(date::parse);
            info.query = head.original_query.unwrap_or_default();
            info.status = head.status.unwrap_or_default();
        }
        Err(problem) => info.problem = Some(problem.to_string()),
    }
    info
}

/// The maximum number of bytes of an id in a file name.
const MAX_NAME_BYTES: usize = 150;

/// Returns the name of a session's file. Letters, digits, `-`, `_` and `.` are literal, other bytes
/// become `%xx`; a long id is cut and followed by its hash.
pub(super) fn file_name(id: &str) -> String {
    let mut name = String::from(PREFIX);
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                name.push(char::from(byte));
            }
            byte => {
                let _ = write!(name, "%{byte:02x}");
            }
        }
    }
    if name.len() > MAX_NAME_BYTES {
        // FNV-1a is stable across releases.
        let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        name.truncate(MAX_NAME_BYTES);
        let _ = write!(name, "~{hash:016x}");
    }
    name + SUFFIX
}

fn shorten_id(id: &str) -> String {
    crate::view::one_line(id, 80)
}
