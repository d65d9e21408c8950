use levity_macros::tool;

/// Has a value too many.
#[tool(read_only = true)]
async fn one() {}

/// Has a value of the wrong kind.
#[tool(name = 5, crate = "levity_core")]
async fn two() {}

/// Has a value too few.
#[tool(timeout)]
async fn three() {}

/// Is no list.
#[tool]
async fn four(#[tool = "args"] n: u8) {}

fn main() {}
