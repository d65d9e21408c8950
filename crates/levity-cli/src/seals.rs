//! Seals of stored runs: hashes of the records that levity itself wrote.
//!
//! A journal may be in a folder where an agent writes files. A forged record could approve a call,
//! and the next `levity runs resume` would execute it. Therefore levity stores a seal of each run
//! in the user's state folder, before it appends records. When the run is opened again, its records
//! must match.
//!
//! A process may be killed between the seal and the append, or in the middle of the append. So a
//! seal lists the hash before the append, and one after each of its records. A run with any of
//! these numbers of records matches. Each hash covers the previous hash and one record.
//!
//! A decision of another process is a request in the journal, which could be forged as well.
//! levity stores the hashes of the requests that it posts, and drops all other decisions.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use levity::core::__private::sha256;
use levity::core::{Record, RunId, RunRequest};
use levity_system::{Replace, files};

use crate::state;

/// The maximum size of the file with the hashes of requests.
const MAX_REQUESTS: u64 = 64 << 20;

/// The maximum size of a seal.
const MAX_SEAL: u64 = 16 << 20;

/// The length of a line: a number with 20 digits, a blank, a hash and a line break. A shorter seal
/// can therefore replace the beginning of a longer one: its lines remain readable.
const LINE: usize = 20 + 1 + 64 + 1;

/// A number of records, and the hash over them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    count: u64,
    hash: String,
}

impl Link {
    fn first(run: &RunId) -> Self {
        Self {
            count: 0,
            hash: sha256(run.as_str().as_bytes()),
        }
    }

    fn next(&self, record: &Record) -> io::Result<Self> {
        let mut bytes = self.hash.clone().into_bytes();
        serde_json::to_writer(&mut bytes, record)?;
        Ok(Self {
            count: self.count + 1,
            hash: sha256(&bytes),
        })
    }

    fn of(run: &RunId, records: &[Record]) -> io::Result<Self> {
        let mut link = Self::first(run);
        for record in records {
            link = link.next(record)?;
        }
        Ok(link)
    }

    fn line(&self) -> String {
        format!("{:020} {}\n", self.count, self.hash)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let (count, hash) = line.split_once(' ')?;
        Some(Self {
            count: count.parse().ok()?,
            hash: hash.to_owned(),
        })
    }
}

/// The seal of a run that this process drives.
pub(crate) struct Seal {
    file: Arc<Mutex<File>>,
    last: Link,
}

impl Seal {
    /// Returns `true` if the records are those that levity wrote.
    pub(crate) fn matches(path: &Path, run: &RunId, records: &[Record]) -> bool {
        let Ok(bytes) = files::read_at_most(path, MAX_SEAL) else {
            return false;
        };
        let links: Vec<_> = bytes.chunks(LINE).map_while(Link::parse).collect();
        let Ok(now) = Link::of(run, records) else {
            return false;
        };
        // Lines of a longer seal before this one do not continue it.
        let current = links
            .iter()
            .zip(0..)
            .take_while(|(link, at)| link.count == links[0].count + at);
        current.into_iter().any(|(link, _)| *link == now)
    }

    /// Seals a run with these records, which may be none.
    pub(crate) fn start(path: &Path, run: &RunId, records: &[Record]) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            state::create(folder).map_err(io::Error::other)?;
        }
        let last = Link::of(run, records)?;
        // A process that is killed here leaves the old seal, which matches as well.
        Replace::new(path).write(last.line().as_bytes())?;
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self {
            file: Arc::new(Mutex::new(file)),
            last,
        })
    }

    /// Seals records that are about to be appended.
    pub(crate) async fn extend(&mut self, records: &[Record]) -> io::Result<()> {
        let mut text = self.last.line();
        let mut last = self.last.clone();
        for record in records {
            last = last.next(record)?;
            text.push_str(&last.line());
        }
        let file = self.file.clone();
        let write = move || {
            put(
                &mut file.lock().unwrap_or_else(PoisonError::into_inner),
                &text,
            )
        };
        tokio::task::spawn_blocking(write).await??;
        self.last = last;
        Ok(())
    }
}

/// Replaces the beginning of a file in one write, and waits for the disk.
fn put(file: &mut File, text: &str) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// The decisions that levity sent to runs of a journal.
pub(crate) struct SentDecisions(PathBuf);

