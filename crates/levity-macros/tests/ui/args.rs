use levity_macros::tool;

struct All;

/// Takes all twice.
#[tool]
async fn twice(#[tool(args)] one: All, #[tool(args)] two: All) {}

/// Takes all and one more.
#[tool]
async fn mixed(#[tool(args)] all: All, more: u8) {}

/// Takes all, or else.
#[tool]
async fn fallback(#[tool(args, default)] all: All) {}

fn main() {}
