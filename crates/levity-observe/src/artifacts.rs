//! The files that a run produces.
//!
//! The list follows from the events of file changes alone, so it is the same for a live run, a
//! replay and the records of a journal. It holds the last version of each path.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    EffectId, Event, EventKind, FileChange, FileChangeKind, RunId, Timestamp, ToolCall,
};

use crate::lineage::{Lineage, Origin};

/// The maximum number of artifacts and of calls in progress.
const MAX_ENTRIES: usize = 100_000;

/// Media types by the extension of a file.
const MEDIA_TYPES: [(&str, &str); 21] = [
    ("csv", "text/csv"),
    ("css", "text/css"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("xml", "application/xml"),
];

/// A file that a call of a run wrote.
///
/// See [`Artifacts`] for an example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Artifact {
    /// The path, and the size and the SHA-256 hash if they are known.
    pub file: FileChange,
    /// The agents and the tool that wrote the file.
    pub origin: Origin,
    /// The call that wrote the file, with its arguments, if its start is known.
    pub call: Option<Arc<ToolCall>>,
    /// The time of the call's result.
    pub at: Timestamp,
}

impl Artifact {
    /// Returns the media type that the extension of the path indicates.
    pub fn media_type(&self) -> &'static str {
        media_type_of(&self.file.path)
    }
}

/// Returns the media type that the extension of a path indicates.
pub(crate) fn media_type_of(path: &str) -> &'static str {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    let known = MEDIA_TYPES.iter().find(|(known, _)| {
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case(known))
    });
    known.map_or("application/octet-stream", |(_, media_type)| media_type)
}

/// A fold that lists the files that a run and its child runs wrote and did not remove again.
///
/// Pass it every event in order. It holds at most 100,000 files and ignores further ones.
///
/// ```
/// use levity_core::{CallId, EffectId, Event, EventKind, FileChange, RunId, Timestamp, ToolCall};
/// use levity_observe::Artifacts;
/// use serde_json::json;
///
/// let effect = EffectId::new(0);
/// let call = ToolCall::new("c1", "write_file", json!({"path": "artifacts/tides.md"}));
/// let change = FileChange::written("artifacts/tides.md").with_content(b"# Tides\n");
/// let mut artifacts = Artifacts::new("agent");
/// for kind in [
///     EventKind::ToolStarted { effect, call },
///     EventKind::FileChanged { effect, call: CallId::from("c1"), change },
/// ] {
///     artifacts.apply(&Event::new(RunId::new("r1"), 1, Timestamp::from_millis(5), kind));
/// }
/// let artifact = artifacts.iter().next().expect("one file");
/// assert_eq!(artifact.origin.to_string(), "agent › write_file");
/// assert_eq!((artifact.file.size, artifact.media_type()), (Some(8), "text/markdown"));
/// assert_eq!(artifact.call.as_ref().unwrap().args["path"], "artifacts/tides.md");
/// ```
#[derive(Clone, Debug)]
pub struct Artifacts {
    lineage: Lineage,
    /// The calls in progress.
    calls: BTreeMap<(RunId, EffectId), Arc<ToolCall>>,
    files: BTreeMap<String, Artifact>,
}

impl Artifacts {
    /// Creates an empty list; `name` is the name of the root, the outermost run with events.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            lineage: Lineage::new(name),
            calls: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Applies an event of the run or of a child run.
    pub fn apply(&mut self, event: &Event) {
        let origin = self.lineage.apply(event);
        match &event.kind {
            EventKind::ToolStarted { effect, call } if self.calls.len() < MAX_ENTRIES => {
                let key = (event.run.clone(), *effect);
                self.calls.insert(key, Arc::new(call.clone()));
            }
            EventKind::ToolFinished { effect, .. } | EventKind::OutcomeUnknown { effect } => {
                self.calls.remove(&(event.run.clone(), *effect));
            }
            EventKind::FileChanged { effect, change, .. } => {
                let call = self.calls.get(&(event.run.clone(), *effect)).cloned();
                self.change(Artifact {
                    file: change.clone(),
                    origin,
                    call,
                    at: event.at,
                });
            }
            _ => {}
        }
    }

    /// Returns the files in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = &Artifact> {
        self.files.values()
    }

    /// Records a change, unless a later one is already known: runs that work at the same time may
    /// be read one after the other.
    fn change(&mut self, artifact: Artifact) {
        let path = &artifact.file.path;
        let known = self.files.get(path);
        if known.is_some_and(|known| known.at > artifact.at) {
            return;
        }
        if artifact.file.kind == FileChangeKind::Removed {
            self.files.remove(path);
        } else if known.is_some() || self.files.len() < MAX_ENTRIES {
            self.files.insert(path.clone(), artifact);
        }
    }
}
