//! The files of a workspace as documents.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use levity_context::WorkspaceFiles;
use levity_core::{ModelError, Timestamp, Usage, VectorStoreError};
use levity_sandbox::{OpenFile, Workspace};
use levity_search::add_usage;

use crate::files::FileRecords;
use crate::index::check;
use crate::watch::Stamps;
use crate::{Document, DocumentError, DocumentIndex};

/// The default maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// The default maximum size of a file that a reader of formats reads, in bytes.
const MAX_FORMAT_BYTES: u64 = 64 << 20;
/// The default maximum number of files.
const MAX_FILES: usize = 100_000;
/// The amount of text that is added together, in bytes.
const BATCH_BYTES: usize = 4 << 20;
/// The number of files in other formats that are read together.
const BATCH_FORMATS: usize = 16;
/// The reason why a file that is not text is left out.
#[cfg(feature = "formats")]
const NOT_TEXT: &str = "it is not text in UTF-8";
#[cfg(not(feature = "formats"))]
const NOT_TEXT: &str = "it is not text in UTF-8; PDF and other formats need the feature `formats`";
/// The number of documents that are removed together.
const BATCH_REMOVED: usize = 500;

/// Brings an index up to date with the files of a workspace.
///
/// - New and changed files are added; files whose text is the same are only read.
/// - Documents of files that no longer exist are removed. Documents that a program added by
///   [`DocumentIndex::add`] stay.
/// - Files that `.gitignore` names, that the workspace denies, that are too large or are not text
///   are left out, and the report tells why.
/// - With the feature `formats`, HTML files are read, and a [reader](Self::reader) reads PDF,
///   Office and other files. Each part of an archive becomes a document, such as
///   `box.zip/tides.md`.
///
/// A process that is killed leaves a valid index, which the next update completes.
///
/// ```
/// use levity_docs::{DocumentIndex, FolderUpdate, SearchOptions};
/// use levity_sandbox::Workspace;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("tides.md"), "High water is at six.")?;
/// let workspace = Workspace::builder(folder.path()).read_only().build()?;
/// let index = DocumentIndex::in_memory()?;
/// let report = FolderUpdate::new(&index, &workspace).run().await?;
/// assert_eq!((report.added, report.skipped.len()), (1, 0));
/// # Ok(())
/// # }
/// ```
pub struct FolderUpdate<'a> {
    index: &'a DocumentIndex,
    workspace: Workspace,
    max_file_bytes: u64,
    max_format_bytes: u64,
    max_files: usize,
    stamps: Option<Arc<Stamps>>,
    #[cfg(feature = "formats")]
    reader: Option<crate::FormatReader>,
    on_progress: Box<dyn Fn(FolderProgress) + Send + Sync + 'a>,
}

impl std::fmt::Debug for FolderUpdate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderUpdate")
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

/// How far an update is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FolderProgress {
    /// The number of files that were read or left out.
    pub done: usize,
    /// The number of all files.
    pub files: usize,
}

/// The result of an update.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FolderReport {
    /// The number of documents that were new or had another text.
    pub added: usize,
    /// The number of documents whose text the index had already. A file in another format that has
    /// not changed counts as one.
    pub unchanged: usize,
    /// The number of documents that were removed, because their files no longer exist.
    pub removed: usize,
    /// The number of passages of the added documents.
    pub passages: usize,
    /// The files that were left out.
    pub skipped: Vec<SkippedFile>,
    /// Set if the folder has more files than could be listed. Then no document is removed.
    pub incomplete: bool,
    /// The reason why some passages have no vector, although there is an embedder.
    pub embedding_error: Option<ModelError>,
    /// The reason why the vector store does not have all vectors, or still has those of removed
    /// passages.
    pub store_error: Option<VectorStoreError>,
    /// The tokens that the embedder used.
    pub usage: Usage,
}

/// A file that is not in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedFile {
    /// The path in the workspace.
    pub path: String,
    /// The reason why it was left out.
    pub reason: String,
}

impl<'a> FolderUpdate<'a> {
    /// Prepares an update of this index with the files of this workspace.
    pub fn new(index: &'a DocumentIndex, workspace: &Workspace) -> Self {
        Self {
            index,
            workspace: workspace.clone(),
            max_file_bytes: MAX_FILE_BYTES,
            max_format_bytes: MAX_FORMAT_BYTES,
            max_files: MAX_FILES,
            stamps: None,
            #[cfg(feature = "formats")]
            reader: None,
            on_progress: Box::new(|_| {}),
        }
    }

