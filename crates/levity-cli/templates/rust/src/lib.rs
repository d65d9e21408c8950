//! An agent with one tool.

use std::sync::Arc;

use levity::prelude::*;

/// Returns the temperature in a city, in degrees Celsius.
#[tool(read_only)]
async fn temperature(
    /** name of the city */
    city: String,
) -> Result<f64, String> {
    match city.as_str() {
        "Bergen" => Ok(8.5),
        "Porto" => Ok(19.0),
        _ => Err(format!("there is no measurement for {city}")),
    }
}

/// Makes the agent with any model.
pub fn agent(model: Arc<dyn Model>) -> levity::Result<Agent> {
    Agent::builder(model)
        .instructions("Answer questions about the weather in one sentence.")
        .tool(temperature)
        .build()
}
