//! Measures the view of a run, compared with a minimal fold of the same events.
//!
//! - `cargo bench -p levity-benches --bench view` measures everything, in about ten seconds.
//! - `-- --quick` does so in a second, to check that the benchmark runs.
//!
//! `docs/performance.md` explains the results.

mod allocations;
mod clock;
mod measure;

use std::collections::HashMap;
use std::hint::black_box;

use levity::observe::RunView;
use levity_core::{
    EffectId, Ending, Event, EventKind, Finish, MachineKind, Message, Part, Role, RunId, Status,
    Timestamp, ToolCall, ToolOutput, ToolResult, Usage,
};
use measure::{Effort, Work, compare, verdict};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator;

/// Allowed cost of the fold of an event, as a multiple of the floor (baseline).
const GOAL_FOLD: f64 = 20.0;
/// Allowed cost of an event in a run of 2,000 steps, as a multiple of one in a run of 250 steps.
const GOAL_GROWTH: f64 = 1.5;
/// Allowed time for the difference after one event, in microseconds.
const GOAL_DIFF_US: f64 = 200.0;
/// The number of events of a step.
const EVENTS: usize = 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Without `--bench`, cargo runs this as a test, which only checks that the benchmark runs.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    fold(effort, 1_000);
    difference(effort, 1_000);
    sizes(1_000);
    growth(effort);
}

/// Creates the events of a plan in layers of 50 steps, each executed by an agent.
fn events(steps: usize) -> Vec<Event> {
    let root = RunId::new("bench");
    let mut events = Events::default();
    let started = |machine: &str| EventKind::RunStarted {
        machine: MachineKind::new(machine, 1),
    };
    events.push(&root, started("graph"));
    let goal = "Compare the tide tables of all ports".to_owned();
    events.push(&root, EventKind::Goal { text: goal });
    let name = |at: usize| format!("step_{at}");
    let step = |at: usize| json!({"id": name(at), "agent": "Thinker", "prompt": "Compare them."});
    let before = |at: usize| (0..3).map(move |nth| at / 50 * 50 - 50 + (at + nth * 7) % 50);
    let edges = (50..steps).flat_map(|at| before(at).map(move |from| (from, at)));
    let plan: Vec<_> = (0..steps).map(step).collect();
    let edges: Vec<_> = edges
        .map(|(from, to)| json!([name(from), name(to)]))
        .collect();
    let planned = json!({"notice": "planned", "plan": {"steps": plan}, "edges": edges});
    events.notice(&root, planned);
    for at in 0..steps {
        let effect = EffectId::new(at as u64 + 10);
        let child = root.child(effect);
        let number = effect.get();
        events.notice(
            &root,
            json!({"notice": "step_started", "step": name(at), "attempt": 1, "effect": number}),
        );
        let agent = "Thinker".into();
        let begun = EventKind::ChildStarted {
            effect,
            child: child.clone(),
            agent,
        };
        events.push(&root, begun);
        events.push(&child, started("agent"));
        events.agent(&child);
        let ending = || Box::new(ending("High water is at six."));
        events.push(&child, EventKind::RunEnded(ending()));
        let ending = ending();
        events.push(&root, EventKind::ChildFinished { effect, ending });
        let output = "High water is at six.";
        events.notice(
            &root,
            json!({"notice": "step_completed", "step": name(at), "output": output}),
        );
    }
    events.all
}

fn ending(text: &str) -> Ending {
    let mut ending = Ending::new(Status::Complete);
    ending.text = text.to_owned();
    ending
}

/// Events with a number for each run, one millisecond apart.
#[derive(Default)]
struct Events {
    all: Vec<Event>,
    numbers: HashMap<RunId, u64>,
}

impl Events {
    fn push(&mut self, run: &RunId, kind: EventKind) {
        let number = self.numbers.entry(run.clone()).or_default();
        *number += 1;
        let at = Timestamp::from_millis(self.all.len() as u64);
        self.all.push(Event::new(run.clone(), *number, at, kind));
    }

    fn notice(&mut self, run: &RunId, data: serde_json::Value) {
        let name = "graph".to_owned();
        self.push(run, EventKind::Custom { name, data });
    }

    /// Adds a call of a model and a call of a tool: four events.
    fn agent(&mut self, run: &RunId) {
        let (model, tool) = (EffectId::new(1), EffectId::new(2));
        let call = ToolCall::new("c1", "read_file", json!({"path": "tides/brest.md"}));
        let started = EventKind::ModelStarted {
            effect: model,
            slot: "main".into(),
        };
        self.push(run, started);
        let parts = [
            Part::text("I read the tables first, and compare them then."),
            Part::ToolCall(call.clone()),
        ];
        let finished = EventKind::ModelFinished {
            effect: model,
            message: Message::new(Role::Assistant, parts).into(),
            finish: Finish::ToolCalls,
            usage: Usage::new(900, 40),
        };
        self.push(run, finished);
        let result = ToolResult::new(&call, Ok(ToolOutput::text("06:02 12:14 18:27 ".repeat(20))));
        self.push(run, EventKind::ToolStarted { effect: tool, call });
        let finished = EventKind::ToolFinished {
            effect: tool,
            result,
        };
        self.push(run, finished);
    }
}