    /// Sets the maximum size of a file, in bytes; 8 MiB by default.
    #[must_use]
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = bytes;
        self
    }

    /// Sets the maximum size of a file that the [reader](Self::reader) reads, in bytes; 64 MiB by
    /// default.
    #[must_use]
    pub fn max_format_bytes(mut self, bytes: u64) -> Self {
        self.max_format_bytes = bytes;
        self
    }

    /// Reads PDF, Office and other files with this reader. Without one, they are left out.
    #[cfg(feature = "formats")]
    #[must_use]
    pub fn reader(mut self, reader: &crate::FormatReader) -> Self {
        self.reader = Some(reader.clone());
        self
    }

    /// Skips files that have not changed since the last update with these stamps.
    pub(crate) fn stamps(mut self, stamps: &Arc<Stamps>) -> Self {
        self.stamps = Some(stamps.clone());
        self
    }

    /// Sets the maximum number of files; 100,000 by default.
    #[must_use]
    pub fn max_files(mut self, files: usize) -> Self {
        self.max_files = files;
        self
    }

    /// Calls a function after each batch of files.
    #[must_use]
    pub fn on_progress(mut self, report: impl Fn(FolderProgress) + Send + Sync + 'a) -> Self {
        self.on_progress = Box::new(report);
        self
    }

    /// Reads the files and changes the index.
    ///
    /// # Errors
    /// [`Refused`](crate::DocumentErrorKind::Refused) if the folder cannot be listed; and if the
    /// index cannot be written.
    pub async fn run(self) -> Result<FolderReport, DocumentError> {
        let listed = WorkspaceFiles::new(&self.workspace).max_files(self.max_files);
        let listed = listed.list().await.map_err(|error| {
            DocumentError::refused(format!("the files of the folder cannot be listed: {error}"))
        })?;
        let mut report = FolderReport {
            incomplete: listed.missing > 0 || listed.has_more,
            ..FolderReport::default()
        };
        let files = listed.view.files;
        let records = self.index.file_records().await?;
        let mut kept = HashSet::new();
        let mut rest = files.as_slice();
        while !rest.is_empty() {
            let batch = self.read_batch(rest.to_vec()).await?;
            rest = &rest[batch.files..];
            report.unchanged += batch.unchanged.len();
            kept.extend(batch.unchanged);
            kept.extend(batch.documents.iter().map(|document| document.name.clone()));
            report.skipped.extend(batch.skipped);
            self.add(batch.documents, &mut report).await?;
            self.read_formats(batch.packed, &records, &mut kept, &mut report)
                .await?;
            let (done, files) = (files.len() - rest.len(), files.len());
            (self.on_progress)(FolderProgress { done, files });
        }
        if !report.incomplete {
            report.removed += self.remove_others(&kept).await?;
            self.remove_records(&files, &records).await?;
            let cleaned = self.index.clean_store().await?;
            report.store_error = cleaned.or(report.store_error.take());
        }
        Ok(report)
    }

    async fn add(
        &self,
        documents: Vec<Document>,
        report: &mut FolderReport,
    ) -> Result<(), DocumentError> {
        let added = self.index.add_all(documents).await?;
        report.added += added.added;
        report.unchanged += added.unchanged;
        report.passages += added.passages;
        report.embedding_error = added.embedding_error.or(report.embedding_error.take());
        report.store_error = added.store_error.or(report.store_error.take());
        add_usage(&mut report.usage, added.usage);
        Ok(())
    }

    /// Reads files until there is enough text for a batch.
    async fn read_batch(&self, files: Vec<String>) -> Result<Batch, DocumentError> {
        let workspace = self.workspace.clone();
        let stamps = self.stamps.clone();
        let limits = ReadLimits {
            text: self.max_file_bytes,
            format: self.max_format_bytes,
            #[cfg(feature = "formats")]
            has_reader: self.reader.is_some(),
        };
        let read = move || {
            let (mut batch, mut bytes) = (Batch::default(), 0);
            for path in files {
                batch.files += 1;
                match read(&workspace, &path, &limits, stamps.as_deref()) {
                    Ok(Content::Unchanged) => batch.unchanged.push(path),
                    Ok(Content::Texts(documents)) => {
                        bytes += documents.iter().map(|one| one.text.len()).sum::<usize>();
                        batch.documents.extend(documents);
                    }
                    #[cfg(feature = "formats")]
                    Ok(Content::Packed(packed)) => {
                        bytes += packed.bytes.len();
                        batch.packed.push(packed);
                    }
                    Err(reason) => batch.skipped.push(SkippedFile { path, reason }),
                }
                if bytes >= BATCH_BYTES || batch.packed.len() >= BATCH_FORMATS {
                    break;
                }
            }
            batch
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| DocumentError::refused(format!("reading was interrupted: {error}")))
    }

    /// Without a reader, no file is in another format.
    #[cfg(not(feature = "formats"))]
    async fn read_formats(
        &self,
        _: Vec<PackedFile>,
        _: &FileRecords,
        _: &mut HashSet<String>,
        _: &mut FolderReport,
    ) -> Result<(), DocumentError> {
        Ok(())
    }

    /// Removes the documents of files that are not among these.
    async fn remove_others(&self, kept: &HashSet<String>) -> Result<usize, DocumentError> {
        let (mut gone, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.index.documents(&after, 1_000).await?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.name);
            let is_gone =
                |file: &Option<String>| file.as_ref().is_some_and(|file| !kept.contains(file));
            gone.extend(
                page.into_iter()
                    .filter(|info| is_gone(&info.file))
                    .map(|info| info.name),
            );
        }
        self.remove(&gone).await
    }

    async fn remove(&self, names: &[String]) -> Result<usize, DocumentError> {
        let mut removed = 0;
        for names in names.chunks(BATCH_REMOVED) {
            removed += self.index.remove_from_file(names.to_vec()).await?;
        }
        Ok(removed)
    }

    /// Removes what is known of files that no longer exist.
    async fn remove_records(
        &self,
        files: &[String],
        records: &FileRecords,
    ) -> Result<(), DocumentError> {
        let files: HashSet<&str> = files.iter().map(String::as_str).collect();
        let exists = |name: &str| {
            let ends = name.match_indices('/').map(|(end, _)| end);
            ends.chain([name.len()])
                .any(|end| files.contains(&name[..end]))
        };
        let gone: Vec<_> = records.keys().filter(|name| !exists(name)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let gone = gone.into_iter().cloned().collect();
        self.index.replace_file_records(gone, Vec::new()).await
    }
}

