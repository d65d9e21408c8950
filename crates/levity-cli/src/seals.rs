//! Seals of stored runs: hashes of the records that levity itself wrote.
//!
//! A journal may be in a folder where an agent writes files. A forged record could approve a call,
//! and the next `levity runs resume` would execute it. Therefore levity stores a seal of each run
//! in the user's state folder, before it appends records. When the run is opened again, its records
//! must match.
//!
//! A process may be killed between the seal and the append, or in the middle of the append. So a
//! seal lists the hash before the append, and one after each of its records. A run with any of
//! these numbers of records matches. After the append, the seal lists the last hash only:
//! otherwise another program could remove the records of the last append, and levity would perform
//! its effects again. Each hash covers the previous hash and one record.
//!
//! A decision of another process is a request in the journal, which could be forged as well.
//! levity stores the hashes of the requests that it posts, and drops all other decisions. Such a
//! hash covers the hash of the record that asks, and thus the call. levity removes the hash when
//! the question has its answer.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use levity::core::__private::sha256;
use levity::core::{Decision, EffectId, Entry, Outcome, Record, RunId, RunRequest};
use levity_system::{Replace, files};

use crate::state;

/// The maximum size of the file with the hashes of the requests for one question.
const MAX_REQUESTS: u64 = 1 << 20;

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

    /// Returns the link after one more record. Its hash covers this link and the record as JSON.
    fn next(&self, record: &Record) -> io::Result<Self> {
        let mut bytes = self.hash.clone().into_bytes();
        serde_json::to_writer(&mut bytes, record)?;
        Ok(Self {
            count: self.count + 1,
            hash: sha256(&bytes),
        })
    }

    /// Returns the line of this link in the file of a seal.
    fn line(&self) -> String {
        format!("{:020} {}\n", self.count, self.hash)
    }

    /// Reads such a line. The rest of a line that was cut is no link.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let (count, hash) = line.split_once(' ')?;
        Some(Self {
            count: count.parse().ok()?,
            hash: hash.to_owned(),
        })
    }
}

/// The hashes of the records of a run.
pub(crate) struct RecordChain {
    last: Link,
    /// The hash of the record with which each effect started, or `None` if it has finished. An
    /// effect that starts again keeps its first hash, because a question may have its answer in the
    /// inbox while its run is resumed.
    starts: BTreeMap<EffectId, Option<String>>,
}

impl RecordChain {
    pub(crate) fn new(run: &RunId, records: &[Record]) -> io::Result<Self> {
        let mut chain = Self {
            last: Link::first(run),
            starts: BTreeMap::new(),
        };
        for record in records {
            chain.add(record)?;
        }
        Ok(chain)
    }

