//! Parsing of session files, including those of other programs in the same format.
//!
//! Each attribute that is read is removed from its object, so that the rest is exactly what other
//! programs added. Errors have a JSON Pointer to the place, such as `/nodes/3/status`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{RunId, Timestamp};
use levity_dag::{After, Plan, StepId};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::content::FORMAT;
use super::error::SessionProblem;
use super::node::ROOT;
use super::steps::{self, id_of};
use super::{Session, SessionStep, date};
use crate::view::{PlanStage, Preparation, edges_of};

type Result<T> = std::result::Result<T, SessionProblem>;

pub(super) fn json_problem(error: &serde_json::Error) -> SessionProblem {
    match error.io_error_kind() {
        Some(kind) => SessionProblem::Io(kind.into()),
        None => SessionProblem::Json {
            line: error.line(),
            column: error.column(),
        },
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Session> {
    let file: Value = serde_json::from_slice(bytes).map_err(|error| json_problem(&error))?;
    let mut file = Attributes::new("", file)?;
    if file.take("directed") == Some(Value::Bool(false)) {
        return Err(SessionProblem::shape(
            "/directed",
            "expected a directed graph",
        ));
    }
    let mut graph = Attributes::new(
        "/graph",
        file.take("graph").unwrap_or_else(|| Map::new().into()),
    )?;
    let from_levity = is_from_levity(&mut graph)?;
    let root = graph.text("root")?.unwrap_or_else(|| ROOT.to_owned());
    let globals: BTreeMap<Arc<str>, Value> = graph.read("globals_schema")?.unwrap_or_default();
    let nodes = list(&mut file, "nodes")?
        .ok_or_else(|| SessionProblem::shape("/nodes", "the list of nodes is missing"))?;
    let steps = steps::read(nodes, &root, &globals)?;
    let edges = read_edges(&mut file, &root, &steps)?;
    let mut session = attributes(graph)?;
    session.globals = globals;
    session.steps = steps;
    session.set_plan(&edges, from_levity);
    Ok(session)
}

fn is_from_levity(graph: &mut Attributes) -> Result<bool> {
    match graph.read::<u32>("format")? {
        Some(format) if format > FORMAT => Err(SessionProblem::shape(
            "/graph/format",
            "written by a newer version of levity; update levity",
        )),
        format => Ok(format.is_some()),
    }
}

/// Reads all graph attributes except the variables.
fn attributes(mut graph: Attributes) -> Result<Session> {
    let status = graph.text("status")?.unwrap_or_default();
    graph.take("totals");
    let mut plan: Attributes = Attributes::new(
        "/graph/plan",
        graph.take("plan").unwrap_or_else(|| Map::new().into()),
    )?;
    let mut known = Plan::new();
    known.given = plan.read("given")?.unwrap_or_default();
    known.variables = plan.read("variables")?.unwrap_or_default();
    Ok(Session {
        id: RunId::from(graph.text("session_id")?.unwrap_or_default()),
        query: graph.text("original_query")?.unwrap_or_default(),
        files: graph.read("file_manifest")?.unwrap_or_default(),
        created: graph.moment("created_at"),
        stage: graph.read("stage")?.unwrap_or_else(|| stage_of(&status)),
        status,
        globals: BTreeMap::new(),
        steps: Vec::new(),
        edges: Vec::new(),
        replans: graph.read("replans")?.unwrap_or_default(),
        gave_up: graph.text("gave_up")?,
        ending: graph.read("ending")?,
        last: graph.moment("last_time"),
        profiling: preparation(&mut graph, "profiling")?,
        planning: preparation(&mut graph, "planning")?,
        extra: graph.map,
        plan: Arc::new(known),
    })
}

fn stage_of(status: &str) -> PlanStage {
    match status {
        "completed" | "failed" => PlanStage::Ended,
        "running" => PlanStage::Running,
        _ => PlanStage::Starting,
    }
}

fn preparation(graph: &mut Attributes, name: &str) -> Result<Preparation> {
    let place = format!("/graph/{name}");
    let mut from = Attributes::new(
        &place,
        graph.take(name).unwrap_or_else(|| Map::new().into()),
    )?;
    Ok(Preparation::restored(
        from.read("times")?.unwrap_or_default(),
        Duration::from_millis(from.read("millis")?.unwrap_or_default()),
        from.read("usage")?.unwrap_or_default(),
        from.read("stats")?.unwrap_or_default(),
    ))
}

/// Edges by the ids of their ends, without those from the root.
type EdgeEnds = Vec<(String, String)>;

fn read_edges(file: &mut Attributes, root: &str, steps: &[SessionStep]) -> Result<EdgeEnds> {
    // Older versions of NetworkX write `links` instead of `edges`.
    let (name, list) = match list(file, "edges")? {
        Some(list) => ("edges", list),
        None => ("links", list(file, "links")?.unwrap_or_default()),
    };
    let known: BTreeSet<&str> = steps.iter().map(|step| step.step.id.as_str()).collect();
    let mut edges = Vec::with_capacity(list.len());
    for (at, edge) in list.into_iter().enumerate() {
        let place = format!("/{name}/{at}");
        let mut edge = Attributes::new(&place, edge)?;
        let mut end = |name: &str| {
            let id = edge.take(name).as_ref().and_then(id_of);
            let id = id.filter(|id| id == root || known.contains(id.as_str()));
            id.ok_or_else(|| {
                SessionProblem::shape(
                    format!("{place}/{name}"),
                    "expected the id of \
                a node",
                )
            })
        };
        let (source, target) = (end("source")?, end("target")?);
        if source != root && target != root {
            edges.push((source, target));
        }
    }
    Ok(edges)
}

fn list(file: &mut Attributes, name: &str) -> Result<Option<Vec<Value>>> {
    match file.take(name) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(SessionProblem::shape(format!("/{name}"), "expected a list")),
    }
}

impl Session {
    /// Builds the plan from the steps.
    fn set_plan(&mut self, edges: &[(String, String)], from_levity: bool) {
        if !from_levity {
            self.add_dependencies(edges);
        }
        let plan = Arc::make_mut(&mut self.plan);
        plan.steps = self.steps.iter().map(|step| step.step.clone()).collect();
        if from_levity {
            let places: HashMap<&str, u32> = plan
                .steps
                .iter()
                .zip(0..)
                .map(|(step, at)| (step.id.as_str(), at))
                .collect();
            let place = |(from, to): &(String, String)| {
                Some((*places.get(to.as_str())?, *places.get(from.as_str())?))
            };
            let edges: BTreeSet<(u32, u32)> = edges.iter().filter_map(place).collect();
            self.edges = edges.into_iter().map(|(to, from)| (from, to)).collect();
            return;
        }
        let written: BTreeSet<&Arc<str>> =
            plan.steps.iter().flat_map(|step| &step.writes).collect();
        let given = self
            .globals
            .iter()
            .filter(|(name, _)| !written.contains(name));
        plan.given = given
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        self.edges = edges_of(plan);
    }

    /// Adds dependencies that only the edges of the graph express.
    fn add_dependencies(&mut self, edges: &[(String, String)]) {
        let mut before: HashMap<&str, Vec<&str>> = HashMap::new();
        for (from, to) in edges {
            before.entry(to).or_default().push(from);
        }
        for known in &mut self.steps {
            let Some(before) = before.remove(known.step.id.as_str()) else {
                continue;
            };
            let step = Arc::make_mut(&mut known.step);
            let mut named: BTreeSet<StepId> =
                step.after.iter().map(|after| after.step.clone()).collect();
            for id in before {
                if named.insert(id.into()) {
                    step.after.push(After::new(id));
                }
            }
        }
    }
}

/// An object in the file, with its location.
pub(super) struct Attributes {
    place: String,
    pub(super) map: Map<String, Value>,
}

impl Attributes {
    pub(super) fn new(place: &str, value: Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self {
                place: place.to_owned(),
                map,
            }),
            _ => Err(SessionProblem::shape(place, "expected an object")),
        }
    }

    /// Removes and returns an attribute; `null` counts as missing.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn invalid(&self, name: &str, problem: &'static str) -> SessionProblem {
        SessionProblem::shape(format!("{}/{name}", self.place), problem)
    }

    /// Reads a string; a number is converted.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(self.invalid(name, "expected a string")),
        }
    }

    pub(super) fn read<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => T::deserialize(value)
                .map(Some)
                .map_err(|_| self.invalid(name, "invalid value")),
        }
    }

    /// Reads a time as ISO 8601 or in seconds since 1970; other values are ignored.
    pub(super) fn moment(&mut self, name: &str) -> Option<Timestamp> {
        match self.take(name)? {
            Value::String(text) => date::parse(&text),
            Value::Number(seconds) => {
                Some(Timestamp::from_millis((seconds.as_f64()? * 1e3) as u64))
            }
            _ => None,
        }
    }
}
