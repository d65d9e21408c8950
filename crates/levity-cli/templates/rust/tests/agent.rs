//! Tests of the agent, without a real model.

use std::sync::Arc;

use levity::test::ScriptedModel;
use serde_json::json;

#[tokio::test]
async fn agent_answers_with_result_of_tool() -> levity::Result<()> {
    let model = ScriptedModel::new()
        .call("temperature", json!({"city": "Bergen"}))
        .reply("It is 8.5 degrees in Bergen.");
    let model = Arc::new(model);
    let agent = weather::agent(model.clone())?;
    let answer = agent.run("How warm is it in Bergen?").await?;
    assert_eq!(answer.text(), "It is 8.5 degrees in Bergen.");
    model.assert_finished();
    Ok(())
}