    /// Adds a record, and notes which effects are open after it.
    fn add(&mut self, record: &Record) -> io::Result<()> {
        self.last = self.last.next(record)?;
        match &record.entry {
            Entry::Started { effect, .. } => {
                let start = self.starts.entry(*effect).or_default();
                start.get_or_insert_with(|| self.last.hash.clone());
            }
            Entry::Finished { effect, .. } | Entry::Cleared { effect } => {
                self.starts.insert(*effect, None);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds records that are about to be appended. Returns the lines of a seal that matches before
    /// the append and after each record, for [`Seal::write`].
    pub(crate) fn extend(&mut self, records: &[Record]) -> io::Result<String> {
        let mut lines = self.last.line();
        for record in records {
            self.add(record)?;
            lines.push_str(&self.last.line());
        }
        Ok(lines)
    }

    /// Returns the keys of decisions about the effects that these records finish, before the
    /// records are added.
    pub(crate) fn finished_keys(&self, records: &[Record]) -> Vec<String> {
        let mut keys = Vec::new();
        for record in records {
            if let Entry::Finished {
                effect, outcome, ..
            } = &record.entry
                && !matches!(outcome, Outcome::Model(_))
            {
                keys.push(denial_key(*effect));
                keys.extend(self.start(*effect).map(str::to_owned));
            }
        }
        keys
    }

    /// Returns the line of a seal that matches these records alone.
    pub(crate) fn line(&self) -> String {
        self.last.line()
    }

    /// Returns the hash of the record with which an open effect started.
    fn start(&self, effect: EffectId) -> Option<&str> {
        self.starts.get(&effect)?.as_deref()
    }

    /// Returns `true` if the records contain the end of an effect.
    fn has_finished(&self, effect: EffectId) -> bool {
        self.starts.get(&effect).is_some_and(Option::is_none)
    }
}

/// The seal of a run that this process drives.
pub(crate) struct Seal(Arc<Mutex<File>>);

impl Seal {
    /// Returns the content of a seal; nothing if it cannot be read.
    pub(crate) fn read(path: &Path) -> Vec<u8> {
        files::read_at_most(path, MAX_SEAL).unwrap_or_default()
    }

    /// Returns `true` if the records are those that levity wrote, by the content of their seal.
    pub(crate) fn matches(seal: &[u8], run: &RunId, records: &[Record]) -> bool {
        let links: Vec<_> = seal.chunks(LINE).map_while(Link::parse).collect();
        let Ok(now) = RecordChain::new(run, records) else {
            return false;
        };
        // Lines of a longer seal before this one do not continue it.
        let current = links
            .iter()
            .zip(0..)
            .take_while(|(link, at)| link.count == links[0].count + at);
        current.into_iter().any(|(link, _)| *link == now.last)
    }

    /// Seals a run with these records, which may be none.
    pub(crate) fn start(path: &Path, chain: &RecordChain) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            state::create(folder).map_err(io::Error::other)?;
        }
        // A process that is killed here leaves the old seal, which matches as well.
        Replace::new(path).write(chain.line().as_bytes())?;
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Replaces the lines, and waits for the disk.
    ///
    /// Shorter text leaves the end of longer text in the file. The counts of these lines are too
    /// small to continue the new lines.
    pub(crate) async fn write(&self, lines: String) -> io::Result<()> {
        self.put(lines, File::sync_data).await
    }

    /// Replaces the lines without waiting for the disk: a process that is killed loses nothing,
    /// and a computer that loses power keeps the lines before, which match as well. The next
    /// [`write`](Self::write) also waits for these lines.
    pub(crate) async fn write_soon(&self, lines: String) -> io::Result<()> {
        self.put(lines, |_| Ok(())).await
    }

    /// Writes lines to the beginning of the file, on a thread that may wait for the disk.
    async fn put(&self, lines: String, flush: fn(&File) -> io::Result<()>) -> io::Result<()> {
        let file = self.0.clone();
        let write = move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(0))?;
            // One write, so that a process that is killed leaves the old or the new lines.
            file.write_all(lines.as_bytes())?;
            flush(&file)
        };
        tokio::task::spawn_blocking(write).await?
    }
}

/// The decisions that levity sent to a run: a folder with one file for each question.
pub(crate) struct SentDecisions {
    folder: PathBuf,
    mark: String,
}

impl SentDecisions {
    /// Uses a folder for the run with this mark.
    pub(crate) fn new(folder: PathBuf, mark: String) -> Self {
        Self { folder, mark }
    }

    /// Stores a decision before it is posted. Returns `false` if the records contain no open
    /// question or call with its number.
    pub(crate) fn add(
        &self,
        request: &RunRequest,
        chain: Option<&RecordChain>,
    ) -> io::Result<bool> {
        let Some(key) = key(request, chain) else {
            return Ok(false);
        };
        state::create(&self.folder).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(self.file(&key))?;
        file.write_all(format!("{}\n", self.hash(&key, request)?).as_bytes())?;
        file.sync_data()?;
        Ok(true)
    }

    /// Removes the decisions that levity did not send, and returns their number. Late decisions
    /// for questions that have their answers are removed and not counted.
    pub(crate) fn drop_others(&self, chain: &RecordChain, requests: &mut Vec<RunRequest>) -> usize {
        let mut dropped = 0;
        requests.retain(|request| {
            let is_own = !decides(request) || self.contains(chain, request);
            let is_late = effect(request).is_some_and(|effect| chain.has_finished(effect));
            dropped += usize::from(!is_own && !is_late);
            is_own
        });
        dropped
    }

    /// Returns `true` if levity sent this decision about the question that the records contain.
    fn contains(&self, chain: &RecordChain, request: &RunRequest) -> bool {
        let Some(key) = key(request, Some(chain)) else {
            return false;
        };
        let text = files::read_at_most(&self.file(&key), MAX_REQUESTS).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        self.hash(&key, request)
            .is_ok_and(|hash| text.lines().any(|line| line == hash))
    }

