use levity_macros::tool;

struct Weather;

impl Weather {
    /// Tells the weather.
    #[tool]
    async fn forecast(&self, city: String) -> String {
        city
    }
}

fn main() {}
