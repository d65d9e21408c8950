use std::collections::BTreeMap;
use std::fs::{self, TryLockError};
use std::io::{self};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use levity_system::{Replace, files};

use super::{TokenLock, TokenStore};

/// Logins in one file that only its owner can read.
///
/// The file is replaced as a whole, so nobody reads half of it, and it is made with mode 0600.
/// Processes that share it do not renew a login at the same time: small lock files lie beside it,
/// which stay empty and may be removed when nobody runs.
#[derive(Clone, Debug)]
pub struct FileTokens {
    path: PathBuf,
}

impl FileTokens {
    /// Logins in this file, which is made, with the folder it is in, when the first one is saved.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

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
impl TokenStore for FileTokens {
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
            folder(path)?;
            let file = files::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(beside(path, &name))?;
            match file.try_lock() {
                Ok(()) => Ok(Some(TokenLock::new(file))),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        })
        .await
    }
}

fn read(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    // The parser's own words would show a piece of the file.
    serde_json::from_slice(&text).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the file of tokens is damaged; remove it",
        )
    })
}

/// Reads, changes and replaces the file while no other process does.
fn change(path: &Path, what: impl FnOnce(&mut BTreeMap<String, String>)) -> io::Result<()> {
    folder(path)?;
    let lock = files::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(beside(path, "lock"))?;
    lock.lock()?;
    let mut logins = read(path)?;
    what(&mut logins);
    Replace::new(path)
        .synced()
        .write(&serde_json::to_vec(&logins)?)
}

fn folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => files::make_dir(folder),
        _ => Ok(()),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// FNV-1a: the same in every process and every version.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
