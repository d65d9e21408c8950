#![allow(unused)]

use levity_macros::tool;

struct Store<T>(T);

#[tool]
impl<T: Send + Sync + 'static> Store<T> {
    /// Takes the parameter's type.
    #[tool]
    async fn put(&self, value: Option<T>) {}

    /// Takes its own type.
    #[tool]
    async fn merge(&self, other: Self) {}

    /// Returns the parameter's type.
    #[tool(output_schema)]
    async fn get(&self) -> Vec<T> {
        Vec::new()
    }
}

fn main() {}
