//! The content of a session file, stored so that an update costs only what it changes.
//!
//! A run of 10,000 steps writes its file up to 10,000 times. Each write copies the whole file, but
//! only the nodes that changed are serialized again; outputs and variables are serialized once and
//! shared. A value that is both an output and the value of its variable is stored only once in the
//! file.

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

/// The version of the additions to the original file format.
pub(super) const FORMAT: u32 = 1;

/// The content of a file, in pieces that are serialized when they change.
pub(super) struct SessionContent {
    sessions: SessionFolder,
    run: RunId,
    view: PlanView,
    path: Option<PathBuf>,
    /// The node of each step, without its output.
    nodes: Vec<Vec<u8>>,
    /// The steps whose nodes must be serialized again.
    changed: BTreeSet<u32>,
    outputs: HashMap<StepId, StepOutput>,
    globals: BTreeMap<Arc<str>, Arc<[u8]>>,
    /// The indices of the steps that write each variable, in topological order.
    writers: HashMap<Arc<str>, Vec<u32>>,
    files: Vec<u8>,
    plan: Vec<u8>,
    edges: Vec<u8>,
    root: String,
    /// The total number of serialized nodes.
    serialised: u64,
}

/// The output of a step, as JSON.
#[derive(Default)]
struct StepOutput {
    output: Vec<u8>,
    written: Vec<(Arc<str>, Strategy, Arc<[u8]>)>,
}

