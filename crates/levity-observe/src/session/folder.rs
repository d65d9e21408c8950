use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_core::{RunId, Timestamp};
use levity_runtime::{Observe, Observer};

use super::disk::aside;
use super::error::{SessionError, SessionProblem};
use super::head::Head;
use super::writer::{OnError, SessionWriter};
use super::{Session, date};

/// A folder of sessions: `YYYY/MM/DD/session_<id>.json`, by the day on which the run began, in UTC.
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
#[derive(Clone)]
pub struct SessionFolder {
    dir: Arc<Path>,
    max_bytes: u64,
    on_error: Option<Arc<OnError>>,
}

/// What is known about a session without reading all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id; where the file cannot be read, as its name has it.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// When the run began.
    pub created: Option<Timestamp>,
    /// What the run was to do; the first 500 characters.
    pub query: String,
    /// Where it stood when the file was written, such as `running` or `completed`.
    pub status: String,
    /// Why the file cannot be read, if it cannot.
    pub problem: Option<String>,
}

/// Which sessions to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionFilter {
    /// How many at most; 100 by default.
    pub most: usize,
    /// Only those with this status.
    pub status: Option<String>,
    /// Only those in whose query this stands, whatever the case.
    pub query: Option<String>,
    /// Only those that began at this moment or later.
    pub since: Option<Timestamp>,
}

impl Default for SessionFilter {
    fn default() -> Self {
        Self {
            most: 100,
            status: None,
            query: None,
            since: None,
        }
    }
}

impl SessionFilter {
    /// All sessions, 100 at most.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many at most.
    #[must_use]
    pub fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Only those with this status.
    #[must_use]
    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Only those in whose query this stands, whatever the case.
    #[must_use]
    pub fn query(mut self, text: impl Into<String>) -> Self {
        self.query = Some(text.into());
        self
    }

    /// Only those that began at this moment or later.
    #[must_use]
    pub fn since(mut self, at: Timestamp) -> Self {
        self.since = Some(at);
        self
    }