impl SentDecisions {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Stores a decision for the run with this mark, before it is posted.
    pub(crate) fn add(&self, mark: &str, request: &RunRequest) -> io::Result<()> {
        if !decides(request) {
            return Ok(());
        }
        if let Some(folder) = self.0.parent() {
            state::create(folder).map_err(io::Error::other)?;
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&self.0)?;
        file.write_all(format!("{}\n", hash(mark, request)?).as_bytes())?;
        file.sync_data()
    }

    /// Removes the decisions that levity did not send, and returns their number.
    pub(crate) fn drop_others(&self, mark: &str, requests: &mut Vec<RunRequest>) -> usize {
        if !requests.iter().any(decides) {
            return 0;
        }
        let text = files::read_at_most(&self.0, MAX_REQUESTS).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let sent: BTreeSet<&str> = text.lines().collect();
        let before = requests.len();
        let is_own = |request: &RunRequest| {
            hash(mark, request).is_ok_and(|hash| sent.contains(hash.as_str()))
        };
        requests.retain(|request| !decides(request) || is_own(request));
        before - requests.len()
    }
}

/// Returns `true` if a request can make a run execute a call. Other requests are messages and
/// commands, which can be no worse than other texts of a stranger.
fn decides(request: &RunRequest) -> bool {
    !matches!(request, RunRequest::Command(_))
}

/// Each question of a run has its own number, and each run its own mark, even if a run with the
/// same id was removed. A decision is therefore accepted for one question alone.
fn hash(mark: &str, request: &RunRequest) -> io::Result<String> {
    let mut bytes = format!("{mark}\n").into_bytes();
    serde_json::to_writer(&mut bytes, request)?;
    Ok(sha256(&bytes))
}

/// Returns the path of a run's seal in the folder with the seals of its journal.
pub(crate) fn path(folder: &Path, run: &RunId) -> PathBuf {
    folder.join(sha256(run.as_str().as_bytes()))
}

/// Removes the seal of a run that no longer exists.
pub(crate) fn remove(path: &Path) {
    // A seal without a run does no harm.
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use levity::core::{Entry, Status, Timestamp};

    use super::*;

    fn record(seq: u64) -> Record {
        let at = Timestamp::from_millis(seq);
        Record::new(seq, at, Entry::Ended(Status::Complete))
    }

    #[tokio::test]
    async fn records_match_until_they_are_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seals/r");
        let run = RunId::new("r");
        let records: Vec<_> = (0..9).map(record).collect();
        let matches = |records: &[Record]| Seal::matches(&path, &run, records);
        assert!(!matches(&[]));
        let mut seal = Seal::start(&path, &run, &[]).unwrap();
        assert!(matches(&[]));
        seal.extend(&records[..6]).await.unwrap();
        // Each state in which a crash can leave the run.
        assert!((0..=6).all(|count| matches(&records[..count])));
        assert!(!matches(&records[..7]));
        seal.extend(&records[6..7]).await.unwrap();
        assert!((0..=9).all(|count| matches(&records[..count]) == (6..=7).contains(&count)));
        let mut changed = records[..7].to_vec();
        changed[2].at = Timestamp::from_millis(99);
        assert!(!matches(&changed));
        assert!(!Seal::matches(&path, &RunId::new("other"), &records[..7]));
        Seal::start(&path, &run, &records).unwrap();
        assert!(matches(&records) && !matches(&records[..8]));
    }

    #[test]
    fn decisions_of_others_are_dropped() {
        use levity::core::{ControlCommand, Decision, EffectId};
        let folder = tempfile::tempdir().unwrap();
        let sent = SentDecisions::new(folder.path().join("a/sent"));
        let decide = |effect| RunRequest::Decide {
            effect: EffectId::new(effect),
            decision: Decision::Allow,
        };
        let pause = RunRequest::Command(ControlCommand::Pause);
        sent.add("mark", &decide(1)).unwrap();
        let mut requests = vec![decide(1), decide(2), pause.clone()];
        assert_eq!(sent.drop_others("mark", &mut requests), 1);
        assert_eq!(requests, [decide(1), pause]);
        assert_eq!(sent.drop_others("other", &mut requests), 1);
    }
}
