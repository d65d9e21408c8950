//! `#[tool]` on a function.
//!
//! The function itself is kept unchanged under the name `invoke`, so that tests and other functions
//! can call it with its own types.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, Generics, ItemFn, Pat, Result};

use crate::errors::Errors;
use crate::implement::{self, Target};
use crate::model::ToolFn;
use crate::options::{Options, Position};
use crate::{docs, params, path};

pub(crate) fn expand(options: TokenStream, item: &ItemFn) -> Result<TokenStream> {
    let mut errors = Errors::default();
    if let Some(receiver) = item.sig.receiver() {
        errors.at(
            receiver,
            "a method becomes a tool with its impl block: put #[tool] on the impl block as well",
        );
        return errors.finish(TokenStream::new());
    }
    let options = Options::read(options, Position::Function, &mut errors);
    let tool = ToolFn::read(
        &item.attrs,
        &item.sig,
        options,
        &Generics::default(),
        &mut errors,
    );
    check_names(item, &mut errors);
    let core = errors.take(path::core(tool.options.levity.as_ref()));
    let core = errors.finish(core)?.unwrap_or_default();
    Ok(write(&core, &tool, item))
}

/// Checks parameter names: a variable cannot have the name of the tool's unit struct.
fn check_names(item: &ItemFn, errors: &mut Errors) {
    for input in &item.sig.inputs {
        let FnArg::Typed(input) = input else { continue };
        if matches!(&*input.pat, Pat::Ident(pat) if pat.ident == item.sig.ident) {
            errors.at(&input.pat, "a parameter cannot have the name of its tool");
        }
    }
}

fn write(core: &TokenStream, tool: &ToolFn, item: &ItemFn) -> TokenStream {
    let (name, vis) = (&tool.ident, &item.vis);
    let docs = item
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"));
    let cfgs: Vec<&Attribute> = item
        .attrs
        .iter()
        .filter(|a| a.path().is_ident("cfg"))
        .collect();
    let target = Target {
        core,
        ty: quote!(#name),
        generics: &Generics::default(),
        callee: quote!(#name::invoke),
        receiver: TokenStream::new(),
        undo: tool.options.undo.as_ref().map(|undo| quote!(#undo)),
    };
    let implementation = implement::tool(tool, &target);
    let link = link(core, tool);
    let invoke = invoke(item);
    quote! {
        #(#docs)*
        #(#cfgs)*
        #[allow(non_camel_case_types)]
        #[derive(
            ::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::core::default::Default
        )]
        #vis struct #name;

        #(#cfgs)*
        impl #name {
            #invoke
        }

        #(#cfgs)*
        const _: () = {
            #implementation
            #link
        };
    }
}

/// Returns the function unchanged under its new name.
fn invoke(item: &ItemFn) -> TokenStream {
    // The docs move to the struct: twice, they would also be tested twice.
    let attributes = item
        .attrs
        .iter()
        .filter(|a| !docs::is_doc(a) && !a.path().is_ident("cfg"));
    let (vis, block) = (&item.vis, &item.block);
    let allow = params::allow();
    let mut signature = item.sig.clone();
    signature.ident = syn::Ident::new("invoke", signature.ident.span());
    for input in &mut signature.inputs {
        if let FnArg::Typed(input) = input {
            params::strip(&mut input.attrs);
        }
    }
    quote! {
        /// Calls the function itself, without a model.
        #[allow(
            dead_code,
            clippy::missing_const_for_fn,
            clippy::missing_errors_doc,
            clippy::missing_panics_doc
        )]
        #allow
        #(#attributes)*
        #vis #signature #block
    }
}

/// Registers the tool with the linked tools of a program.
fn link(core: &TokenStream, tool: &ToolFn) -> Option<TokenStream> {
    let name = &tool.ident;
    (!name.to_string().starts_with('_')).then(|| {
        quote! {
            #core::__private::inventory::submit! {
                #core::LinkedTool::new(|| ::std::sync::Arc::new(#name))
            }
        }
    })
}