#[cfg(feature = "formats")]
mod formats {
    //! Files in formats that a reader reads.

    use std::collections::{HashSet, VecDeque};
    use std::thread::available_parallelism;

    use levity_core::__private::sha256;
    use levity_core::Timestamp;
    use levity_formats::{FileTexts, Text, TextLayout};
    use levity_sandbox::Workspace;
    use tokio::task::JoinSet;

    use super::{FolderReport, FolderUpdate, PackedFile, SkippedFile};
    use crate::files::{FileRecord, FileRecords, parts};
    use crate::index::check;
    use crate::reader::ReadError;
    use crate::{Document, DocumentError, TextKind};

    /// The version of the readers. With another one, all files are read again.
    const VERSION: u32 = 1;

    impl FolderUpdate<'_> {
        /// Adds the texts of files that the index does not know yet.
        pub(super) async fn read_formats(
            &self,
            packed: Vec<PackedFile>,
            records: &FileRecords,
            kept: &mut HashSet<String>,
            report: &mut FolderReport,
        ) -> Result<(), DocumentError> {
            let mut new = VecDeque::new();
            for file in packed {
                let hash = format!("{VERSION}:{}", sha256(&file.bytes));
                let known = records.get(&file.path).filter(|record| record.hash == hash);
                match known {
                    // A program may have removed the documents of a file.
                    Some(record)
                        if record.reason.is_some()
                            || !self.index.documents_of(&file.path).await?.is_empty() =>
                    {
                        report_known(&file.path, record, records, report);
                        kept.extend(record.reason.is_none().then_some(file.path));
                    }
                    _ => new.push_back((file, hash)),
                }
            }
            let Some(reader) = &self.reader else {
                return Ok(());
            };
            let at_once = available_parallelism().map_or(1, usize::from).min(8);
            let mut running = JoinSet::new();
            loop {
                while running.len() < at_once
                    && let Some((file, hash)) = new.pop_front()
                {
                    let reader = reader.clone();
                    running.spawn(async move {
                        let read = reader.read(&file.path, &file.bytes).await;
                        (file.path, file.changed, hash, read)
                    });
                }
                let Some(ended) = running.join_next().await else {
                    return Ok(());
                };
                let (path, changed, hash, read) = ended.map_err(|error| {
                    DocumentError::refused(format!("reading was interrupted: {error}"))
                })?;
                let added = self.add_texts(&path, changed, hash, read, report).await?;
                kept.extend(added.then_some(path));
            }
        }

