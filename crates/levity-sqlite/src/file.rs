//! Opening, creating and verifying a file.
//!
//! Verification changes nothing: a file that is rejected is the same, byte for byte, as before.
//! Only a file that passed all checks is switched to the write-ahead log.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use crate::open::{connect, create, foreign_object, is_busy, marks, peek, use_log};
use crate::{Error, ErrorKind};

/// The format of a file of levity.
///
/// Keep the value in a `static`: files refer to it.
///
/// ```
/// use levity_sqlite::{Format, in_memory};
///
/// static NOTES: Format = Format {
///     what: "notes",
///     application: 0x6e6f_7465,
///     version: 1,
///     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
///     earlier: &[],
///     columns: &["SELECT text FROM notes"],
///     log_pages: 1_000,
///     overwrites: true,
/// };
/// let notes = in_memory(&NOTES)?;
/// assert_eq!(notes.execute("INSERT INTO notes VALUES ('hello')", [])?, 1);
/// # Ok::<(), rusqlite::Error>(())
/// ```
#[derive(Debug)]
pub struct Format {
    /// The content in one word, for errors: `journal`.
    pub what: &'static str,
    /// The application id in the header that distinguishes it from files of other programs.
    pub application: i32,
    /// The version of the format that is written. Newer versions are rejected.
    pub version: i32,
    /// The SQL that creates the tables.
    pub tables: &'static str,
    /// The SQL of earlier versions whose files are accepted. A file with any other object is
    /// rejected.
    pub earlier: &'static [&'static str],
    /// Queries that fail unless every table has its columns.
    pub columns: &'static [&'static str],
    /// The maximum number of pages of the write-ahead log before a checkpoint. A larger log moves a
    /// page that is written many times only once.
    pub log_pages: i64,
    /// `true` if removed data is overwritten with zeros.
    pub overwrites: bool,
}

/// A file that is verified to be one of levity.
///
/// It holds no connection. Clones refer to the same file, and each [`connect`](Self::connect)
/// checks that the file was not replaced.
///
/// ```
/// use levity_sqlite::SharedFile;
/// # use levity_sqlite::Format;
/// # static NOTES: Format = Format {
/// #     what: "notes",
/// #     application: 0x6e6f_7465,
/// #     version: 1,
/// #     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
/// #     earlier: &[],
/// #     columns: &["SELECT text FROM notes"],
/// #     log_pages: 1_000,
/// #     overwrites: true,
/// # };
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("notes.db");
/// let (file, first) = SharedFile::open_or_create(&path, &NOTES)?; // `NOTES` is the format
/// first.execute("INSERT INTO notes VALUES ('hello')", [])?;
/// let second = file.connect()?;
/// let text: String = second.query_row("SELECT text FROM notes", [], |row| row.get(0))?;
/// assert_eq!(text, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedFile {
    path: PathBuf,
    /// The identity of the file, even if another one replaces it; `None` if unknown.
    identity: Option<(u64, u64)>,
    format: &'static Format,
}

impl SharedFile {
    /// Creates the file if there is none, and verifies that it is one of levity.
    ///
    /// # Errors
    /// Returns an error if it cannot be created or opened, or is not a file of levity; in that case
    /// it is left unchanged.
    pub fn open_or_create(
        path: &Path,
        format: &'static Format,
    ) -> Result<(Self, Connection), Error> {
        // Use the absolute path, so that no name has a special meaning to SQLite and the program
        // may change its working directory.
        let path = std::path::absolute(path).map_err(|error| {
            let message = format!(
                "`{}` is not a valid path of a {}",
                path.display(),
                format.what
            );
            Error::new(ErrorKind::Refused, message).with_source(error)
        })?;
        let mut file = Self {
            path,
            identity: None,
            format,
        };
        file.resolve_links()?;
        file.check()?;
        file.make_private()?;
        let mut connection = file.open(true)?;
        // Its creator may have been killed halfway, and SQLite has rolled that back by now.
        if marks(&connection).map_err(|error| file.failed("read", error))? == (0, 0) {
            create(&mut connection, format).map_err(|error| file.failed("created", error))?;
        }
        file.verify(&connection)?;
        file.resolve_links()?;
        file.identity = identity(&file.path);
        Ok((file, connection))
    }

