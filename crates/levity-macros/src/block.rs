//! `#[tool]` on an impl block.
//!
//! Each tool becomes a hidden struct with an `Arc` of the whole value. So all tools of a block
//! share its state, and each of them can be called alone.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, GenericParam, Generics, ImplItem, ImplItemFn, ItemImpl, Type};

use crate::errors::Errors;
use crate::implement::{self, Target};
use crate::model::ToolFn;
use crate::options::{Options, Position};
use crate::{meta, params, path};

/// Returns the block unchanged with `impl Toolbox` or the errors. The block stays in any case, so
/// that a mistake in one method does not remove the others.
pub(crate) fn expand(options: TokenStream, mut block: ItemImpl) -> TokenStream {
    let mut errors = Errors::default();
    let options = Options::read(options, Position::Block, &mut errors);
    check(&block, &mut errors);
    let tools = read_methods(&mut block, &mut errors);
    let core = errors
        .take(path::core(options.levity.as_ref()))
        .unwrap_or_default();
    let toolbox = write(&core, &block, &tools);
    let toolbox = errors
        .finish(toolbox)
        .unwrap_or_else(syn::Error::into_compile_error);
    quote!(#block #toolbox)
}

/// A tool and its compilation conditions.
struct Method {
    tool: ToolFn,
    cfgs: Vec<Attribute>,
}

fn check(block: &ItemImpl, errors: &mut Errors) {
    if let Some((_, path, _)) = &block.trait_ {
        errors.at(path, "`#[tool]` goes on an impl block without a trait");
    }
    for param in &block.generics.params {
        if let GenericParam::Lifetime(lifetime) = param {
            errors.at(lifetime, "a tool cannot borrow: let the type own its data");
        }
    }
}

/// Removes the attributes from the methods that are tools, and reads them.
fn read_methods(block: &mut ItemImpl, errors: &mut Errors) -> Vec<Method> {
    let mut methods = Vec::new();
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        let Some(position) = method.attrs.iter().position(meta::is_tool) else {
            continue;
        };
        let attribute = method.attrs.remove(position);
        let options = Options::read(meta::tokens(&attribute, errors), Position::Method, errors);
        methods.push(read_method(method, options, &block.generics, errors));
    }
    for method in &methods {
        check_undo(&method.tool, block, errors);
    }
    if methods.is_empty() {
        errors.at(&block.self_ty, "no method is a tool: put #[tool] on one");
    }
    methods
}

fn read_method(
    method: &mut ImplItemFn,
    options: Options,
    outer: &Generics,
    errors: &mut Errors,
) -> Method {
    check_receiver(method, errors);
    let tool = ToolFn::read(&method.attrs, &method.sig, options, outer, errors);
    for input in &mut method.sig.inputs {
        if let FnArg::Typed(input) = input {
            params::strip(&mut input.attrs);
        }
    }
    method.attrs.push(params::allow());
    let cfgs = method
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .cloned()
        .collect();
    Method { tool, cfgs }
}

/// Checks the undo method if it is in this block. A call is undone by a method of the same type.
fn check_undo(tool: &ToolFn, block: &mut ItemImpl, errors: &mut Errors) {
    let Some(path) = &tool.options.undo else {
        return;
    };
    let Some(name) = path.get_ident() else {
        errors.at(
            path,
            "a method is undone by another method of its type: `undo = method_name`",
        );
        return;
    };
    let mut methods = block.items.iter_mut().filter_map(|item| match item {
        ImplItem::Fn(method) => Some(method),
        _ => None,
    });
    let Some(method) = methods.find(|method| method.sig.ident == *name) else {
        return;
    };
    method.attrs.push(params::allow());
    let undo = &method.sig;
    if !undo.receiver().is_some_and(is_shared) {
        errors.at(
            name,
            format!(
                "`{name}` must take `&self` and then the parameters of `{}`",
                tool.ident
            ),
        );
    }
    if undo.asyncness.is_some() != tool.is_async {
        let form = if tool.is_async {
            "is async, so its undo method must be async"
        } else {
            "is not async, so its undo method must not be async"
        };
        errors.at(name, format!("`{}` {form}", tool.ident));
    }
}

/// Requires `&self`, because calls share one value and may run concurrently.
fn check_receiver(method: &ImplItemFn, errors: &mut Errors) {
    match method.sig.receiver() {
        Some(receiver) if is_shared(receiver) => {}
        Some(receiver) => errors.at(receiver, "a tool takes `&self`: its calls share one value"),
        None => errors.at(
            &method.sig.ident,
            "a tool in an impl block takes `&self`; make this one a free function",
        ),
    }
}

fn is_shared(receiver: &syn::Receiver) -> bool {
    receiver.reference.is_some() && receiver.mutability.is_none() && receiver.colon_token.is_none()
}

fn write(core: &TokenStream, block: &ItemImpl, methods: &[Method]) -> TokenStream {
    let self_ty = &block.self_ty;
    let generics = shareable(&block.generics, self_ty);
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let tools = methods
        .iter()
        .map(|method| make(core, method, self_ty, &generics));
    let cfgs = block
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    quote! {
        #(#cfgs)*
        impl #impl_generics #core::Toolbox for #self_ty #where_clause {
            fn into_tools(self) -> ::std::vec::Vec<::std::sync::Arc<dyn #core::Tool>> {
                let __this = ::std::sync::Arc::new(self);
                let mut __tools: ::std::vec::Vec<::std::sync::Arc<dyn #core::Tool>> =
                    ::std::vec::Vec::new();
                #(#tools)*
                __tools
            }
        }
    }
}

/// Pushes one method as a tool. Its items are in a separate block, so that they need no unique
/// names.
fn make(core: &TokenStream, method: &Method, self_ty: &Type, generics: &Generics) -> TokenStream {
    let Method { tool, cfgs } = method;
    let name = &tool.ident;
    let target = Target {
        core,
        ty: quote!(__LevityTool<#self_ty>),
        generics,
        callee: quote!(<#self_ty>::#name),
        receiver: quote!(&self.0,),
        undo: tool
            .options
            .undo
            .as_ref()
            .map(|undo| quote!(<#self_ty>::#undo)),
    };
    let implementation = implement::tool(tool, &target);
    quote! {
        #(#cfgs)*
        {
            struct __LevityTool<S>(::std::sync::Arc<S>);
            #implementation
            __tools.push(::std::sync::Arc::new(__LevityTool(::std::sync::Arc::clone(&__this))));
        }
    }
}

/// Adds the bounds of a tool to a generic type.
fn shareable(generics: &Generics, self_ty: &Type) -> Generics {
    let mut generics = generics.clone();
    if !generics.params.is_empty() {
        let bound = syn::parse_quote! {
            #self_ty: ::core::marker::Send + ::core::marker::Sync + 'static
        };
        generics.make_where_clause().predicates.push(bound);
    }
    generics
}
