use levity_macros::tool;

/// Generic.
#[tool]
async fn show<T: ToString>(value: T) -> String {
    value.to_string()
}

/// With a lifetime.
#[tool]
async fn borrow<'a>(n: u8) -> u8 {
    n
}

/// Generic without a name.
#[tool]
async fn print(value: impl ToString, more: Vec<impl ToString>) {}

fn main() {}
