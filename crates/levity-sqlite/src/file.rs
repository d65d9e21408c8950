use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use crate::open::{connect, create, foreign_object, is_busy, marks, peek, use_log};
use crate::{Error, ErrorKind};

/// What a file of ours is like.
#[derive(Debug)]
pub struct Format {
    /// What is in it, in one word, for errors: `journal`.
    pub what: &'static str,
    /// What tells it from the files of other programs: four letters in its header.
    pub application: i32,
    /// The version of the format that is written. Newer ones are refused.
    pub version: i32,
    /// What makes its tables.
    pub tables: &'static str,
    /// What made the tables in earlier versions whose files are read. A file with any other object
    /// is refused.
    pub earlier: &'static [&'static str],
    /// Queries that fail unless every table has its columns.
    pub columns: &'static [&'static str],
    /// How many pages the log beside the file may have before they are moved into it. The more
    /// there are, the more often a page is written many times and moved once.
    pub log_pages: i64,
    /// Whether what is removed is overwritten, not only forgotten.
    pub overwrites: bool,
}

/// A file that is known to be ours.
#[derive(Clone, Debug)]
pub struct SharedFile {
    path: PathBuf,
    /// Which file that is, whatever else may come to stand there; `None` where nobody can say.
    identity: Option<(u64, u64)>,
    format: &'static Format,
}

impl SharedFile {
    /// Makes the file if there is none, and makes sure that it is one of ours.
    ///
    /// # Errors
    /// When it cannot be made or opened, and when it is none of ours; then nothing of it is
    /// changed.
    pub fn make(path: &Path, format: &'static Format) -> Result<(Self, Connection), Error> {
        // The path from the root: so no name means something special to SQLite, and the program may
        // change its folder.
        let path = std::path::absolute(path).map_err(|error| {
            let message = format!("`{}` is no path of a {}", path.display(), format.what);
            Error::new(ErrorKind::Refused, message).with_source(error)
        })?;
        let mut file = Self {
            path,
            identity: None,
            format,
        };
        file.check()?;
        file.make_private();
        let mut connection = file.open(true)?;
        // Whoever made it may have been killed half-way, and SQLite has taken that back by now.
        if marks(&connection).map_err(|error| file.failed("read", error))? == (0, 0) {
            create(&mut connection, format).map_err(|error| file.failed("made", error))?;
        }
        file.verify(&connection)?;
        if cfg!(unix) {
            // By whatever name somebody opens it, what stands beside it is in one place.
            file.path =
                fs::canonicalize(&file.path).map_err(|error| file.failed_io("opened", error))?;
        }
        file.identity = identity(&file.path);
        Ok((file, connection))
    }

    /// Makes a file that is not there, so that only its owner can read it. SQLite gives those
    /// beside it the same mode. Where it cannot be made, SQLite says why.
    fn make_private(&self) {
        if fs::metadata(&self.path).is_ok() {
            return;
        }
        let mut options = fs::OpenOptions::new();
        // One that others have made meanwhile is not opened: closing it would take this process's
        // locks on it away.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        drop(options.open(&self.path));
    }

    /// A warning, if other users of the system can read the file or what is beside it. Nothing is
    /// changed: somebody may share it on purpose.
    #[cfg(unix)]
    pub fn exposed(&self) -> Option<String> {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| fs::metadata(path).map_or(0, |there| there.permissions().mode());
        let files = [
            self.path.clone(),
            self.beside("-wal"),
            self.beside("-journal"),
        ];
        let open = files.iter().find(|file| mode(file) & 0o044 != 0)?;
        // Whoever may not pass a folder reaches nothing below it.
        if self
            .path
            .ancestors()
            .skip(1)
            .any(|above| mode(above) & 0o011 == 0)
        {
            return None;
        }
        let quoted = self.path.display().to_string().replace('\'', "'\\''");
        Some(format!(
            "other users of this system can read `{}`, which holds what was said; `chmod go-rwx \
                '{quoted}'*` keeps them out",
            open.display()
        ))
    }

    /// A warning, if other users of the system can read the file, where that can be told.
    #[cfg(not(unix))]
    pub fn exposed(&self) -> Option<String> {
        None
    }

