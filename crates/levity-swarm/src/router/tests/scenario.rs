//! Random swarms, plans and outcomes.

use std::sync::Arc;

use levity_core::{Ending, Failure, Limit, Outcome, Signal, Stats, Status, Usage};
use levity_loop::Agent;
use levity_test::ScriptedModel;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::machine::SwarmMachine;
use crate::{Delegation, Router, Swarm, Worker, WorkerMemory};

pub(super) const WORKERS: [&str; 4] = ["mason", "joiner", "roofer", "glazier"];

/// The settings of a swarm.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) plans: bool,
    pub(super) synthesis: bool,
    pub(super) tries: u32,
    pub(super) reassigns: u32,
    pub(super) parallel: usize,
    /// For each worker, its retries, its fallback and its memory.
    pub(super) workers: [(u32, Option<usize>, u8); 4],
}

impl Default for Setting {
    fn default() -> Self {
        let workers = [(1, None, 0), (0, Some(0), 0), (2, Some(1), 1), (0, None, 2)];
        Self {
            plans: true,
            synthesis: true,
            tries: 2,
            reassigns: 1,
            parallel: 3,
            workers,
        }
    }
}

pub(super) fn settings() -> impl Strategy<Value = Setting> {
    let worker = (0_u32..3, prop::option::of(0_usize..4), 0_u8..4);
    let router = (prop::bool::weighted(0.9), any::<bool>(), 0_u32..3, 0_u32..3);
    (router, 1_usize..6, prop::array::uniform4(worker)).prop_map(|(router, parallel, workers)| {
        let (plans, synthesis, tries, reassigns) = router;
        Setting {
            plans,
            synthesis,
            tries,
            reassigns,
            parallel,
            workers,
        }
    })
}

pub(super) fn swarm(setting: &Setting) -> Swarm {
    let agent = || Agent::builder(ScriptedModel::new()).build().unwrap();
    let mut router = if setting.plans {
        Router::agent(agent())
    } else {
        Router::keywords()
    };
    router = router
        .max_attempts(setting.tries)
        .max_reassignments(setting.reassigns)
        .max_delegations(10);
    if !setting.synthesis {
        router = router.without_synthesis();
    }
    let workers = WORKERS
        .iter()
        .zip(setting.workers)
        .map(|(name, (retries, stand_in, scope))| {
            let scope = match scope {
                0 => WorkerMemory::Task,
                1 => WorkerMemory::Run,
                2 => WorkerMemory::Named("shared".into()),
                _ => WorkerMemory::Named(format!("of {name}").into()),
            };
            let worker = Worker::new(*name, "Works.", agent())
                .retries(retries)
                .memory(scope);
            match stand_in {
                Some(other) => worker.fallback(WORKERS[other]),
                None => worker,
            }
        });
    Swarm::builder(router)
        .workers(workers)
        .max_parallel(setting.parallel)
        .build()
        .unwrap()
}

impl Swarm {
    /// Returns a machine with a plan of the host.
    pub(super) fn planned_machine(&self, goal: &str, plan: Vec<Delegation>) -> SwarmMachine {
        let start = crate::rules::Start {
            plan: Some(plan),
            ..self.begin_with(goal.to_owned())
        };
        SwarmMachine::new(self.inner.rules.clone(), start)
    }
}

/// Returns delegations that each depend on the previous one.
pub(super) fn chain(count: usize) -> Vec<Delegation> {
    let one = |at: usize| {
        let one = Delegation::new(format!("d{at}"), WORKERS[at % 4], "Go on.");
        if at == 0 {
            one
        } else {
            one.after([format!("d{}", at - 1)])
        }
    };
    (0..count).map(one).collect()
}

/// An answer of a router.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Ids, workers and dependencies by number; some are invalid.
    Plan(Vec<(usize, usize, Vec<usize>)>),
    /// A valid plan.
    Sound(Vec<(usize, Vec<prop::sample::Index>)>),
    Text(&'static str),
    Fails,
    Refused,
}

pub(super) fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let wild = (
        0_usize..12,
        0_usize..6,
        prop::collection::vec(0_usize..14, 0..3),
    );
    let sound = (
        0_usize..4,
        prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    );
    let text = prop::sample::select(vec![
        "Let us begin with the roof.",
        "",
        "{\"delegations\": []}",
        "{\"answer\": \"It is done.\"}",
        "[{\"worker\": \"router\", \"task\": \"Go.\"}]",
        "{\"delegations\": \
            [{\"id\": \"1\", \"worker\": \"mason\", \"task\": \"Go\", \"depends_on\": [1]}]}",
    ]);
    let answer = prop_oneof![
        2 => prop::collection::vec(wild, 0..12).prop_map(Answer::Plan),
        6 => prop::collection::vec(sound, 1..12).prop_map(Answer::Sound),
        1 => text.prop_map(Answer::Text),
        1 => Just(Answer::Fails),
        1 => Just(Answer::Refused),
    ];
    prop::collection::vec(answer, 1..6)
}

impl Answer {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Plan(list) => completed(wild(list).to_string()),
            Self::Sound(list) => completed(sound(list).to_string()),
            Self::Text(text) => completed((*text).to_owned()),
            Self::Fails => failed("no model"),
            Self::Refused => Outcome::Refused(Limit::Depth),
        }
    }
}

