//! Stores long texts beside the runs' files under their SHA-256.
//!
//! A long tool result would make a run's file slow to read line by line, and the same text often
//! occurs in several records. So the texts of a long record move to `bodies/`, and the line keeps
//! `{"$body": "<sha256>"}` in their place. The name is the hash of the text: equal texts are stored
//! once, and a changed file is detected when it is read.
//!
//! The whole record is wrapped as `{"$aside": …}`. Only such lines are searched for references, so
//! that a text of a model that looks like a reference stays a text. An object of the record that
//! has a key of this format itself is wrapped in `$quoted`.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::__private::sha256;
use levity_core::{JournalError, JournalErrorKind};
use serde_json::{Map, Value};

use crate::Durability;
use levity_system::files as private;

use super::{failed, read_regular, sync_dir};

/// The key of a reference to a stored text: `{"$body": "<sha256>"}`.
const BODY: &str = "$body";
/// The key that wraps an object that happens to have one of these two keys.
const QUOTED: &str = "$quoted";
/// The length above which a text is stored separately.
///
/// Only texts of records whose line is longer than 64 KiB are considered.
const LONG: usize = 16 << 10;

/// Texts to be stored, by their names.
pub(crate) type Texts = BTreeMap<String, String>;

/// Protects texts from removal until a file refers to them.
#[derive(Debug)]
pub(super) struct TextGuard {
    _lock: File,
}

/// The folder of texts of one journal, with the room that one run may use.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    dir: PathBuf,
    durability: Durability,
    /// The bytes that may still be inserted into one run: a small file can refer to a long text
    /// many times.
    room: Arc<AtomicU64>,
}

impl Bodies {
    pub(super) fn new(journal: &Path, durability: Durability) -> Self {
        Self {
            dir: journal.join("bodies"),
            durability,
            room: Arc::new(private::MAX_SIZE.into()),
        }
    }

    /// Returns the same texts, with room for another run.
    pub(super) fn for_another(&self) -> Self {
        Self {
            room: Arc::new(private::MAX_SIZE.into()),
            ..self.clone()
        }
    }

    /// Returns `true` if a line may refer to bodies. Only such lines begin with this key.
    pub(super) fn are_named_in(line: &[u8]) -> bool {
        line.starts_with(b"{\"$aside\":")
    }

    /// Returns the record in a line, with its references.
    pub(super) fn record_in(line: &Value) -> &Value {
        line.get("$aside").unwrap_or(line)
    }

    /// Returns the record with its long texts inserted.
    pub(super) fn insert_texts(&self, marked: Value) -> Result<Value, JournalError> {
        match marked {
            Value::Object(mut map) => self.lengthen(map.remove("$aside").unwrap_or_default()),
            other => Ok(other),
        }
    }

    /// It is the inverse of [`shorten`].
    fn lengthen(&self, value: Value) -> Result<Value, JournalError> {
        let object = |map: Map<String, Value>| {
            let long = map
                .into_iter()
                .map(|(key, value)| Ok((key, self.lengthen(value)?)));
            Ok(Value::Object(long.collect::<Result<_, JournalError>>()?))
        };
        match value {
            Value::Array(items) => items.into_iter().map(|item| self.lengthen(item)).collect(),
            Value::Object(mut map) if map.len() == 1 && map.contains_key(QUOTED) => {
                match map.remove(QUOTED) {
                    Some(Value::Object(inner)) => object(inner),
                    other => Ok(other.unwrap_or_default()),
                }
            }
            Value::Object(map) if map.len() == 1 && map.contains_key(BODY) => self
                .find(map.get(BODY).and_then(Value::as_str).unwrap_or_default())
                .map(Value::String),
            Value::Object(map) => object(map),
            other => Ok(other),
        }
    }

    /// Stores texts. None of them is removed until the returned guard is dropped, so hold it until
    /// the file refers to them.
    pub(super) fn store(&self, texts: &Texts) -> Result<TextGuard, JournalError> {
        let failed = |error| failed(&self.dir, "written", error);
        self.make_dir().map_err(failed)?;
        let lock = self.lock_file().map_err(failed)?;
        lock.lock_shared().map_err(failed)?;
        for (name, text) in texts {
            let path = self.dir.join(name);
            // An existing text is not written again. A file that a power failure left unwritten has
            // the right length, too, so the content is compared.
            let there = read_regular(&path).is_ok_and(|there| there == text.as_bytes());
            let written = if there {
                self.sync(&path)
            } else {
                self.write(&path, text)
            };
            written.map_err(|error| super::failed(&path, "written", error))?;
        }
        if self.durability == Durability::Synced {
            sync_dir(&self.dir).map_err(failed)?;
        }
        Ok(TextGuard { _lock: lock })
    }

    fn make_dir(&self) -> io::Result<()> {
        private::refuse_link(&self.dir)?;
        if self.dir.is_dir() {
            return Ok(());
        }
        private::make_dir(&self.dir)?;
        self.dir.parent().map_or(Ok(()), sync_dir)
    }

    /// Opens the lock file: writers of texts share the lock, and a sweep has it exclusively.
    fn lock_file(&self) -> io::Result<File> {
        private::refuse_link(&self.dir)?;
        private::open(
            &self.dir.join("lock"),
            private::options().read(true).append(true).create(true),
        )
    }

    /// Removes the texts that no file beside the folder refers to, and returns their number.
    pub(super) fn sweep(&self) -> Result<usize, JournalError> {
        if !self.dir.is_dir() {
            return Ok(0);
        }
        let failed = |error| failed(&self.dir, "swept", error);
        let lock = self.lock_file().map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message =
                    "long texts are being written, so none was removed; sweep again later";
                return Err(JournalError::new(JournalErrorKind::Busy, message));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // From here on, every written text is already referred to.
        let mut unnamed = self.all().map_err(failed)?;
        self.retain_unreferenced(&mut unnamed).map_err(failed)?;
        for name in &unnamed {
            fs::remove_file(self.dir.join(name)).map_err(failed)?;
        }
        Ok(unnamed.iter().filter(|name| is_name(name)).count())
    }

