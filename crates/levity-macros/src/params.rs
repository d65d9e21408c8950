//! The parameters of a tool: arguments from the model, and parts of the call's context.
//!
//! A parameter is an argument of the model, the struct of all arguments, or a value of the call
//! such as `ToolCx`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, Expr, Generics, Ident, LitStr, Meta, Pat, PatType, Path, Result, Type,
};

use crate::errors::Errors;
use crate::{docs, meta, types};

/// The source of a parameter's value.
pub(crate) enum Param {
    /// One of the arguments.
    Field(Box<Field>),
    /// All arguments, as a struct of the user.
    Args(Type),
    /// An expression over `__cx`, the context of the call.
    Context(TokenStream),
}

/// An argument that the model provides.
pub(crate) struct Field {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) description: Option<TokenStream>,
    pub(crate) default: Option<Fallback>,
    pub(crate) rename: Option<LitStr>,
}

/// The value of an omitted argument.
pub(crate) enum Fallback {
    /// The value of `Default::default()`.
    OfType,
    Expr(Expr),
}

impl Field {
    /// Returns the name in the schema.
    pub(crate) fn key(&self) -> String {
        self.rename
            .as_ref()
            .map_or_else(|| self.ident.unraw().to_string(), LitStr::value)
    }
}

/// Reads the parameters of a tool; `outer` are the generics of the impl block around it.
pub(crate) fn read<'a>(
    inputs: impl Iterator<Item = &'a PatType>,
    outer: &Generics,
    errors: &mut Errors,
) -> Vec<Param> {
    let mut params = Vec::new();
    for input in inputs {
        let options = ParamOptions::read(&input.attrs, errors);
        let param = errors.take(param(input, options, outer));
        if let Some(Param::Args(_)) = param
            && params.iter().any(|param| matches!(param, Param::Args(_)))
        {
            errors.at(
                &input.ty,
                "a tool has at most one `#[tool(args)]`: it is all of the arguments",
            );
        }
        params.extend(param);
    }
    check_together(&params, errors);
    params
}

/// Removes the attributes that only this macro understands.
pub(crate) fn strip(attributes: &mut Vec<Attribute>) {
    attributes.retain(|attribute| !docs::is_doc(attribute) && !meta::is_tool(attribute));
}

/// Returns an attribute that silences lints a tool cannot satisfy: it owns its arguments, and takes
/// them one by one.
pub(crate) fn allow() -> Attribute {
    syn::parse_quote!(#[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)])
}

#[derive(Default)]
struct ParamOptions {
    args: Option<Path>,
    default: Option<Fallback>,
    rename: Option<LitStr>,
    first: Option<Meta>,
}

impl ParamOptions {
    fn read(attributes: &[Attribute], errors: &mut Errors) -> Self {
        let mut options = Self::default();
        let mut tokens = TokenStream::new();
        for attribute in attributes
            .iter()
            .filter(|attribute| meta::is_tool(attribute))
        {
            let more = meta::tokens(attribute, errors);
            if !more.is_empty() {
                tokens.extend(quote!(#more,));
            }
        }
        for (name, meta) in meta::options(tokens, &["args", "default", "rename"], errors) {
            options.first.get_or_insert_with(|| meta.clone());
            errors.take(options.set(&name, meta));
        }
        options
    }

    fn set(&mut self, name: &str, meta: Meta) -> Result<()> {
        match (name, meta) {
            ("default", Meta::NameValue(pair)) => self.default = Some(Fallback::Expr(pair.value)),
            ("default", meta) => self.default = meta::flag(meta).map(|_| Some(Fallback::OfType))?,
            ("rename", meta) => self.rename = Some(meta::string(&meta)?),
            (_, meta) => self.args = Some(meta::flag(meta)?),
        }
        Ok(())
    }
}

fn param(input: &PatType, options: ParamOptions, outer: &Generics) -> Result<Param> {
    let ident = binding(&input.pat)?;
    if let Some(expr) = context(&input.ty) {
        return match options.first {
            Some(option) => Err(Error::new_spanned(
                option,
                "this parameter comes from the call, not from the model",
            )),
            None => Ok(Param::Context(expr)),
        };
    }
    types::check(&input.ty, outer)?;
    if let Some(args) = options.args {
        return match (options.default, options.rename) {
            (None, None) => Ok(Param::Args((*input.ty).clone())),
            _ => Err(Error::new_spanned(
                args,
                "`args` takes no other option: it is all of the arguments",
            )),
        };
    }
    Ok(Param::Field(Box::new(Field {
        ident,
        ty: (*input.ty).clone(),
        description: docs::description(&input.attrs),
        default: options.default,
        rename: options.rename,
    })))
}

/// Returns the name of a parameter, which is also its name for the model.
fn binding(pat: &Pat) -> Result<Ident> {
    match pat {
        Pat::Ident(pat) if pat.by_ref.is_none() && pat.subpat.is_none() => Ok(pat.ident.clone()),
        _ => Err(Error::new_spanned(
            pat,
            "a tool's parameter is a plain name; destructure it in the body",
        )),
    }
}

/// Returns the value from the call for a parameter of this type, if it is a context type.
fn context(ty: &Type) -> Option<TokenStream> {
    let (inner, by_ref) = match ty {
        Type::Reference(reference) if reference.mutability.is_none() => (&*reference.elem, true),
        other => (other, false),
    };
    let value = match types::last_word(inner)?.to_string().as_str() {
        "ToolCx" => quote!((*__cx)),
        "CancelToken" => quote!(__cx.cancel),
        "Progress" => quote!(__cx.progress),
        "Deadline" => quote!(__cx.deadline),
        "RunId" => quote!(__cx.run),
        _ => return None,
    };
    Some(if by_ref {
        quote!(&#value)
    } else {
        quote!(::core::clone::Clone::clone(&#value))
    })
}

fn check_together(params: &[Param], errors: &mut Errors) {
    let whole = params.iter().any(|param| matches!(param, Param::Args(_)));
    let mut keys: Vec<String> = Vec::new();
    for param in params {
        let Param::Field(field) = param else { continue };
        let key = field.key();
        if whole {
            errors.at(
                &field.ident,
                "`#[tool(args)]` is all of the arguments: put this one into its struct",
            );
        } else if keys.contains(&key) {
            errors.at(&field.ident, format!("two arguments are named `{key}`"));
        }
        keys.push(key);
    }
}