/// The state that the floor keeps of a run: the last event and the latest text of each run.
#[derive(Default)]
struct Floor<'a> {
    runs: HashMap<&'a str, (u64, String)>,
    texts: usize,
}

impl<'a> Floor<'a> {
    fn apply(&mut self, event: &'a Event) {
        let run = self.runs.entry(event.run.as_str()).or_default();
        run.0 = event.seq;
        let text = match &event.kind {
            EventKind::ModelFinished { message, .. } => message.text().to_string(),
            EventKind::ToolFinished { result, .. } => result.text().to_string(),
            EventKind::Custom { data, .. } => data["step"].as_str().unwrap_or_default().to_owned(),
            EventKind::RunEnded(ending) => ending.text.clone(),
            _ => return,
        };
        self.texts += text.len();
        run.1 = text;
    }
}

fn by_floor(events: &[Event]) -> Work {
    let events = events.to_vec();
    Work {
        name: "the last text of each run",
        units: events.len(),
        run: Box::new(move || {
            let mut floor = Floor::default();
            events.iter().for_each(|event| floor.apply(event));
            black_box((floor.runs.len(), floor.texts));
        }),
    }
}

fn by_view(events: &[Event]) -> Work {
    let events = events.to_vec();
    Work {
        name: "levity's view",
        units: events.len(),
        run: Box::new(move || {
            black_box(RunView::of(RunId::new("bench"), &events));
        }),
    }
}

fn fold(effort: Effort, steps: usize) {
    let events = events(steps);
    println!(
        "The fold of {} events of {steps} steps; each cost is of one event.",
        events.len()
    );
    println!("Goal: {GOAL_FOLD} times a map of the last texts.\n");
    println!(
        "{:28} {:>9} {:>9} {:>12} {:>9}",
        "", "ns", "least", "allocations", "bytes"
    );
    let costs = compare(effort, vec![by_floor(&events), by_view(&events)]);
    for cost in &costs {
        println!(
            "{:28} {:>9.0} {:>9.0} {:>12.1} {:>9.0}",
            cost.name, cost.nanos, cost.least, cost.allocations, cost.bytes
        );
    }
    let ratio = costs[1].nanos / costs[0].nanos;
    println!(
        "  {ratio:.1} times the floor  {}\n",
        verdict(ratio, GOAL_FOLD)
    );
}

/// Measures the difference after the last event, and its floor: the comparison of as many revisions
/// as the view has items and nodes.
fn difference(effort: Effort, steps: usize) {
    let events = events(steps);
    let (last, before) = events.split_last().expect("there are events");
    let mut view = RunView::of(RunId::new("bench"), before);
    let seen = view.revision();
    view.apply(last);
    let count = view.items().count() + view.nodes().count();
    let revisions: Vec<u64> = (0..count as u64).collect();
    let floor = Work {
        name: "a scan of as many revisions",
        units: 1,
        run: Box::new(move || {
            let new = |revision: &&u64| **revision + 1 >= revisions.len() as u64;
            black_box(revisions.iter().filter(new).count());
        }),
    };
    let diff = Work {
        name: "the changes of one event",
        units: 1,
        run: Box::new(move || {
            black_box(view.changes_since(seen).expect("the revision is recent"));
        }),
    };
    println!("The difference after one event, in a view of {count} items and nodes.");
    let costs = compare(effort, vec![floor, diff]);
    for cost in &costs {
        println!("{:28} {:>9.1} µs", cost.name, cost.nanos / 1_000.0);
    }
    let micros = costs[1].nanos / 1_000.0;
    let ratio = costs[1].nanos / costs[0].nanos;
    let verdict = verdict(micros, GOAL_DIFF_US);
    println!("  {ratio:.1} times the floor; goal: {GOAL_DIFF_US} µs  {verdict}\n");
}

fn sizes(steps: usize) {
    let events = events(steps);
    let (last, before) = events.split_last().expect("there are events");
    let counter = allocations::Counter::start();
    let mut view = RunView::of(RunId::new("bench"), before);
    let held = counter.read();
    drop(counter);
    println!(
        "Memory of the view: {} KiB, {} KiB at its peak.",
        held.live >> 10,
        held.peak >> 10
    );
    let resident = clock::resident().unwrap_or_default() >> 20;
    println!("The process holds {resident} MiB.\n");
    let seen = view.revision();
    view.apply(last);
    let size = |json: serde_json::Result<Vec<u8>>| json.expect("it is JSON").len();
    let changes = view.changes_since(seen).expect("the revision is recent");
    println!("Bytes of JSON for {} events:", events.len());
    println!("  the events   {:>10}", size(serde_json::to_vec(&events)));
    println!("  the view     {:>10}", size(serde_json::to_vec(&view)));
    println!(
        "  one change   {:>10}\n",
        size(serde_json::to_vec(&changes))
    );
}

fn growth(effort: Effort) {
    println!("An event, by the size of the run:\n");
    let mut costs = Vec::new();
    for steps in [250, 500, 1_000, 2_000] {
        let events = events(steps);
        let cost = compare(effort, vec![by_view(&events)]).remove(0);
        println!("{:>8} events {:>8.0} ns", steps * EVENTS, cost.nanos);
        costs.push(cost.nanos);
    }
    let ratio = costs[costs.len() - 1] / costs[0];
    println!("  {ratio:.2} times  {}", verdict(ratio, GOAL_GROWTH));
}