    /// Another connection.
    ///
    /// # Errors
    /// When the file cannot be opened, or another one stands in its place.
    pub fn connect(&self) -> Result<Connection, Error> {
        self.check_rollback()?;
        let connection = self.open(false)?;
        self.check_place()?;
        Ok(connection)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What stands beside it under its name and an ending.
    pub fn beside(&self, ending: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(ending);
        name.into()
    }

    /// Whether the file is still where it was: what is written to one that was taken away is lost.
    ///
    /// # Errors
    /// When it is not.
    pub fn check_place(&self) -> Result<(), Error> {
        if self.identity.is_none() || self.identity == identity(&self.path) {
            return Ok(());
        }
        let message = format!(
            "the {} was removed or replaced by another file; open it anew",
            self.name()
        );
        Err(Error::new(ErrorKind::Io, message))
    }

    fn open(&self, create: bool) -> Result<Connection, Error> {
        connect(&self.path, create, self.format).map_err(|error| self.failed("opened", error))
    }

    /// Looks at what is there in a way that changes nothing, whatever it is.
    fn check(&self) -> Result<(), Error> {
        match fs::metadata(&self.path) {
            Ok(there) if !there.is_file() => Err(Error::new(
                ErrorKind::Refused,
                format!("the {} is not a plain file", self.name()),
            )),
            Ok(there) if there.len() == 0 => Ok(()),
            Ok(_) => self.check_marks(),
            // A folder from elsewhere could have a file made anywhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_symlink() => {
                let what = "is a link to a file that is not there; make that file, or name it";
                Err(Error::new(
                    ErrorKind::Refused,
                    format!("the {} {what}", self.name()),
                ))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed_io("opened", error)),
        }
    }

    fn check_marks(&self) -> Result<(), Error> {
        match peek(&self.path) {
            // Whoever made it may have been killed half-way, or be at it. SQLite ends that or takes
            // it back.
            Ok(((0, 0), true)) => Ok(()),
            Ok((marks, _)) => self.is_ours(marks).and_then(|()| self.check_rollback()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                Err(self.damaged("it is not an SQLite file").with_source(error))
            }
            Err(error) => Err(self.failed("read", error)),
        }
    }

    /// Refuses a rollback journal beside the file. No file of ours ever has one, and SQLite would
    /// put its pages into the file, or cut the file to the length that it names.
    fn check_rollback(&self) -> Result<(), Error> {
        let journal = self.beside("-journal");
        if fs::symlink_metadata(&journal).is_err() {
            return Ok(());
        }
        let what = "stands beside it, which levity does not make and SQLite would apply to it";
        let message = format!(
            "the {} is not opened: `{}` {what}; move that file away",
            self.name(),
            journal.display()
        );
        Err(Error::new(ErrorKind::Refused, message))
    }

    fn is_ours(&self, marks: (i32, i32)) -> Result<(), Error> {
        let (application, version) = marks;
        if application != self.format.application || version < 1 {
            return Err(self.damaged("it is another program's"));
        }
        if version > self.format.version {
            let (name, known) = (self.name(), self.format.version);
            let message = format!(
                "the {name} has format {version}, and this version reads up to {known}; use a \
                    newer one"
            );
            return Err(Error::new(ErrorKind::Version, message));
        }
        Ok(())
    }

    fn verify(&self, connection: &Connection) -> Result<(), Error> {
        let unread = |error| self.failed("read", error);
        self.is_ours(marks(connection).map_err(unread)?)?;
        // Before any other query: a view, a virtual table or a column of somebody else would answer
        // it.
        if let Some(name) = foreign_object(connection, self.format).map_err(unread)? {
            let name: String = name.escape_debug().take(100).collect();
            return Err(self.damaged(&format!("`{name}` is not as levity makes it")));
        }
        for columns in self.format.columns {
            if let Err(error) = connection.prepare(columns) {
                let missing = error
                    .sqlite_error_code()
                    .is_none_or(|code| code == ErrorCode::Unknown);
                let damaged = || self.damaged("a table is not as it should be");
                return Err(if missing { damaged() } else { unread(error) });
            }
        }
        // A file is changed only when it is known to be whole, so this comes last.
        use_log(connection).map_err(|error| self.failed("opened", error))
    }

    /// SQLite could not do something with the file.
    pub fn failed(&self, what: &str, error: rusqlite::Error) -> Error {
        let name = self.name();
        let (kind, message) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                return self.damaged("SQLite finds flaws in it").with_source(error);
            }
            Some(ErrorCode::TooBig) => (
                ErrorKind::TooBig,
                format!("a text is too long for the {name}"),
            ),
            _ if is_busy(&error) => (
                ErrorKind::Busy,
                format!("the {name} could not be {what}: another program keeps it busy"),
            ),
            _ => (ErrorKind::Io, format!("the {name} could not be {what}")),
        };
        Error::new(kind, message).with_source(error)
    }

    /// The system could not do something with the file.
    pub fn failed_io(&self, what: &str, error: io::Error) -> Error {
        Error::new(
            ErrorKind::Io,
            format!("the {} could not be {what}", self.name()),
        )
        .with_source(error)
    }

    /// The file has flaws.
    pub fn damaged(&self, what: &str) -> Error {
        let message = format!(
            "the {} cannot be read and is left as it is: {what}",
            self.name()
        );
        Error::new(ErrorKind::Damaged, message)
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        format!("{} `{}`", self.format.what, name.to_string_lossy())
    }
}

/// What tells a file from others.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path)
        .ok()
        .map(|there| (there.dev(), there.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}
