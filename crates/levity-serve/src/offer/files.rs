//! Files of the workspace as resources with URIs such as `workspace:///src/lib.rs`. Text is
//! returned as `text/plain`, everything else as bytes; a file larger than 1 MiB is an error. Every
//! file that the workspace allows can be read, also one that is not listed.

use async_trait::async_trait;
use levity_context::WorkspaceFiles;
use levity_sandbox::{PathError, Workspace};

use crate::library::{FILES_URL, file_path, file_url};
use crate::mcp::{
    Page, RequestError, Resource, ResourceContent, ResourceRequest, ResourceTemplate, Resources,
};

/// The number of files in one page of the list.
const PAGE_SIZE: usize = 200;
/// The maximum number of files that are listed.
const MAX_FILES: usize = 10_000;
/// The maximum size of a file that can be read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The readable files of a workspace, as MCP resources.
pub(super) struct Files {
    space: Workspace,
}

impl Files {
    pub(super) fn new(space: Workspace) -> Self {
        Self { space }
    }
}

#[async_trait]
impl Resources for Files {
    async fn list(&self, cursor: Option<&str>) -> Result<Page<Resource>, RequestError> {
        let listed = WorkspaceFiles::new(&self.space)
            .max_files(MAX_FILES)
            .view()
            .await;
        let files = listed
            .map_err(|_| RequestError::failed("cannot list the files of the workspace"))?
            .files;
        // The cursor is a path, not a count, because files may appear and disappear between two
        // pages.
        let start = cursor.map_or(0, |last| {
            files.partition_point(|path| path.as_str() <= last)
        });
        let page = &files[start..files.len().min(start + PAGE_SIZE)];
        let items = page.iter().map(|path| Resource::new(file_url(path), path));
        Ok(
            match page.last().filter(|_| start + PAGE_SIZE < files.len()) {
                Some(last) => Page::part(items, last),
                None => Page::all(items),
            },
        )
    }

    async fn templates(&self, _: Option<&str>) -> Result<Page<ResourceTemplate>, RequestError> {
        let template = ResourceTemplate::new(format!("{FILES_URL}{{+path}}"), "file")
            .with_description("A file of the workspace, by its path.");
        Ok(Page::all([template]))
    }

    async fn read(&self, ask: ResourceRequest) -> Result<Vec<ResourceContent>, RequestError> {
        let Some(path) = file_path(&ask.uri) else {
            return Err(RequestError::not_found(format!(
                "no resource has the URI `{}`",
                ask.uri
            )));
        };
        let space = self.space.clone();
        let read = tokio::task::spawn_blocking(move || space.read(&path, MAX_FILE_BYTES)).await;
        match read.map_err(|_| RequestError::failed("reading the file was interrupted"))? {
            Ok(bytes) => Ok(vec![content(ask.uri, bytes)]),
            Err(error @ PathError::NotFound(_)) => Err(RequestError::not_found(error.to_string())),
            Err(error) => Err(RequestError::invalid(error.to_string())),
        }
    }
}

fn content(uri: String, bytes: Vec<u8>) -> ResourceContent {
    match String::from_utf8(bytes) {
        Ok(text) => ResourceContent::text(uri, text).with_mime("text/plain"),
        Err(error) => ResourceContent::bytes(uri, error.as_bytes()),
    }
}
