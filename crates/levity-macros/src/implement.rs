//! The spec and the call of a tool, for functions and methods.
//!
//! Generated names begin with two underscores, and all paths are absolute: code of the user, such
//! as a module called `core`, cannot change the meaning of the expansion.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Generics, Ident, Lit, Type};

use crate::model::ToolFn;
use crate::params::{Fallback, Field, Param};

/// The code fragments of a tool to implement.
pub(crate) struct Target<'a> {
    /// The path of levity-core.
    pub(crate) core: &'a TokenStream,
    /// The type that implements `Tool`.
    pub(crate) ty: TokenStream,
    /// The generics of the impl block of a method.
    pub(crate) generics: &'a Generics,
    /// The function to call.
    pub(crate) callee: TokenStream,
    /// The first argument with a comma, or nothing.
    pub(crate) receiver: TokenStream,
    /// The function that undoes a call.
    pub(crate) undo: Option<TokenStream>,
}

/// Returns `impl Tool`, preceded by the functions that create the defaults.
pub(crate) fn tool(tool: &ToolFn, target: &Target<'_>) -> TokenStream {
    let Target {
        core,
        ty,
        generics,
        callee,
        receiver,
        ..
    } = target;
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let defaults = fields(tool).filter_map(|(index, field)| default_item(index, field));
    let spec = spec(core, tool);
    let names = names(tool);
    let arguments = arguments(core, tool, &names);
    let wait = tool.is_async.then(|| quote!(.await));
    let result = result(core, tool);
    let undo = target
        .undo
        .as_ref()
        .map(|undo| undo_method(undo, tool, target));
    quote! {
        #(#defaults)*

        #[#core::__private::async_trait]
        impl #impl_generics #core::Tool for #ty #where_clause {
            fn spec(&self) -> &#core::ToolSpec {
                static SPEC: ::std::sync::LazyLock<#core::ToolSpec> =
                    ::std::sync::LazyLock::new(|| #spec);
                &SPEC
            }

            async fn call(
                &self,
                __args: #core::__private::serde_json::Value,
                __cx: &#core::ToolCx,
            ) -> ::core::result::Result<#core::ToolOutput, #core::ToolError> {
                #arguments
                let __out = #callee(#receiver #(#names),*) #wait;
                #result
            }

            #undo
        }
    }
}

