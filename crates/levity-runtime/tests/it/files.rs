//! Runs in files: torn, damaged, foreign, newer, long.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::{
    EffectClass, EffectId, EffectKind, EffectNote, Entry, Journal, JournalError, JournalErrorKind,
    Limits, MachineKind, Outcome, Record, RunHeader, RunId, RunQuery, Status, Timestamp, ToolCall,
    ToolOutput, ToolResult,
};
use levity_runtime::{Durability, FileJournal, MachineRun, Runtime};
use levity_test::conformance;
use serde_json::{Value, json};

use crate::driving::{Answers, Calls};

mod bit_flips;
mod crash;
mod runs;
mod upgrade;

/// A temporary folder of one test, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("files-{}-{number}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub(crate) fn journal(&self) -> FileJournal {
        FileJournal::new(&self.0).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.0.join("r.jsonl")
    }

    /// Returns the stored long texts, and incomplete files of others.
    fn bodies(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.0.join("bodies")) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.ends_with("lock"))
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run() -> RunId {
    RunId::new("r")
}

pub(crate) fn opened() -> Entry {
    Entry::Opened(RunHeader::new(
        MachineKind::new("calls", 1),
        json!({"count": 1}),
        Limits::default(),
    ))
}

pub(crate) fn result(text: &str, value: Option<Value>) -> Entry {
    let output = value.map_or_else(|| ToolOutput::text(text), ToolOutput::value);
    let result = ToolResult::new(&ToolCall::new("c", "tool", json!({})), Ok(output));
    Entry::finished(EffectId::new(0), Outcome::Tool(result))
}

/// Computes CRC-32 bit by bit, as it is defined.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

/// Returns a line of a record with its matching checksum.
pub(crate) fn sealed(line: &str) -> String {
    let body = unsealed(line);
    let body = body.strip_suffix('}').unwrap();
    format!("{body},\"crc\":\"{:08x}\"}}", crc(body.as_bytes()))
}

/// Returns a line of a record as versions without checksums wrote it.
pub(crate) fn unsealed(line: &str) -> String {
    match line.rfind(",\"crc\":\"") {
        Some(at) => format!("{}}}", &line[..at]),
        None => line.to_owned(),
    }
}

/// Returns all lines of a file, with matching checksums.
pub(crate) fn resealed(text: &str) -> String {
    let is_header = |line: &str| line.starts_with("{\"levity_journal\"");
    let whole = |line: &str| {
        if is_header(line) {
            line.to_owned()
        } else {
            sealed(line)
        }
    };
    text.lines().map(|line| whole(line) + "\n").collect()
}

async fn write(journal: &FileJournal, entries: Vec<Entry>) -> Vec<Record> {
    write_to(journal, &run(), entries).await
}

pub(crate) async fn write_to(
    journal: &dyn Journal,
    run: &RunId,
    entries: Vec<Entry>,
) -> Vec<Record> {
    let mut open = journal.open(run).await.unwrap();
    let first = open.records.len() as u64;
    let records: Vec<Record> = (first..)
        .zip(entries)
        .map(|(seq, entry)| Record::new(seq, Timestamp::from_millis(5), entry))
        .collect();
    open.log.append(&records).await.unwrap();
    records
}

#[tokio::test]
async fn file_journal_passes_conformance_suite() {
    for durability in [Durability::Synced, Durability::Buffered] {
        let folders = std::sync::Mutex::new(Vec::new());
        conformance::journal(async || {
            let folder = Folder::new();
            let journal = folder.journal().with_durability(durability);
            folders.lock().unwrap().push(folder);
            journal
        })
        .await;
    }
}

#[tokio::test]
async fn run_file_consists_of_readable_json_lines() {
    let folder = Folder::new();
    let executor = Arc::new(Answers::default());
    let runtime = Runtime::new().with_journal(folder.journal());
    runtime
        .run(MachineRun::new(Calls::at_once(2), executor).id(run()))
        .await
        .unwrap();
    let text = fs::read_to_string(folder.file()).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0], json!({"levity_journal": 1, "run": "r"}));
    assert_eq!(lines[1]["entry"]["opened"]["machine"]["name"], "calls");
    assert_eq!(lines.last().unwrap()["entry"]["ended"], "complete");
    let listed = folder.journal().list(&RunQuery::new()).await.unwrap();
    assert_eq!(
        (listed[0].records, &listed[0].status),
        (lines.len() as u64 - 1, &Some(Status::Complete))
    );
}

