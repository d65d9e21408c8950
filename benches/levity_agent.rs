//! The measured subject: the agent of `floor_agent`, built with levity.

use levity::Agent;
use levity::prelude::*;
use levity_llm::ChatModel;

pub const INSTRUCTIONS: &str = "You are a guide for people who travel. Find out what the weather \
    will be before you say \
    what to take along, name the day that you speak of, and keep to two sentences. Where the \
    forecast is uncertain, \
    say so; never make one up.";

pub const GOAL: &str =
    "What will the weather be in Reykjavík in the next three days, and what should I take along?";

/// A key that the server ignores, but every call sends.
pub const KEY: &str = "sk-mock-0123456789abcdefghijklmnopqrstuvwxyz0123456789";

/// Returns the weather forecast of a city.
#[tool(read_only)]
pub async fn weather(
    /** The city's name. */
    city: String,
    /** The number of days. */
    days: i64,
) -> String {
    format!(
        "Forecast for {city}, {days} days:\n\
         - today: \"cool\", 9 °C, wind from the north-west at 8 m/s, a chance of rain of 10 per \
         cent\n\
         - tomorrow: \"windy\", 8 °C, wind from the west at 13 m/s, a chance of rain of 35 per \
         cent\n\
         - the day after: \"rain\", 7 °C, wind from the south-west at 11 m/s, a chance of rain of \
         80 per cent\n"
    )
}

/// Builds an agent whose limits never stop its model.
pub fn agent(url: &str, turns: usize, stream: bool) -> Agent {
    let model = ChatModel::compatible(url, "mock").with_key(KEY);
    let model = if stream {
        model
    } else {
        model.without_streaming()
    };
    let turns = turns as u64 + 8;
    let limits = Limits::new().model_calls(turns).tool_calls(turns);
    let agent = Agent::builder(model)
        .max_turns(turns)
        .limits(limits)
        .instructions(INSTRUCTIONS)
        .tool(weather);
    agent.build().expect("the agent is valid")
}

/// Runs the agent on the goal.
pub async fn run(agent: &Agent, turns: usize) -> String {
    check(agent.run(GOAL).await, turns)
}

/// Runs the agent on the goal while a listener reads every event.
pub async fn listen(agent: &Agent, turns: usize) -> String {
    let mut run = agent.start(GOAL);
    let mut events = run.events();
    while let Some(event) = events.next().await {
        std::hint::black_box(event);
    }
    check(run.await, turns)
}

/// Checks the number of calls, because a run with fewer calls would look faster.
fn check(answer: levity::Result<Answer>, turns: usize) -> String {
    let answer = answer.expect("the run ends with an answer");
    let stats = answer.stats();
    assert_eq!((stats.tool_calls, stats.failed_calls), (turns as u64, 0));
    answer.text().to_owned()
}