    /// Returns all texts, and incomplete files of texts.
    ///
    /// Files of other programs in the folder are ignored and never removed.
    fn all(&self) -> io::Result<HashSet<String>> {
        let mut names = HashSet::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let ours =
                |name: &&str| is_name(name.split_once('.').map_or(*name, |(start, _)| start));
            names.extend(name.to_str().filter(ours).map(str::to_owned));
        }
        Ok(names)
    }

    /// Removes from `names` the texts that any file beside the folder refers to, whatever else is
    /// in that file.
    fn retain_unreferenced(&self, names: &mut HashSet<String>) -> io::Result<()> {
        let Some(journal) = self.dir.parent() else {
            return Ok(());
        };
        for entry in fs::read_dir(journal)? {
            let path = entry?.path();
            let file = match fs::metadata(&path) {
                Ok(there) if there.is_file() => File::open(&path),
                _ => continue,
            };
            match file {
                Ok(file) => words(BufReader::new(file), |word| _ = names.remove(word))?,
                // A run that was removed meanwhile needs no text. One that cannot be read may need
                // some.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes a file that is either complete or absent.
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let unique = format!("tmp-{}-{:p}", std::process::id(), &text);
        let temporary = path.with_extension(unique);
        // A process of the same id may have left one; a link there is not followed.
        let _ = fs::remove_file(&temporary);
        let written = self
            .fill(&temporary, text)
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// The writer of the file may not have waited for the disk.
    fn sync(&self, path: &Path) -> io::Result<()> {
        if self.durability == Durability::Synced {
            File::open(path)?.sync_data()
        } else {
            Ok(())
        }
    }

    fn fill(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = private::options().write(true).create_new(true).open(path)?;
        file.write_all(text.as_bytes())?;
        if self.durability == Durability::Synced {
            file.sync_data()
        } else {
            Ok(())
        }
    }

    /// The text is untrusted: its name, its size and its hash are checked before it is inserted.
    fn find(&self, name: &str) -> Result<String, JournalError> {
        let damaged = |what: &str| {
            let message = format!("the text `{name}` of the journal {what}");
            JournalError::new(JournalErrorKind::Damaged, message)
        };
        if !is_name(name) {
            return Err(damaged("has an invalid name"));
        }
        let text = read_regular(&self.dir.join(name));
        let text = text.map_err(|error| damaged("cannot be read").with_source(error))?;
        let take = |room: u64| room.checked_sub(text.len() as u64);
        if self
            .room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_err()
        {
            return Err(damaged(&format!(
                "and those before it exceed the limit of {} MiB",
                private::MAX_SIZE >> 20
            )));
        }
        let text = String::from_utf8(text)
            .map_err(|_| damaged("is damaged: it is not the text that was written"))?;
        if sha256(text.as_bytes()) != name {
            return Err(damaged("is damaged: it is not the text that was written"));
        }
        Ok(text)
    }
}

/// Returns a record with references in place of its long texts, which are added to `texts`.
pub(super) fn extract_texts(record: Value, texts: &mut Texts) -> Value {
    named("$aside", shorten(record, texts))
}

fn shorten(value: Value, texts: &mut Texts) -> Value {
    match value {
        Value::String(text) if text.len() > LONG => {
            let name = sha256(text.as_bytes());
            texts.insert(name.clone(), text);
            named(BODY, Value::String(name))
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| shorten(item, texts)).collect())
        }
        Value::Object(map) => {
            let quote = map.contains_key(BODY) || map.contains_key(QUOTED);
            let short = map
                .into_iter()
                .map(|(key, value)| (key, shorten(value, texts)));
            let short = Value::Object(short.collect());
            if quote { named(QUOTED, short) } else { short }
        }
        other => other,
    }
}

/// Returns `true` if this is the name of a text.
fn is_name(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Finds all words in a file that could be the name of a text.
///
/// A name is any 64 hexadecimal digits, wherever they occur. A text that is mentioned by chance
/// stays, which is safe; a text that is needed is never removed.
fn words(mut file: impl BufRead, mut found: impl FnMut(&str)) -> io::Result<()> {
    let mut word = String::new();
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        for byte in bytes {
            if byte.is_ascii_hexdigit() {
                // A longer word is not a name, and need not be stored.
                if word.len() <= 64 {
                    word.push(char::from(*byte));
                }
            } else {
                if word.len() == 64 {
                    found(&word);
                }
                word.clear();
            }
        }
        let read = bytes.len();
        file.consume(read);
    }
    if word.len() == 64 {
        found(&word);
    }
    Ok(())
}

fn named(key: &str, value: Value) -> Value {
    let mut map = Map::new();
    map.insert(key.to_owned(), value);
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_references_to_a_text_are_limited() {
        let folder = std::env::temp_dir().join(format!("levity-bodies-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let bodies = Bodies::new(&folder, Durability::Buffered);
        let text = "a".repeat(100_000);
        let mut texts = Texts::new();
        let short = extract_texts(serde_json::json!({"text": text}), &mut texts);
        drop(bodies.store(&texts).unwrap());
        bodies.room.store(350_000, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(
                bodies.insert_texts(short.clone()).unwrap(),
                serde_json::json!({"text": text})
            );
        }
        let error = bodies.insert_texts(short.clone()).unwrap_err();
        assert!(error.to_string().contains("MiB"), "{error}");
        assert!(
            bodies.for_another().insert_texts(short).is_ok(),
            "the next run has its own room"
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
