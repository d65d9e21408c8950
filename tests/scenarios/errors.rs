//! The one error that everything becomes.

use std::fmt::Debug;

use levity::core::{
    ContextError, ControlError, HistoryError, JournalError, MemoryError, ModelError, RuntimeError,
    ToolError,
};
use levity::prelude::*;
use levity::sandbox::Workspace;
use levity::test::ScriptedModel;
use levity::{Error, ErrorKind};

/// Does nothing; that it compiles says that `?` works.
fn becomes_the_one_error<E: Into<Error> + Debug>() {}

#[test]
fn errors_of_all_parts_become_the_one_error() {
    becomes_the_one_error::<JournalError>();
    becomes_the_one_error::<MemoryError>();
    becomes_the_one_error::<ModelError>();
    becomes_the_one_error::<ToolError>();
    becomes_the_one_error::<HistoryError>();
    becomes_the_one_error::<ContextError>();
    becomes_the_one_error::<ControlError>();
    becomes_the_one_error::<RuntimeError>();
    becomes_the_one_error::<std::io::Error>();
    becomes_the_one_error::<serde_json::Error>();
    becomes_the_one_error::<levity::tools::Error>();
    becomes_the_one_error::<levity::tools::SchemaError>();
    becomes_the_one_error::<levity::llm::Error>();
    becomes_the_one_error::<levity::llm::json::JsonError>();
    becomes_the_one_error::<levity::log::Error>();
    becomes_the_one_error::<levity::mcp::Error>();
    becomes_the_one_error::<levity::python::Error>();
    becomes_the_one_error::<levity::sandbox::PathError>();
    becomes_the_one_error::<levity::sandbox::SandboxError>();
    becomes_the_one_error::<levity::sandbox::CommandError>();
    becomes_the_one_error::<levity::sandbox::NetError>();
    becomes_the_one_error::<levity::sandbox::AddressError>();
    becomes_the_one_error::<levity::swarm::PlanFaults>();
    becomes_the_one_error::<levity::dag::Faults>();
    becomes_the_one_error::<levity::agents::CatalogueError>();
    becomes_the_one_error::<levity::observe::SessionError>();
    becomes_the_one_error::<levity::test::ScriptError>();
}

#[tokio::test]
async fn error_of_a_part_keeps_its_type_words_and_kind() {
    async fn opens() -> levity::Result<String> {
        Workspace::open("nowhere/at/all")?;
        let agent = Agent::builder(ScriptedModel::new().reply("There.")).build()?;
        Ok(agent.run("Go").await?.to_string())
    }
    let error = opens().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    let path = error
        .downcast_ref::<levity::sandbox::PathError>()
        .expect("the error of the workspace");
    assert_eq!(error.to_string(), path.to_string());
    assert!(format!("{error:?}").contains("nowhere/at/all"), "{error:?}");
    assert!(error.partial().is_none());
}
