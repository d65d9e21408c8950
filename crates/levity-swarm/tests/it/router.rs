//! A router and its workers.

use std::sync::{Arc, Mutex};

use levity_core::{Event, ModelError, ModelErrorKind, Status};
use levity_loop::Agent;
use levity_swarm::{
    Delegation, Error, MessageKind, Notice, PlannedBy, ReportStatus, Router, Swarm, SwarmBuilder, Then,
    Worker,
};
use levity_test::ScriptedModel;

const PLAN: &str = r#"{"delegations": [
    {"id": "find", "worker": "researcher", "task": "Find the facts."},
    {"id": "write", "worker": "coder", "task": "Write it.", "depends_on": ["find"], "expected": "one function"},
    {"id": "look", "worker": "reviewer", "task": "Look it over.", "depends_on": ["write"]}]}"#;

fn agent(model: ScriptedModel) -> Agent {
    Agent::builder(model).build().unwrap()
}

fn worker(name: &str, model: ScriptedModel) -> Worker {
    Worker::new(name, format!("The {name}."), agent(model))
}

fn three(router: Router) -> SwarmBuilder {
    Swarm::builder(router)
        .worker(worker("researcher", ScriptedModel::new().reply("Water boils at 100 degrees.")))
        .worker(worker("coder", ScriptedModel::new().reply("fn boils(t: u32) -> bool { t >= 100 }")))
        .worker(worker("reviewer", ScriptedModel::new().reply("It is right.")))
}

/// What a model was asked the nth time.
fn told(model: &ScriptedModel, nth: usize) -> String {
    model.requests()[nth].history.messages().last().unwrap().text().into_owned()
}

/// What is told, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Notice>>>);

impl Told {
    fn hear(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = self.0.clone();
        move |event| told.lock().unwrap().extend(Notice::of(&event.kind))
    }

    fn any(&self, is_it: impl Fn(&Notice) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(is_it)
    }

    fn planned(&self) -> Vec<(PlannedBy, Vec<String>)> {
        let told = self.0.lock().unwrap();
        told.iter()
            .filter_map(|notice| match notice {
                Notice::Planned { by, plan, .. } => {
                    Some((*by, plan.iter().map(|one| one.worker.to_string()).collect()))
                }
                _ => None,
            })
            .collect()
    }
}

#[tokio::test]
async fn work_is_planned_done_and_put_together() {
    let router = ScriptedModel::new().reply(PLAN).reply("A function, and it is right, says the reviewer.");
    let swarm = three(Router::new(router.clone())).build().unwrap();
    let finished = swarm.run("Write a function that tells whether water boils").await.unwrap();
    assert_eq!(finished.text(), "A function, and it is right, says the reviewer.");
    assert_eq!(finished.status(), &Status::Complete);
    assert!(finished.reports().iter().all(levity_swarm::Report::is_done));
    let kinds: Vec<MessageKind> = finished.bus().messages().map(|message| message.kind).collect();
    use MessageKind::{Answer, Result, Task};
    assert_eq!(kinds, [Task, Task, Task, Result, Result, Result, Answer]);
    let asked = told(&router, 1);
    for said in ["Water boils at 100 degrees.", "fn boils", "It is right."] {
        assert!(asked.contains(said), "{asked}");
    }
}