#[tokio::test]
async fn run_file_cut_in_last_line_opens_with_earlier_records() {
    let folder = Folder::new();
    let records = write(
        &folder.journal(),
        vec![opened(), result("one", None), result("two", None)],
    )
    .await;
    let whole = fs::read(folder.file()).unwrap();
    let ends: Vec<usize> = (1..=whole.len())
        .filter(|end| whole[end - 1] == b'\n')
        .collect();
    for end in 0..whole.len() {
        fs::write(folder.file(), &whole[..end]).unwrap();
        let open = folder.journal().open(&run()).await.unwrap();
        let lines = ends.iter().filter(|line| **line <= end).count();
        assert_eq!(
            open.records,
            records[..lines.saturating_sub(1)],
            "cut at byte {end}"
        );
        drop(open);
        let left = fs::metadata(folder.file()).map_or(0, |there| there.len());
        let good = if lines == 0 { 0 } else { ends[lines - 1] };
        assert_eq!(left, good as u64, "cut at byte {end}");
    }
    // A power failure may leave space that was never written.
    let mut zeros = whole.clone();
    zeros.extend_from_slice(&[0; 100]);
    fs::write(folder.file(), zeros).unwrap();
    assert_eq!(
        folder.journal().open(&run()).await.unwrap().records,
        records
    );
    assert_eq!(fs::read(folder.file()).unwrap(), whole);
}

/// Checks that the content of a file leads to this error, and stays unchanged.
async fn refused(text: &[u8], kind: JournalErrorKind, part: &str) {
    let folder = Folder::new();
    let journal = folder.journal();
    fs::write(folder.file(), text).unwrap();
    let error: JournalError = journal.open(&run()).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
    assert_eq!(fs::read(folder.file()).unwrap(), text, "it was changed");
}

#[tokio::test]
async fn damaged_run_file_is_rejected_and_unchanged() {
    let folder = Folder::new();
    write(
        &folder.journal(),
        vec![opened(), result("one", None), result("two", None)],
    )
    .await;
    let whole = fs::read_to_string(folder.file()).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let damaged = JournalErrorKind::Damaged;
    let middle = whole.replace("\"one\"", "\"on");
    refused(middle.as_bytes(), damaged, "line 3: it is not record 1").await;
    let missing = [lines[0], lines[1], lines[3], ""].join("\n");
    refused(missing.as_bytes(), damaged, "line 3: it is not record 1").await;
    let twice = [lines[0], lines[1], lines[1], ""].join("\n");
    refused(twice.as_bytes(), damaged, "line 3: it is not record 1").await;
    refused(
        whole.replace("\"run\":\"r\"", "\"run\":\"q\"").as_bytes(),
        damaged,
        "it belongs to run `q`",
    )
    .await;
    refused(b"name,age\nAda,36\n", damaged, "not a levity journal").await;
    refused(b"\xff\xfe\x00", damaged, "not a levity journal").await;
    let newer = whole.replace("\"levity_journal\":1", "\"levity_journal\":2");
    refused(
        newer.as_bytes(),
        JournalErrorKind::Version,
        "use a newer version",
    )
    .await;
}

