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
    agent: "agent.md",
    agents: "agents.md",
    architecture: "architecture.md",
    bridge: "bridge.md",
    budgets: "budgets.md",
    coming_from: "coming-from.md",
    commands: "commands.md",
    context: "context.md",
    documents: "documents.md",
    errors: "errors.md",
    eval: "eval.md",
    files: "files.md",
    graphs: "graphs.md",
    guards: "guards.md",
    http: "http.md",
    introduction: "introduction.md",
    journal: "journal.md",
    json: "json.md",
    kinds_of_runs: "kinds-of-runs.md",
    layers: "layers.md",
    logs: "logs.md",
    mcp: "mcp.md",
    memory: "memory.md",
    models: "models.md",
    own_parts: "own-parts.md",
    patterns: "patterns.md",
    plans: "plans.md",
    providers: "providers.md",
    python: "python.md",
    recall: "recall.md",
    recipes: "recipes.md",
    runs: "runs.md",
    serve_mcp: "serve-mcp.md",
    serve: "serve.md",
    sessions: "sessions.md",
    swarm: "swarm.md",
    tools: "tools.md",
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
