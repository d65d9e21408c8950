//! What a session file holds, kept so that a change costs only what it changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use levity_core::{Event, EventKind, RunId, Status, Usage};
use levity_dag::{Plan, PlanNotice, StepId, Strategy};
use serde::Serialize;
use serde_json::{Value, json};

use super::error::SessionProblem;
use super::folder::SessionFolder;
use super::node::{self, io};
use super::{Session, disk};
use crate::view::{PlanStage, PlanView, Preparation};

/// The version of what this writes beyond what the source's files have.
pub(super) const FORMAT: u32 = 1;

/// A file's content, in pieces that are serialised when they change.
pub(super) struct Book {
    sessions: SessionFolder,
    run: RunId,
    view: PlanView,
    path: Option<PathBuf>,
    /// Each step's node without what the step gave.
    nodes: Vec<Vec<u8>>,
    /// The steps whose nodes are to be made anew.
    changed: BTreeSet<u32>,
    gave: HashMap<StepId, Gave>,
    globals: BTreeMap<Arc<str>, Arc<[u8]>>,
    /// The places in the plan of the steps that write a variable; in an order in which each comes
    /// after those before it.
    writers: HashMap<Arc<str>, Vec<u32>>,
    files: Vec<u8>,
    plan: Vec<u8>,
    edges: Vec<u8>,
    root: String,
    /// How many nodes were ever serialised.
    serialised: u64,
}

/// What a step gave, as JSON.
#[derive(Default)]
struct Gave {
    output: Vec<u8>,
    written: Vec<(Arc<str>, Strategy, Arc<[u8]>)>,
}

impl Book {
    pub(super) fn new(sessions: SessionFolder, run: RunId) -> Self {
        Self {
            view: PlanView::of_run(run.clone()),
            sessions,
            run,
            path: None,
            nodes: Vec::new(),
            changed: BTreeSet::new(),
            gave: HashMap::new(),
            globals: BTreeMap::new(),
            writers: HashMap::new(),
            files: b"[]".to_vec(),
            plan: b"{}".to_vec(),
            edges: b"[]".to_vec(),
            root: node::ROOT.to_owned(),
            serialised: 0,
        }
    }

    pub(super) fn path(&self) -> Option<&PathBuf> {
        self.path.as_ref()
    }

    /// Takes in an event of the run.
    pub(super) fn apply(&mut self, event: &Event) -> Result<(), SessionProblem> {
        if self.path.is_none() {
            self.begin(event)?;
        }
        if let EventKind::RunEnded(_) = event.kind {
            let open = self
                .view
                .steps()
                .iter()
                .zip(0..)
                .filter(|(step, _)| !step.status.is_settled());
            self.changed.extend(open.map(|(_, at)| at));
        }
        let notice = PlanNotice::of(&event.kind);
        self.view.fold(event, notice.as_ref());
        match notice {
            Some(PlanNotice::Planned { plan, .. } | PlanNotice::Replanned { plan, .. }) => {
                self.planned(&plan)
            }
            Some(notice) => self.step(notice),
            None => Ok(()),
        }
    }

    /// Finds out where the file stands. Where the events do not begin with those of a run's
    /// beginning, what the file already says is taken over.
    fn begin(&mut self, event: &Event) -> Result<(), SessionProblem> {
        let path = self.sessions.path(&self.run, event.at);
        disk::tidy(&path);
        if !matches!(event.kind, EventKind::RunStarted { .. })
            && let Ok(there) = self.sessions.find_exactly(&self.run)
        {
            disk::tidy(&there);
            let session = Session::load_now(&there, self.sessions.largest())?;
            self.path = Some(there);
            return self.take_over(&session);
        }
        self.path = Some(path);
        Ok(())
    }

    fn take_over(&mut self, session: &Session) -> Result<(), SessionProblem> {
        self.view = session.to_view();
        for step in session.steps.iter().filter(|step| step.output.is_some()) {
            let written = step
                .written
                .iter()
                .map(|one| Ok((one.name.clone(), one.by, to_bytes(&one.value)?.into())));
            let written = written.collect::<Result<_, SessionProblem>>()?;
            self.gave.insert(
                step.step.id.clone(),
                Gave {
                    output: to_bytes(&step.output)?,
                    written,
                },
            );
        }
        self.planned(session.plan())
    }

    fn planned(&mut self, plan: &Arc<Plan>) -> Result<(), SessionProblem> {
        self.root = node::root_of(&self.view);
        self.files = to_bytes(&self.view.files())?;
        self.edges = node::edges(&self.view, plan, &self.root)?;
        self.plan = to_bytes(&json!({"given": plan.given, "variables": plan.variables}))?;
        self.nodes = vec![Vec::new(); plan.steps.len()];
        self.changed = (0..plan.steps.len() as u32).collect();
        self.writers.clear();
        for at in order(self.view.edges(), plan.steps.len()) {
            for name in &plan.steps[at as usize].writes {
                self.writers.entry(name.clone()).or_default().push(at);
            }
        }
        self.globals.clear();
        for (name, value) in &plan.given {
            self.globals.insert(name.clone(), to_bytes(value)?.into());
        }
        let names: Vec<Arc<str>> = self.writers.keys().cloned().collect();
        names.iter().try_for_each(|name| self.set_global(name))
    }

