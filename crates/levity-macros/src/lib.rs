//! The `#[tool]` attribute: a function becomes a tool for language models.
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
//! A mistake is an error of the compiler, at the word that is wrong. The code that is written has
//! no `unsafe`, names everything by its full path, and uses nothing but `levity-core`.

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

/// Makes a tool of a function, or several of an impl block.
///
/// # A function
///
/// The function becomes a unit struct of the same name and visibility that implements
/// `levity_core::Tool`, so it is handed over by its name: `.tool(add)`. The doc comment is what the
/// model reads, and it has to be there. The function itself stays callable as `add::invoke(..)`,
/// also from its own body.
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
/// As with every unit struct, no variable in its module can have its name, not even one in code
/// that a derive writes: keep a tool called `schema` apart from types that derive `JsonSchema`.
///
/// It is among `levity_core::LinkedTool::all()` of the program, unless its name begins with `_`.
///
/// A function that is not async is marked as blocking, and gets a thread of its own; `inline` says
/// that it returns at once and needs none.
///
/// | option | says |
/// |---|---|
/// | `read_only` | it changes nothing: it may be called again, and beside others |
/// | `idempotent` | a second call with the same key changes nothing more |
/// | `undo = path` | a call can be taken back by this function: see below |
/// | `destructive` | it may destroy something, so somebody is asked first |
/// | `parallel` | it may run beside other calls |
/// | `inline` | it is not async and still does not block |
/// | `timeout = "5s"` | how long it may take: a number and `ms`, `s`, `m` or `h` |
/// | `name = ".."` | its name, if not the function's |
/// | `description = ".."` | its description, if not the doc comment |
/// | `output_schema` | tells the schema of what it returns, which needs `JsonSchema` |
/// | `crate = path` | where levity-core is, if not in Cargo.toml |
///
/// # Parameters
///
/// Each parameter is an argument: an owned value of a type that implements `serde::Deserialize` and
/// `schemars::JsonSchema`. Its doc comment is its description; an `Option` may be left out.
///
/// | option | says |
/// |---|---|
/// | `default` | left out, it is `Default::default()` |
/// | `default = expr` | left out, it is this value |
/// | `rename = ".."` | its name for the model, if not the parameter's |
/// | `args` | it is no argument but all of them, as a struct with the same two traits |
///
/// Parameters of these types are no arguments; they come from the call: `ToolCx`, `CancelToken`,
/// `Progress`, `Deadline` and `RunId`, as they are or by `&`. They are recognised by the last word
/// of their path, so another type of such a name needs an alias.
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
/// # What it returns
///
/// A value or a `Result`, by whatever alias. Values: a `ToolOutput` is taken as it is, `String` and
/// `&str` are text, `()` is the text "done", and what else implements `Serialize` is a value. With
/// `output_schema` everything is a value. Errors: a `ToolError` is taken as it is; any other error
/// becomes a `ToolError` of the kind `Failed` that tells its message and causes.
///
/// # An impl block
///
/// Tools that share state are methods. The attribute stands on the block and on each method that is
/// to be a tool; the others stay what they are, and all stay callable. The type then implements
/// `levity_core::Toolbox`, so one block of a type can be marked. Tools take `&self`.
///
/// ```
/// # use levity_core::{ToolError, Toolbox};
/// # use levity_macros::tool;
/// struct Notes(std::sync::Mutex<Vec<String>>);
///
/// #[tool]
/// impl Notes {
///     /// Keeps a note.
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
/// The block takes one option, `crate = path`; its methods take all others.
///
/// # Undo
///
/// `undo = other` names the function, or the method of the same type, that takes a call back. It
/// takes the same parameters in the same order, is async if the tool is, and returns `()` or a
/// `Result<(), E>`. It may be called for a call that never took effect, half did or wholly did, and
/// more than once; once it has returned without an error, nothing of the call is left. So it asks
/// by the key what there is to take back:
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
