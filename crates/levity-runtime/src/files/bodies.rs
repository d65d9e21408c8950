//! Long texts, kept beside the runs' files under the SHA-256 of what they say.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use levity_core::{JournalError, JournalErrorKind};
use serde_json::{Map, Value};

use super::sha256::sha256;
use super::{Durability, failed, sync_dir};

/// Stands in place of a text that was put aside: `{"$body": "<sha256>"}`.
const BODY: &str = "$body";
/// Stands around an object that happens to have one of these two keys.
const QUOTED: &str = "$quoted";
/// Texts that are longer are put aside.
const LONG: usize = 16 << 10;

#[derive(Clone, Debug)]
pub(super) struct Bodies {
    dir: PathBuf,
    durability: Durability,
}

impl Bodies {
    pub(super) fn new(journal: &Path, durability: Durability) -> Self {
        Self { dir: journal.join("bodies"), durability }
    }

    /// Whether a line may name bodies. Only lines that do begin with this key.
    pub(super) fn are_named_in(line: &[u8]) -> bool {
        line.starts_with(b"{\"$aside\":")
    }

    /// The record in a line, as short as it stands there.
    pub(super) fn record_in(line: &Value) -> &Value {
        line.get("$aside").unwrap_or(line)
    }

    /// A record with its long texts replaced by names.
    pub(super) fn put_aside(&self, record: Value) -> Result<Value, JournalError> {
        let mut marked = Map::new();
        marked.insert("$aside".to_owned(), self.shorten(record)?);
        Ok(Value::Object(marked))
    }

    /// The record as it was.
    pub(super) fn put_back(&self, marked: Value) -> Result<Value, JournalError> {
        match marked {
            Value::Object(mut map) => self.lengthen(map.remove("$aside").unwrap_or_default()),
            other => Ok(other),
        }
    }

    fn shorten(&self, value: Value) -> Result<Value, JournalError> {
        Ok(match value {
            Value::String(text) if text.len() > LONG => named(BODY, Value::String(self.keep(&text)?)),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.shorten(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let quote = map.contains_key(BODY) || map.contains_key(QUOTED);
                let short = map.into_iter().map(|(key, value)| Ok((key, self.shorten(value)?)));
                let short = Value::Object(short.collect::<Result<_, JournalError>>()?);
                if quote { named(QUOTED, short) } else { short }
            }
            other => other,
        })
    }

    fn lengthen(&self, value: Value) -> Result<Value, JournalError> {
        let object = |map: Map<String, Value>| {
            let long = map.into_iter().map(|(key, value)| Ok((key, self.lengthen(value)?)));
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
            Value::Object(map) if map.len() == 1 && map.contains_key(BODY) => {
                self.find(map.get(BODY).and_then(Value::as_str).unwrap_or_default()).map(Value::String)
            }
            Value::Object(map) => object(map),
            other => Ok(other),
        }
    }

    /// Keeps a text and returns its name. What is there already is not written again.
    fn keep(&self, text: &str) -> Result<String, JournalError> {
        let name = sha256(text.as_bytes());
        let path = self.dir.join(&name);
        // Room that a power cut left unwritten has the right length, too.
        if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(name);
        }
        self.write(&path, text).map_err(|error| failed(&path, "written", error))?;
        Ok(name)
    }

    /// Writes a file that is either whole or not there.
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if !self.dir.is_dir() {
            fs::create_dir_all(&self.dir)?;
            self.dir.parent().map_or(Ok(()), sync_dir)?;
        }
        let unique = format!("tmp-{}-{:p}", std::process::id(), &text);
        let temporary = path.with_extension(unique);
        let written = self.fill(&temporary, text).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            return written;
        }
        if self.durability == Durability::Synced { sync_dir(&self.dir) } else { Ok(()) }
    }

    fn fill(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        if self.durability == Durability::Synced { file.sync_data() } else { Ok(()) }
    }

    fn find(&self, name: &str) -> Result<String, JournalError> {
        let damaged = |what: &str| {
            let message = format!("the text `{name}` of the journal {what}");
            JournalError::new(JournalErrorKind::Damaged, message)
        };
        if name.len() != 64 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(damaged("has a name that no text has"));
        }
        let text = fs::read_to_string(self.dir.join(name));
        let text = text.map_err(|error| damaged("cannot be read").with_source(error))?;
        if sha256(text.as_bytes()) != name {
            return Err(damaged("is not what was written"));
        }
        Ok(text)
    }
}

fn named(key: &str, value: Value) -> Value {
    let mut map = Map::new();
    map.insert(key.to_owned(), value);
    Value::Object(map)
}