fn wild(list: &[(usize, usize, Vec<usize>)]) -> Value {
    let one = |(id, worker, needs): &(usize, usize, Vec<usize>)| {
        let worker =
            WORKERS
                .get(*worker)
                .copied()
                .unwrap_or(if *worker == 4 { "router" } else { "nobody" });
        let needs: Vec<String> = needs.iter().map(|need| format!("d{need}")).collect();
        json!({"id": format!("d{id}"), "worker": worker, "task": "Go.", "depends_on": needs})
    };
    json!({"delegations": list.iter().map(one).collect::<Vec<_>>()})
}

/// The order of the list may differ from the order of the plan.
fn sound(list: &[(usize, Vec<prop::sample::Index>)]) -> Value {
    let one = |(at, (worker, needs)): (usize, &(usize, Vec<prop::sample::Index>))| {
        let needs: Vec<String> = match at {
            0 => Vec::new(),
            _ => needs
                .iter()
                .map(|need| format!("d{}", need.index(at)))
                .collect(),
        };
        json!({
            "id": format!("d{at}"),
            "worker": WORKERS[*worker],
            "task": "Go.",
            "depends_on": needs,
        })
    };
    let mut all: Vec<Value> = list.iter().enumerate().map(one).collect();
    if list.len().is_multiple_of(2) {
        all.reverse();
    }
    json!({"delegations": all})
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttemptOutcome {
    Done,
    LeavesMessage(u8),
    Huge,
    Value,
    Failed,
    Limit,
    Stopped,
    Refused,
    Unknown,
    Denied,
    Nonsense,
}

pub(super) fn outcomes() -> impl Strategy<Value = Vec<AttemptOutcome>> {
    let outcome_kind = prop_oneof![
        8 => Just(AttemptOutcome::Done),
        4 => (0_u8..6).prop_map(AttemptOutcome::LeavesMessage),
        1 => Just(AttemptOutcome::Value),
        5 => Just(AttemptOutcome::Failed),
        1 => Just(AttemptOutcome::Limit),
        1 => Just(AttemptOutcome::Stopped),
        1 => Just(AttemptOutcome::Refused),
        1 => Just(AttemptOutcome::Unknown),
        1 => Just(AttemptOutcome::Denied),
        1 => Just(AttemptOutcome::Nonsense),
    ];
    // At most one outcome is huge, because it is slow.
    (
        prop::collection::vec(outcome_kind, 1..40),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(mut outcomes, huge)| {
            if huge {
                outcomes[0] = AttemptOutcome::Huge;
            }
            outcomes
        })
}

impl AttemptOutcome {
    /// The same attempt at the same delegation always has the same outcome.
    pub(super) fn of(outcomes: &[Self], id: &str, attempt: u32) -> Self {
        let sum = id.bytes().fold(attempt as usize * 7, |sum, byte| {
            sum * 31 % 10_007 + usize::from(byte)
        });
        outcomes[sum % outcomes.len()]
    }

    pub(super) fn outcome(self, id: &str, attempt: u32) -> Outcome {
        let text = format!("`{id}` at attempt {attempt}");
        match self {
            Self::Done => completed(text),
            Self::Huge => completed(text.repeat(20_000)),
            Self::LeavesMessage(to) => with_message(&text, to),
            Self::Value => {
                let mut ending = ending(Status::Complete, String::new());
                ending.value = Some(json!({"found": text}));
                Outcome::Child(Box::new(ending))
            }
            Self::Failed => failed(&text),
            Self::Limit => child(Status::Partial(Limit::Turns), text),
            Self::Stopped => child(
                Status::Cancelled {
                    reason: "enough".to_owned(),
                },
                text,
            ),
            Self::Refused => Outcome::Refused(Limit::Depth),
            Self::Unknown => Outcome::Unknown,
            Self::Denied => Outcome::Denied {
                reason: "no".to_owned(),
            },
            Self::Nonsense => Outcome::Woken,
        }
    }
}

fn ending(status: Status, text: String) -> Ending {
    let mut ending = Ending::new(status);
    (ending.text, ending.usage) = (text, Usage::new(10, 5));
    ending.stats = Stats::default();
    ending.stats.model_calls = 1;
    ending
}

fn child(status: Status, text: String) -> Outcome {
    Outcome::Child(Box::new(ending(status, text)))
}

pub(super) fn completed(text: String) -> Outcome {
    child(Status::Complete, text)
}

fn failed(reason: &str) -> Outcome {
    child(
        Status::Failed(Failure::Behaviour(reason.to_owned())),
        String::new(),
    )
}

/// Returns an outcome that also leaves messages.
fn with_message(text: &str, to: u8) -> Outcome {
    let mut ending = ending(Status::Complete, text.to_owned());
    let to = ["mason", "joiner", "roofer", "*", "router", "nobody"][usize::from(to % 6)];
    let note = Signal::new(
        "send_message",
        json!({"to": to, "content": format!("note of {text}")}),
    );
    ending.signals = vec![
        note,
        Signal::new("send_message", Value::Null),
        Signal::new("other", json!({})),
    ];
    Outcome::Child(Box::new(ending))
}

/// The id of a delegation.
pub(super) type Id = Arc<str>;
