use levity_macros::tool;

/// Says it twice.
#[tool(read_only, idempotent)]
async fn one() {}

/// Says it and its opposite.
#[tool(read_only, destructive)]
async fn two() {}

/// Is repeated.
#[tool(parallel, timeout = "1s", parallel)]
async fn three() {}

/// Does not block anyway.
#[tool(inline)]
async fn four() {}

fn main() {}
