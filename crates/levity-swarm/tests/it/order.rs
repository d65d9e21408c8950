//! Tests that the same script gives the same log, regardless of speed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Deltas, Message, Model, ModelCard, ModelError, ModelErrorKind, Part, Request, Response, Role,
    ToolCall, World,
};
use levity_loop::Agent;
use levity_runtime::Runtime;
use levity_swarm::{BusMessage, Router, Swarm, SwarmAnswer, Worker, WorkerMemory};
use levity_test::{ManualWorld, ScriptedModel};
use proptest::prelude::*;
use serde_json::json;

/// A model with a delay that answers only by its request.
struct Slow {
    name: &'static str,
    world: ManualWorld,
    time: Duration,
    prompts: Arc<Mutex<Vec<String>>>,
    card: ModelCard,
}

impl Slow {
    /// The first worker leaves a note for the fourth, the second one for all; the third always
    /// fails.
    fn answer(&self, request: &Request) -> Result<Response, ModelError> {
        let words: Vec<String> = request
            .history
            .messages()
            .iter()
            .map(|message| format!("{message:?}"))
            .collect();
        self.prompts.lock().unwrap().push(words.join("\n"));
        let spoke = request
            .history
            .messages()
            .last()
            .is_some_and(|message| message.results().next().is_some());
        let args = match self.name {
            "third" => return Err(ModelError::new(ModelErrorKind::Overloaded, "too much")),
            "first" => json!({"to": "fourth", "content": "Mind the step."}),
            "second" => json!({"to": "*", "content": "It is late."}),
            _ => return Ok(Response::new(Message::assistant(self.words(request)))),
        };
        if spoke {
            return Ok(Response::new(Message::assistant(self.words(request))));
        }
        let call = ToolCall::new("c1", "send_message", args);
        Ok(Response::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call)],
        )))
    }

    /// Returns a text with the length of the task, so that every difference in a prompt is visible.
    fn words(&self, request: &Request) -> String {
        let size: usize = request
            .history
            .messages()
            .iter()
            .map(|message| message.text().len())
            .sum();
        format!("{} was told {size}", self.name)
    }
}

#[async_trait]
impl Model for Slow {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        self.world.sleep(self.time).await;
        self.answer(&request)
            .map(|response| Deltas::from_response(&response))
    }
}

const PLAN: &str = r#"{"delegations": [
    {"id": "a", "worker": "first", "task": "Begin."},
    {"id": "b", "worker": "second", "task": "Begin."},
    {"id": "c", "worker": "third", "task": "Begin."},
    {"id": "d", "worker": "fourth", "task": "Go on.", "depends_on": ["a"]},
    {"id": "e", "worker": "first", "task": "Go on.", "depends_on": ["b", "d"]},
    {"id": "f", "worker": "second", "task": "Go on.", "depends_on": ["c"]},
    {"id": "g", "worker": "fourth", "task": "End.", "depends_on": ["b", "e"]},
    {"id": "h", "worker": "fourth", "task": "Alone."}]}"#;

const AGAIN: &str = r#"{"delegations": [{"id": "c", "worker": "first", "task": "Do it."},
    {"id": "f", "worker": "second", "task": "Go on.", "depends_on": ["c", "g"]},
    {"id": "i", "worker": "fourth", "task": "See."}]}"#;

/// Advances the clock in small steps whenever all tasks are idle.
async fn tick(world: &ManualWorld) {
    loop {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        world.advance(Duration::from_millis(1));
    }
}

/// Runs the same script with these delays; returns the answer and the prompts of each model.
async fn run(times: [u64; 4], parallel: usize) -> (SwarmAnswer, Vec<Vec<String>>) {
    let world = ManualWorld::new();
    let router = ScriptedModel::new()
        .reply(PLAN)
        .reply(AGAIN)
        .reply("Put together.");
    let prompts: [Arc<Mutex<Vec<String>>>; 4] = Default::default();
    let runtime = Runtime::new().with_world(world.clone());
    let mut swarm = Swarm::builder(Router::new(router.clone()))
        .runtime(runtime.clone())
        .max_parallel(parallel)
        .worker_messages();
    for ((name, prompts), time) in ["first", "second", "third", "fourth"]
        .into_iter()
        .zip(&prompts)
        .zip(times)
    {
        let (time, card) = (Duration::from_millis(time), ModelCard::new("test", "slow"));
        let slow = Slow {
            name,
            world: world.clone(),
            time,
            prompts: prompts.clone(),
            card,
        };
        let agent = Agent::builder(slow)
            .runtime(runtime.clone())
            .build()
            .unwrap();
        swarm = swarm.worker(Worker::new(name, "Works.", agent).memory(WorkerMemory::Run));
    }
    let swarm = swarm.build().unwrap();
    let finished = tokio::select! {
        finished = swarm.run("Go").id("swarm") => finished.unwrap(),
        () = tick(&world) => unreachable!(),
    };
    let mut prompts = prompts
        .map(|prompts| prompts.lock().unwrap().clone())
        .to_vec();
    prompts.push(
        router
            .requests()
            .iter()
            .map(|request| format!("{:?}", request.history.messages()))
            .collect(),
    );
    prompts.iter_mut().for_each(|prompts| prompts.sort());
    (finished, prompts)
}

/// Returns the log without the times.
fn log(finished: &SwarmAnswer) -> String {
    let line = |message: &BusMessage| {
        format!(
            "{} {} {} {}: {}\n",
            message.id, message.from, message.kind, message.to, message.content
        )
    };
    finished.bus().messages().map(line).collect()
}

#[tokio::test]
async fn bus_log_contains_tasks_and_notes_in_order() {
    let (finished, prompts) = run([1, 1, 1, 1], 16).await;
    assert_eq!(finished.text().lines().next(), Some("Put together."));
    let log = log(&finished);
    let lines: Vec<&str> = log.lines().collect();
    let heads = [
        "1 router task first: Begin.",
        "8 router task fourth: Alone.",
        "9 first note fourth: Mind the step.",
    ];
    assert_eq!([lines[0], lines[7], lines[8]], heads);
    // Successors of the first find its note, and successors of the second find its broadcast.
    let fourth = &prompts[3];
    let seen = |task: &str, note: &str| {
        fourth.iter().any(|prompts| {
            prompts.contains(&format!("# Your task\\n{task}")) && prompts.contains(note)
        })
    };
    assert!(
        seen("Go on.", "Mind the step.") && !seen("Go on.", "It is late."),
        "{fourth:?}"
    );
    assert!(
        seen("End.", "Mind the step.") && seen("End.", "It is late."),
        "{fourth:?}"
    );
    assert!(
        !seen("Alone.", "Mind the step.") && seen("See.", "It is late."),
        "{fourth:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn speed_of_workers_makes_no_difference(
        times in prop::array::uniform4(1_u64..60),
        parallel in 1_usize..6,
    ) {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (one, other) = tokio.block_on(async {
            (run([1, 1, 1, 1], 16).await, run(times, parallel).await)
        });
        prop_assert_eq!(log(&one.0), log(&other.0));
        prop_assert_eq!(one.1, other.1);
        let ids = |finished: &SwarmAnswer| -> Vec<_> {
            finished
                .reports()
                .iter()
                .map(|report| (report.id.clone(), report.status, report.text.clone()))
                .collect()
        };
        prop_assert_eq!(ids(&one.0), ids(&other.0));
        prop_assert_eq!(one.0.text(), other.0.text());
    }
}
