use levity_macros::tool;

/// Has a space.
#[tool(name = "two words")]
async fn one() {}

/// Has no name.
#[tool(name = "")]
async fn two() {}

/// Has a letter that providers refuse.
#[tool]
async fn größe() {}

fn main() {}
