use levity_macros::tool;

struct Weather;

#[tool]
impl Weather {
    async fn forecast(&self, city: String) -> String {
        city
    }
}

fn main() {}