impl SessionContent {
    pub(super) fn new(sessions: SessionFolder, run: RunId) -> Self {
        Self {
            view: PlanView::of_run(run.clone()),
            sessions,
            run,
            path: None,
            nodes: Vec::new(),
            changed: BTreeSet::new(),
            outputs: HashMap::new(),
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

    /// Applies an event of the run.
    pub(super) fn apply(&mut self, event: &Event) -> Result<(), SessionProblem> {
        if self.path.is_none() {
            self.choose_path(event)?;
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
                self.apply_plan(&plan)
            }
            Some(notice) => self.step(notice),
            None => Ok(()),
        }
    }

    /// Chooses the path of the file. If the events do not begin at the start of the run, the
    /// content of an existing file is restored.
    ///
    /// That is the case if a host passes only the new events of a resumed run.
    fn choose_path(&mut self, event: &Event) -> Result<(), SessionProblem> {
        let path = self.sessions.path(&self.run, event.at);
        disk::remove_leftovers(&path);
        if !matches!(event.kind, EventKind::RunStarted { .. })
            && let Ok(existing) = self.sessions.find_run(&self.run)
        {
            disk::remove_leftovers(&existing);
            let session = Session::load_now(&existing, self.sessions.byte_limit())?;
            self.path = Some(existing);
            return self.restore(&session);
        }
        self.path = Some(path);
        Ok(())
    }

    fn restore(&mut self, session: &Session) -> Result<(), SessionProblem> {
        self.view = session.to_view();
        for step in session.steps.iter().filter(|step| step.output.is_some()) {
            let written = step
                .written
                .iter()
                .map(|one| Ok((one.name.clone(), one.by, to_bytes(&one.value)?.into())));
            let written = written.collect::<Result<_, SessionProblem>>()?;
            self.outputs.insert(
                step.step.id.clone(),
                StepOutput {
                    output: to_bytes(&step.output)?,
                    written,
                },
            );
        }
        self.apply_plan(session.plan())
    }

    fn apply_plan(&mut self, plan: &Arc<Plan>) -> Result<(), SessionProblem> {
        self.root = node::root_of(&self.view);
        self.files = to_bytes(&self.view.files())?;
        self.edges = node::edges(&self.view, plan, &self.root)?;
        self.plan = to_bytes(&json!({"given": plan.given, "variables": plan.variables}))?;
        self.nodes = vec![Vec::new(); plan.steps.len()];
        self.changed = (0..plan.steps.len() as u32).collect();
        self.writers.clear();
        for at in topological_order(self.view.edges(), plan.steps.len()) {
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
                self.outputs.insert(
                    step.clone(),
                    StepOutput {
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

    /// Sets the value of a variable: that of the last step that wrote it, or the reduction of all
    /// of them.
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
            let outputs = self.outputs.get(&plan.steps.get(*at as usize)?.id)?;
            outputs
                .written
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

    /// Writes the file if it has a path.
    pub(super) fn write(&mut self) -> Result<(), SessionProblem> {
        self.refresh()?;
        let Some(path) = self.path.clone() else {
            return Ok(());
        };
        let head = self.head()?;
        disk::replace(&path, |file| {
            let mut file = LimitedWriter {
                inner: file,
                remaining: self.sessions.byte_limit(),
            };
            let written = self.write_document(&head, &mut file);
            match written {
                Err(_) if file.remaining == 0 => Err(SessionProblem::TooLarge {
                    max_bytes: self.sessions.byte_limit(),
                }),
                written => Ok(written?),
            }
        })
    }

    /// Serializes the nodes that have changed.
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

    fn write_document(&self, head: &[u8], to: &mut impl Write) -> std::io::Result<()> {
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
        self.write_root_node(to)?;
        self.nodes
            .iter()
            .zip(self.view.steps())
            .try_for_each(|(node, step)| self.node(node, &step.id, to))?;
        to.write_all(b"],\n\"edges\":")?;
        to.write_all(&self.edges)?;
        to.write_all(b"}\n")
    }

    fn write_root_node(&self, to: &mut impl Write) -> std::io::Result<()> {
        let node = json!({
            "id": self.root,
            "agent": "System",
            "description": self.view.goal(),
            "reads": [],
            "writes": [],
            "status": "completed",
            "start_time": node::format_time(self.view.started()),
        });
        write!(to, "{node}")
    }

    fn node(&self, members: &[u8], id: &StepId, to: &mut impl Write) -> std::io::Result<()> {
        to.write_all(b",\n{")?;
        to.write_all(members)?;
        to.write_all(b",\"output\":")?;
        let Some(outputs) = self.outputs.get(id) else {
            return to.write_all(b"null}");
        };
        to.write_all(&outputs.output)?;
        to.write_all(b",\"written\":[")?;
        for (at, (name, by, value)) in outputs.written.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let by = serde_json::to_string(by).unwrap_or_default();
            write!(to, "{comma}{{\"name\":{},\"by\":{by}", Value::from(&**name))?;
            // A value that equals the variable is stored only with the variable.
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

    /// Returns the small attributes of the graph, beginning with those that listings need.
    fn head(&self) -> Result<Vec<u8>, SessionProblem> {
        let totals = self.view.totals();
        let head = json!({
            "session_id": self.run,
            "original_query": self.view.goal(),
            "created_at": node::format_time(self.view.started()),
            "status": status(&self.view),
            "format": FORMAT,
            "root": self.root,
            "stage": self.view.stage(),
            "replans": self.view.replans(),
            "gave_up": self.view.gave_up(),
            "last_time": node::format_time(self.view.last()),
            "totals": TotalsForm::new(&totals.usage, totals.took),
            "profiling": PreparationForm::new(self.view.profiling()),
            "planning": PreparationForm::new(self.view.planning()),
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

/// Returns the status of a run as one word.
fn status(view: &PlanView) -> &'static str {
    match view.ending().map(|ending| &ending.status) {
        _ if view.stage() != PlanStage::Ended => view.stage().as_str(),
        Some(Status::Complete | Status::BestEffort(_)) => "completed",
        Some(Status::Partial(_)) => "partial",
        Some(Status::Cancelled { .. }) => "cancelled",
        _ => "failed",
    }
}

/// The totals of all steps, for human readers.
#[derive(Serialize)]
struct TotalsForm {
    input_tokens: u64,
    output_tokens: u64,
    cost: f64,
    execution_time: f64,
}

impl TotalsForm {
    fn new(usage: &Usage, took: std::time::Duration) -> Self {
        Self {
            input_tokens: usage.input.unwrap_or(0),
            output_tokens: usage.output.unwrap_or(0),
            cost: usage.cost.map_or(0.0, |cost| cost.nanos() as f64 / 1e9),
            execution_time: took.as_secs_f64(),
        }
    }
}

/// The serialized form of profiling or planning.
#[derive(Serialize)]
struct PreparationForm<'a> {
    times: u32,
    millis: u64,
    usage: &'a Usage,
    stats: &'a levity_core::Stats,
}

impl<'a> PreparationForm<'a> {
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

/// Returns the indices of steps in topological order; steps in a cycle come last.
fn topological_order(edges: &[(u32, u32)], count: usize) -> Vec<u32> {
    let mut pending = vec![0_u32; count];
    let mut dependents = vec![Vec::new(); count];
    for &(from, to) in edges {
        pending[to as usize] += 1;
        dependents[from as usize].push(to);
    }
    let mut topological_order: Vec<u32> = (0..count as u32)
        .filter(|at| pending[*at as usize] == 0)
        .collect();
    let mut next = 0;
    while let Some(at) = topological_order.get(next).copied() {
        next += 1;
        for to in std::mem::take(&mut dependents[at as usize]) {
            pending[to as usize] -= 1;
            if pending[to as usize] == 0 {
                topological_order.push(to);
            }
        }
    }
    topological_order.extend((0..count as u32).filter(|at| pending[*at as usize] > 0));
    topological_order
}

/// A writer that accepts a limited number of bytes.
struct LimitedWriter<'a, W> {
    inner: &'a mut W,
    remaining: u64,
}

impl<W: Write> Write for LimitedWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.remaining.checked_sub(bytes.len() as u64) {
            Some(remaining) => self.remaining = remaining,
            None => {
                self.remaining = 0;
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
