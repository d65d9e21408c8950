//! Every store keeps the contract.

use levity_memory::InMemory;
use levity_test::conformance;

#[tokio::test]
async fn in_memory_conforms() {
    conformance::memory_store(async || InMemory::new()).await;
}
