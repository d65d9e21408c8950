//! Helpers that several scenarios share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use levity::core::{
    ContextBlock, ContextError, ContextRequest, ContextSource, Event, History, Role,
};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::ManualWorld;

/// Adds two numbers.
#[tool(read_only)]
pub async fn add(
    /** left */
    a: f64,
    /** right */
    b: f64,
) -> f64 {
    a + b
}

/// Always fails.
#[tool]
pub async fn broken() -> Result<String, ToolError> {
    Err(ToolError::failed("out of order"))
}

/// Creates a runtime with a journal in memory and a clock whose sleeps return at once.
pub fn runtime() -> (Runtime, MemoryJournal) {
    let journal = MemoryJournal::new();
    (
        Runtime::new()
            .with_journal(journal.clone())
            .with_world(ManualWorld::auto()),
        journal,
    )
}

/// A counter that clones share.
#[derive(Clone, Default)]
pub struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub fn increment(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Asserts that exactly one result follows each call, and that no call id occurs twice.
#[track_caller]
pub fn assert_complete(history: &History) {
    let mut ids = std::collections::HashSet::new();
    let mut open: Vec<_> = Vec::new();
    for message in history.messages() {
        if message.role == Role::Tool {
            let answered: Vec<_> = message
                .results()
                .map(|result| result.call.clone())
                .collect();
            assert_eq!(
                open, answered,
                "the results do not answer the preceding calls"
            );
            open.clear();
        }
        assert!(open.is_empty(), "a call was not answered");
        open = message.calls().map(|call| call.id.clone()).collect();
        for id in &open {
            assert!(ids.insert(id.clone()), "call id {id} occurs twice");
        }
    }
    assert!(open.is_empty(), "the last calls were not answered");
}

/// A context source with one file of rules.
pub struct RulesFile;

#[async_trait]
impl ContextSource for RulesFile {
    async fn blocks(&self, _: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        Ok(vec![ContextBlock::new("rules.md", "No jokes.\n")])
    }
}

/// Collects all events of a started run, and returns them with its answer.
pub async fn collect_events(
    mut run: levity::runtime::RunHandle<Agent>,
) -> (Vec<Event>, levity::Result<Answer>) {
    let mut stream = run.events();
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    (events, run.await)
}

/// Approves every question of a started run, and returns its answer.
pub async fn approve_all(mut run: levity::runtime::RunHandle<Agent>) -> levity::Result<Answer> {
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            run.approve(&ask).await.unwrap();
        }
    }
    run.await
}

/// Drops a started run at the first matching event, and waits until its tasks have ended.
pub async fn drop_at(mut run: levity::runtime::RunHandle<Agent>, point: impl Fn(&Event) -> bool) {
    let mut events = run.events();
    loop {
        let event = events
            .next()
            .await
            .expect("the run ended before it could be dropped");
        if point(&event) {
            break;
        }
    }
    drop(run);
    while events.next().await.is_some() {}
}
