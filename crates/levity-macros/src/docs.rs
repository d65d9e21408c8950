//! Doc comments as text for a model.
//!
//! Models read the comment as it is written: Markdown stays, and only the syntax of the comment is
//! removed.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// Returns `true` for a doc comment or `#[doc = ..]`, but not for `#[doc(hidden)]`.
pub(crate) fn is_doc(attribute: &Attribute) -> bool {
    attribute.path().is_ident("doc") && matches!(attribute.meta, Meta::NameValue(_))
}

/// Returns the doc comment as an expression of type `&'static str`; `None` if it is missing or
/// blank.
pub(crate) fn description(attributes: &[Attribute]) -> Option<TokenStream> {
    let docs: Vec<&Expr> = attributes.iter().filter_map(value).collect();
    let literal: Option<Vec<String>> = docs.iter().map(|doc| text(doc)).collect();
    match literal {
        Some(blocks) => {
            let text = join(&blocks);
            (!text.is_empty()).then(|| quote!(#text))
        }
        // `#[doc = include_str!(..)]`: only the compiler knows its value.
        None => {
            let parts = docs
                .iter()
                .map(|doc| text(doc).map_or_else(|| quote!(#doc), |text| quote!(#text)));
            Some(quote!(::core::concat!(#(#parts, "\n"),*)))
        }
    }
}

fn value(attribute: &Attribute) -> Option<&Expr> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => Some(&pair.value),
        _ => None,
    }
}

fn text(doc: &Expr) -> Option<String> {
    match doc {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(clean(&text.value())),
        _ => None,
    }
}

/// Removes the parts of comment syntax: one space, or a block's margin and stars.
fn clean(doc: &str) -> String {
    if !doc.contains('\n') {
        return doc.strip_prefix(' ').unwrap_or(doc).trim_end().to_owned();
    }
    let lines: Vec<&str> = doc.lines().map(str::trim_end).collect();
    let starred = lines
        .iter()
        .skip(1)
        .all(|line| line.is_empty() || line.trim_start().starts_with('*'));
    let lines: Vec<&str> = match starred {
        true => lines
            .iter()
            .map(|line| line.trim_start().strip_prefix('*').unwrap_or(line))
            .collect(),
        false => lines,
    };
    // The first line begins after `/**`, so it does not affect the margin.
    let indents = lines
        .iter()
        .skip(1)
        .filter(|line| !line.is_empty())
        .map(|line| indent(line));
    let margin = indents.min().unwrap_or(0);
    let rest = lines
        .iter()
        .skip(1)
        .map(|line| line.get(margin..).unwrap_or_default());
    let first = lines.first().map(|line| line.trim_start());
    first.into_iter().chain(rest).collect::<Vec<_>>().join("\n")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn join(blocks: &[String]) -> String {
    blocks.join("\n").trim_matches('\n').trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(docs: &[&str], expected: &str) {
        let cleaned: Vec<_> = docs.iter().map(|doc| clean(doc)).collect();
        assert_eq!(join(&cleaned), expected);
    }

    #[test]
    fn line_docs_lose_one_space() {
        check(&[" Adds."], "Adds.");
        check(&["Adds."], "Adds.");
        check(
            &[" One.", "", " - two", "   three ", ""],
            "One.\n\n- two\n  three",
        );
    }

    #[test]
    fn block_docs_lose_their_margin() {
        check(&[" left "], "left");
        check(&["\n     One.\n\n       two\n    "], "One.\n\n  two");
        check(&["\n * One.\n *\n *   two\n "], "One.\n\n  two");
        check(&[" One.\n    Two.\n"], "One.\nTwo.");
    }

    #[test]
    fn block_docs_keep_lists_with_stars() {
        check(
            &["\n  Either:\n  * one\n  * two\n"],
            "Either:\n* one\n* two",
        );
    }
}
