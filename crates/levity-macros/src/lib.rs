//! The `#[tool]` attribute, which turns a function into a tool for language models.
//!
//! ```
//! use levity_core::{Tool, ToolCx};
//! use levity_macros::tool;
//!
//! /// Adds two numbers.
//! #[tool(read_only)]
//! async fn add(
//!     /// The first number.
//!     a: f64,
//!     /// The second number.
//!     b: f64,
//! ) -> f64 {
//!     a + b
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let output = add.call(serde_json::json!({"a": 2, "b": 5}), &ToolCx::detached()).await?;
//! assert_eq!(output.as_text(), "7.0");
//! assert_eq!(add.spec().description, "Adds two numbers.");
//! assert_eq!(add.spec().input["properties"]["a"]["description"], "The first number.");
//! # Ok::<(), levity_core::ToolError>(())
//! # }).unwrap();
//! ```
//!
//! A mistake is a compiler error at the wrong word. The generated code has no `unsafe`, uses full
//! paths, and depends only on `levity-core`.
//!
//! # What is generated
//! - a unit struct in place of the function, with the function as `invoke`;
//! - an implementation of `levity_core::Tool`, whose spec is built once, when it is first needed;
//! - an entry in the program's list of linked tools.
//!
//! The schema of each argument comes from its type by `schemars`, and its description from the doc
//! comment of the parameter. Nothing is read from files, and the expansion depends on the annotated
//! item alone.
//!
//! # Features
//! This crate has no features. Use it through `levity::tool` of the facade; crates of tools can
//! depend on `levity-core` and this crate alone.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod block;
mod docs;
mod errors;
mod function;
mod implement;
mod meta;
mod model;
mod name;
mod options;
mod params;
mod path;
mod timeout;
mod types;

use proc_macro2::TokenStream;
use syn::{Error, Item};

