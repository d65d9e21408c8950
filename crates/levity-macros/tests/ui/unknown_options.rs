use levity_macros::tool;

/// Has an unknown option.
#[tool(readonly)]
async fn function() {}

/// Has an unknown option.
#[tool]
async fn parameter(#[tool(optional)] n: u8) {}

struct Block;

#[tool(read_only)]
impl Block {
    /// Has an option of another place.
    #[tool(crate = levity_core)]
    async fn method(&self) {}
}

fn main() {}
