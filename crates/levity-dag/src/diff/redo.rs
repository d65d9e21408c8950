//! Creates the change by which a judge sends work back.
//!
//! A finished step cannot run again, so the work is copied: `draft` becomes `draft~2`. Copies keep
//! the relations among themselves. An edge from a step that is not copied keeps its source, and a
//! fallback that is not copied is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::text::head;

use super::Diff;
use crate::graph::Graph;
use crate::step::{After, OnFailure, Step, StepId};

/// The maximum number of issues in a prompt, and the maximum size of each in bytes.
const MAX_ISSUES: usize = 20;
const MAX_ISSUE_BYTES: usize = 1_000;

/// The maximum size of the original id in the id of a copy, in bytes; the number is appended.
const MAX_BASE_BYTES: usize = 240;

pub(super) fn redo(graph: &Graph, judge: &StepId, steps: &[StepId], issues: &[String]) -> Diff {
    let Some(judge) = graph.find(judge.as_str()) else {
        return Diff::default();
    };
    let copied = between(graph, judge, steps);
    let copies = Copies {
        graph,
        judge,
        names: names(graph, &copied),
        issues: issue_list(issues),
    };
    let id = graph.step(judge).map_or("", |step| step.id.as_str());
    let reason = issues
        .first()
        .map(|issue| format!(": {}", cut(issue)))
        .unwrap_or_default();
    Diff {
        reason: format!("`{id}` sent the work back{reason}"),
        add: copied
            .iter()
            .filter_map(|at| copies.copy(*at))
            .map(Arc::new)
            .collect(),
        ..Diff::default()
    }
}

/// Returns the steps to repeat, in plan order: the named ones, the judge, and all on the paths
/// between them.
fn between(graph: &Graph, judge: u32, steps: &[StepId]) -> Vec<u32> {
    let before = marked(graph, &[judge], |at, next| {
        next.extend(graph.before(at).map(|(from, _)| from));
    });
    let named = steps.iter().filter_map(|id| graph.find(id.as_str()));
    let mut first: Vec<u32> = named
        .filter(|at| *at != judge && before[*at as usize])
        .collect();
    if first.is_empty() {
        first = graph.before(judge).map(|(from, _)| from).collect();
    }
    let behind = marked(graph, &first, |at, next| {
        next.extend(graph.behind(at).map(|(to, _)| to));
    });
    let on_path = |at: &u32| (before[*at as usize] && behind[*at as usize]) || *at == judge;
    (0..graph.len() as u32).filter(on_path).collect()
}

/// Returns the steps reachable from these, including themselves.
fn marked(graph: &Graph, from: &[u32], next: impl Fn(u32, &mut Vec<u32>)) -> Vec<bool> {
    let mut marked = vec![false; graph.len()];
    let mut open = from.to_vec();
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut marked[at as usize], true) {
            next(at, &mut open);
        }
    }
    marked
}

/// Returns a new id for each step. All have the same number: the first that is free for all of
/// them.
fn names(graph: &Graph, copied: &[u32]) -> BTreeMap<u32, StepId> {
    let mut number = 2_u64;
    loop {
        let id = |at: &u32| {
            graph
                .step(*at)
                .map_or_else(String::new, |step| numbered(step.id.as_str(), number))
        };
        let names: BTreeMap<u32, StepId> = copied.iter().map(|at| (*at, id(at).into())).collect();
        let mut taken = names
            .values()
            .filter(|id| graph.find(id.as_str()).is_some());
        // The loop ends, because the plan has fewer ids than there are numbers.
        if taken.next().is_none() {
            return names;
        }
        number += 1;
    }
}

fn numbered(id: &str, number: u64) -> String {
    let base = match id.rsplit_once('~') {
        Some((base, end)) if !base.is_empty() && end.parse::<u64>().is_ok() => base,
        _ => id,
    };
    format!("{}~{number}", head(base, MAX_BASE_BYTES))
}

fn cut(issue: &str) -> &str {
    head(issue, MAX_ISSUE_BYTES)
}

fn issue_list(issues: &[String]) -> String {
    issues
        .iter()
        .take(MAX_ISSUES)
        .map(|issue| format!("\n- {}", cut(issue)))
        .collect()
}

struct Copies<'a> {
    graph: &'a Graph,
    judge: u32,
    names: BTreeMap<u32, StepId>,
    issues: String,
}

impl Copies<'_> {
    fn copy(&self, at: u32) -> Option<Step> {
        let old = self.graph.step(at)?;
        let mut step = Step {
            id: self.names.get(&at)?.clone(),
            ..Step::clone(old)
        };
        step.after = self.after(old);
        if let OnFailure::Fallback(id) = &old.on_failure {
            step.on_failure = self
                .renamed(id)
                .map_or(OnFailure::Fail, OnFailure::Fallback);
        }
        if let Some(more) = &mut step.more {
            more.instead_of = more.instead_of.as_ref().and_then(|id| self.renamed(id));
        }
        step.prompt = self.prompt(at, &old.prompt).into();
        if at == self.judge {
            step = step.instead_of(old.id.clone());
        } else if step.more.as_deref() == Some(&crate::step::StepOptions::default()) {
            step.more = None;
        }
        Some(step)
    }

    /// Returns the new id of a copied step.
    fn renamed(&self, id: &StepId) -> Option<StepId> {
        self.names.get(&self.graph.find(id.as_str())?).cloned()
    }

    /// Returns the predecessors of a copy: the copies of the original predecessors. Settled steps
    /// take no new edges, so the copies follow the judge without an edge. An edge would make them
    /// fail with the judge.
    fn after(&self, old: &Step) -> Vec<After> {
        let renamed = |one: &After| After {
            step: self.renamed(&one.step).unwrap_or_else(|| one.step.clone()),
            ..one.clone()
        };
        old.after.iter().map(renamed).collect()
    }

    fn prompt(&self, at: u32, old: &str) -> String {
        let issues = &self.issues;
        let reason = if issues.is_empty() {
            String::new()
        } else {
            format!(" What was wrong:{issues}")
        };
        let again = if at == self.judge {
            "The work was sent back and done once more; check above all whether this is fixed."
        } else {
            "This was done before and sent back. Do it once more, without what was wrong."
        };
        format!("{old}\n\n{again}{reason}").trim_start().to_owned()
    }
}
