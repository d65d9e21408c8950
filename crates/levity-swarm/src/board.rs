//! The board of a blackboard pattern.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::text::{clipped, head, one_line};
use serde::{Deserialize, Serialize};

/// The texts that workers wrote for each other, by key, in the order in which the keys were first
/// written.
///
/// It serializes as a list of its entries. `Display` prints a list, too, with a heading for each
/// entry.
///
/// ```
/// # use levity_swarm::Board;
/// let json =
///     r#"[{"key": "tide", "content": "High at six.", "by": "pilot", "version": 1, "round": 1}]"#;
/// let board: Board = serde_json::from_str(json)?;
/// assert_eq!(board.get("tide").map(|entry| &*entry.content), Some("High at six."));
/// assert_eq!(board.to_string(), "## tide (by pilot)\nHigh at six.");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Limits
/// A write beyond a limit is refused, and the next round names it.
///
/// | what | limit |
/// |---|---|
/// | entries | [`MAX_ENTRIES`](Self::MAX_ENTRIES) |
/// | content of one entry | [`MAX_CONTENT`](Self::MAX_CONTENT) |
/// | content of all | [`MAX_BYTES`](Self::MAX_BYTES) |
/// | a key | one line of [`MAX_KEY`] bytes without backticks; what is beyond is cut |
/// | what stood in an entry before | the last [`MAX_HISTORY`], 2,000 bytes of each |
///
/// [`MAX_KEY`]: Self::MAX_KEY
/// [`MAX_HISTORY`]: Self::MAX_HISTORY
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<BoardEntry>", into = "Vec<BoardEntry>")]
pub struct Board {
    entries: Vec<BoardEntry>,
    places: BTreeMap<Arc<str>, usize>,
    bytes: usize,
}

/// An entry under a key of a [`Board`].
///
/// ```
/// use levity_swarm::Board;
///
/// let board: Board = serde_json::from_str(r#"[{
///     "key": "tide", "content": "Seven.", "by": "watch", "version": 2, "round": 1,
///     "history": [{"content": "Six.", "by": "pilot", "version": 1, "round": 1}]
/// }]"#)?;
/// let entry = board.get("tide").unwrap();
/// // Both wrote in round 1, and the last write won.
/// assert_eq!(entry.rivals().collect::<Vec<_>>(), ["pilot"]);
/// assert_eq!(&*entry.history[0].content, "Six.");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BoardEntry {
    /// The key of the entry.
    pub key: Arc<str>,
    /// The text of the entry.
    pub content: Arc<str>,
    /// The worker that wrote it.
    pub by: Arc<str>,
    /// The number of writes, from 1.
    pub version: u32,
    /// The round of the last write, from 1.
    pub round: u32,
    /// The earlier versions, the newest last. They include overwritten texts of other workers from
    /// the same round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<EarlierVersion>,
}

/// An earlier version of a [`BoardEntry`].
///
/// An entry keeps the last eight versions, 2,000 bytes of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EarlierVersion {
    /// The text, or its beginning.
    pub content: Arc<str>,
    /// The worker that wrote it.
    pub by: Arc<str>,
    /// The number of this version.
    pub version: u32,
    /// The round in which it was written.
    pub round: u32,
}

/// The reason why a write on a board is refused.
///
/// The text of a refusal goes to the workers of the next round, so each one names the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoKey,
    Empty,
    TooLong,
    TooMany,
    Full,
}

/// The maximum size of an earlier version, in bytes.
const MAX_EARLIER_BYTES: usize = 2_000;

impl Board {
    /// The maximum number of entries.
    pub const MAX_ENTRIES: usize = 1_000;
    /// The maximum size of an entry's content, in bytes.
    pub const MAX_CONTENT: usize = 64 << 10;
    /// The maximum size of all contents together, in bytes.
    pub const MAX_BYTES: usize = 4 << 20;
    /// The maximum size of a key, in bytes.
    pub const MAX_KEY: usize = 100;
    /// The maximum number of earlier versions of an entry.
    pub const MAX_HISTORY: usize = 8;

    /// Returns the entry under a key.
    ///
    /// ```
    /// use levity_swarm::Board;
    ///
    /// let board = Board::default();
    /// assert!(board.get("tide").is_none() && board.is_empty());
    /// ```
    pub fn get(&self, key: &str) -> Option<&BoardEntry> {
        self.entries.get(*self.places.get(key)?)
    }

