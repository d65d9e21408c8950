//! What stands on a blackboard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::text::{clipped, head, one_line};
use serde::{Deserialize, Serialize};

/// What workers have written for each other, by key, in the order in which the keys were first
/// written.
///
/// In JSON it is a list of its entries. It is displayed as a list, too, with a heading for each.
///
/// ```
/// # use levity_swarm::Board;
/// let json = r#"[{"key": "tide", "content": "High at six.", "by": "pilot", "version": 1, "round": 1}]"#;
/// let board: Board = serde_json::from_str(json)?;
/// assert_eq!(board.get("tide").map(|entry| &*entry.content), Some("High at six."));
/// assert_eq!(board.to_string(), "## tide (by pilot)\nHigh at six.");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Limits
/// What does not fit is refused, and named in the next round.
///
/// | what | limit |
/// |---|---|
/// | entries | [`MAX_ENTRIES`](Self::MAX_ENTRIES) |
/// | content of one entry | [`MAX_CONTENT`](Self::MAX_CONTENT) |
/// | content of all | [`MAX_BYTES`](Self::MAX_BYTES) |
/// | a key | one line of [`MAX_KEY`](Self::MAX_KEY) bytes without backticks; what is beyond is cut |
/// | what stood in an entry before | the last [`MAX_HISTORY`](Self::MAX_HISTORY), 2,000 bytes of each |
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<BoardEntry>", into = "Vec<BoardEntry>")]
pub struct Board {
    entries: Vec<BoardEntry>,
    places: BTreeMap<Arc<str>, usize>,
    bytes: usize,
}

/// What stands under a key of a [`Board`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BoardEntry {
    /// Where.
    pub key: Arc<str>,
    /// The words.
    pub content: Arc<str>,
    /// Who wrote it.
    pub by: Arc<str>,
    /// How often it was written, from 1.
    pub version: u32,
    /// In which round it was written last, from 1.
    pub round: u32,
    /// What stood there before, the newest last: also what others wrote in the same round, when
    /// this came after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Earlier>,
}

/// What stood in an [`BoardEntry`] before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Earlier {
    /// The words, or the beginning of them.
    pub content: Arc<str>,
    /// Who wrote it.
    pub by: Arc<str>,
    /// Which version it was.
    pub version: u32,
    /// In which round it was written.
    pub round: u32,
}

/// Why something is not put on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoKey,
    Empty,
    TooLong,
    TooMany,
    Full,
}

/// How much is kept of what stood in an entry before.
const MOST_EARLIER: usize = 2_000;

impl Board {
    /// How many entries there are at most.
    pub const MAX_ENTRIES: usize = 1_000;
    /// How many bytes the content of an entry has at most.
    pub const MAX_CONTENT: usize = 64 << 10;
    /// How many bytes the content of all entries has at most.
    pub const MAX_BYTES: usize = 4 << 20;
    /// How many bytes a key has at most.
    pub const MAX_KEY: usize = 100;
    /// How many earlier versions of an entry are kept.
    pub const MAX_HISTORY: usize = 8;

    /// What stands under a key.
    pub fn get(&self, key: &str) -> Option<&BoardEntry> {
        self.entries.get(*self.places.get(key)?)
    }

    /// The entries, in the order in which their keys were first written.
    pub fn iter(&self) -> std::slice::Iter<'_, BoardEntry> {
        self.entries.iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many bytes the content of the entries has together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes something; nothing when it stands there already.
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
        let earlier = Earlier {
            content: clipped(&self.content, MOST_EARLIER).into(),
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

    /// Who else wrote it in the round in which it was written last.
    pub fn rivals(&self) -> impl Iterator<Item = &str> {
        let same = self
            .history
            .iter()
            .filter(|earlier| earlier.round == self.round && earlier.by != self.by);
        same.map(|earlier| &*earlier.by)
    }
}

/// A key as it is kept: on one line, not longer than it may be, and without the marks between which
/// keys are shown, so that it says nothing beside them.
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
                    "entry {at} of the board is there twice, or has no place on a board"
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
            Self::NoKey => f.write_str("it has no key"),
            Self::Empty => f.write_str("there is nothing in it"),
            Self::TooLong => write!(f, "it is longer than {} bytes", Board::MAX_CONTENT),
            Self::TooMany => {
                write!(
                    f,
                    "there are {} entries already; write under one of them",
                    Board::MAX_ENTRIES
                )
            }
            Self::Full => {
                write!(
                    f,
                    "the board holds {} bytes in all; shorten an entry first",
                    Board::MAX_BYTES
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
