//! The access log: one record per request, written when the request ends.
//!
//! A record is written on drop, so requests that are cancelled or whose client disconnects are
//! logged as well. Errors of the log file are reported once and do not fail requests: a full disk
//! must not stop the server.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levity_core::Timestamp;
use levity_system::files::{open_named, options};
use serde_json::json;

use crate::error::{Error, Result};

/// A log record of one answered request.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use levity_serve::{AccessControl, AccessLog, Listener, mcp::McpServer};
/// use tokio::{io::{AsyncReadExt as _, AsyncWriteExt as _}, net::TcpStream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let records = Arc::new(Mutex::new(Vec::new()));
/// let sink = records.clone();
/// let log = AccessLog::new(move |record| sink.lock().unwrap().push(record.clone()));
/// let listener = Listener::bind("127.0.0.1:0", AccessControl::open()).await?.access_log(log);
/// let address = listener.address();
/// let server = McpServer::builder("empty", "1.0").build()?;
/// # let client = async {
/// let mut stream = TcpStream::connect(address).await?;
/// stream.write_all(b"GET /no?q=1 HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
/// stream.read_u8().await?;
/// # Ok::<(), std::io::Error>(())
/// # };
/// # tokio::select! { served = server.listen(listener) => served?, asked = client => asked? }
/// let record = records.lock().unwrap()[0].clone();
/// assert_eq!((record.status, record.path.as_str()), (404, "/no"));
/// assert!(record.line().starts_with("{\"at\":"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccessRecord {
    /// The time at which the request arrived.
    pub at: Timestamp,
    /// The IP address of the client, if known.
    pub address: Option<IpAddr>,
    /// The name of the client's token; `None` for the owner and for clients without a valid token.
    pub token: Option<String>,
    /// `true` if the client presented a valid token.
    pub authenticated: bool,
    /// The HTTP method of the request.
    pub method: String,
    /// The path without its query, truncated to 256 characters.
    pub path: String,
    /// The status of the response; 499 if the client disconnected before it.
    pub status: u16,
    /// The time until the response began.
    pub duration: Duration,
}

impl AccessRecord {
    /// Returns the record as one line of JSON.
    ///
    /// The fields are `at`, `address`, `token`, `authenticated`, `method`, `path`, `status` and
    /// `ms`. Unknown values are `null`. JSON escapes control characters, so a client cannot forge a
    /// second line.
    pub fn line(&self) -> String {
        json!({
            "at": self.at.to_string(),
            "address": self.address.map(|address| address.to_string()),
            "token": self.token,
            "authenticated": self.authenticated,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "ms": u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
        })
        .to_string()
    }
}

/// An access log with one record per request: client, method, path, status and duration. It never
/// contains a token, query, header or body.
///
/// ```
/// use levity_core::CancelToken;
/// use levity_serve::{AccessControl, AccessLog, Listener, Token};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let log = AccessLog::file(folder.path().join("access.log"))?;
/// let access = AccessControl::new(Token::generate()?);
/// let listener = Listener::bind("127.0.0.1:0", access).await?.access_log(log);
/// assert!(folder.path().join("access.log").exists());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AccessLog(Arc<Sink>);

/// The destination of records. The file is behind a mutex, because requests end on any thread.
enum Sink {
    File(Mutex<RotatingFile>),
    Function(Box<dyn Fn(&AccessRecord) + Send + Sync>),
}

impl AccessLog {
    /// The size at which a log file is rotated to `FILE.1`, replacing the previous one: 16 MiB.
    pub const MAX_FILE_BYTES: u64 = 16 << 20;

    /// Creates a log that calls a function with each record. The function must not block.
    ///
    /// Use it to send records to your own logging system. The function runs on the thread that
    /// answers the request.
    pub fn new(write: impl Fn(&AccessRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Sink::Function(Box::new(write))))
    }

    /// Creates a log that appends JSON Lines to a file that only its owner can read. At most two
    /// files exist: the file and `FILE.1`.
    ///
    /// An existing file is continued, so a restart loses no records. If the file cannot be rotated,
    /// for example because `FILE.1` is a folder, it grows to twice its limit and is then emptied.
    /// [`Listener::on_notice`](crate::Listener::on_notice) reports such errors.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self> {
        Self::file_with_limit(path, Self::MAX_FILE_BYTES)
    }

    /// Same as [`file`](Self::file), with another size limit.
    ///
    /// ```
    /// use levity_serve::AccessLog;
    /// # let folder = tempfile::tempdir()?;
    /// let log = AccessLog::file_with_limit(folder.path().join("access.log"), 1 << 20)?;
    /// assert_eq!(format!("{log:?}"), "AccessLog(..)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn file_with_limit(path: impl Into<PathBuf>, bytes: u64) -> Result<Self> {
        let path = path.into();
        let opened = RotatingFile::open(path.clone(), bytes).map_err(|source| Error::Io {
            what: format!("cannot open the access log `{}`", path.display()),
            source,
        })?;
        Ok(Self(Arc::new(Sink::File(Mutex::new(opened)))))
    }

    /// Writes a record. A failing log does not fail the request: returns the problem for the
    /// operator when it occurs for the first time.
    pub(crate) fn write(&self, record: &AccessRecord) -> Option<String> {
        match &*self.0 {
            Sink::Function(write) => {
                write(record);
                None
            }
            Sink::File(file) => file
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(&record.line()),
        }
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLog(..)")
    }
}

