use levity_macros::tool;

/// A struct.
#[tool]
struct Weather;

/// An enum.
#[tool]
enum Kind {
    A,
}

fn main() {}
