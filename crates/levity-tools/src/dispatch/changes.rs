//! The files that a call changes.
//!
//! A tool that writes files itself reports them. For any other tool that can change something, such
//! as one that runs commands or belongs to an MCP server, the dispatcher compares the workspace
//! before and after the call. Both lists are made on a thread where reading may block.

use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use levity_core::text::one_line;
use levity_core::{
    CancelToken, Content, EffectClass, FileChange, FileChangeKind, ToolCall, ToolError, ToolOutput,
    ToolResult, WorkspaceSource,
};
use serde_json::Value;
use tokio::runtime::Handle;

use super::{CallCx, Dispatcher};
use crate::entry::Entry;

/// The maximum time for reading the workspace before a call, and after it. A large workspace with
/// many ignore rules takes long; its changes are then not reported.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The maximum number of files that the note to the model names.
const MAX_NAMED: usize = 20;

impl Dispatcher {
    /// Calls the tool, and reports the files that changed meanwhile if the tool does not.
    pub(super) async fn run_observed(
        &self,
        entry: &Entry,
        call: &ToolCall,
        args: &Value,
        cx: &CallCx,
    ) -> Result<ToolOutput, ToolError> {
        let Some(source) = self.observed_by(entry) else {
            return self.run(entry, call, args, cx).await;
        };
        // Boxed, since few calls need it.
        Box::pin(async {
            let before = self.on_thread(source, |source, cancel| source.snapshot(cancel));
            let before = before.await;
            let outcome = self.run(entry, call, args, cx).await;
            if let Some(before) = before {
                let changes = self.on_thread(source, move |source, cancel| {
                    Some(source.changes_since(&before, cancel))
                });
                for change in changes.await.unwrap_or_default() {
                    cx.progress.changed(&change);
                }
            }
            outcome
        })
        .await
    }

    /// Returns `true` if the tool reports its changes and describes them in its result.
    pub(super) fn reports_changes(&self, name: &str) -> bool {
        self.find(name)
            .is_some_and(|entry| entry.tool.reports_changes())
    }

    /// Reads the workspace on a thread that may block; `None` if there is no such thread, or if it
    /// takes too long. The thread stops when the call is cancelled, which drops this future.
    async fn on_thread<T: Send + 'static>(
        &self,
        source: &Arc<dyn WorkspaceSource>,
        read: impl FnOnce(&dyn WorkspaceSource, &CancelToken) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let (source, runtime) = (source.clone(), Handle::try_current().ok()?);
        let cancel = CancelToken::new();
        let _cancel = cancel.clone().into_guard();
        let read = runtime.spawn_blocking(move || read(&*source, &cancel));
        let limit = pin!(self.0.world.sleep(MAX_TIME));
        match select(read, limit).await {
            Either::Left((read, _)) => read.ok().flatten(),
            Either::Right(_) => None,
        }
    }

    /// Returns the workspace if it has to be compared for this tool.
    fn observed_by(&self, entry: &Entry) -> Option<&Arc<dyn WorkspaceSource>> {
        let may_change = entry.spec.hints.class != EffectClass::ReadOnly;
        let source = self.0.workspace.as_ref().filter(|_| may_change)?;
        (!entry.tool.reports_changes()).then_some(source)
    }
}

/// Tells the model which files the call changed, unless the tool reports them itself.
pub(super) fn add_note(result: &mut ToolResult) {
    if result.changes.is_empty() {
        return;
    }
    super::keep_value_visible(&mut result.content, result.value.as_ref());
    result.content.push(Content::Text(note(&result.changes)));
}

/// Lists the files in a line of its own: `[files changed: wrote a.txt, removed b.txt]`.
fn note(changes: &[FileChange]) -> String {
    let mut text = String::from("\n[files changed: ");
    for (at, change) in changes.iter().take(MAX_NAMED).enumerate() {
        let verb = match change.kind {
            FileChangeKind::Removed => "removed",
            _ => "wrote",
        };
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{verb} `{}`", one_line(&change.path, 200));
    }
    match changes.len().saturating_sub(MAX_NAMED) {
        0 => text.push(']'),
        more => {
            let _ = write!(text, ", and {more} more]");
        }
    }
    text
}