    /// Returns the entries, in the order in which their keys were first written.
    ///
    /// ```
    /// use levity_swarm::Board;
    ///
    /// let board: Board = serde_json::from_str(
    ///     r#"[{"key": "tide", "content": "Six.", "by": "pilot", "version": 1, "round": 1},
    ///         {"key": "wind", "content": "West.", "by": "watch", "version": 1, "round": 1}]"#,
    /// )?;
    /// let keys: Vec<_> = board.iter().map(|entry| &*entry.key).collect();
    /// assert_eq!((keys, board.bytes()), (vec!["tide", "wind"], 9));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, BoardEntry> {
        self.entries.iter()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if the board has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the total size of the contents, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes an entry; returns `None` if the same content is already there.
    ///
    /// A write of the same content is not a change, so it does not extend the work by another
    /// round.
    pub(crate) fn write(
        &mut self,
        key: &str,
        content: &str,
        by: &Arc<str>,
        round: u32,
    ) -> Result<Option<&BoardEntry>, Refusal> {
        let key = clean_key(key);
        let place = self.places.get(&*key).copied();
        let before = place.map(|place| &*self.entries[place].content);
        if before == Some(content) {
            return Ok(None);
        }
        let bytes = self.bytes - before.map_or(0, str::len);
        let room = self.has_room(&key, content, bytes);
        room.and_then(|()| {
            if place.is_none() {
                self.has_place()
            } else {
                Ok(())
            }
        })?;
        self.bytes = bytes + content.len();
        let entry = match place {
            Some(place) => {
                self.entries[place].rewrite(content.into(), by.clone(), round);
                &self.entries[place]
            }
            None => self.add(BoardEntry::first(
                key.into(),
                content.into(),
                by.clone(),
                round,
            )),
        };
        Ok(Some(entry))
    }

    fn has_room(&self, key: &str, content: &str, others: usize) -> Result<(), Refusal> {
        match () {
            () if key.is_empty() => Err(Refusal::NoKey),
            () if content.trim().is_empty() => Err(Refusal::Empty),
            () if content.len() > Self::MAX_CONTENT => Err(Refusal::TooLong),
            () if others + content.len() > Self::MAX_BYTES => Err(Refusal::Full),
            () => Ok(()),
        }
    }

    fn has_place(&self) -> Result<(), Refusal> {
        if self.entries.len() < Self::MAX_ENTRIES {
            Ok(())
        } else {
            Err(Refusal::TooMany)
        }
    }

    fn add(&mut self, entry: BoardEntry) -> &BoardEntry {
        let place = self.entries.len();
        self.places.insert(entry.key.clone(), place);
        self.entries.push(entry);
        &self.entries[place]
    }
}

impl BoardEntry {
    fn first(key: Arc<str>, content: Arc<str>, by: Arc<str>, round: u32) -> Self {
        Self {
            key,
            content,
            by,
            version: 1,
            round,
            history: Vec::new(),
        }
    }

    fn rewrite(&mut self, content: Arc<str>, by: Arc<str>, round: u32) {
        let earlier = EarlierVersion {
            content: clipped(&self.content, MAX_EARLIER_BYTES).into(),
            by: self.by.clone(),
            version: self.version,
            round: self.round,
        };
        if self.history.len() >= Board::MAX_HISTORY {
            self.history.remove(0);
        }
        self.history.push(earlier);
        (self.content, self.by, self.round) = (content, by, round);
        self.version = self.version.saturating_add(1);
    }

    /// Returns the other workers that wrote the entry in the round of its last write.
    pub fn rivals(&self) -> impl Iterator<Item = &str> {
        let same = self
            .history
            .iter()
            .filter(|earlier| earlier.round == self.round && earlier.by != self.by);
        same.map(|earlier| &*earlier.by)
    }
}

/// Normalizes a key: one line, within the size limit, and without backticks. Keys are shown in
/// backticks, so a key cannot escape them.
pub(crate) fn clean_key(key: &str) -> String {
    let plain = head(key, 4 * Board::MAX_KEY)
        .replace('`', "")
        .replace(char::is_control, " ");
    one_line(plain.trim_start(), Board::MAX_KEY)
}

impl TryFrom<Vec<BoardEntry>> for Board {
    type Error = String;

    fn try_from(entries: Vec<BoardEntry>) -> Result<Self, String> {
        let mut board = Self::default();
        for mut entry in entries {
            let twice = board.places.contains_key(&entry.key);
            let room = board.has_room(&entry.key, &entry.content, board.bytes);
            let room = room.and_then(|()| board.has_place());
            if twice || room.is_err() || clean_key(&entry.key) != *entry.key {
                let at = board.len() + 1;
                return Err(format!(
                    "entry {at} of the board is a duplicate or exceeds a limit of the board"
                ));
            }
            let surplus = entry.history.len().saturating_sub(Self::MAX_HISTORY);
            entry.history.drain(..surplus);
            board.bytes += entry.content.len();
            board.add(entry);
        }
        Ok(board)
    }
}

impl From<Board> for Vec<BoardEntry> {
    fn from(board: Board) -> Self {
        board.entries
    }
}

impl<'a> IntoIterator for &'a Board {
    type Item = &'a BoardEntry;
    type IntoIter = std::slice::Iter<'a, BoardEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.entries.iter().enumerate() {
            let before = if at == 0 { "" } else { "\n\n" };
            write!(
                f,
                "{before}## {} (by {})\n{}",
                entry.key,
                entry.by,
                entry.content.trim_end()
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board")
            .field("entries", &self.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("the key is empty"),
            Self::Empty => f.write_str("the content is empty"),
            Self::TooLong => write!(
                f,
                "the content is longer than {} bytes; shorten it",
                Board::MAX_CONTENT
            ),
            Self::TooMany => {
                write!(
                    f,
                    "the board already has {} entries; write under one of them",
                    Board::MAX_ENTRIES
                )
            }
            Self::Full => {
                write!(
                    f,
                    "the board is full with {} bytes; shorten an entry first",
                    Board::MAX_BYTES
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