    /// Removes the decisions about questions and calls that have finished.
    pub(crate) fn remove(&self, keys: &[String]) {
        for key in keys {
            // A decision that remains fits no later question.
            let _ = fs::remove_file(self.file(key));
        }
    }

    /// Removes all decisions of a run that has ended.
    pub(crate) fn remove_all(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Returns the file with the hashes of the decisions for one question.
    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(sha256(key.as_bytes()))
    }

    /// Each run has its own mark, even if a run with the same id was removed.
    fn hash(&self, key: &str, request: &RunRequest) -> io::Result<String> {
        let mut bytes = format!("{}\n{key}\n", self.mark).into_bytes();
        serde_json::to_writer(&mut bytes, request)?;
        Ok(sha256(&bytes))
    }
}

/// Returns `true` if a request can make a run execute a call. Other requests are messages and
/// commands, which can be no worse than other texts of a stranger.
pub(crate) fn decides(request: &RunRequest) -> bool {
    !matches!(request, RunRequest::Command(_))
}

/// Returns `true` if a request can only stop a call.
pub(crate) fn denies(request: &RunRequest) -> bool {
    matches!(
        request,
        RunRequest::Decide {
            decision: Decision::Deny { .. },
            ..
        }
    )
}

/// Returns the effect that a request decides about.
fn effect(request: &RunRequest) -> Option<EffectId> {
    match request {
        RunRequest::Decide { effect, .. } | RunRequest::Resolve { effect, .. } => Some(*effect),
        _ => None,
    }
}

/// Returns what a decision is about: the hash of the record that asks, so that the decision fits no
/// other call with the same number. A denial needs no records, because it only stops something.
fn key(request: &RunRequest, chain: Option<&RecordChain>) -> Option<String> {
    let effect = effect(request)?;
    if denies(request) {
        return Some(denial_key(effect));
    }
    Some(chain?.start(effect)?.to_owned())
}