#[tokio::test]
async fn long_texts_are_stored_once_and_restored() {
    let folder = Folder::new();
    let long = "ä".repeat(50_000);
    let tricky = json!({"$body": "x",
        "deep": [{"$quoted": {"$body": long}}, {"$body": 1, "b": long}], "t": long});
    let entries = vec![
        opened(),
        result(&long, None),
        result("", Some(tricky)),
        result(&long, None),
    ];
    let records = write(&folder.journal(), entries).await;
    assert_eq!(
        folder.journal().open(&run()).await.unwrap().records,
        records
    );
    let kept = folder.bodies();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(fs::metadata(folder.file()).unwrap().len() < 4_000);

    fs::write(&kept[0], "something else").unwrap();
    let error = folder.journal().open(&run()).await.map(|_| ()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is damaged: it is not the text that was written"),
        "{error}"
    );
    fs::remove_file(&kept[0]).unwrap();
    let error = folder.journal().open(&run()).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

#[tokio::test]
async fn run_can_be_read_while_it_is_written() {
    let folder = Folder::new();
    let records = write(&folder.journal(), vec![opened(), result("one", None)]).await;
    let held = folder.journal().open(&run()).await.unwrap();
    assert_eq!(folder.journal().read(&run()).await.unwrap(), records);
    assert!(
        folder
            .journal()
            .read(&RunId::new("nobody"))
            .await
            .unwrap()
            .is_empty()
    );
    drop(held);
    let torn = [fs::read(folder.file()).unwrap(), b"{\"seq\":2".to_vec()].concat();
    fs::write(folder.file(), &torn).unwrap();
    assert_eq!(folder.journal().read(&run()).await.unwrap(), records);
    assert_eq!(
        fs::read(folder.file()).unwrap(),
        torn,
        "who only looks mends nothing"
    );
}

#[tokio::test]
async fn unreadable_record_is_not_written() {
    let folder = Folder::new();
    let records = write(&folder.journal(), vec![opened()]).await;
    let deep = (0..125).fold(json!(1), |inner, _| json!([inner]));
    let mut open = folder.journal().open(&run()).await.unwrap();
    let record = Record::new(1, Timestamp::default(), result("", Some(deep)));
    let error = open.log.append(&[record]).await.unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Refused, "{error}");
    drop(open);
    assert_eq!(
        folder.journal().open(&run()).await.unwrap().records,
        records
    );
}

#[tokio::test]
async fn list_ignores_files_that_are_not_runs() {
    let folder = Folder::new();
    write(&folder.journal(), vec![opened()]).await;
    fs::create_dir(folder.0.join("folder.jsonl")).unwrap();
    fs::write(folder.0.join("other.jsonl"), "name,age\n").unwrap();
    fs::write(folder.0.join("empty.jsonl"), "").unwrap();
    assert_eq!(
        folder.journal().list(&RunQuery::new()).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn ids_that_are_not_file_names_are_rejected() {
    let folder = Folder::new();
    for id in [
        "",
        ".",
        "..",
        "a/b",
        "../a",
        "a\\b",
        "a\0b",
        "ä",
        ".hidden",
        &"x".repeat(201),
    ] {
        let error = folder
            .journal()
            .open(&RunId::new(id))
            .await
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.kind(), JournalErrorKind::Refused, "{id:?}");
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[tokio::test]
async fn looking_up_a_missing_run_leaves_no_file() {
    let folder = Folder::new();
    let job = MachineRun::<Calls>::resume(run(), Arc::new(Answers::default()), |_, _| {
        Ok(Calls::at_once(1))
    });
    assert!(
        Runtime::new()
            .with_journal(folder.journal())
            .run(job)
            .await
            .is_err()
    );
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[cfg(unix)]
#[tokio::test]
async fn only_regular_file_is_a_journal() {
    let folder = Folder::new();
    let journal = folder.journal();
    // Reading it would never end.
    std::os::unix::fs::symlink("/dev/zero", folder.file()).unwrap();
    let error = journal.open(&run()).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Refused, "{error}");
}

/// A foreign folder may have links in the places of files and folders that a journal writes.
#[cfg(unix)]
#[tokio::test]
async fn links_in_journal_folder_are_not_followed_for_writing() {
    let long = "long ".repeat(20_000);
    let outside = Folder::new();
    fs::create_dir_all(&outside.0).unwrap();
    let victim = outside.0.join("victim");
    for name in ["r.jsonl", ".r.jsonl.new", "bodies", "bodies/lock"] {
        for exists in [false, true] {
            let folder = Folder::new();
            let journal = folder.journal();
            let target = if name == "bodies" {
                &*outside.0
            } else {
                &*victim
            };
            let _ = fs::remove_file(&victim);
            if exists {
                fs::write(&victim, "").unwrap();
            }
            let place = folder.0.join(name);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, &place).unwrap();
            let written = async {
                let mut open = journal.open(&RunId::new("r")).await?;
                let started = |seq| {
                    let note = EffectNote::new(EffectKind::Tool, &*long, EffectClass::AtMostOnce);
                    Record::new(
                        seq,
                        Timestamp::from_millis(1),
                        Entry::Started {
                            effect: EffectId::new(seq),
                            note,
                        },
                    )
                };
                open.log.append(&[started(0), started(1)]).await
            };
            let error = written.await.unwrap_err();
            let whole = format!("{error}: {:?}", std::error::Error::source(&error));
            assert!(
                whole.contains("is a symbolic link, which levity does not write through"),
                "{name}: {whole}"
            );
            assert_eq!(fs::read(&victim).ok(), exists.then(Vec::new), "{name}");
            let _ = journal.remove_unused_texts().await;
            let names: Vec<_> = fs::read_dir(&outside.0)
                .unwrap()
                .map(|it| it.unwrap().file_name())
                .collect();
            assert!(
                names.iter().all(|name| name == "victim"),
                "{name}: {names:?}"
            );
        }
    }
}

/// Returns everything below a folder, with the permissions of users other than the owner.
#[cfg(unix)]
pub(crate) fn rights_of_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push((
            path.clone(),
            fs::metadata(&path).unwrap().permissions().mode() & 0o077,
        ));
        if path.is_dir() {
            found.extend(rights_of_others(&path));
        }
    }
    found
}

