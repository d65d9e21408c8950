use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::text::head;

use super::Diff;
use crate::graph::Graph;
use crate::step::{After, OnFailure, Step, StepId};

/// How many issues are told, and how many bytes of each.
const MOST_ISSUES: usize = 20;
const LONGEST_ISSUE: usize = 1_000;

/// How many bytes of an id are kept: the mark of the copy comes behind.
const LONGEST_BASE: usize = 240;

pub(super) fn redo(graph: &Graph, judge: &StepId, steps: &[StepId], issues: &[String]) -> Diff {
    let Some(judge) = graph.find(judge.as_str()) else {
        return Diff::default();
    };
    let copied = between(graph, judge, steps);
    let copies = Copies {
        graph,
        judge,
        names: names(graph, &copied),
        told: told(issues),
    };
    let id = graph.step(judge).map_or("", |step| step.id.as_str());
    let why = issues
        .first()
        .map(|issue| format!(": {}", cut(issue)))
        .unwrap_or_default();
    Diff {
        reason: format!("`{id}` sent the work back{why}"),
        add: copied
            .iter()
            .filter_map(|at| copies.copy(*at))
            .map(Arc::new)
            .collect(),
        ..Diff::default()
    }
}

/// The steps to do again, in plan order: those that are named, the judge, and all on the ways from
/// one to the other.
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
    let on_the_way = |at: &u32| (before[*at as usize] && behind[*at as usize]) || *at == judge;
    (0..graph.len() as u32).filter(on_the_way).collect()
}

/// The steps that can be come to from these, themselves included.
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

/// A new id for each step, all with the same number: the first that is free for all of them.
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
        // There are fewer ids in the plan than numbers.
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
    format!("{}~{number}", head(base, LONGEST_BASE))
}

fn cut(issue: &str) -> &str {
    head(issue, LONGEST_ISSUE)
}

fn told(issues: &[String]) -> String {
    issues
        .iter()
        .take(MOST_ISSUES)
        .map(|issue| format!("\n- {}", cut(issue)))
        .collect()
}

struct Copies<'a> {
    graph: &'a Graph,
    judge: u32,
    names: BTreeMap<u32, StepId>,
    told: String,
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

    /// The copy's name for a step that is copied.
    fn renamed(&self, id: &StepId) -> Option<StepId> {
        self.names.get(&self.graph.find(id.as_str())?).cloned()
    }

    /// After the copies of what the step came after. What is settled takes no new edges, so that
    /// the copies come after the judge needs no word; and said, it would let them fail with it.
    fn after(&self, old: &Step) -> Vec<After> {
        let renamed = |one: &After| After {
            step: self.renamed(&one.step).unwrap_or_else(|| one.step.clone()),
            ..one.clone()
        };
        old.after.iter().map(renamed).collect()
    }

    fn prompt(&self, at: u32, old: &str) -> String {
        let told = &self.told;
        let why = if told.is_empty() {
            String::new()
        } else {
            format!(" What was wrong:{told}")
        };
        let again = if at == self.judge {
            "The work was sent back and done once more; look above all whether this is mended."
        } else {
            "This was done before and sent back. Do it once more, without what was wrong."
        };
        format!("{old}\n\n{again}{why}").trim_start().to_owned()
    }
}
