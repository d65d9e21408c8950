//! The names that every provider accepts for a tool.

use syn::{Error, Ident, LitStr, Result, ext::IdentExt};

/// Returns a name that the user gave, if providers accept it.
pub(crate) fn check(name: LitStr) -> Result<LitStr> {
    if fits(&name.value()) {
        Ok(name)
    } else {
        Err(Error::new(name.span(), MESSAGE))
    }
}

/// Returns the name of a function, if providers accept it.
pub(crate) fn of(function: &Ident) -> Result<String> {
    let name = function.unraw().to_string();
    if fits(&name) {
        Ok(name)
    } else {
        Err(Error::new(function.span(), MESSAGE))
    }
}

const MESSAGE: &str = "a tool's name has 1 to 64 letters (a-z, A-Z), digits, `_` and `-`; \
                       choose one with `#[tool(name = \"..\")]`";

fn fits(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_accepts_names_of_every_provider() {
        for name in ["a", "get-weather", "_v2", &"x".repeat(64)] {
            assert!(fits(name), "{name}");
        }
        for name in ["", "a b", "größe", "a.b", &"x".repeat(65)] {
            assert!(!fits(name), "{name}");
        }
    }
}
