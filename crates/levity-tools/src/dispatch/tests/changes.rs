//! The files that calls change.

use levity_core::{FileChange, FileChangeKind, WorkspaceSnapshot, WorkspaceSource, WorkspaceView};

use super::*;

/// A workspace with one file, whose version the tool of a test increases.
#[derive(Clone, Default)]
struct OneFile {
    version: Arc<AtomicU32>,
    snapshots: Arc<AtomicU32>,
}

impl WorkspaceSource for OneFile {
    fn view_now(&self) -> WorkspaceView {
        WorkspaceView::new("/", ["a.txt"])
    }

    fn snapshot(&self, _: &CancelToken) -> Option<WorkspaceSnapshot> {
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        let version = u64::from(self.version.load(Ordering::SeqCst));
        Some(WorkspaceSnapshot::new([("a.txt", version)]))
    }
}

/// Calls a tool that changes the file, and returns its result and the number of snapshots.
async fn changing(
    hints: Hints,
    work: impl Fn() -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
) -> (ToolResult, u32) {
    let file = OneFile::default();
    let version = file.version.clone();
    let tool = FnTool::ready(spec("t", hints), move |_| {
        version.fetch_add(1, Ordering::SeqCst);
        work()
    });
    let dispatcher = Dispatcher::builder(Registry::builder().tool(tool).build().unwrap())
        .workspace(file.clone())
        .build()
        .unwrap();
    let call = ToolCall::new("c", "t", json!({}));
    let Dispatched::Done(result) = dispatcher.dispatch(&call, true, cx()).await else {
        panic!("no result");
    };
    (result, file.snapshots.load(Ordering::SeqCst))
}

#[tokio::test]
async fn changed_file_is_in_result_and_in_its_text() {
    let (result, _) = changing(Hints::new(), || Ok(ToolOutput::text("done"))).await;
    assert_eq!(*result.changes, [FileChange::written("a.txt")]);
    assert_eq!(result.text(), "done\n[files changed: wrote `a.txt`]");
}

#[tokio::test]
async fn value_stays_visible_beside_changed_file() {
    let (result, _) = changing(Hints::new(), || Ok(ToolOutput::value(json!({"n": 1})))).await;
    assert_eq!(result.text(), "{\"n\":1}\n[files changed: wrote `a.txt`]");
}

#[tokio::test]
async fn failed_call_reports_changed_file() {
    let (result, _) = changing(Hints::new(), || Err(ToolError::failed("broken"))).await;
    assert_eq!(result.error, Some(ToolErrorKind::Failed));
    assert_eq!(*result.changes, [FileChange::written("a.txt")]);
}

#[tokio::test]
async fn read_only_call_takes_no_snapshot() {
    let hints = Hints::new().read_only();
    let (result, snapshots) = changing(hints, || Ok(ToolOutput::text("done"))).await;
    assert_eq!((result.changes.len(), snapshots), (0, 0));
}

/// A workspace whose files cannot be listed before the call is cancelled.
struct Slow(std::sync::mpsc::SyncSender<()>);

impl WorkspaceSource for Slow {
    fn view_now(&self) -> WorkspaceView {
        WorkspaceView::new("/", ["a.txt"])
    }

    fn snapshot(&self, cancel: &CancelToken) -> Option<WorkspaceSnapshot> {
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        self.0.send(()).unwrap();
        None
    }
}

#[tokio::test]
async fn cancelled_call_ends_comparison_of_files() {
    let (ended, is_ended) = std::sync::mpsc::sync_channel(1);
    let tool = FnTool::ready(spec("t", Hints::new()), |_| Ok(ToolOutput::text("done")));
    let dispatcher = Dispatcher::builder(Registry::builder().tool(tool).build().unwrap())
        .workspace(Slow(ended))
        .build()
        .unwrap();
    let call = ToolCall::new("c", "t", json!({}));
    let mut dispatch = std::pin::pin!(dispatcher.dispatch(&call, true, cx()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(dispatch.as_mut().poll(&mut context).is_pending());
    dispatch.set(dispatcher.dispatch(&call, true, cx()));
    is_ended.recv().unwrap();
}

#[tokio::test]
async fn slow_comparison_of_files_ends_without_changes() {
    let (ended, is_ended) = std::sync::mpsc::sync_channel(2);
    let tool = FnTool::ready(spec("t", Hints::new()), |_| Ok(ToolOutput::text("done")));
    let dispatcher = Dispatcher::builder(Registry::builder().tool(tool).build().unwrap())
        .workspace(Slow(ended))
        .world(Clock::skipping())
        .build()
        .unwrap();
    let call = ToolCall::new("c", "t", json!({}));
    let Dispatched::Done(result) = dispatcher.dispatch(&call, true, cx()).await else {
        panic!("no result");
    };
    assert_eq!((result.text(), result.changes.len()), ("done".into(), 0));
    is_ended.recv().unwrap();
}

/// A tool that reports its own changes, one more than a call can have.
struct Reporting(ToolSpec);

#[async_trait::async_trait]
impl Tool for Reporting {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        for number in 0..=ChangeRecorder::MAX_CHANGES {
            let change = FileChange::written(number.to_string());
            cx.progress.changed(&change);
        }
        cx.progress.changed(&FileChange::removed("0"));
        Ok(ToolOutput::text("done"))
    }

    fn reports_changes(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn reported_changes_are_limited_and_need_no_snapshot() {
    let file = OneFile::default();
    let registry = Registry::builder()
        .tool(Reporting(spec("t", Hints::new())))
        .build()
        .unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .workspace(file.clone())
        .build()
        .unwrap();
    let call = ToolCall::new("c", "t", json!({}));
    let Dispatched::Done(result) = dispatcher.dispatch(&call, true, cx()).await else {
        panic!("no result");
    };
    assert_eq!(result.changes.len(), ChangeRecorder::MAX_CHANGES);
    assert_eq!(result.changes[0].kind, FileChangeKind::Removed);
    assert_eq!(result.text(), "done");
    assert_eq!(file.snapshots.load(Ordering::SeqCst), 0);
}