    fn takes(&self, info: &SessionInfo) -> bool {
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

/// Keeps a session file of each run that it follows.
///
/// ```
/// # use levity_dag::Team;
/// # use levity_observe::SessionFolder;
/// let team = Team::builder().observe(SessionFolder::open("sessions"));
/// ```
///
/// A resumed run continues its file, and a fork begins one with what it took over.
impl Observe for SessionFolder {
    fn observe(&self, run: &RunId) -> Observer {
        let writer = self.writer(run);
        let (earlier, flushed) = (writer.clone(), writer.clone());
        Observer::new(move |event| writer.apply(event))
            .earlier(move |events| earlier.begin_with(events))
            // A failed write ends no run: the writer reports it, and the journal has everything.
            .after(async move { _ = flushed.flush().await })
    }
}

impl SessionFolder {
    /// The sessions in this folder. It is made when the first is written.
    pub fn open(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().into(),
            max_bytes: Session::MAX_BYTES,
            on_error: None,
        }
    }

    /// How many bytes a session may have; [`Session::MAX_BYTES`] by default.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Tells each write that fails, on the thread that writes. The run goes on all the same.
    #[must_use]
    pub fn on_error(mut self, tell: impl Fn(&SessionError) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(tell));
        self
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn largest(&self) -> u64 {
        self.max_bytes
    }

    /// Where the session of a run stands that began at this moment.
    pub fn path(&self, run: &RunId, began: Timestamp) -> PathBuf {
        let moment = began.to_string();
        let day = moment.split('T').next().unwrap_or_default();
        let folder = day
            .split('-')
            .fold(self.dir.to_path_buf(), |path, part| path.join(part));
        folder.join(file_name(run.as_str()))
    }

    /// Keeps the session of a run up to date.
    pub fn writer(&self, run: &RunId) -> SessionWriter {
        SessionWriter::new(self.clone(), run.clone(), self.on_error.clone())
    }

    /// The sessions, the newest first. Of each file only the beginning is read, unless another
    /// program has put its attributes into another order. A file that cannot be read is listed,
    /// with the reason.
    ///
    /// # Errors
    /// When the folder cannot be read. One that is not there has no sessions.
    pub async fn list(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>, SessionError> {
        let (sessions, filter) = (self.clone(), filter.clone());
        aside(move || sessions.list_now(&filter))
            .await
            .map_err(|problem| problem.at(&self.dir))
    }

    /// The file of the session with this id, or of the only one whose id begins so.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub async fn find(&self, id: &str) -> Result<PathBuf, SessionError> {
        let (sessions, name) = (self.clone(), id.to_owned());
        aside(move || sessions.find_now(&name))
            .await
            .map_err(|problem| problem.at(&self.dir))
    }

    /// Reads the session with this id, or the only one whose id begins so.
    ///
    /// # Errors
    /// When there is none, or more than one, or its file is none.
    pub async fn load(&self, id: &str) -> Result<Session, SessionError> {
        let path = self.find(id).await?;
        Session::load_up_to(path, self.max_bytes).await
    }

    fn list_now(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>, SessionProblem> {
        let mut found: Vec<SessionInfo> = Vec::new();
        for day in self.days()? {
            if found.len() >= filter.most {
                break;
            }
            let infos = files(&day)?
                .into_iter()
                .map(|(id, path)| info(id, path, self.max_bytes));
            let mut of_day: Vec<SessionInfo> = infos.filter(|info| filter.takes(info)).collect();
            of_day.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
            found.extend(of_day);
        }
        found.truncate(filter.most);
        Ok(found)
    }

    /// The file of this run.
    pub(super) fn find_exactly(&self, run: &RunId) -> Result<PathBuf, SessionProblem> {
        let name = file_name(run.as_str());
        let there = self
            .days()?
            .into_iter()
            .map(|day| day.join(&name))
            .find(|path| path.is_file());
        there.ok_or_else(|| SessionProblem::Unknown(shortened(run.as_str())))
    }

    fn find_now(&self, id: &str) -> Result<PathBuf, SessionProblem> {
        let exact = file_name(id);
        let begin = exact.strip_suffix(END).unwrap_or(&exact);
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
            0 => Err(SessionProblem::Unknown(shortened(id))),
            1 => Ok(found.swap_remove(0).1),
            _ => {
                let ids = found.into_iter().take(5).map(|(id, _)| id).collect();
                Err(SessionProblem::Ambiguous {
                    begin: shortened(id),
                    ids,
                })
            }
        }
    }

    /// The folders of the days, the newest first.
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

const BEGIN: &str = "session_";
const END: &str = ".json";

/// What stands in a folder; nothing when it is no folder, or not there.
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

/// The files of sessions in a folder, with their ids as the names have them.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, SessionProblem> {
    let id = |name: &str| Some(name.strip_prefix(BEGIN)?.strip_suffix(END)?.to_owned());
    Ok(names(folder)?
        .into_iter()
        .filter_map(|name| Some((id(&name)?, folder.join(name))))
        .collect())
}

fn info(id: String, path: PathBuf, most: u64) -> SessionInfo {
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
    match Head::read(&info.path, most) {
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

/// How many bytes of an id stand in a file's name.
const LONG: usize = 150;

/// The name of a session's file. Letters, digits, `-`, `_` and `.` stand for themselves, other
/// bytes as `%` and two digits; of a long id, the beginning and a number that is made of all of it.
pub(super) fn file_name(id: &str) -> String {
    let mut name = String::from(BEGIN);
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
    if name.len() > LONG {
        // FNV-1a: the same in every release of everything.
        let sum = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        name.truncate(LONG);
        let _ = write!(name, "~{sum:016x}");
    }
    name + END
}

fn shortened(id: &str) -> String {
    crate::view::one_line(id, 80)
}
