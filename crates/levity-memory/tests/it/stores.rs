//! Every store keeps the contract.

use levity_memory::{FileMemory, InMemory};
use levity_test::conformance;

#[tokio::test]
async fn in_memory_conforms() {
    conformance::memory_store(async || InMemory::new()).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_conforms() {
    use levity_memory::{Durability, SqliteMemory};
    let dir = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    conformance::memory_store(async || {
        next.set(next.get() + 1);
        SqliteMemory::new(dir.path().join(format!("{}.db", next.get())))
            .unwrap()
            .with_durability(Durability::Buffered)
    })
    .await;
}

#[tokio::test]
async fn files_conform() {
    let dir = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    conformance::memory_store(async || {
        next.set(next.get() + 1);
        FileMemory::new(dir.path().join(next.get().to_string())).unwrap()
    })
    .await;
}
