//! Conversions of all errors into `levity::Error`.

use std::fmt::Debug;

use levity::core::{
    ContextError, ControlError, HistoryError, JournalError, MemoryError, ModelError, RuntimeError,
    ToolError,
};
use levity::prelude::*;
use levity::sandbox::Workspace;
use levity::test::ScriptedModel;
use levity::{Error, ErrorKind};

/// Checks at compile time that `?` converts the error.
fn assert_converts<E: Into<Error> + Debug>() {}

#[test]
fn errors_of_all_crates_convert_to_levity_error() {
    assert_converts::<JournalError>();
    assert_converts::<MemoryError>();
    assert_converts::<ModelError>();
    assert_converts::<ToolError>();
    assert_converts::<HistoryError>();
    assert_converts::<ContextError>();
    assert_converts::<ControlError>();
    assert_converts::<RuntimeError>();
    assert_converts::<std::io::Error>();
    assert_converts::<serde_json::Error>();
    assert_converts::<levity::tools::Error>();
    assert_converts::<levity::tools::SchemaError>();
    assert_converts::<levity::llm::Error>();
    assert_converts::<levity::llm::json::JsonError>();
    assert_converts::<levity::log::Error>();
    assert_converts::<levity::mcp::Error>();
    assert_converts::<levity::python::Error>();
    assert_converts::<levity::sandbox::PathError>();
    assert_converts::<levity::sandbox::SandboxError>();
    assert_converts::<levity::sandbox::CommandError>();
    assert_converts::<levity::sandbox::NetError>();
    assert_converts::<levity::sandbox::AddressError>();
    assert_converts::<levity::swarm::PlanFaults>();
    assert_converts::<levity::dag::Faults>();
    assert_converts::<levity::agents::CatalogueError>();
    assert_converts::<levity::observe::SessionError>();
    assert_converts::<levity::test::ScriptError>();
}

#[tokio::test]
async fn converted_error_keeps_type_message_and_kind() {
    async fn open_missing_workspace() -> levity::Result<String> {
        Workspace::open("nowhere/at/all")?;
        let agent = Agent::builder(ScriptedModel::new().reply("There.")).build()?;
        Ok(agent.run("Go").await?.to_string())
    }
    let error = open_missing_workspace().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    let path = error
        .downcast_ref::<levity::sandbox::PathError>()
        .expect("the source must be the workspace error");
    assert_eq!(error.to_string(), path.to_string());
    assert!(format!("{error:?}").contains("nowhere/at/all"), "{error:?}");
    assert!(error.partial().is_none());
}

#[tokio::test]
async fn replay_of_other_request_reports_difference_and_next_step() {
    use levity::llm::ModelExt as _;
    use levity::llm::layers::Replay;

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("calls.jsonl");
    let recorded = ScriptedModel::new()
        .reply("Noon.")
        .record(&path)
        .expect("a recording");
    let agent = Agent::builder(recorded).build().expect("an agent");
    agent.run("When?").await.expect("an answer");

    let replayed = Replay::open(&path).expect("the recording");
    let agent = Agent::builder(replayed).build().expect("an agent");
    let error = agent.run("Where?").await.expect_err("another request");
    assert_eq!(
        error.to_string(),
        "the model gave no reply: the recording has no reply to this request; record it again"
    );
    let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
    let last = causes.last().expect("a cause").to_string();
    assert_eq!(
        last,
        "the request was not recorded; the most similar one, in line 1, differs in \
         `history[0].parts[0].text`"
    );
}
