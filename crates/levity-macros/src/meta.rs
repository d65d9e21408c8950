//! The lists of options in `#[tool(..)]`.
//!
//! An unknown option is an error that lists the known ones. A misspelled `destructive` that were
//! ignored would remove the approval of a call.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, ExprLit, Lit, LitStr, Meta, Path, Result, Token};

use crate::errors::Errors;

/// Returns `true` for `#[tool]`, also when written with a path.
pub(crate) fn is_tool(attribute: &Attribute) -> bool {
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|segment| segment.ident == "tool")
}

/// Returns the tokens between the parentheses of `#[tool(..)]`; nothing for a bare `#[tool]`.
pub(crate) fn tokens(attribute: &Attribute, errors: &mut Errors) -> TokenStream {
    match &attribute.meta {
        Meta::Path(_) => TokenStream::new(),
        Meta::List(list) => list.tokens.clone(),
        Meta::NameValue(_) => {
            errors.at(attribute, "write `#[tool]` or `#[tool(..)]`");
            TokenStream::new()
        }
    }
}

/// Returns the options in `tokens` by name; unknown and duplicate ones are reported and omitted.
pub(crate) fn options(
    tokens: TokenStream,
    known: &[&str],
    errors: &mut Errors,
) -> Vec<(String, Meta)> {
    let parsed = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(tokens);
    let mut options: Vec<(String, Meta)> = Vec::new();
    for meta in errors.take(parsed).into_iter().flatten() {
        let name = meta.path().to_token_stream().to_string();
        if !known.contains(&name.as_str()) {
            errors.at(
                meta.path(),
                format!("unknown option `{name}`; there {}", list(known)),
            );
        } else if options.iter().any(|(other, _)| *other == name) {
            errors.at(meta.path(), format!("`{name}` is given twice"));
        } else {
            options.push((name, meta));
        }
    }
    options
}

/// Parses an option without a value.
pub(crate) fn flag(meta: Meta) -> Result<Path> {
    match meta {
        Meta::Path(path) => Ok(path),
        other => Err(Error::new_spanned(
            &other,
            format!("`{}` takes no value", name(&other)),
        )),
    }
}

/// Parses an option that takes a string.
pub(crate) fn string(meta: &Meta) -> Result<LitStr> {
    if let Meta::NameValue(pair) = meta
        && let Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) = &pair.value
    {
        return Ok(text.clone());
    }
    Err(Error::new_spanned(
        meta,
        format!("`{0}` takes a string: `{0} = \"..\"`", name(meta)),
    ))
}

/// Parses an option that takes a path.
pub(crate) fn path(meta: &Meta) -> Result<Path> {
    match meta {
        Meta::NameValue(pair) => syn::parse2(pair.value.to_token_stream()).ok(),
        _ => None,
    }
    .ok_or_else(|| {
        Error::new_spanned(
            meta,
            format!("`{0}` takes a path: `{0} = ::some::path`", name(meta)),
        )
    })
}

fn name(meta: &Meta) -> String {
    meta.path().to_token_stream().to_string()
}

fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("are {} and {last}", rest.join(", ")),
        _ => format!("is {}", quoted.concat()),
    }
}