/// Turns a function into a tool, or an impl block into several tools.
///
/// # A function
///
/// The function becomes a unit struct of the same name and visibility that implements
/// `levity_core::Tool`, so you pass it by its name: `.tool(add)`. The model reads the doc comment,
/// which is required. You can still call the function itself as `add::invoke(..)`, also in its own
/// body.
///
/// ```
/// # use levity_macros::tool;
/// /// Says hello.
/// #[tool(inline)]
/// fn hello(name: String) -> String {
///     format!("Hello, {name}!")
/// }
///
/// assert_eq!(hello::invoke("Ada".into()), "Hello, Ada!");
/// ```
///
/// As with every unit struct, no variable in its module can have its name, not even in code that a
/// derive generates. Keep a tool called `schema` apart from types that derive `JsonSchema`.
///
/// The tool is part of the program's `levity_core::LinkedTool::all()`, unless its name begins with
/// `_`.
///
/// A function that is not async is marked as blocking and runs on a separate thread. Use `inline`
/// if it returns immediately and needs no thread.
///
/// | option | meaning |
/// |---|---|
/// | `read_only` | it changes nothing: it may be repeated, and run beside other calls |
/// | `idempotent` | a repeated call with the same key changes nothing more |
/// | `undo = path` | this function undoes a call: see below |
/// | `destructive` | it may destroy something, so it requires approval |
/// | `parallel` | it may run beside other calls |
/// | `inline` | it is not async and still does not block |
/// | `timeout = "5s"` | the time limit: a number and `ms`, `s`, `m` or `h` |
/// | `name = ".."` | its name, if not the function's |
/// | `description = ".."` | its description, if not the doc comment |
/// | `output_schema` | includes the schema of the return value, which requires `JsonSchema` |
/// | `crate = path` | the path of levity-core, if it is not in Cargo.toml |
///
/// # Parameters
///
/// Each parameter is an argument: an owned value of a type that implements `serde::Deserialize` and
/// `schemars::JsonSchema`. Its doc comment is its description; an `Option` may be omitted.
///
/// | option | meaning |
/// |---|---|
/// | `default` | if omitted, it is `Default::default()` |
/// | `default = expr` | if omitted, it is this value |
/// | `rename = ".."` | its name for the model, if not the parameter's |
/// | `args` | it holds all arguments, as a struct with the same two traits |
///
/// Parameters of these types are not arguments; their values come from the call: `ToolCx`,
/// `CancelToken`, `Progress`, `Deadline` and `RunId`, owned or by `&`. They are recognized by the
/// last segment of their path, so another type of the same name needs an alias.
///
/// ```
/// # use levity_core::{Progress, Tool, ToolError};
/// # use levity_macros::tool;
/// /// Finds files.
/// #[tool(read_only, timeout = "1.5s")]
/// async fn find(
///     /// What the name contains.
///     text: String,
///     #[tool(default = 20)] limit: usize,
///     progress: Progress,
/// ) -> Result<Vec<String>, ToolError> {
///     progress.report("looking");
///     Ok(vec![text; limit])
/// }
///
/// let input = &find.spec().input;
/// assert_eq!(input["properties"]["limit"]["default"], 20);
/// assert_eq!(input["required"], serde_json::json!(["text"]));
/// ```
///
/// # Return values
///
/// A tool returns a value or a `Result` under any alias. A `ToolOutput` is used unchanged, `String`
/// and `&str` are text, `()` is the text "done", and any other type that implements `Serialize` is
/// a value. With `output_schema` everything is a value.
///
/// A `ToolError` is used unchanged. Any other error becomes a `ToolError` of the kind `Failed` with
/// its message and causes.
///
/// # An impl block
///
/// Use methods for tools that share state. Put the attribute on the block and on each method that
/// is a tool; the others are unchanged, and all remain callable. The type then implements
/// `levity_core::Toolbox`, so only one block of a type can have the attribute. Tools take `&self`.
///
/// ```
/// # use levity_core::{ToolError, Toolbox};
/// # use levity_macros::tool;
/// struct Notes(std::sync::Mutex<Vec<String>>);
///
/// #[tool]
/// impl Notes {
///     /// Stores a note.
///     #[tool]
///     async fn keep(&self, text: String) -> Result<(), ToolError> {
///         self.all()?.push(text);
///         Ok(())
///     }
///
///     /// Counts the notes.
///     #[tool(read_only, inline)]
///     fn count(&self) -> Result<usize, ToolError> {
///         Ok(self.all()?.len())
///     }
///
///     fn all(&self) -> Result<std::sync::MutexGuard<'_, Vec<String>>, ToolError> {
///         self.0.lock().map_err(|_| ToolError::failed("the notes are lost"))
///     }
/// }
///
/// let tools = Notes(Default::default()).into_tools();
/// let names: Vec<_> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
/// assert_eq!(names, ["keep", "count"]);
/// ```
///
/// The block accepts one option, `crate = path`; its methods accept all others.
///
/// # Undo
///
/// `undo = other` names the function, or the method of the same type, that undoes a call. It takes
/// the same parameters in the same order, is async if the tool is, and returns `()` or a
/// `Result<(), E>`.
///
/// It may run for a call that took no effect, part of it or all of it, and more than once. After it
/// returns without an error, no effect of the call remains. So it uses the key to find what to
/// undo:
///
/// ```
/// # use levity_core::{EffectClass, Tool, ToolCx, Toolbox};
/// # use levity_macros::tool;
/// # use std::{collections::BTreeMap, sync::Mutex};
/// #[derive(Default)]
/// struct Hotel(Mutex<BTreeMap<String, u32>>);
///
/// #[tool]
/// impl Hotel {
///     /// Books rooms.
///     #[tool(undo = cancel)]
///     async fn book(&self, rooms: u32, cx: &ToolCx) {
///         self.0.lock().unwrap().insert(cx.key.to_string(), rooms);
///     }
///
///     async fn cancel(&self, _rooms: u32, cx: &ToolCx) {
///         self.0.lock().unwrap().remove(&*cx.key);
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let book = Hotel::default().into_tools().remove(0);
/// assert_eq!(book.spec().hints.class, EffectClass::Compensable);
/// let (args, cx) = (serde_json::json!({"rooms": 2}), ToolCx::detached());
/// book.undo(args.clone(), &cx).await?;
/// book.call(args.clone(), &cx).await?;
/// book.undo(args, &cx).await?;
/// # Ok::<(), levity_core::ToolError>(())
/// # }).unwrap();
/// ```
///
/// # Structured arguments
///
/// A struct can hold all arguments, so that tools share it and validate it:
///
/// ```
/// # use levity_core::{Tool, ToolCx};
/// # use levity_macros::tool;
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Order {
///     item: String,
///     count: u32,
/// }
///
/// /// Orders an item.
/// #[tool(idempotent)]
/// async fn buy(#[tool(args)] order: Order) -> String {
///     format!("{} of {}", order.count, order.item)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let args = serde_json::json!({"item": "tea", "count": 2});
/// assert_eq!(buy.call(args, &ToolCx::detached()).await?.as_text(), "2 of tea");
/// # Ok::<(), levity_core::ToolError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// All mistakes of an item are reported at once, each at the tokens that cause it: a missing
/// description, a generic or borrowed parameter, an unknown or contradictory option, a name that
/// providers reject.
#[proc_macro_attribute]
pub fn tool(
    options: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand(options.into(), item.into())
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    match syn::parse2(item)? {
        Item::Fn(function) => function::expand(options, &function),
        Item::Impl(block) => Ok(block::expand(options, block)),
        other => Err(Error::new_spanned(
            other,
            "`#[tool]` goes on a function or an impl block",
        )),
    }
}
