use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

mod file;

pub use file::FileTokens;

/// Where logins are kept, each under a key that names a server and its address. Beside a login with
/// the secret of a client, a second key keeps which authorization server the secret belongs to.
///
/// What is kept is text with tokens in it: whoever reads it can act as the person who logged in.
///
/// # Contract
/// - What was saved is what is loaded, by this process or by another one that shares the store.
/// - A login is replaced as a whole: nobody reads half of one.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// The login under this key.
    async fn load(&self, key: &str) -> io::Result<Option<String>>;

    /// Keeps a login, in place of the one before.
    async fn save(&self, key: &str, login: &str) -> io::Result<()>;

    /// Forgets a login; it is no error when there is none.
    async fn remove(&self, key: &str) -> io::Result<()>;

    /// Becomes the only one that renews this login, until the lock is dropped; nothing when
    /// somebody else is. A store that no other process shares has nothing to do.
    async fn try_lock(&self, key: &str) -> io::Result<Option<TokenLock>> {
        let _ = key;
        Ok(Some(TokenLock::new(())))
    }
}

/// The right to renew a login, until it is dropped.
#[must_use]
pub struct TokenLock(#[expect(dead_code, reason = "it is held to be dropped")] Box<dyn Any + Send>);

impl TokenLock {
    /// A lock that ends when `held` is dropped.
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for TokenLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenLock")
    }
}

/// Logins that last as long as the process.
#[derive(Default)]
pub struct MemoryTokens(Mutex<BTreeMap<String, String>>);

impl MemoryTokens {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, what: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl TokenStore for MemoryTokens {
    async fn load(&self, key: &str) -> io::Result<Option<String>> {
        Ok(self.with(|logins| logins.get(key).cloned()))
    }

    async fn save(&self, key: &str, login: &str) -> io::Result<()> {
        self.with(|logins| logins.insert(key.to_owned(), login.to_owned()));
        Ok(())
    }

    async fn remove(&self, key: &str) -> io::Result<()> {
        self.with(|logins| logins.remove(key));
        Ok(())
    }
}

impl fmt::Debug for MemoryTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryTokens")
    }
}

// One store for several servers, and for a test that looks into it.
#[async_trait]
impl<T: TokenStore + ?Sized> TokenStore for std::sync::Arc<T> {
    async fn load(&self, key: &str) -> io::Result<Option<String>> {
        (**self).load(key).await
    }

    async fn save(&self, key: &str, login: &str) -> io::Result<()> {
        (**self).save(key, login).await
    }

    async fn remove(&self, key: &str) -> io::Result<()> {
        (**self).remove(key).await
    }

    async fn try_lock(&self, key: &str) -> io::Result<Option<TokenLock>> {
        (**self).try_lock(key).await
    }
}
