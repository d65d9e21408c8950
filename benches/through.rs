//! The subject: the same agent as `by_hand`, through levity.

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

/// Nobody looks at it, but a key is sent with every call.
pub const KEY: &str = "sk-mock-0123456789abcdefghijklmnopqrstuvwxyz0123456789";

/// What the weather will be in a city.
#[tool(read_only)]
pub async fn weather(
    /** The city's name. */
    city: String,
    /** For how many days. */
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

/// An agent that may go on for as long as its model likes.
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
    agent.build().expect("the agent is sound")
}

/// Works on the goal.
pub async fn run(agent: &Agent, turns: usize) -> String {
    check(agent.run(GOAL).await, turns)
}

/// Works on the goal while somebody reads every event.
pub async fn listen(agent: &Agent, turns: usize) -> String {
    let mut run = agent.start(GOAL);
    let mut events = run.events();
    while let Some(event) = events.next().await {
        std::hint::black_box(event);
    }
    check(run.await, turns)
}

/// A run that did something else would make a fine figure.
fn check(answer: levity::Result<Answer>, turns: usize) -> String {
    let answer = answer.expect("the run ends with an answer");
    let stats = answer.stats();
    assert_eq!((stats.tool_calls, stats.failed_calls), (turns as u64, 0));
    answer.text().to_owned()
}
