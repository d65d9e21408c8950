//! Conversations in any database that can compare and swap.
//!
//! The four operations of [`KeyValueStore`] exist in object stores, key-value databases and SQL.
//! Everything else is built from them: atomic saves, leases, and cleaning up after a crash.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::MemoryError;

mod chunks;
mod head;
mod holds;
mod memory;

pub use memory::KeyValueMemory;

/// A database of keys and values, in which [`KeyValueMemory`] stores conversations.
///
/// # Contract
/// - Two values of a key that differ have different versions: a number that counts the writes, or a
///   hash of the value.
/// - `put` and `delete` compare the version and change the value in one step.
/// - A call sees all writes that returned before it began.
/// - A call that fails, or whose future was dropped, has taken effect as a whole or not at all.
/// - Values are returned byte for byte.
///
/// Keys consist of lower-case letters, digits and `-_.%/`, and have at most 300 bytes.
/// [`with_max_value_bytes`](KeyValueMemory::with_max_value_bytes) limits the size of a value.
///
/// # Example
/// A map behind a mutex:
///
/// ```
/// # use std::collections::BTreeMap;
/// # use std::sync::Mutex;
/// # use levity_core::{ConversationChange, ConversationId, MemoryError, MemoryStore, Message};
/// # use levity_memory::{KeyValueMemory, KeyValueStore, Version, Versioned};
/// #[derive(Default)]
/// struct Map(Mutex<(u64, BTreeMap<String, Versioned>)>);
///
/// #[async_trait::async_trait]
/// impl KeyValueStore for Map {
///     async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError> {
///         Ok(self.0.lock().unwrap().1.get(key).cloned())
///     }
///     async fn put(
///         &self,
///         key: &str,
///         value: &[u8],
///         expected: Option<&Version>,
///     ) -> Result<bool, MemoryError> {
///         let (writes, map) = &mut *self.0.lock().unwrap();
///         let unchanged = map.get(key).map(|entry| &entry.version) == expected;
///         if unchanged {
///             *writes += 1;
///             map.insert(key.to_owned(), Versioned::new(value, *writes));
///         }
///         Ok(unchanged)
///     }
///     async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError> {
///         let map = &mut self.0.lock().unwrap().1;
///         let unchanged = map.get(key).is_some_and(|entry| entry.version == *expected);
///         Ok(unchanged && map.remove(key).is_some())
///     }
///     async fn scan(
///         &self,
///         prefix: &str,
///         after: &str,
///         limit: usize,
///     ) -> Result<Vec<(String, Versioned)>, MemoryError> {
///         let map = &self.0.lock().unwrap().1;
///         let found = map
///             .iter()
///             .filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
///         Ok(found.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), MemoryError> {
/// let memory = KeyValueMemory::new(Map::default());
/// let id = ConversationId::new("monday");
/// let change = ConversationChange::at(0).with_messages([Message::user("Good morning")]);
/// memory.save(&id, &change).await?;
/// assert_eq!(memory.load(&id, 10).await?.messages[0].text(), "Good morning");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key-value store",
    note = "implement `KeyValueStore` for the type: `get`, `put`, `delete` and `scan`"
)]
#[async_trait]
pub trait KeyValueStore: Send + Sync {
    /// Returns the value of a key, with its version.
    async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError>;

    /// Writes the value of a key if the key still has the expected version; `None` expects that the
    /// key does not exist. Returns `false`, and changes nothing, if the version differs.
    async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError>;

    /// Removes a key if it still has the expected version. Returns `false`, and changes nothing,
    /// otherwise.
    async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError>;

    /// Returns a page of keys that begin with `prefix` and are greater than `after`, in byte order.
    /// A page has at most `limit` keys and may have fewer; an empty page is the end.
    async fn scan(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: KeyValueStore + ?Sized> KeyValueStore for Arc<S> {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, MemoryError> {
        (**self).get(key).await
    }

    async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError> {
        (**self).put(key, value, expected).await
    }

    async fn delete(&self, key: &str, expected: &Version) -> Result<bool, MemoryError> {
        (**self).delete(key, expected).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError> {
        (**self).scan(prefix, after, limit).await
    }
}

/// The version of a value in the database's own form: a number or an entity tag.
///
/// ```
/// # use levity_memory::Version;
/// assert_eq!(Version::from(7).as_str(), "7");
/// assert_ne!(Version::from("\"a1b2\""), Version::from("\"c3d4\"")); // entity tags
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(Arc<str>);

impl Version {
    /// Returns the version as the database wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl From<&str> for Version {
    fn from(tag: &str) -> Self {
        Self(tag.into())
    }
}

/// A value together with its version.
///
/// ```
/// # use levity_memory::Versioned;
/// let entry = Versioned::new("hello", 7);
/// assert_eq!(entry.value, b"hello");
/// assert_eq!(format!("{entry:?}"), "Versioned { version: Version(\"7\"), .. }");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versioned {
    /// The bytes that were put.
    pub value: Vec<u8>,
    /// The version that this write gave to the key.
    pub version: Version,
}

impl Versioned {
    /// Creates a value with this version.
    pub fn new(value: impl Into<Vec<u8>>, version: impl Into<Version>) -> Self {
        Self {
            value: value.into(),
            version: version.into(),
        }
    }
}

impl fmt::Debug for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes contain conversation text, so they are not shown.
        f.debug_struct("Versioned")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
