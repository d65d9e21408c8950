//! Tests of context with real files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod any_files;
mod files;
mod sources;
mod value;
mod workspace;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use levity_core::{ContextBlock, ContextRequest, ContextSource};
use tempfile::TempDir;

/// A temporary folder for one test.
struct TestFolder(TempDir);

impl TestFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Creates a folder with these files.
    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new();
        for (path, text) in files {
            place.write(path, text);
        }
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, to: impl AsRef<Path>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }
}

async fn blocks(source: &impl ContextSource, budget: usize) -> Vec<ContextBlock> {
    source.blocks(&ContextRequest::new(budget)).await.unwrap()
}

/// Returns the names and texts of the blocks.
async fn texts(source: &impl ContextSource, budget: usize) -> Vec<(String, String)> {
    blocks(source, budget)
        .await
        .into_iter()
        .map(|block| (block.name, block.text))
        .collect()
}

#[track_caller]
fn assert_texts(found: &[(String, String)], expected: &[(&str, &str)]) {
    let found: Vec<_> = found
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    assert_eq!(found, expected);
}
