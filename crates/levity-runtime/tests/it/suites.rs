use levity_runtime::{MemoryJournal, SystemWorld};
use levity_test::conformance;

#[tokio::test]
async fn memory_journal_passes_conformance_suite() {
    conformance::journal(async || MemoryJournal::new()).await;
    conformance::journal(async || MemoryJournal::new().with_snapshots(1)).await;
}

#[tokio::test]
async fn system_world_passes_conformance_suite() {
    conformance::world(|| SystemWorld).await;
}
