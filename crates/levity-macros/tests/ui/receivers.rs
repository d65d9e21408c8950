#![allow(unused)]

use levity_macros::tool;

struct Counter(u32);

#[tool]
impl Counter {
    /// Changes.
    #[tool]
    async fn change(&mut self) {}

    /// Consumes.
    #[tool]
    async fn consume(self) {}

    /// Needs a pointer.
    #[tool]
    async fn point(self: std::sync::Arc<Self>) {}

    /// Has no receiver.
    #[tool]
    async fn make(n: u32) {}

    /// Is right.
    #[tool]
    async fn read(&self) -> u32 {
        self.0
    }
}

fn main() {}