/// Returns `Tool::undo`, which calls `undo` with the parameters of the tool.
fn undo_method(undo: &TokenStream, tool: &ToolFn, target: &Target<'_>) -> TokenStream {
    let Target { core, receiver, .. } = target;
    let names = names(tool);
    let arguments = arguments(core, tool, &names);
    let span = at(undo);
    let call = quote_spanned!(span=> #undo(#receiver #(#names),*));
    let wait = tool.is_async.then(|| quote_spanned!(span=> .await));
    let done = quote_spanned!(span=> ::core::result::Result::Ok::<(), #core::ToolError>(__value));
    let split = split(core, &done, span);
    quote! {
        async fn undo(
            &self,
            __args: #core::__private::serde_json::Value,
            __cx: &#core::ToolCx,
        ) -> ::core::result::Result<(), #core::ToolError> {
            #arguments
            let __out = #call #wait;
            #split
        }
    }
}

/// Returns the arguments, each with its index among the parameters.
fn fields(tool: &ToolFn) -> impl Iterator<Item = (usize, &Field)> {
    tool.params
        .iter()
        .enumerate()
        .filter_map(|(index, param)| match param {
            Param::Field(field) => Some((index, &**field)),
            _ => None,
        })
}

fn default_item(index: usize, field: &Field) -> Option<TokenStream> {
    let value = match field.default.as_ref()? {
        Fallback::OfType => quote!(::core::default::Default::default()),
        // A text default usually becomes a `String`; any other expression already has its type.
        Fallback::Expr(
            expr @ Expr::Lit(ExprLit {
                lit: Lit::Str(_), ..
            }),
        ) => {
            quote!(::core::convert::From::from(#expr))
        }
        Fallback::Expr(expr) => quote!(#expr),
    };
    let (name, ty) = (default_name(index), &field.ty);
    Some(quote!(fn #name() -> #ty { #value }))
}

fn default_name(index: usize) -> Ident {
    format_ident!("__levity_default_{index}")
}

fn spec(core: &TokenStream, tool: &ToolFn) -> TokenStream {
    let ToolFn {
        name, description, ..
    } = tool;
    let input = input_schema(core, tool);
    let output = tool
        .options
        .output_schema
        .as_ref()
        .map(|_| output_schema(core, &tool.output));
    let hints = tool.options.hints(tool.is_async);
    quote! {
        #core::ToolSpec::new(#name, #description)
            .with_input(#input)
            .with_hints(#core::Hints::new() #hints)
            #output
    }
}

fn input_schema(core: &TokenStream, tool: &ToolFn) -> TokenStream {
    let whole = tool.params.iter().find_map(|param| match param {
        Param::Args(ty) => Some(quote!(#core::__private::input_schema::<#ty>())),
        _ => None,
    });
    whole.unwrap_or_else(|| {
        let fields = fields(tool).map(|(index, field)| field_schema(core, index, field));
        quote!(#core::__private::Fields::new() #(#fields)* .into_schema())
    })
}

fn field_schema(core: &TokenStream, index: usize, field: &Field) -> TokenStream {
    let (key, ty) = (field.key(), &field.ty);
    let description = match &field.description {
        Some(text) => quote!(::core::option::Option::Some(#text)),
        None => quote!(::core::option::Option::None),
    };
    if field.default.is_none() {
        return quote!(.field::<#ty>(#key, #description));
    }
    let default = default_name(index);
    quote! {
        .field_or::<#ty>(#key, #description, {
            #[allow(unused_imports)]
            use #core::__private::{ShownAny as _, ShownJson as _};
            let __value = #default();
            (&&#core::__private::Probe::of(&__value)).shown().default(__value)
        })
    }
}

fn output_schema(core: &TokenStream, output: &Type) -> TokenStream {
    let probe = quote!(#core::__private::Probe::<#output>::new());
    let schema = quote_spanned!(at(output)=> schema(#probe));
    quote! {
        .with_output({
            #[allow(unused_imports)]
            use #core::__private::{ReturnsResult as _, ReturnsValue as _};
            (&&#probe).returns().#schema
        })
    }
}

/// Returns variable names for the values of the parameters.
fn names(tool: &ToolFn) -> Vec<Ident> {
    (0..tool.params.len())
        .map(|index| format_ident!("__levity_{index}"))
        .collect()
}

/// Sets these variables from `__args` and `__cx`.
fn arguments(core: &TokenStream, tool: &ToolFn, names: &[Ident]) -> TokenStream {
    let whole = tool
        .params
        .iter()
        .any(|param| matches!(param, Param::Args(_)));
    let keys: Vec<String> = fields(tool).map(|(_, field)| field.key()).collect();
    let read = quote!(#core::__private::Arguments::read(__args, &[#(#keys),*])?;);
    let read = match (whole, keys.is_empty()) {
        (true, _) => TokenStream::new(),
        (false, true) => read,
        (false, false) => quote!(let mut __args = #read),
    };
    let values = values(core, tool);
    // The block ends the lifetime of `__args` before the tool runs.
    match names {
        [] => read,
        names => quote!(let (#(#names,)*) = { #read (#(#values,)*) };),
    }
}

fn values(core: &TokenStream, tool: &ToolFn) -> Vec<TokenStream> {
    let value = |(index, param): (usize, &Param)| match param {
        Param::Field(field) => take(index, field),
        Param::Args(ty) => quote!(#core::__private::arguments::<#ty>(__args)?),
        Param::Context(value) => value.clone(),
    };
    tool.params.iter().enumerate().map(value).collect()
}

fn take(index: usize, field: &Field) -> TokenStream {
    let (key, ty) = (field.key(), &field.ty);
    match field.default {
        Some(_) => {
            let default = default_name(index);
            quote!(__args.take_or::<#ty>(#key, #default)?)
        }
        None => quote!(__args.take::<#ty>(#key)?),
    }
}

/// Converts `__out` to the result of a tool. The type itself selects the conversion, not its
/// spelling, because `Result` has many aliases; see `levity_core::__private`.
fn result(core: &TokenStream, tool: &ToolFn) -> TokenStream {
    let span = at(&tool.output);
    let private = quote!(#core::__private);
    // A return type with a schema is a value, even if it is a `String`.
    let form = match &tool.options.output_schema {
        Some(_) => quote!(#private::Json),
        None => quote!((&&#private::Probe::of(&__value)).form()),
    };
    let output = quote_spanned!(span=> output(__value));
    split(core, &quote!(#form.#output), span)
}

/// Returns `done`, which is computed from `__value`, or an error, depending on `__out`.
fn split(core: &TokenStream, done: &TokenStream, span: Span) -> TokenStream {
    let private = quote!(#core::__private);
    let error = quote_spanned!(span=> error(__error));
    // Import no names that could clash with the user's types.
    quote! {
        #[allow(unused_imports)]
        use #private::{
            FormAny as _, FormKnown as _, ReasonAny as _, ReasonError as _, ReasonKnown as _,
            ReturnsResult as _, ReturnsValue as _,
        };
        match (&&#private::Probe::of(&__out)).returns().split(__out) {
            ::core::result::Result::Ok(__value) => #done,
            ::core::result::Result::Err(__error) => {
                ::core::result::Result::Err((&&&#private::Probe::of(&__error)).reason().#error)
            }
        }
    }
}

/// Returns the span of these tokens for messages, with names resolved in this file.
fn at(tokens: &impl Spanned) -> Span {
    tokens.span().resolved_at(Span::call_site())
}