    /// Resolves the links of an existing path, so that all names of the file share the same
    /// companion files. SQLite resolves them as well, so the checks must inspect the same files.
    fn resolve_links(&mut self) -> Result<(), Error> {
        if cfg!(unix) && fs::metadata(&self.path).is_ok() {
            self.path =
                fs::canonicalize(&self.path).map_err(|error| self.failed_io("opened", error))?;
        }
        Ok(())
    }

    /// Creates a missing file as private to its owner. SQLite gives its companion files the same
    /// mode. Its own error for a file that it cannot create would not name the reason.
    fn make_private(&self) -> Result<(), Error> {
        if fs::metadata(&self.path).is_ok() {
            return Ok(());
        }
        let mut options = fs::OpenOptions::new();
        // Do not open a file that another process created meanwhile: closing it would release this
        // process's locks on it.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(self.failed_io("created", error))
            }
            _ => Ok(()),
        }
    }

    /// Returns a warning if other users can read the file or its companions. It changes nothing,
    /// because the file may be shared on purpose.
    #[cfg(unix)]
    pub fn exposure_warning(&self) -> Option<String> {
        use std::os::unix::fs::PermissionsExt as _;
        let mode =
            |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        let files = [
            self.path.clone(),
            self.beside("-wal"),
            self.beside("-journal"),
        ];
        let open = files.iter().find(|file| mode(file) & 0o044 != 0)?;
        // A user without access to a folder cannot reach files below it.
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
            "other users of this system can read `{}`, which contains conversations; `chmod go-rwx \
                '{quoted}'*` keeps them out",
            open.display()
        ))
    }

    /// Returns a warning if other users can read the file, as far as that is known.
    #[cfg(not(unix))]
    pub fn exposure_warning(&self) -> Option<String> {
        None
    }

    /// Opens another connection to the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or another file has replaced it.
    pub fn connect(&self) -> Result<Connection, Error> {
        self.check_rollback()?;
        let connection = self.open(false)?;
        self.check_place()?;
        Ok(connection)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the companion file with this suffix.
    ///
    /// ```
    /// use levity_sqlite::SharedFile;
    /// # use levity_sqlite::Format;
    /// # static NOTES: Format = Format {
    /// #     what: "notes",
    /// #     application: 0x6e6f_7465,
    /// #     version: 1,
    /// #     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
    /// #     earlier: &[],
    /// #     columns: &["SELECT text FROM notes"],
    /// #     log_pages: 1_000,
    /// #     overwrites: true,
    /// # };
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("notes.db");
    /// let (file, _connection) = SharedFile::open_or_create(&path, &NOTES)?;
    /// assert!(file.beside("-wal").ends_with("notes.db-wal"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn beside(&self, ending: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(ending);
        name.into()
    }

    /// Checks that the file is still in its place: data written to a removed file is lost.
    ///
    /// # Errors
    /// Returns an error if it is not.
    ///
    /// ```
    /// use levity_sqlite::SharedFile;
    /// # use levity_sqlite::Format;
    /// # static NOTES: Format = Format {
    /// #     what: "notes",
    /// #     application: 0x6e6f_7465,
    /// #     version: 1,
    /// #     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
    /// #     earlier: &[],
    /// #     columns: &["SELECT text FROM notes"],
    /// #     log_pages: 1_000,
    /// #     overwrites: true,
    /// # };
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("notes.db");
    /// let (file, _connection) = SharedFile::open_or_create(&path, &NOTES)?;
    /// assert!(file.check_place().is_ok());
    /// std::fs::rename(&path, folder.path().join("moved.db"))?;
    /// # #[cfg(unix)]
    /// assert!(file.check_place().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_place(&self) -> Result<(), Error> {
        if self.identity.is_none() || self.identity == identity(&self.path) {
            return Ok(());
        }
        let message = format!(
            "the {} was removed or replaced by another file; open it again",
            self.name()
        );
        Err(Error::new(ErrorKind::Io, message))
    }

    fn open(&self, create: bool) -> Result<Connection, Error> {
        connect(&self.path, create, self.format).map_err(|error| self.failed("opened", error))
    }

    /// Inspects the existing file without changing it.
    fn check(&self) -> Result<(), Error> {
        match fs::metadata(&self.path) {
            Ok(metadata) if !metadata.is_file() => Err(Error::new(
                ErrorKind::Refused,
                format!("the {} is not a regular file", self.name()),
            )),
            Ok(metadata) if metadata.len() == 0 => Ok(()),
            Ok(_) => self.check_marks(),
            // An untrusted folder could redirect the creation of a file anywhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_symlink() => {
                let what =
                    "is a symbolic link to a missing file; create that file, or use its path";
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
            // Its creator may have been killed halfway or be at work. SQLite completes the creation
            // or rolls it back.
            Ok(((0, 0), true)) => Ok(()),
            Ok((marks, _)) => self
                .check_application(marks)
                .and_then(|()| self.check_rollback()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                Err(self.damaged("it is not an SQLite file; choose another path"))
            }
            Err(error) => Err(self.failed("read", error)),
        }
    }

    /// Rejects a rollback journal beside the file. No file of levity has one, and SQLite would
    /// apply its pages to the file, or truncate the file to the length in it.
    fn check_rollback(&self) -> Result<(), Error> {
        let journal = self.beside("-journal");
        if fs::symlink_metadata(&journal).is_err() {
            return Ok(());
        }
        let what = "is beside it, which levity does not create and SQLite would apply to it";
        let message = format!(
            "the {} is not opened: `{}` {what}; move that file away",
            self.name(),
            journal.display()
        );
        Err(Error::new(ErrorKind::Refused, message))
    }

    fn check_application(&self, marks: (i32, i32)) -> Result<(), Error> {
        let (application, version) = marks;
        if application != self.format.application || version < 1 {
            return Err(self.damaged("it belongs to another program"));
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
        self.check_application(marks(connection).map_err(unread)?)?;
        // Before any other query: a foreign view, virtual table or column would answer it.
        if let Some(name) = foreign_object(connection, self.format).map_err(unread)? {
            let name: String = name.escape_debug().take(100).collect();
            return Err(self.damaged(&format!(
                "`{name}` differs from the object that levity creates"
            )));
        }
        for columns in self.format.columns {
            if let Err(error) = connection.prepare(columns) {
                let missing = error
                    .sqlite_error_code()
                    .is_none_or(|code| code == ErrorCode::Unknown);
                let damaged = || self.damaged("a table lacks a column");
                return Err(if missing { damaged() } else { unread(error) });
            }
        }
        // This is last, because a file is changed only after it is fully verified.
        use_log(connection).map_err(|error| self.failed("opened", error))
    }

    /// Creates the error of a failed SQLite operation on the file.
    pub fn failed(&self, what: &str, error: rusqlite::Error) -> Error {
        let name = self.name();
        if let rusqlite::Error::IntegralValueOutOfRange(_, number) = error {
            let what = format!("the number {number} is out of range");
            return self.damaged(&what).with_source(error);
        }
        let (kind, message) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                return self.damaged("SQLite reports corruption").with_source(error);
            }
            Some(ErrorCode::TooBig) => (
                ErrorKind::TooBig,
                format!("a text is too long for the {name}"),
            ),
            _ if is_busy(&error) => (
                ErrorKind::Busy,
                format!("the {name} could not be {what}: another program has locked it"),
            ),
            // The text of SQLite repeats this.
            Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull) => {
                let message = format!(
                    "the {name} could not be {what}: the disk reports an error or is full; check \
                     the free space"
                );
                return Error::new(ErrorKind::Io, message);
            }
            _ => (ErrorKind::Io, format!("the {name} could not be {what}")),
        };
        Error::new(kind, message).with_source(error)
    }

    /// Creates the error of a failed system call on the file.
    pub fn failed_io(&self, what: &str, error: io::Error) -> Error {
        Error::new(
            ErrorKind::Io,
            format!("the {} could not be {what}", self.name()),
        )
        .with_source(error)
    }

    /// Creates the error of a damaged file.
    pub fn damaged(&self, what: &str) -> Error {
        let message = format!(
            "the {} cannot be read and was left unchanged: {what}",
            self.name()
        );
        Error::new(ErrorKind::Damaged, message)
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        format!("{} `{}`", self.format.what, name.to_string_lossy())
    }
}

/// Returns the device and inode of a file.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path)
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}
