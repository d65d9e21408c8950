//! The types that a tool's parameters may have.
//!
//! A schema belongs to one type that lives as long as the program. So references, lifetimes,
//! generics and `impl Trait` are rejected, with the type to use instead.

use syn::visit::{self, Visit};
use syn::{
    Error, GenericParam, Generics, Ident, Lifetime, Path, Result, Type, TypeImplTrait,
    TypeReference,
};

/// Rejects a type that a struct or a static outside the function could not name or own.
pub(crate) fn check(ty: &Type, outer: &Generics) -> Result<()> {
    let mut visitor = Visitor {
        generics: generic_names(outer),
        error: None,
    };
    visitor.visit_type(ty);
    visitor.error.map_or(Ok(()), Err)
}

/// Returns the last segment of a type's path: `CancelToken` of `levity::CancelToken`.
pub(crate) fn last_word(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) if path.qself.is_none() => {
            path.path.segments.last().map(|segment| &segment.ident)
        }
        Type::Group(group) => last_word(&group.elem),
        Type::Paren(paren) => last_word(&paren.elem),
        _ => None,
    }
}

struct Visitor<'a> {
    generics: Vec<&'a Ident>,
    error: Option<Error>,
}

impl Visitor<'_> {
    fn refuse(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_type_reference(&mut self, ty: &'ast TypeReference) {
        let owned = match (&*ty.elem, last_word(&ty.elem)) {
            (Type::Slice(_), _) => "`Vec<_>`".to_owned(),
            (_, Some(word)) if word == "str" => "`String`".to_owned(),
            (_, Some(word)) => format!("`{word}`"),
            _ => "an owned value".to_owned(),
        };
        self.refuse(Error::new_spanned(
            ty,
            format!("a tool owns its arguments: take {owned}"),
        ));
    }

    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        let message = "a tool's schema is that of one type: name it instead of `impl Trait`";
        self.refuse(Error::new_spanned(ty, message));
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if lifetime.ident != "static" {
            self.refuse(Error::new_spanned(
                lifetime,
                "a tool owns its arguments: take a type without lifetime",
            ));
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        match path.segments.first().map(|first| &first.ident) {
            Some(first) if first == "Self" => {
                self.refuse(Error::new_spanned(
                    path,
                    "a tool's schema is outside the impl: write the type's name",
                ));
            }
            Some(first) if path.leading_colon.is_none() && self.generics.contains(&first) => {
                let message =
                    format!("a tool's schema is that of one type: it cannot depend on `{first}`");
                self.refuse(Error::new_spanned(path, message));
            }
            _ => visit::visit_path(self, path),
        }
    }
}

fn generic_names(generics: &Generics) -> Vec<&Ident> {
    fn name(param: &GenericParam) -> Option<&Ident> {
        match param {
            GenericParam::Type(param) => Some(&param.ident),
            GenericParam::Const(param) => Some(&param.ident),
            GenericParam::Lifetime(_) => None,
        }
    }
    generics.params.iter().filter_map(name).collect()
}
