use levity_macros::tool;

struct Weather;

#[tool]
impl Clone for Weather {
    /// Copies.
    #[tool]
    fn clone(&self) -> Self {
        Weather
    }
}

struct Borrowed<'a>(&'a str);

#[tool]
impl<'a> Borrowed<'a> {
    /// Reads.
    #[tool]
    async fn read(&self) -> String {
        self.0.to_owned()
    }
}

fn main() {}