/// Lets other users read a file, and reach it.
#[cfg(unix)]
pub(crate) fn share(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn run_files_are_created_for_owner_only() {
    let folder = Folder::new();
    let journal = FileJournal::new(folder.0.join("deep/runs")).unwrap();
    write(
        &journal,
        vec![opened(), result(&"long ".repeat(100_000), None)],
    )
    .await;
    let rights = rights_of_others(&folder.0);
    assert!(rights.len() >= 5, "{rights:?}");
    assert!(rights.iter().all(|(_, rights)| *rights == 0), "{rights:?}");
    assert_eq!(journal.problems(), [""; 0]);
}

#[cfg(unix)]
#[tokio::test]
async fn run_files_readable_by_others_are_reported_and_unchanged() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder =
        Folder(std::env::temp_dir().join(format!("levity-shared-runs-{}", std::process::id())));
    let dir = folder.0.join("it's");
    let journal = FileJournal::new(&dir).unwrap();
    write(&journal, vec![opened()]).await;
    let file = dir.join("r.jsonl");
    share(&file, 0o644);
    // Other users cannot enter the folder.
    assert_eq!(journal.problems(), [""; 0]);
    share(&dir, 0o755);
    share(&folder.0, 0o755);
    let journal = FileJournal::new(&dir).unwrap();
    let problems = journal.problems();
    let passes = |above: &Path| fs::metadata(above).unwrap().permissions().mode() & 0o011 != 0;
    if !folder.0.ancestors().all(passes) {
        // The folder for temporary files is private itself.
        return assert_eq!(problems, [""; 0]);
    }
    let command = format!("`chmod -R go-rwx '{}/it'\\''s'`", folder.0.display());
    assert!(
        problems.len() == 1 && problems[0].contains("r.jsonl") && problems[0].contains(&command),
        "{problems:?}"
    );
    write(&journal, vec![result("one", None)]).await;
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o644
    );
    let _ = std::process::Command::new("sh")
        .args(["-c", command.trim_matches('`')])
        .status()
        .unwrap();
    assert_eq!(journal.problems(), [""; 0]);
}

#[tokio::test]
async fn too_large_file_is_rejected_and_not_read() {
    let folder = Folder::new();
    let journal = folder.journal();
    fs::create_dir_all(&folder.0).unwrap();
    // The file has a length but takes no space.
    fs::File::create(folder.0.join("r.jsonl"))
        .unwrap()
        .set_len(64 << 30)
        .unwrap();
    assert_eq!(journal.list(&RunQuery::new()).await.unwrap(), []);
    let opened = journal.open(&RunId::new("r")).await.map(drop);
    for error in [
        opened.unwrap_err(),
        journal.read(&RunId::new("r")).await.unwrap_err(),
    ] {
        let source = format!("{:?}", std::error::Error::source(&error));
        assert!(source.contains("larger than 1024 MiB"), "{error}: {source}");
    }
}
