//! A custom kind of run: one child run reads each document, in parallel, and another one writes the
//! summary.
//!
//! levity can journal, resume, replay, fork, pause and cancel it like an agent, because it
//! implements `Runnable`.
//!
//! ```text
//! cargo run --example map_reduce
//! ```

use std::sync::Arc;

use levity::async_trait;
use levity::core::{
    Child, ChildRun, Effect, EffectClass, EffectCx, EffectId, Ending, Error, Eventual, Executor,
    Failure, Input, Machine, MachineKind, MachineOutput, Outcome, PrepareCx, Prepared, RunOutput,
    Stats, Status, StoppedRun, Usage,
};
use levity::prelude::*;
use levity::runtime::{MachineStart, Run, Runnable};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Reads documents with one agent and writes with another.
#[derive(Clone)]
pub struct MapReduce {
    runtime: Runtime,
    agents: Arc<Agents>,
}

struct Agents {
    reader: Agent,
    writer: Agent,
}

/// Requests a child run for each document, and one more for the summary.
#[derive(Serialize, Deserialize)]
pub struct MapReduceMachine {
    documents: Vec<String>,
    notes: Vec<Option<String>>,
    /// Usage of the child runs. The ending reports it, because no other part adds it up.
    usage: Usage,
    stats: Stats,
    ending: Option<Ending>,
}

impl MapReduce {
    /// Creates a run kind that reads documents with `reader` and writes the summary with `writer`.
    pub fn new(runtime: Runtime, reader: Agent, writer: Agent) -> Self {
        Self {
            runtime,
            agents: Arc::new(Agents { reader, writer }),
        }
    }

    /// Returns a run that summarizes these documents.
    pub fn run(&self, documents: Vec<String>) -> Run<Self> {
        Run::new(self.clone(), documents)
    }
}

impl MapReduceMachine {
    fn new(documents: Vec<String>) -> Self {
        let notes = vec![None; documents.len()];
        Self {
            documents,
            notes,
            usage: Usage::default(),
            stats: Stats::default(),
            ending: None,
        }
    }

    fn end(&mut self, status: Status, text: &str) {
        let mut ending = Ending::new(status);
        text.clone_into(&mut ending.text);
        (ending.usage, ending.stats) = (self.usage, self.stats);
        self.ending = Some(ending);
    }

    fn finished(&mut self, effect: EffectId, outcome: Outcome, step: &mut MachineOutput) {
        let at = usize::try_from(effect.get()).unwrap_or(usize::MAX);
        if let Outcome::Child(ending) = &outcome {
            self.usage += ending.usage;
            self.stats += ending.stats;
        }
        let text = match outcome {
            Outcome::Child(ending) if ending.status.is_answer() => ending.text,
            other => {
                let problem = format!("document {at} was not read: {other:?}");
                return self.end(Status::Failed(Failure::GoalNotReached(problem)), "");
            }
        };
        let last = self.documents.len();
        if at == last {
            return self.end(Status::Complete, &text);
        }
        let Some(note) = self.notes.get_mut(at) else {
            return;
        };
        *note = Some(text);
        if let Some(notes) = self.notes.iter().cloned().collect::<Option<Vec<_>>>() {
            let summary = ChildRun::new("writer", json!(notes.join("\n")));
            step.request(EffectId::new(last as u64), Effect::Child(summary));
        }
    }
}

impl Machine for MapReduceMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new("map-reduce", 1)
    }

    fn save(&self) -> Value {
        // The state contains every field that changes, so the machine can be restored at any
        // record.
        json!(self)
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        if self.ending.is_some() {
            return;
        }
        match input {
            Input::Begin { .. } if self.documents.is_empty() => self.end(Status::Complete, ""),
            Input::Begin { .. } => {
                for (number, document) in (0..).zip(&self.documents) {
                    step.request(
                        EffectId::new(number),
                        Effect::Child(ChildRun::new("reader", json!(document))),
                    );
                }
            }
            Input::Finished { effect, outcome } => self.finished(effect, outcome, step),
            Input::Stop(limit) => self.end(Status::Partial(limit), ""),
            Input::Cancel { reason } => self.end(Status::Cancelled { reason }, ""),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

#[async_trait]
impl Executor for Agents {
    fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        Prepared::new(EffectClass::ReadOnly).into()
    }

    async fn execute(&self, _: Effect, _: EffectCx) -> Outcome {
        // The machine requests child runs only.
        Outcome::Unknown
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        let agent = if &*child.agent == "reader" {
            &self.reader
        } else {
            &self.writer
        };
        agent
            .child(child.input.as_str().unwrap_or_default(), saved)
            .await
    }
}

impl Runnable for MapReduce {
    type Input = Vec<String>;
    type Machine = MapReduceMachine;
    type Output = RunOutput<()>;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn executor(&self) -> Arc<dyn Executor> {
        self.agents.clone()
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn begin(
        &self,
        documents: Vec<String>,
        _: &Limits,
    ) -> Result<MachineStart<MapReduceMachine>, Error> {
        Ok(MachineStart::now(MapReduceMachine::new(documents)))
    }

    fn restore(&self, _: &MachineKind, state: &Value) -> Result<MapReduceMachine, String> {
        let machine = MapReduceMachine::deserialize(state).map_err(|_| {
            "this is not the state of a \
                map-reduce run"
        })?;
        let fits = machine.notes.len() == machine.documents.len();
        fits.then_some(machine)
            .ok_or_else(|| "the number of notes differs from the number of documents".to_owned())
    }

    fn conclude(&self, reached: StoppedRun<MapReduceMachine>) -> Result<RunOutput<()>, Error> {
        reached.finish(|_| ())
    }
}

#[tokio::main]
async fn main() -> levity::Result<()> {
    println!("(scripted models replace real ones)\n");
    let reader = levity::test::FunctionModel::new(|request| {
        let document = request.history.messages()[0].text().into_owned();
        Ok(levity::core::Response::new(Message::assistant(format!(
            "{} letters",
            document.len()
        ))))
    });
    let writer = levity::test::ScriptedModel::new().reply("Both are short.");
    let runtime = Runtime::new();
    let reader = Agent::builder(reader).runtime(runtime.clone()).build()?;
    let writer = Agent::builder(writer).runtime(runtime.clone()).build()?;
    let documents = vec![
        "The tide is out.".to_owned(),
        "The harbour is empty.".to_owned(),
    ];
    let finished = MapReduce::new(runtime, reader, writer)
        .run(documents)
        .await?;
    println!(
        "{} ({} model calls)",
        finished.text(),
        finished.stats().model_calls
    );
    Ok(())
}
