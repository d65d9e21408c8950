//! The Rust blocks of the book in `docs/`, as doc tests: `cargo test -p levity-book --doc`.

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        /// The pages whose blocks are compiled.
        pub const PAGES: &[&str] = &[$($page),*];

        $(#[cfg(doctest)]
        #[doc = include_str!(concat!("../../../docs/", $page))]
        pub mod $name {})*
    };
}

pages! {
    bridge: "bridge.md",
    http: "http.md",
    mcp: "mcp.md",
    serve: "serve.md",
    serve_mcp: "serve-mcp.md",
    tutorial_approval: "tutorial/approval.md",
    tutorial_deploying: "tutorial/deploying.md",
    tutorial_durable_runs: "tutorial/durable-runs.md",
    tutorial_first_agent: "tutorial/first-agent.md",
    tutorial_mcp: "tutorial/mcp.md",
    tutorial_memory: "tutorial/memory.md",
    tutorial_serving: "tutorial/serving.md",
    tutorial_streaming: "tutorial/streaming.md",
    tutorial_team: "tutorial/team.md",
    tutorial_testing: "tutorial/testing.md",
    tutorial_tools: "tutorial/tools.md",
    tutorial_typed_output: "tutorial/typed-output.md",
    untrusted_folders: "untrusted-folders.md",
    views: "views.md",
    web: "web.md",
    windows: "windows.md",
    workspace: "workspace.md",
    write_a_provider: "write-a-provider.md",
}
