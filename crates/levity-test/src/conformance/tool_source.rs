//! The suite for sources of tools.
//!
//! A runtime compares versions instead of tools before each request, so a change with the same
//! version would never reach the model.

use std::collections::HashSet;

use levity_core::{ToolSource, ToolSpec};

use super::check::same;
use super::tool::check_spec;

/// Checks a [`ToolSource`] against its contract.
///
/// `change` changes the tools of the source, and returns once the change is visible; for a source
/// that never changes, pass a function that does nothing.
///
/// The suite checks, before and after the change:
/// - the source has a name;
/// - no two tools share a name, and the spec of each passes the checks of [`tool`](super::tool);
/// - `tools` and `version` stay the same while nothing changes, order included;
/// - `version` changes when `tools` returns something else.
///
/// Not checked: that `tools` returns at once.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use levity_core::{Tool, ToolOutput, ToolSource};
/// use levity_test::{RecordingTool, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// #[derive(Default)]
/// struct Plugins(Mutex<Vec<Arc<dyn Tool>>>);
///
/// impl ToolSource for Plugins {
///     fn name(&self) -> &str {
///         "plugins"
///     }
///     fn tools(&self) -> Vec<Arc<dyn Tool>> {
///         self.0.lock().unwrap().clone()
///     }
///     fn version(&self) -> u64 {
///         self.tools().len() as u64 // tools are only added
///     }
/// }
///
/// conformance::tool_source(&Plugins::default(), async |plugins| {
///     let now = RecordingTool::new("now", |_| Ok(ToolOutput::text("noon")));
///     plugins.0.lock().unwrap().push(Arc::new(now));
/// })
/// .await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn tool_source<S: ToolSource>(source: &S, change: impl AsyncFnOnce(&S)) {
    assert!(!source.name().is_empty(), "tool source: it has a name");
    let before = check_set(source);
    let version = source.version();
    change(source).await;
    let after = check_set(source);
    let is_noticed = before == after || source.version() != version;
    assert!(
        is_noticed,
        "tool source: `version` changes whenever `tools` would return something else"
    );
}

fn check_set(source: &impl ToolSource) -> Vec<ToolSpec> {
    let version = source.version();
    let tools = specs(source);
    let mut names = HashSet::new();
    for spec in &tools {
        check_spec(spec);
        assert!(
            names.insert(&spec.name),
            "tool source: no two tools share a name\nfound twice: `{}`",
            spec.name
        );
    }
    for _ in 0..3 {
        same(
            &specs(source),
            &tools,
            "tool source: `tools` are in a stable order",
        );
    }
    same(
        &source.version(),
        &version,
        "tool source: `version` stays while nothing changes",
    );
    tools
}

fn specs(source: &impl ToolSource) -> Vec<ToolSpec> {
    source
        .tools()
        .iter()
        .map(|tool| tool.spec().clone())
        .collect()
}