    fn step(&mut self, notice: PlanNotice) -> Result<(), SessionProblem> {
        let step = match notice {
            PlanNotice::StepCompleted {
                step,
                writes,
                output,
                ..
            } => {
                let mut written = Vec::with_capacity(writes.len());
                for one in writes {
                    written.push((one.name, one.by, to_bytes(&one.value)?.into()));
                }
                let names: Vec<Arc<str>> = written.iter().map(|(name, ..)| name.clone()).collect();
                self.gave.insert(
                    step.clone(),
                    Gave {
                        output: to_bytes(&output)?,
                        written,
                    },
                );
                names.iter().try_for_each(|name| self.set_global(name))?;
                step
            }
            PlanNotice::StepStarted { step, .. }
            | PlanNotice::StepRetried { step, .. }
            | PlanNotice::StepFailed { step, .. }
            | PlanNotice::StepSkipped { step, .. }
            | PlanNotice::FannedOut { step, .. }
            | PlanNotice::StepAsked { step, .. }
            | PlanNotice::ItemFinished { step, .. } => step,
            _ => return Ok(()),
        };
        self.changed.extend(self.view.place_of(step.as_str()));
        Ok(())
    }

    /// The value of a variable: that of the last step that wrote it, or of all of them together.
    fn set_global(&mut self, name: &Arc<str>) -> Result<(), SessionProblem> {
        let Some(plan) = self.view.plan() else {
            return Ok(());
        };
        let reducer = plan
            .variables
            .get(name)
            .and_then(|variable| variable.reducer);
        let mut places = self.writers.get(name).cloned().unwrap_or_default();
        if reducer.is_some() {
            places.sort_unstable();
        }
        let mut values = places.iter().filter_map(|at| {
            let gave = self.gave.get(&plan.steps.get(*at as usize)?.id)?;
            gave.written
                .iter()
                .find(|(one, ..)| one == name)
                .map(|(_, _, value)| value)
        });
        let value = match reducer {
            None => values.next_back().cloned(),
            Some(reducer) => {
                let values: Vec<Value> = values
                    .filter_map(|bytes| serde_json::from_slice(bytes).ok())
                    .collect();
                if values.is_empty() {
                    None
                } else {
                    Some(to_bytes(&reducer.reduce(&values))?.into())
                }
            }
        };
        if let Some(value) = value {
            self.globals.insert(name.clone(), value);
        }
        Ok(())
    }

    /// Writes the file.
    pub(super) fn write(&mut self) -> Result<(), SessionProblem> {
        self.refresh()?;
        let Some(path) = self.path.clone() else {
            return Ok(());
        };
        let head = self.head()?;
        disk::replace(&path, |file| {
            let mut file = Counted {
                inner: file,
                left: self.sessions.largest(),
            };
            let written = self.compose(&head, &mut file);
            match written {
                Err(_) if file.left == 0 => Err(SessionProblem::TooLarge {
                    most: self.sessions.largest(),
                }),
                written => Ok(written?),
            }
        })
    }

    /// Serialises the nodes that have changed.
    fn refresh(&mut self) -> Result<(), SessionProblem> {
        let Some(plan) = self.view.plan().cloned() else {
            return Ok(());
        };
        for at in std::mem::take(&mut self.changed) {
            let at = at as usize;
            if let (Some(step), Some(view)) = (plan.steps.get(at), self.view.steps().get(at)) {
                self.nodes[at] = node::members(step, view)?;
                self.serialised += 1;
            }
        }
        Ok(())
    }

    fn compose(&self, head: &[u8], to: &mut impl Write) -> std::io::Result<()> {
        to.write_all(b"{\"directed\":true,\"multigraph\":false,\"graph\":{")?;
        to.write_all(head)?;
        to.write_all(b",\n\"file_manifest\":")?;
        to.write_all(&self.files)?;
        to.write_all(b",\n\"plan\":")?;
        to.write_all(&self.plan)?;
        to.write_all(b",\n\"globals_schema\":{")?;
        for (at, (name, value)) in self.globals.iter().enumerate() {
            let comma = if at == 0 { "\n" } else { ",\n" };
            write!(to, "{comma}{}:", Value::from(&**name))?;
            to.write_all(value)?;
        }
        to.write_all(b"}},\n\"nodes\":[\n")?;
        self.root_node(to)?;
        self.nodes
            .iter()
            .zip(self.view.steps())
            .try_for_each(|(node, step)| self.node(node, &step.id, to))?;
        to.write_all(b"],\n\"edges\":")?;
        to.write_all(&self.edges)?;
        to.write_all(b"}\n")
    }

