use levity_macros::tool;

#[tool]
async fn forecast(city: String) -> String {
    city
}

///
#[tool]
async fn blank() {}

/// Docs.
#[tool(description = " ")]
async fn blank_option() {}

fn main() {}