        /// Replaces the documents of a file by these texts. Returns `true` if it has documents.
        async fn add_texts(
            &self,
            path: &str,
            changed: Option<Timestamp>,
            hash: String,
            read: Result<FileTexts, ReadError>,
            report: &mut FolderReport,
        ) -> Result<bool, DocumentError> {
            let mut left_out = Vec::new();
            let mut documents = Vec::new();
            match read {
                // The file may be readable later, so nothing is recorded, and its texts stay.
                Err(ReadError::Reader(reason)) => {
                    report.skipped.push(SkippedFile {
                        path: path.to_owned(),
                        reason,
                    });
                    return Ok(true);
                }
                Err(ReadError::File(reason)) => left_out.push((path.to_owned(), reason)),
                Ok(texts) => {
                    let parts = texts.left_out.into_iter();
                    left_out.extend(parts.map(|part| (part.name, part.error.to_string())));
                    for text in texts.texts {
                        match document(&self.workspace, path, changed, text) {
                            Ok(document) => documents.push(document),
                            Err(part) => left_out.push(part),
                        }
                    }
                }
            }
            let names: HashSet<_> = documents.iter().map(|one| one.name.clone()).collect();
            let earlier = self.index.documents_of(path).await?.into_iter();
            let gone: Vec<_> = earlier.filter(|name| !names.contains(name)).collect();
            report.removed += self.remove(&gone).await?;
            self.add(documents, report).await?;
            let record = |(name, reason): &(String, String)| {
                let record = FileRecord {
                    hash: hash.clone(),
                    reason: Some(reason.clone()),
                };
                (name.clone(), record)
            };
            let mut records: Vec<_> = left_out.iter().map(record).collect();
            if left_out.iter().all(|(name, _)| name != path) {
                let hash = hash.clone();
                records.push((path.to_owned(), FileRecord { hash, reason: None }));
            }
            // The record is written last: an update that is killed reads the file again.
            self.index
                .replace_file_records(vec![path.to_owned()], records)
                .await?;
            report.skipped.extend(
                left_out
                    .into_iter()
                    .map(|(path, reason)| SkippedFile { path, reason }),
            );
            Ok(!names.is_empty())
        }
    }

    /// Reports a file that was read earlier.
    fn report_known(
        path: &str,
        record: &FileRecord,
        records: &FileRecords,
        report: &mut FolderReport,
    ) {
        let mut skip = |path: &str, reason: &Option<String>| match reason {
            Some(reason) => report.skipped.push(SkippedFile {
                path: path.to_owned(),
                reason: reason.clone(),
            }),
            None => report.unchanged += 1,
        };
        skip(path, &record.reason);
        for (path, part) in parts(records, path) {
            skip(path, &part.reason);
        }
    }

    /// Creates the document of a text of a file, or returns its name and why it is left out.
    pub(super) fn document(
        workspace: &Workspace,
        file: &str,
        changed: Option<Timestamp>,
        text: Text,
    ) -> Result<Document, (String, String)> {
        let is_part = text.name != file;
        if is_part && workspace.denies(&text.name) {
            return Err((text.name, "files with this name are denied".into()));
        }
        let mut document = Document::new(text.name, text.text);
        document.pages = text.pages;
        document.changed = changed;
        document.file = Some(file.to_owned());
        match text.layout {
            TextLayout::Markdown => document.kind = TextKind::Markdown,
            TextLayout::Table => document.kind = TextKind::Table,
            TextLayout::Prose => document.kind = TextKind::Prose,
            _ => {}
        }
        match check(&document) {
            Ok(()) => Ok(document),
            Err(error) => Err((document.name, error.to_string())),
        }
    }
}

/// Some files of a workspace.
#[derive(Default)]
struct Batch {
    /// The number of files, read or not.
    files: usize,
    /// The files that have not changed since the last update.
    unchanged: Vec<String>,
    documents: Vec<Document>,
    packed: Vec<PackedFile>,
    skipped: Vec<SkippedFile>,
}

