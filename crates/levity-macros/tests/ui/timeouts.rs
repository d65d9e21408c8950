use levity_macros::tool;

/// Has no unit.
#[tool(timeout = "5")]
async fn one() {}

/// Has an unknown unit.
#[tool(timeout = "5 days")]
async fn two() {}

/// Has no time.
#[tool(timeout = "0s")]
async fn three() {}

fn main() {}
