//! A function that becomes a tool, parsed and checked.
//!
//! Reading and writing are separate: this type has everything that `implement` needs, and no tokens
//! of the attribute itself.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, Generics, Ident, PatType, ReturnType, Signature, Type};

use crate::errors::Errors;
use crate::options::Options;
use crate::params::{self, Param};
use crate::{docs, name, types};

pub(crate) struct ToolFn {
    pub(crate) ident: Ident,
    pub(crate) name: String,
    pub(crate) description: TokenStream,
    pub(crate) options: Options,
    pub(crate) params: Vec<Param>,
    pub(crate) is_async: bool,
    pub(crate) output: Type,
}

impl ToolFn {
    /// Reads a function; `outer` are the generics of the impl block around it. Errors go to
    /// `errors`, and the value is then invalid.
    pub(crate) fn read(
        attributes: &[Attribute],
        signature: &Signature,
        options: Options,
        outer: &Generics,
        errors: &mut Errors,
    ) -> Self {
        check(signature, errors);
        let tool = Self {
            ident: signature.ident.clone(),
            name: tool_name(&signature.ident, &options, errors),
            description: description(attributes, &signature.ident, &options, errors),
            params: params::read(typed(signature), outer, errors),
            is_async: signature.asyncness.is_some(),
            output: output(&signature.output),
            options,
        };
        tool.check_options(outer, errors);
        tool
    }

    fn check_options(&self, outer: &Generics, errors: &mut Errors) {
        if let (Some(inline), true) = (&self.options.inline, self.is_async) {
            errors.at(
                inline,
                "`inline` is for functions that are not async: an async one never blocks its \
                    thread",
            );
        }
        if self.options.output_schema.is_some() {
            errors.take(types::check(&self.output, outer));
        }
    }
}

/// Returns the parameters without the receiver.
fn typed(signature: &Signature) -> impl Iterator<Item = &PatType> {
    signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(input) => Some(input),
        FnArg::Receiver(_) => None,
    })
}

fn check(signature: &Signature, errors: &mut Errors) {
    if let Some(token) = &signature.constness {
        errors.at(token, "a tool cannot be `const`");
    }
    if let Some(token) = &signature.unsafety {
        errors.at(
            token,
            "a tool cannot be `unsafe`: a model cannot uphold its safety contract",
        );
    }
    if let Some(abi) = &signature.abi {
        errors.at(abi, "a tool cannot have a foreign calling convention");
    }
    if let Some(variadic) = &signature.variadic {
        errors.at(variadic, "a tool cannot be variadic: take a `Vec`");
    }
    if !signature.generics.params.is_empty() {
        errors.at(
            &signature.generics.params,
            "a tool cannot be generic: its schema is that of one type",
        );
    }
}

fn tool_name(function: &Ident, options: &Options, errors: &mut Errors) -> String {
    match &options.name {
        Some(given) => given.value(),
        None => errors.take(name::of(function)).unwrap_or_default(),
    }
}

fn description(
    attributes: &[Attribute],
    function: &Ident,
    options: &Options,
    errors: &mut Errors,
) -> TokenStream {
    let given = options.description.as_ref();
    if let Some(blank) = given.filter(|given| given.value().trim().is_empty()) {
        errors.at(blank, "a tool needs a description for the model");
    }
    let description = given
        .map(|given| quote!(#given))
        .or_else(|| docs::description(attributes));
    description.unwrap_or_else(|| {
        errors.at(
            function,
            "a tool needs a description for the model: add a doc comment",
        );
        TokenStream::new()
    })
}

fn output(output: &ReturnType) -> Type {
    match output {
        ReturnType::Default => syn::parse_quote!(()),
        ReturnType::Type(_, ty) => (**ty).clone(),
    }
}
