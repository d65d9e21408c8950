use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::{Delta, Message, Model, ModelError, Request, World};
use levity_test::ManualWorld;

/// Creates a clock that advances automatically.
pub(crate) fn auto() -> (ManualWorld, Arc<dyn World>) {
    let world = ManualWorld::auto();
    (world.clone(), Arc::new(world))
}

pub(crate) fn ask(text: &str) -> Request {
    Request::new().with_message(Message::user(text))
}

/// Returns all deltas of a reply, and the error at its end.
pub(crate) async fn pieces(
    model: &dyn Model,
    request: Request,
) -> (Vec<Delta>, Option<ModelError>) {
    let mut deltas = match model.stream(request).await {
        Ok(deltas) => deltas,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut all = Vec::new();
    while let Some(delta) = deltas.next().await {
        match delta {
            Ok(delta) => all.push(delta),
            Err(error) => return (all, Some(error)),
        }
    }
    (all, None)
}

/// A folder that is removed with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("levity-llm-{}-{next}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
