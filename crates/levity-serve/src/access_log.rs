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
#[derive(Clone)]
pub struct AccessLog(Arc<Sink>);

enum Sink {
    File(Mutex<RotatingFile>),
    Function(Box<dyn Fn(&AccessRecord) + Send + Sync>),
}

impl AccessLog {
    /// The size at which a log file is rotated to `FILE.1`, replacing the previous one: 16 MiB.
    pub const MAX_FILE_BYTES: u64 = 16 << 20;

    /// Creates a log that calls a function with each record. The function must not block.
    pub fn new(write: impl Fn(&AccessRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Sink::Function(Box::new(write))))
    }

    /// Creates a log that appends JSON lines to a file that only its owner can read. At most two
    /// files exist: the file and `FILE.1`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self> {
        Self::file_with_limit(path, Self::MAX_FILE_BYTES)
    }

    /// Same as [`file`](Self::file), with another size limit.
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

    pub(crate) fn write(&self, record: &AccessRecord) {
        match &*self.0 {
            Sink::Function(write) => write(record),
            Sink::File(file) => {
                // A failing log must not fail the request.
                let _ = file
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .write(&record.line());
            }
        }
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLog(..)")
    }
}

struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
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
        })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let length = line.len() as u64 + 1;
        if self.bytes > 0 && self.bytes + length > self.max_bytes {
            let mut rotated = self.path.clone().into_os_string();
            rotated.push(".1");
            fs::rename(&self.path, rotated)?;
            self.file = open_for_append(&self.path)?;
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

    #[test]
    fn access_log_rotation_keeps_at_most_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::file_with_limit(&path, 1_000).unwrap();
        let record = AccessRecord {
            at: Timestamp::from_millis(0),
            address: Some("127.0.0.1".parse().unwrap()),
            token: Some("ci".to_owned()),
            authenticated: true,
            method: "GET".to_owned(),
            path: "/v1/runs\n\"x\"".to_owned(),
            status: 200,
            duration: Duration::from_millis(3),
        };
        for _ in 0..100 {
            log.write(&record);
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
}
