use std::error::Error;
use std::io;

use levity_core::{
    ContextError, Failure, JournalError, JournalErrorKind, MemoryError, MemoryErrorKind,
    ModelError, ModelErrorKind, RunId, SharedError, ToolError, ToolErrorKind,
};

#[derive(Debug, thiserror::Error)]
#[error("the upload failed")]
struct Upload(#[source] io::Error);

fn nested() -> Upload {
    Upload(io::Error::other("connection reset"))
}

/// Returns all messages of an error, outermost first.
fn chain(error: &dyn Error) -> Vec<String> {
    let mut all = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        all.push(error.to_string());
        next = error.source();
    }
    all
}

#[test]
fn shared_error_keeps_chain_and_serialized_text() {
    let cause = SharedError::new(nested());
    assert_eq!(cause.to_string(), "the upload failed");
    assert_eq!(chain(&cause), ["the upload failed", "connection reset"]);
    assert!(cause.as_error().downcast_ref::<Upload>().is_some());
    let json = serde_json::to_string(&cause).unwrap();
    assert_eq!(json, r#""the upload failed: connection reset""#);
    let read: SharedError = serde_json::from_str(&json).unwrap();
    assert_eq!(read, cause);
    assert_eq!(chain(&read), ["the upload failed: connection reset"]);
    assert_eq!(format!("{cause:?}"), format!("{read:?}"));
    assert_ne!(cause, SharedError::new("another"));
}

#[test]
fn model_error_prints_each_cause_once_by_debug() {
    let cause = || io::Error::other("connection reset");
    let error = ModelError::new(ModelErrorKind::Transport, "no reply").with_source(Upload(cause()));
    assert_eq!(
        format!("{error:?}"),
        "Transport: no reply: the upload failed: connection reset"
    );
    // A cause that the message already contains is not repeated.
    let error = ModelError::new(ModelErrorKind::Transport, "no reply: connection reset")
        .with_source(cause());
    let error = error.with_target("test:m", "http://h/v1").with_status(502);
    let line =
        "request to http://h/v1 failed (model test:m, status 502): no reply: connection reset";
    assert_eq!(levity_core::text::chain(&error), line);
    assert_eq!(format!("{error:?}"), format!("Transport: {line}"));
    assert_eq!(Failure::Model(error).to_string(), line);
}

#[test]
fn errors_name_their_source_once() {
    let model = ModelError::new(ModelErrorKind::Transport, "no reply").with_source(nested());
    assert_eq!(
        chain(&model),
        ["no reply", "the upload failed", "connection reset"]
    );
    assert_eq!(chain(&Failure::Model(model)).len(), 4);
    let tool = ToolError::failed("no upload").with_source(nested());
    assert_eq!(
        chain(&tool),
        ["no upload", "the upload failed", "connection reset"]
    );
    assert_eq!(
        tool.explain(),
        "no upload: the upload failed: connection reset"
    );
    let read: ToolError = serde_json::from_str(&serde_json::to_string(&tool).unwrap()).unwrap();
    assert_eq!(read.explain(), tool.explain());
    let journal = JournalError::new(JournalErrorKind::Io, "cannot write").with_source(nested());
    assert_eq!(
        chain(&journal),
        ["cannot write", "the upload failed", "connection reset"]
    );
    let memory = MemoryError::new(MemoryErrorKind::Io, "cannot save").with_source(nested());
    assert_eq!(
        chain(&memory),
        ["cannot save", "the upload failed", "connection reset"]
    );
    let context = ContextError::new("notes", nested());
    assert_eq!(
        chain(&context),
        [
            "context source `notes` could not be read",
            "the upload failed",
            "connection reset"
        ]
    );
}

#[test]
fn is_retryable_depends_on_kind() {
    let model = |kind| ModelError::new(kind, "no").is_retryable();
    assert!(model(ModelErrorKind::RateLimited { retry_after: None }));
    for kind in [
        ModelErrorKind::Overloaded,
        ModelErrorKind::Timeout,
        ModelErrorKind::Transport,
        ModelErrorKind::Server,
    ] {
        assert!(model(kind), "{kind:?}");
    }
    for kind in [
        ModelErrorKind::Auth,
        ModelErrorKind::BadRequest,
        ModelErrorKind::ContextTooLong,
        ModelErrorKind::ContentFiltered,
        ModelErrorKind::Malformed,
    ] {
        assert!(!model(kind), "{kind:?}");
    }
    assert!(!ToolError::failed("no").is_retryable());
    assert!(ToolError::transient("no").is_retryable());
    assert!(
        !ToolError::transient("no")
            .with_retryable(false)
            .is_retryable()
    );
    assert!(!ToolError::new(ToolErrorKind::Timeout, "no").is_retryable());
    let journal = |kind| JournalError::new(kind, "no").is_retryable();
    assert!(journal(JournalErrorKind::Busy) && journal(JournalErrorKind::Io));
    assert!(!journal(JournalErrorKind::Damaged) && !journal(JournalErrorKind::Version));
    assert_eq!(
        JournalError::busy(&RunId::new("r1")).to_string(),
        "run `r1` is driven by another process; wait for it, or stop that process"
    );
    let memory = |kind| MemoryError::new(kind, "no").is_retryable();
    assert!(memory(MemoryErrorKind::Busy) && memory(MemoryErrorKind::Io));
    assert!(!memory(MemoryErrorKind::Damaged) && !memory(MemoryErrorKind::Moved));
}

#[test]
fn model_error_returns_its_details() {
    let error = ModelError::new(ModelErrorKind::Server, "no")
        .with_status(500)
        .with_request_id("q1");
    assert_eq!(
        (error.status(), error.request_id()),
        (Some(500), Some("q1"))
    );
    let plain = ModelError::new(ModelErrorKind::Server, "no");
    assert_eq!((plain.status(), plain.request_id()), (None, None));
    assert!(plain.source().is_none());
}