/// A file for the reader of formats.
#[cfg(feature = "formats")]
struct PackedFile {
    path: String,
    bytes: Vec<u8>,
    changed: Option<Timestamp>,
}

/// Without a reader, there is no such file.
#[cfg(not(feature = "formats"))]
enum PackedFile {}

/// The content of a file.
enum Content {
    Unchanged,
    Texts(Vec<Document>),
    #[cfg(feature = "formats")]
    Packed(PackedFile),
}

/// The maximum sizes of files.
struct ReadLimits {
    text: u64,
    #[cfg_attr(not(feature = "formats"), expect(dead_code))]
    format: u64,
    #[cfg(feature = "formats")]
    has_reader: bool,
}

/// Reads a file, or returns the reason why it is left out.
fn read(
    workspace: &Workspace,
    path: &str,
    limits: &ReadLimits,
    stamps: Option<&Stamps>,
) -> Result<Content, String> {
    let file = workspace
        .open_file(path)
        .map_err(|error| error.to_string())?;
    let (size, modified) = (file.metadata().size(), file.metadata().modified());
    if stamps.is_some_and(|stamps| stamps.is_known(path, size, modified)) {
        return Ok(Content::Unchanged);
    }
    let content = read_changed(workspace, path, file, limits);
    if let Some(stamps) = stamps {
        stamps.set(path, size, modified);
    }
    content
}

#[cfg(not(feature = "formats"))]
fn read_changed(
    _: &Workspace,
    path: &str,
    mut file: OpenFile,
    limits: &ReadLimits,
) -> Result<Content, String> {
    let changed = time_of(file.metadata().modified());
    let bytes = read_within(&mut file, limits.text)?;
    Ok(Content::Texts(vec![plain(path, bytes, changed)?]))
}

#[cfg(feature = "formats")]
fn read_changed(
    workspace: &Workspace,
    path: &str,
    mut file: OpenFile,
    limits: &ReadLimits,
) -> Result<Content, String> {
    use levity_formats::{FormatRisk, Limits, format_risk};
    let changed = time_of(file.metadata().modified());
    let head = workspace
        .read_prefix(path, 1_024)
        .map_err(|error| error.to_string())?;
    match format_risk(path, &head.bytes) {
        FormatRisk::Plain => {
            let bytes = read_within(&mut file, limits.text)?;
            Ok(Content::Texts(vec![plain(path, bytes, changed)?]))
        }
        FormatRisk::Bounded => {
            let bytes = read_within(&mut file, limits.text)?;
            let found = levity_formats::read(path, &bytes, &Limits::new());
            let found = found.map_err(|error| error.to_string())?;
            let documents = found.texts.into_iter();
            let documents = documents.map(|text| formats::document(workspace, path, changed, text));
            let documents: Result<_, _> = documents.collect();
            documents.map(Content::Texts).map_err(|(_, reason)| reason)
        }
        _ if !limits.has_reader => Err("it is a PDF, an Office file or another file that needs a \
            reader of formats, and this update has none"
            .into()),
        _ => Ok(Content::Packed(PackedFile {
            bytes: read_within(&mut file, limits.format)?,
            path: path.to_owned(),
            changed,
        })),
    }
}

/// Reads a whole file of at most `max` bytes.
fn read_within(file: &mut OpenFile, max: u64) -> Result<Vec<u8>, String> {
    let size = file.metadata().size();
    let too_large = || format!("it has {size} bytes, but the limit is {max}");
    if size > max {
        return Err(too_large());
    }
    let excerpt = file.read_up_to(max).map_err(|error| error.to_string())?;
    match excerpt.truncated {
        true => Err(too_large()),
        false => Ok(excerpt.bytes),
    }
}

/// Returns the document of a file that is plain text.
fn plain(path: &str, bytes: Vec<u8>, changed: Option<Timestamp>) -> Result<Document, String> {
    let text = String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'));
    let text = text.ok_or(NOT_TEXT)?;
    let mut document = Document::new(path, text);
    check(&document).map_err(|error| error.to_string())?;
    document.file = Some(path.to_owned());
    document.changed = changed;
    Ok(document)
}

fn time_of(modified: SystemTime) -> Option<Timestamp> {
    let time = modified.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(time.as_millis())
        .ok()
        .map(Timestamp::from_millis)
}
