use levity_macros::tool;

/// Takes a pair apart.
#[tool]
async fn pair((a, b): (u8, u8)) {}

/// Has no name for it.
#[tool]
async fn nameless(_: u8) {}

/// Has its own name for it.
#[tool]
async fn city(city: String) {}

/// Has one name for two.
#[tool]
async fn same(a: u8, #[tool(rename = "a")] b: u8) {}

fn main() {}
