use async_trait::async_trait;
use levity_context::WorkspaceFiles;
use levity_sandbox::{PathError, Workspace};

use crate::library::{FILES_URL, file_path, file_url};
use crate::mcp::{
    Page, RequestError, Resource, ResourceAsk, ResourceContent, ResourceTemplate, Resources,
};

/// How many files are in a part of the list.
const PART: usize = 200;
/// How many are listed.
const MOST_FILES: usize = 10_000;
/// How large a file may be to be read.
const MOST: u64 = 1 << 20;

/// The files of a workspace, to be read.
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
            .max_files(MOST_FILES)
            .view()
            .await;
        let files = listed
            .map_err(|_| RequestError::failed("the workspace cannot be listed"))?
            .files;
        // A path, and not a count: files may come and go between two parts.
        let start = cursor.map_or(0, |last| {
            files.partition_point(|path| path.as_str() <= last)
        });
        let part = &files[start..files.len().min(start + PART)];
        let items = part.iter().map(|path| Resource::new(file_url(path), path));
        Ok(match part.last().filter(|_| start + PART < files.len()) {
            Some(last) => Page::part(items, last),
            None => Page::all(items),
        })
    }

    async fn templates(&self, _: Option<&str>) -> Result<Page<ResourceTemplate>, RequestError> {
        let template = ResourceTemplate::new(format!("{FILES_URL}{{+path}}"), "file")
            .with_description("A file of the workspace, by its path.");
        Ok(Page::all([template]))
    }

    async fn read(&self, ask: ResourceAsk) -> Result<Vec<ResourceContent>, RequestError> {
        let Some(path) = file_path(&ask.uri) else {
            return Err(RequestError::not_found(format!(
                "there is nothing at `{}`",
                ask.uri
            )));
        };
        let space = self.space.clone();
        let read = tokio::task::spawn_blocking(move || space.read(&path, MOST)).await;
        match read.map_err(|_| RequestError::failed("the reading was broken off"))? {
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
