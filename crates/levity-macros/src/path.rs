//! The path of levity-core in generated code.
//!
//! The expansion cannot know how the user's crate calls levity-core: it may be renamed, or reached
//! through the facade. So Cargo.toml is consulted, and `crate = ..` overrides it.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Error, Path, Result};

/// Returns the path of levity-core: from `crate = ..`, or from the user's Cargo.toml.
pub(crate) fn core(given: Option<&Path>) -> Result<TokenStream> {
    if let Some(path) = given {
        return Ok(quote!(#path));
    }
    choose(crate_name("levity-core").ok(), crate_name("levity").ok()).ok_or_else(|| {
        Error::new(
            Span::call_site(),
            "`#[tool]` needs `levity` or `levity-core` in Cargo.toml; \
             where it has another path, say so with `#[tool(crate = path::to::levity_core)]`",
        )
    })
}

/// Prefers `levity-core` to the facade: a crate of tools has `levity-core` for its code and may
/// have `levity` only for its tests, hardly ever the other way round.
fn choose(core: Option<FoundCrate>, facade: Option<FoundCrate>) -> Option<TokenStream> {
    let part = core.map(|found| root(found, "levity_core"));
    let whole = facade.map(|found| root(found, "levity"));
    part.or_else(|| whole.map(|path| quote!(#path::core)))
}

/// A crate also uses its own name in its tests, examples and doctests.
fn root(found: FoundCrate, own: &str) -> TokenStream {
    let name = match found {
        FoundCrate::Itself => own.to_owned(),
        FoundCrate::Name(name) => name,
    };
    let name = Ident::new(&name, Span::call_site());
    quote!(::#name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Option<FoundCrate> {
        Some(FoundCrate::Name(name.to_owned()))
    }

    #[track_caller]
    fn check(core: Option<FoundCrate>, facade: Option<FoundCrate>, expected: Option<&str>) {
        let path = choose(core, facade).map(|path| path.to_string().replace(' ', ""));
        assert_eq!(path.as_deref(), expected);
    }

    #[test]
    fn choose_finds_core_facade_or_neither() {
        check(named("levity_core"), None, Some("::levity_core"));
        check(None, named("levity"), Some("::levity::core"));
        check(named("levity_core"), named("levity"), Some("::levity_core"));
        check(None, None, None);
    }

    #[test]
    fn choose_uses_renamed_crate() {
        check(named("base"), None, Some("::base"));
        check(None, named("lev"), Some("::lev::core"));
    }

    #[test]
    fn choose_works_inside_levity() {
        check(Some(FoundCrate::Itself), None, Some("::levity_core"));
        check(None, Some(FoundCrate::Itself), Some("::levity::core"));
    }

    #[test]
    fn core_prefers_path_of_user() {
        let path = syn::parse_quote!(crate::core);
        assert_eq!(
            core(Some(&path)).unwrap().to_string().replace(' ', ""),
            "crate::core"
        );
    }
}
