use levity_macros::tool;

fn not_async() {}

async fn counts() -> u32 {
    7
}

/// Waits, and its undo does not.
#[tool(undo = not_async)]
async fn one() {}

/// Is undone by something that returns a value.
#[tool(undo = counts)]
async fn two() {}

/// Is undone by nothing.
#[tool(undo = nowhere)]
async fn three() {}

fn main() {}