    fn root_node(&self, to: &mut impl Write) -> std::io::Result<()> {
        let node = json!({
            "id": self.root,
            "agent": "System",
            "description": self.view.goal(),
            "reads": [],
            "writes": [],
            "status": "completed",
            "start_time": node::moment(self.view.started()),
        });
        write!(to, "{node}")
    }

    fn node(&self, members: &[u8], id: &StepId, to: &mut impl Write) -> std::io::Result<()> {
        to.write_all(b",\n{")?;
        to.write_all(members)?;
        to.write_all(b",\"output\":")?;
        let Some(gave) = self.gave.get(id) else {
            return to.write_all(b"null}");
        };
        to.write_all(&gave.output)?;
        to.write_all(b",\"written\":[")?;
        for (at, (name, by, value)) in gave.written.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let by = serde_json::to_string(by).unwrap_or_default();
            write!(to, "{comma}{{\"name\":{},\"by\":{by}", Value::from(&**name))?;
            // Where it is the value of the variable, it stands there.
            if self
                .globals
                .get(name)
                .is_none_or(|global| !Arc::ptr_eq(global, value))
            {
                to.write_all(b",\"value\":")?;
                to.write_all(value)?;
            }
            to.write_all(b"}")?;
        }
        to.write_all(b"]}")
    }

    /// The attributes of the graph that are small, those first by which sessions are listed.
    fn head(&self) -> Result<Vec<u8>, SessionProblem> {
        let totals = self.view.totals();
        let head = json!({
            "session_id": self.run,
            "original_query": self.view.goal(),
            "created_at": node::moment(self.view.started()),
            "status": status(&self.view),
            "format": FORMAT,
            "root": self.root,
            "stage": self.view.stage(),
            "replans": self.view.replans(),
            "gave_up": self.view.gave_up(),
            "last_time": node::moment(self.view.last()),
            "totals": Total::new(&totals.usage, totals.took),
            "profiling": Prepared::new(self.view.profiling()),
            "planning": Prepared::new(self.view.planning()),
            "ending": self.view.ending(),
        });
        let mut bytes = to_bytes(&head)?;
        bytes.pop();
        Ok(bytes.split_off(1))
    }
}

fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, SessionProblem> {
    serde_json::to_vec(value).map_err(io)
}

/// Where a run stands, in a word.
fn status(view: &PlanView) -> &'static str {
    match view.ending().map(|ending| &ending.status) {
        _ if view.stage() != PlanStage::Ended => view.stage().as_str(),
        Some(Status::Complete | Status::BestEffort(_)) => "completed",
        Some(Status::Partial(_)) => "partial",
        Some(Status::Cancelled { .. }) => "cancelled",
        _ => "failed",
    }
}

/// What all steps took, for people.
#[derive(Serialize)]
struct Total {
    input_tokens: u64,
    output_tokens: u64,
    cost: f64,
    execution_time: f64,
}

impl Total {
    fn new(usage: &Usage, took: std::time::Duration) -> Self {
        Self {
            input_tokens: usage.input.unwrap_or(0),
            output_tokens: usage.output.unwrap_or(0),
            cost: usage.cost.map_or(0.0, |cost| cost.nanos() as f64 / 1e9),
            execution_time: took.as_secs_f64(),
        }
    }
}

/// What came before the steps, as it is written.
#[derive(Serialize)]
struct Prepared<'a> {
    times: u32,
    millis: u64,
    usage: &'a Usage,
    stats: &'a levity_core::Stats,
}

impl<'a> Prepared<'a> {
    fn new(from: &'a Preparation) -> Self {
        let millis = u64::try_from(from.took.as_millis()).unwrap_or(u64::MAX);
        Self {
            times: from.times,
            millis,
            usage: &from.usage,
            stats: &from.stats,
        }
    }
}

/// The places of steps in an order in which each comes after those before it; those in a circle
/// come last.
fn order(edges: &[(u32, u32)], count: usize) -> Vec<u32> {
    let mut waits = vec![0_u32; count];
    let mut behind = vec![Vec::new(); count];
    for &(from, to) in edges {
        waits[to as usize] += 1;
        behind[from as usize].push(to);
    }
    let mut order: Vec<u32> = (0..count as u32)
        .filter(|at| waits[*at as usize] == 0)
        .collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for to in std::mem::take(&mut behind[at as usize]) {
            waits[to as usize] -= 1;
            if waits[to as usize] == 0 {
                order.push(to);
            }
        }
    }
    order.extend((0..count as u32).filter(|at| waits[*at as usize] > 0));
    order
}

/// Lets only so many bytes through.
struct Counted<'a, W> {
    inner: &'a mut W,
    left: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                return Err(std::io::ErrorKind::FileTooLarge.into());
            }
        }
        self.inner.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
