//! The storage of logins, in memory or in a file.
//!
//! The trait stores texts under keys, and knows nothing of tokens, so a keychain or a database is a
//! few lines. Renewal needs one more thing: a lock between processes, because many authorization
//! servers accept a refresh token only once.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

mod file;

pub use file::FileTokenStore;

/// A store of logins, each under a key with a server's name and URL. For a login with a client
/// secret, a second key stores which authorization server the secret belongs to.
///
/// The stored text contains tokens: a reader of it can act as the person who logged in.
///
/// # Contract
/// - `load` returns the saved text, to this process or to another one that shares the store.
/// - A login is replaced as a whole: no reader sees a partial one.
/// - `try_lock` does not wait. The lock should end with the process that holds it; levity waits at
///   most 30 s for another one.
///
/// ```
/// use std::collections::HashMap;
/// use std::io;
/// use std::sync::Mutex;
///
/// use async_trait::async_trait;
/// use levity_mcp::TokenStore;
///
/// #[derive(Default)]
/// struct Keychain(Mutex<HashMap<String, String>>);
///
/// #[async_trait]
/// impl TokenStore for Keychain {
///     async fn load(&self, key: &str) -> io::Result<Option<String>> {
///         Ok(self.0.lock().unwrap().get(key).cloned())
///     }
///
///     async fn save(&self, key: &str, login: &str) -> io::Result<()> {
///         self.0.lock().unwrap().insert(key.to_owned(), login.to_owned());
///         Ok(())
///     }
///
///     async fn remove(&self, key: &str) -> io::Result<()> {
///         self.0.lock().unwrap().remove(key);
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> io::Result<()> {
/// let keychain = Keychain::default();
/// keychain.save("mail https://mail.example/mcp", "{..}").await?;
/// assert!(keychain.load("mail https://mail.example/mcp").await?.is_some());
/// assert!(keychain.try_lock("mail https://mail.example/mcp").await?.is_some());
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// Returns the login under this key.
    async fn load(&self, key: &str) -> io::Result<Option<String>>;

    /// Stores a login and replaces the previous one.
    async fn save(&self, key: &str, login: &str) -> io::Result<()>;

    /// Removes a login; succeeds if there is none.
    async fn remove(&self, key: &str) -> io::Result<()>;

    /// Acquires the exclusive right to renew this login until the lock is dropped. Returns `None`
    /// if another process has it. A store that no other process shares needs no implementation.
    async fn try_lock(&self, key: &str) -> io::Result<Option<TokenLock>> {
        let _ = key;
        Ok(Some(TokenLock::new(())))
    }
}

/// A lock for renewing a login, which is released on drop.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_mcp::TokenLock;
///
/// let held = Arc::new(());
/// let lock = TokenLock::new(held.clone());
/// assert_eq!(Arc::strong_count(&held), 2);
/// drop(lock);
/// assert_eq!(Arc::strong_count(&held), 1);
/// ```
#[must_use]
pub struct TokenLock(
    #[expect(dead_code, reason = "its drop releases the lock")] Box<dyn Any + Send>,
);

impl TokenLock {
    /// Creates a lock that ends when `held` is dropped.
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for TokenLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenLock")
    }
}

/// A store of logins in memory, for the lifetime of the process.
///
/// A person has to log in again after each start of the program.
///
/// ```
/// use levity_mcp::{MemoryTokenStore, TokenStore as _};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let store = MemoryTokenStore::new();
/// store.save("key", "login").await?;
/// store.remove("key").await?;
/// assert_eq!(store.load("key").await?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct MemoryTokenStore(Mutex<BTreeMap<String, String>>);

impl MemoryTokenStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `what` with the locked map; a panic of another thread does not poison it for good.
    fn with<T>(&self, what: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl TokenStore for MemoryTokenStore {
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

impl fmt::Debug for MemoryTokenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryTokenStore")
    }
}

// Lets several servers, or a test, share one store.
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
