use levity_runtime::{MemoryJournal, SystemWorld};
use levity_test::conformance;

#[tokio::test]
async fn the_journal_in_memory_keeps_the_contract() {
    conformance::journal(async || MemoryJournal::new()).await;
    conformance::journal(async || MemoryJournal::new().with_snapshots(1)).await;
}

#[tokio::test]
async fn the_real_world_keeps_the_contract() {
    conformance::world(|| SystemWorld).await;
}