/// Returns the key of a denial, which applies to any call with this number.
fn denial_key(effect: EffectId) -> String {
    format!("deny {effect}")
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
    use levity::core::{ControlCommand, EffectClass, EffectKind, EffectNote, Timestamp};

    use super::*;

    fn record(seq: u64, entry: Entry) -> Record {
        Record::new(seq, Timestamp::from_millis(seq), entry)
    }

    fn paused(seq: u64) -> Record {
        record(seq, Entry::Commanded(ControlCommand::Pause))
    }

    /// The journal of a run, with the states in which a crash can leave it.
    struct Sealed {
        path: PathBuf,
        run: RunId,
        chain: RecordChain,
        seal: Seal,
    }

    impl Sealed {
        fn start(path: PathBuf, records: &[Record]) -> Self {
            let run = RunId::new("r");
            let chain = RecordChain::new(&run, records).unwrap();
            let seal = Seal::start(&path, &chain).unwrap();
            Self {
                path,
                run,
                chain,
                seal,
            }
        }

        async fn begin(&mut self, records: &[Record]) {
            let lines = self.chain.extend(records).unwrap();
            self.seal.write(lines).await.unwrap();
        }

        async fn finish(&self) {
            self.seal.write_soon(self.chain.line()).await.unwrap();
        }

        fn matches(&self, records: &[Record]) -> bool {
            Seal::matches(&Seal::read(&self.path), &self.run, records)
        }

        /// Returns the numbers of records that match.
        fn counts(&self, records: &[Record]) -> Vec<usize> {
            let counts = 0..=records.len();
            counts
                .filter(|count| self.matches(&records[..*count]))
                .collect()
        }
    }

    #[tokio::test]
    async fn unfinished_append_matches_in_each_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seals/r");
        let records: Vec<_> = (0..9).map(paused).collect();
        assert!(!Seal::matches(&Seal::read(&path), &RunId::new("r"), &[]));
        let mut sealed = Sealed::start(path.clone(), &[]);
        assert_eq!(sealed.counts(&records), [0]);
        sealed.begin(&records[..6]).await;
        assert_eq!(sealed.counts(&records), [0, 1, 2, 3, 4, 5, 6]);
        sealed.finish().await;
        sealed.begin(&records[6..7]).await;
        assert_eq!(sealed.counts(&records), [6, 7]);
        let mut changed = records[..7].to_vec();
        changed[2].at = Timestamp::from_millis(99);
        assert!(!sealed.matches(&changed));
        let other = RunId::new("other");
        assert!(!Seal::matches(&Seal::read(&path), &other, &records[..7]));
    }

    #[tokio::test]
    async fn finished_append_matches_only_with_all_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seals/r");
        let records: Vec<_> = (0..9).map(paused).collect();
        let mut sealed = Sealed::start(path.clone(), &[]);
        for (from, to) in [(0, 6), (6, 7), (7, 9)] {
            sealed.begin(&records[from..to]).await;
            sealed.finish().await;
            assert_eq!(sealed.counts(&records), [to]);
        }
        assert_eq!(Sealed::start(path, &records).counts(&records), [9]);
    }

    fn asks(seq: u64, name: &str) -> Record {
        let note = EffectNote::new(EffectKind::Ask, name, EffectClass::AtMostOnce);
        let effect = EffectId::new(1);
        record(seq, Entry::Started { effect, note })
    }

    fn decide(effect: u64, decision: Decision) -> RunRequest {
        let effect = EffectId::new(effect);
        RunRequest::Decide { effect, decision }
    }

    /// Returns the decisions that a run with these records accepts.
    fn accepted(sent: &SentDecisions, records: &[Record], requests: &[RunRequest]) -> usize {
        let chain = RecordChain::new(&RunId::new("r"), records).unwrap();
        let mut requests = requests.to_vec();
        sent.drop_others(&chain, &mut requests);
        requests.len()
    }

    #[test]
    fn decision_is_accepted_for_the_question_that_it_was_sent_for() {
        let folder = tempfile::tempdir().unwrap();
        let sent = |mark: &str| SentDecisions::new(folder.path().join("a/r"), mark.to_owned());
        let (allow, deny) = (decide(1, Decision::Allow), decide(1, Decision::deny("no")));
        let pause = RunRequest::Command(ControlCommand::Pause);
        let asked = [paused(0), asks(1, "touch")];
        let chain = RecordChain::new(&RunId::new("r"), &asked).unwrap();
        assert!(sent("mark").add(&allow, Some(&chain)).unwrap());
        assert!(
            !sent("mark")
                .add(&decide(2, Decision::Allow), Some(&chain))
                .unwrap()
        );
        let all = [
            allow.clone(),
            decide(2, Decision::Allow),
            deny.clone(),
            pause,
        ];
        assert_eq!(accepted(&sent("mark"), &asked, &all), 2);
        assert_eq!(accepted(&sent("other"), &asked, &all), 1);
        // The same number asks about another call, as after a rollback.
        assert_eq!(
            accepted(&sent("mark"), &[paused(0), asks(1, "rm")], &all),
            1
        );
        // A run that is resumed asks again.
        let again = [&asked[..], &[asks(2, "touch")]].concat();
        assert_eq!(accepted(&sent("mark"), &again, &all), 2);
        sent("mark").add(&deny, None).unwrap();
        assert_eq!(accepted(&sent("mark"), &asked, &all), 3);

        let outcome = Outcome::Decision(Decision::Allow);
        let answered = record(2, Entry::finished(EffectId::new(1), outcome));
        let keys = chain.finished_keys(std::slice::from_ref(&answered));
        let answered = [&asked[..], &[answered]].concat();
        assert_eq!(accepted(&sent("mark"), &answered, &all[..1]), 0);
        sent("mark").remove(&keys);
        assert_eq!(accepted(&sent("mark"), &asked, &all), 1);
    }

    #[test]
    fn late_decision_is_not_counted_as_one_of_another_program() {
        let folder = tempfile::tempdir().unwrap();
        let sent = SentDecisions::new(folder.path().join("r"), "mark".to_owned());
        let outcome = Outcome::Decision(Decision::Allow);
        let answered = record(1, Entry::finished(EffectId::new(1), outcome));
        let chain = RecordChain::new(&RunId::new("r"), &[asks(0, "touch"), answered]).unwrap();
        let mut requests = vec![decide(1, Decision::Allow), decide(2, Decision::Allow)];
        assert_eq!(sent.drop_others(&chain, &mut requests), 1);
        assert_eq!(requests, []);
    }
}
