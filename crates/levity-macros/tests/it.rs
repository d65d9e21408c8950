//! Tests of `#[tool]` on functions and impl blocks, and of its error messages.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod it {
    mod block;
    mod function;
    mod hints;
    mod linked;
    mod output;
    mod schema;
    mod ui;
    mod undo;

    use levity_core::{Tool, ToolCx, ToolError, ToolOutput};
    use serde_json::Value;

    async fn call(tool: &dyn Tool, args: Value) -> Result<ToolOutput, ToolError> {
        tool.call(args, &ToolCx::detached()).await
    }

    #[track_caller]
    fn run(tool: &dyn Tool, args: Value) -> Result<ToolOutput, ToolError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(call(tool, args))
    }

    #[track_caller]
    fn text(tool: &dyn Tool, args: Value) -> String {
        run(tool, args).unwrap().as_text().into_owned()
    }
}