/// A log file with its current size, which is counted here instead of asking the system for each
/// record.
struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
    /// `true` if the last rotation failed, which was reported.
    rotation_failed: bool,
    /// `true` if a line could not be written, which was reported.
    write_failed: bool,
}

impl RotatingFile {
    fn open(path: PathBuf, max_bytes: u64) -> io::Result<Self> {
        let file = open_for_append(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path,
            file,
            bytes,
            max_bytes,
            rotation_failed: false,
            write_failed: false,
        })
    }

    /// Appends a line. If the line does not fit, the file is first rotated; a single line may be
    /// longer than the limit. Returns a problem that was not reported before.
    fn write(&mut self, line: &str) -> Option<String> {
        let length = line.len() as u64 + 1;
        let mut problem = None;
        if self.bytes > 0 && self.bytes + length > self.max_bytes {
            let rotated = self.rotate();
            let first = !std::mem::replace(&mut self.rotation_failed, rotated.is_err());
            problem = rotated.err().filter(|_| first).map(|error| {
                format!(
                    "cannot rename the access log `{0}` to `{0}.1`: {error}; remove `{0}.1`, or \
                        the log is emptied whenever it reaches {1} bytes",
                    self.path.display(),
                    self.max_bytes.saturating_mul(2),
                )
            });
        }
        if let Err(error) = self.append(line)
            && !std::mem::replace(&mut self.write_failed, true)
        {
            problem = Some(format!(
                "cannot write to the access log `{}`, so requests are missing in it: {error}; \
                    free space on its disk",
                self.path.display()
            ));
        }
        problem
    }

    /// Renames the file to `FILE.1` and opens a new one. After an error, the old file is continued.
    fn rotate(&mut self) -> io::Result<()> {
        let mut rotated = self.path.clone().into_os_string();
        rotated.push(".1");
        match fs::rename(&self.path, rotated) {
            // An earlier rotation renamed the file, but could not open a new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = open_for_append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }

    /// Appends a line to the current file. A file that could not be rotated uses the space of both
    /// files, and then begins again: the newest requests are always in the log.
    fn append(&mut self, line: &str) -> io::Result<()> {
        let length = line.len() as u64 + 1;
        if self.bytes > 0 && self.bytes + length > self.max_bytes.saturating_mul(2) {
            self.file.set_len(0)?;
            self.bytes = 0;
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.bytes += length;
        Ok(())
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    open_named(path, options().append(true).create(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn access_log_file_that_is_a_symlink_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mine) = (folder.path().join("access.log"), folder.path().join("mine"));
        fs::write(&mine, "mine").unwrap();
        std::os::unix::fs::symlink(&mine, &path).unwrap();
        let error = AccessLog::file(&path).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("is a symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    }

    fn record() -> AccessRecord {
        AccessRecord {
            at: Timestamp::from_millis(0),
            address: Some("127.0.0.1".parse().unwrap()),
            token: Some("ci".to_owned()),
            authenticated: true,
            method: "GET".to_owned(),
            path: "/v1/runs\n\"x\"".to_owned(),
            status: 200,
            duration: Duration::from_millis(3),
        }
    }

    #[test]
    fn access_log_rotation_keeps_at_most_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::file_with_limit(&path, 1_000).unwrap();
        for _ in 0..100 {
            log.write(&record());
        }
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        assert_eq!(names, [path.clone(), folder.path().join("access.log.1")]);
        for name in names {
            let text = fs::read_to_string(name).unwrap();
            assert!(text.len() <= 1_000 && !text.is_empty());
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(
                    (line["token"].as_str(), line["status"].as_u64()),
                    (Some("ci"), Some(200))
                );
            }
        }
    }

    #[test]
    fn access_log_that_cannot_rotate_continues_within_twice_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let blocked = folder.path().join("access.log.1");
        fs::create_dir(&blocked).unwrap();
        let log = AccessLog::file_with_limit(&path, 1_000).unwrap();
        let mut problems = Vec::new();
        for status in 0..100 {
            problems.extend(log.write(&AccessRecord { status, ..record() }));
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.len() <= 2_000, "{}", text.len());
            let last: serde_json::Value =
                serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert_eq!(last["status"], status, "each request is logged");
        }
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("access.log.1`"), "{problems:?}");
        // The rotation works again once its place is free.
        fs::remove_dir(&blocked).unwrap();
        for _ in 0..10 {
            assert_eq!(log.write(&record()), None);
        }
        assert!(blocked.is_file() && fs::metadata(&path).unwrap().len() <= 1_000);
    }

    #[test]
    fn access_log_continues_if_its_file_was_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::file_with_limit(&path, 1_000).unwrap();
        log.write(&record());
        fs::remove_file(&path).unwrap();
        for _ in 0..10 {
            log.write(&record());
        }
        assert!(fs::read_to_string(&path).unwrap().contains("/v1/runs"));
    }
}
