use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use super::{TokenLock, TokenStore};

/// Logins in one file that only its owner can read.
///
/// The file is replaced as a whole, so nobody reads half of it, and it is made with mode 0600. Processes that share it do not renew
/// a login at the same time: small lock files lie beside it, which stay empty and may be removed when nobody runs.
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
        tokio::task::spawn_blocking(move || work(&path)).await.map_err(io::Error::other)?
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
            let file = private(&beside(path, &name), OpenOptions::new().create(true).truncate(false))?;
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
    serde_json::from_slice(&text)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file of tokens is damaged; remove it"))
}

/// Reads, changes and replaces the file while no other process does.
fn change(path: &Path, what: impl FnOnce(&mut BTreeMap<String, String>)) -> io::Result<()> {
    folder(path)?;
    let lock = private(&beside(path, "lock"), OpenOptions::new().create(true).truncate(false))?;
    lock.lock()?;
    let mut logins = read(path)?;
    what(&mut logins);
    replace(path, &serde_json::to_vec(&logins)?)
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = beside(path, &format!("{}-{count}.new", std::process::id()));
    // What a process of the same number left behind may be readable by others.
    let _ = fs::remove_file(&fresh);
    let written = (|| {
        let mut file = private(&fresh, OpenOptions::new().create_new(true))?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Opens a file that is made so that only its owner can read it.
fn private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.write(true).open(path)
}

fn folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            let mut builder = fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.recursive(true).create(folder)
        }
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
    key.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
