//! Every kind of run, in every way that a run can go.

use levity::core::Response;
use levity::dag::{Team, TeamInput};
use levity::prelude::*;
use levity::swarm::{Router, Swarm, Worker};
use levity::test::{FunctionModel, ScriptedModel, conformance};
use serde_json::json;

#[allow(dead_code, reason = "the example has a `main`")]
#[path = "../../examples/map_reduce.rs"]
mod map_reduce;

/// Says something for each goal, whenever it is asked.
fn says(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> FunctionModel {
    FunctionModel::new(move |request| {
        let goal = request.history.messages()[0].text().into_owned();
        Ok(Response::new(Message::assistant(reply(&goal))))
    })
}

fn shown<D>(finished: &levity::core::Finished<D>) -> (String, u64) {
    (finished.text().to_owned(), finished.stats().model_calls)
}

fn agent(runtime: Runtime, model: impl Model + 'static) -> Agent {
    Agent::builder(model).runtime(runtime).build().unwrap()
}

/// Sends a letter.
#[tool(read_only)]
async fn send(
    /** to whom */
    to: String,
) -> String {
    format!("sent to {to}")
}

#[tokio::test]
async fn agent_that_asks_before_it_sends_goes_every_way() {
    let make = |runtime: Runtime| {
        let model = ScriptedModel::new()
            .call("send", json!({"to": "Ada"}))
            .call("send", json!({"to": "Bob"}))
            .reply("Both have it.")
            .by_history();
        let policy =
            levity::tools::Policy::new().rule(levity::tools::Rule::tool("send").ask("it is a letter"));
        Agent::builder(model).tool(send).policy(policy).runtime(runtime).build().unwrap()
    };
    conformance::runnable(make, || "Write to Ada and Bob.".into(), shown).await;
}

#[tokio::test]
async fn team_that_asks_about_its_plan_goes_every_way() {
    const PLAN: &str = r#"{"steps": [
        {"id": "tides", "agent": "finder", "prompt": "Find the tides.", "writes": ["tides"]},
        {"id": "winds", "agent": "finder", "prompt": "Find the winds.", "writes": ["winds"]},
        {"id": "choose", "agent": "finder", "prompt": "Choose a day.", "reads": ["tides", "winds"], "writes": ["day"]}
    ]}"#;
    let make = |runtime: Runtime| {
        let found = |_: &str| r#"{"tides": "low", "winds": "mild", "day": "Monday"}"#.to_owned();
        Team::builder()
            .agent("Planner", "Makes plans.", agent(runtime.clone(), says(|_| PLAN.to_owned())))
            .agent("finder", "Finds things out.", agent(runtime.clone(), says(found)))
            .approve_plans()
            .runtime(runtime)
            .build()
            .unwrap()
    };
    conformance::runnable(make, || TeamInput::from("When can we sail?"), shown).await;
}

#[tokio::test]
async fn swarm_of_two_workers_goes_every_way() {
    let make = |runtime: Runtime| {
        let plan = json!({"delegations": [
            {"id": "look", "worker": "pilot", "task": "Look out.", "depends_on": []},
            {"id": "steer", "worker": "mate", "task": "Steer.", "depends_on": ["look"]},
        ]});
        let router = FunctionModel::new(move |request| {
            // It is asked for a plan first, and then to put the results together.
            let planned = request.history.messages().iter().any(|message| message.text().contains("A rock."));
            let reply = if planned { "We steer around it.".to_owned() } else { plan.to_string() };
            Ok(Response::new(Message::assistant(reply)))
        });
        let worker = |name: &str, reply: &'static str| {
            Worker::new(name, "Works.", agent(runtime.clone(), says(move |_| reply.to_owned())))
        };
        Swarm::builder(Router::new(router))
            .worker(worker("pilot", "A rock."))
            .worker(worker("mate", "Steered."))
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    conformance::runnable(make, || "Bring us in.".into(), shown).await;
}

#[tokio::test]
async fn kind_of_run_of_a_user_goes_every_way() {
    let make = |runtime: Runtime| {
        let reader = agent(runtime.clone(), says(|document| format!("{} letters", document.len())));
        let writer = agent(runtime.clone(), says(|notes| notes.replace('\n', ", ")));
        map_reduce::MapReduce::new(runtime, reader, writer)
    };
    let input = || ["The tide is out.", "The harbour is empty."].map(str::to_owned).to_vec();
    conformance::runnable(make, input, |finished| {
        assert_eq!(finished.text(), "16 letters, 21 letters");
        shown(finished)
    })
    .await;
    conformance::runnable(make, Vec::new, shown).await;
}
