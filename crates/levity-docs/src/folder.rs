//! The files of a workspace as documents.

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use levity_context::WorkspaceFiles;
use levity_core::{ModelError, Timestamp, Usage, VectorStoreError};
use levity_sandbox::Workspace;
use levity_search::add_usage;

use crate::index::check;
use crate::{Document, DocumentError, DocumentIndex};

/// The default maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// The default maximum number of files.
const MAX_FILES: usize = 100_000;
/// The amount of text that is added together, in bytes.
const BATCH_BYTES: usize = 4 << 20;
/// The number of documents that are removed together.
const BATCH_REMOVED: usize = 500;

/// Brings an index up to date with the files of a workspace.
///
/// - New and changed files are added; files whose text is the same are only read.
/// - Documents of files that no longer exist are removed. Documents that a program added by
///   [`DocumentIndex::add`] stay.
/// - Files that `.gitignore` names, that the workspace denies, that are too large or are not text
///   are left out, and the report tells why.
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
    max_files: usize,
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
    /// The number of files whose text the index had already.
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
            max_files: MAX_FILES,
            on_progress: Box::new(|_| {}),
        }
    }

    /// Sets the maximum size of a file, in bytes; 8 MiB by default.
    #[must_use]
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = bytes;
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
        let mut kept = HashSet::new();
        let mut rest = files.as_slice();
        while !rest.is_empty() {
            let batch = self.read_batch(rest.to_vec()).await?;
            rest = &rest[batch.files..];
            kept.extend(batch.documents.iter().map(|document| document.name.clone()));
            report.skipped.extend(batch.skipped);
            self.add(batch.documents, &mut report).await?;
            let (done, files) = (files.len() - rest.len(), files.len());
            (self.on_progress)(FolderProgress { done, files });
        }
        if !report.incomplete {
            report.removed = self.remove_others(&kept).await?;
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
        let (workspace, max_bytes) = (self.workspace.clone(), self.max_file_bytes);
        let read = move || {
            let (mut batch, mut bytes) = (Batch::default(), 0);
            for path in files {
                batch.files += 1;
                match read(&workspace, &path, max_bytes) {
                    Ok(document) => {
                        bytes += document.text.len();
                        batch.documents.push(document);
                    }
                    Err(reason) => batch.skipped.push(SkippedFile { path, reason }),
                }
                if bytes >= BATCH_BYTES {
                    break;
                }
            }
            batch
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| DocumentError::refused(format!("reading was interrupted: {error}")))
    }

    /// Removes the documents of files that are not among these.
    async fn remove_others(&self, kept: &HashSet<String>) -> Result<usize, DocumentError> {
        let (mut gone, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.index.documents(&after, 1_000).await?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.name);
            let files = page.into_iter().filter(|info| info.is_file);
            gone.extend(
                files
                    .map(|info| info.name)
                    .filter(|name| !kept.contains(name)),
            );
        }
        let mut removed = 0;
        for names in gone.chunks(BATCH_REMOVED) {
            removed += self.index.remove_from_file(names.to_vec()).await?;
        }
        Ok(removed)
    }
}

/// Some files of a workspace.
#[derive(Default)]
struct Batch {
    /// The number of files, read or not.
    files: usize,
    documents: Vec<Document>,
    skipped: Vec<SkippedFile>,
}

/// Reads a text file, or returns the reason why it is left out.
fn read(workspace: &Workspace, path: &str, max_bytes: u64) -> Result<Document, String> {
    let mut file = workspace
        .open_file(path)
        .map_err(|error| error.to_string())?;
    let size = file.metadata().size();
    let modified = file.metadata().modified().duration_since(UNIX_EPOCH);
    let too_large = || format!("it has {size} bytes, but the limit is {max_bytes}");
    if size > max_bytes {
        return Err(too_large());
    }
    let excerpt = file
        .read_up_to(max_bytes)
        .map_err(|error| error.to_string())?;
    if excerpt.truncated {
        return Err(too_large());
    }
    let bytes = excerpt.bytes;
    let text = String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'));
    let text = text.ok_or("it is not text in UTF-8")?;
    let mut document = Document::new(path, text);
    check(&document).map_err(|error| error.to_string())?;
    document.is_file = true;
    document.changed = modified
        .ok()
        .and_then(|time| u64::try_from(time.as_millis()).ok())
        .map(Timestamp::from_millis);
    Ok(document)
}
