use levity_macros::tool;

#[tool(fast, timeout = "soon")]
unsafe fn wrong<T>(text: &str, (a, b): (T, T)) {}

fn main() {}
