//! The storage of logins in one file.
//!
//! Changes read, modify and replace the whole file under the lock `FILE.lock`, so concurrent
//! processes lose no login of each other. Readers need no lock, because a replacement is atomic.
//! Renewals have one lock file per login, named by a hash of its key, so two servers do not wait
//! for each other. The system releases both kinds of locks when a process ends.

use std::collections::BTreeMap;
use std::fs::{self, TryLockError};
use std::io::{self};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use levity_system::{Replace, files};

use super::{TokenLock, TokenStore};

/// A store of logins in one file that only its owner can read.
///
/// The file is replaced as a whole, so no reader sees a partial one, and it has the mode 0600.
/// Processes that share it do not renew a login at the same time. For that, small lock files are
/// next to it, which stay empty and may be removed while no process runs.
///
/// The file is not encrypted. A damaged file is an error that asks to remove it, and never silently
/// replaced.
///
/// ```
/// use levity_mcp::{FileTokenStore, TokenStore as _};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let folder = tempfile::tempdir()?;
/// let (one, other) = (
///     FileTokenStore::new(folder.path().join("tokens.json")),
///     FileTokenStore::new(folder.path().join("tokens.json")),
/// );
/// one.save("key", "login").await?;
/// assert_eq!(other.load("key").await?.as_deref(), Some("login"));
///
/// let lock = one.try_lock("key").await?;
/// assert!(lock.is_some() && other.try_lock("key").await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileTokenStore {
    path: PathBuf,
}

impl FileTokenStore {
    /// Creates a store in this file. The file and its folder are created when the first login is
    /// saved.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Runs blocking work on the file in tokio's pool of blocking threads.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || work(&path))
            .await
            .map_err(io::Error::other)?
    }
}

#[async_trait]
impl TokenStore for FileTokenStore {
    async fn load(&self, key: &str) -> io::Result<Option<String>> {
        let key = key.to_owned();
        self.run(move |path| Ok(read(path)?.remove(&key))).await
    }

    async fn save(&self, key: &str, login: &str) -> io::Result<()> {
        let (key, login) = (key.to_owned(), login.to_owned());
        self.run(move |path| {
            change(path, |logins| {
                logins.insert(key, login);
            })
        })
        .await
    }

    async fn remove(&self, key: &str) -> io::Result<()> {
        let key = key.to_owned();
        self.run(move |path| {
            change(path, |logins| {
                logins.remove(&key);
            })
        })
        .await
    }

    async fn try_lock(&self, key: &str) -> io::Result<Option<TokenLock>> {
        let name = format!("{:016x}.lock", hash(key));
        self.run(move |path| {
            create_parent(path)?;
            let file = files::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(with_suffix(path, &name))?;
            match file.try_lock() {
                Ok(()) => Ok(Some(TokenLock::new(file))),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        })
        .await
    }
}

/// Reads all logins; a missing file has none.
fn read(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    // The parser's error would reveal a part of the file.
    serde_json::from_slice(&text).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the token file is damaged; remove it",
        )
    })
}

/// Reads, changes and replaces the file under a lock against other processes.
fn change(
    path: &Path,
    change_logins: impl FnOnce(&mut BTreeMap<String, String>),
) -> io::Result<()> {
    create_parent(path)?;
    let lock = files::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(with_suffix(path, "lock"))?;
    lock.lock()?;
    let mut logins = read(path)?;
    change_logins(&mut logins);
    Replace::new(path)
        .synced()
        .write(&serde_json::to_vec(&logins)?)
}

/// Creates the folder of the file, if it does not exist.
fn create_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => files::make_dir(folder),
        _ => Ok(()),
    }
}

/// Returns the path of a lock file next to the store: `tokens.json.lock`.
fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Computes FNV-1a, which is the same in every process and every version.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
