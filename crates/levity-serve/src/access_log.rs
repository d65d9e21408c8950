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

/// A request that was answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccessRecord {
    /// When the request came.
    pub at: Timestamp,
    /// Where the client is.
    pub address: Option<IpAddr>,
    /// The name of the client's token; `None` for the owner's and for clients without a right one.
    pub token: Option<String>,
    /// Whether the client showed a right token.
    pub authenticated: bool,
    /// The method.
    pub method: String,
    /// The path without its query, at most 256 characters of it.
    pub path: String,
    /// The status of the answer; 499 when the client left before it.
    pub status: u16,
    /// How long the answer took to begin.
    pub took: Duration,
}

impl AccessRecord {
    /// The record as one line of JSON.
    pub fn line(&self) -> String {
        json!({
            "at": self.at.to_string(),
            "address": self.address.map(|address| address.to_string()),
            "token": self.token,
            "authenticated": self.authenticated,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        })
        .to_string()
    }
}

/// Writes a line for each request: who, what, status and duration. No token, query, header or body
/// is in it.
#[derive(Clone)]
pub struct AccessLog(Arc<Sink>);

enum Sink {
    File(Mutex<Rotated>),
    Function(Box<dyn Fn(&AccessRecord) + Send + Sync>),
}

impl AccessLog {
    /// How large a file becomes before it is put aside as `FILE.1`, in place of the one before it:
    /// 16 MiB.
    pub const LARGEST_FILE: u64 = 16 << 20;

    /// Calls a function with each record; it must not block.
    pub fn new(write: impl Fn(&AccessRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Sink::Function(Box::new(write))))
    }

    /// Appends JSON lines to a file, for its owner alone. The file and `FILE.1` are all that is
    /// kept.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self> {
        Self::file_up_to(path, Self::LARGEST_FILE)
    }

    /// The same with another size.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn file_up_to(path: impl Into<PathBuf>, bytes: u64) -> Result<Self> {
        let path = path.into();
        let opened = Rotated::open(path.clone(), bytes).map_err(|source| Error::Io {
            what: format!("the access log `{}` cannot be opened", path.display()),
            source,
        })?;
        Ok(Self(Arc::new(Sink::File(Mutex::new(opened)))))
    }

    pub(crate) fn write(&self, record: &AccessRecord) {
        match &*self.0 {
            Sink::Function(write) => write(record),
            Sink::File(file) => {
                // A request is answered all the same where it cannot be noted.
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

struct Rotated {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
}

impl Rotated {
    fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        let file = append(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path,
            file,
            bytes,
            most,
        })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let length = line.len() as u64 + 1;
        if self.bytes > 0 && self.bytes + length > self.most {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            fs::rename(&self.path, aside)?;
            self.file = append(&self.path)?;
            self.bytes = 0;
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.bytes += length;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    open_named(path, options().append(true).create(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn access_log_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mine) = (folder.path().join("access.log"), folder.path().join("mine"));
        fs::write(&mine, "mine").unwrap();
        std::os::unix::fs::symlink(&mine, &path).unwrap();
        let error = AccessLog::file(&path).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("is a link"), "{error}");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    }

    #[test]
    fn access_log_keeps_two_files_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::file_up_to(&path, 1_000).unwrap();
        let record = AccessRecord {
            at: Timestamp::from_millis(0),
            address: Some("127.0.0.1".parse().unwrap()),
            token: Some("ci".to_owned()),
            authenticated: true,
            method: "GET".to_owned(),
            path: "/v1/runs\n\"x\"".to_owned(),
            status: 200,
            took: Duration::from_millis(3),
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
