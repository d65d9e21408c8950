//! Reads the edges of the node-link form, as NetworkX and session files write it.
//!
//! Edges become entries of the `after` lists, so the rest of the crate knows one form only.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::fields::{Fields, id_of, kind_of};
use super::{each_once, numbers};
use crate::check::ROOT;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::names::{did_you_mean, short};
use crate::step::{After, Step, StepId};

/// Adds the edges of a node-link graph to the `after` lists of their targets. Edges of `ROOT` are
/// ignored.
pub(crate) fn add(steps: &mut [Arc<Step>], edges: &Value, found: &mut FaultCollector) {
    let Some(list) = edges.as_array() else {
        if !edges.is_null() {
            let message = format!("`links` must be a list of objects, not {}", kind_of(edges));
            found.push(Fault::new(FaultKind::Malformed, message));
        }
        return;
    };
    let mut added: HashMap<usize, Vec<After>> = HashMap::new();
    let numbers = numbers(steps);
    for (at, edge) in list.iter().enumerate() {
        let Some((target, after)) = link(edge, at, found) else {
            continue;
        };
        if target.as_str() == ROOT || after.step.as_str() == ROOT {
            continue;
        }
        match numbers.get(target.as_str()) {
            Some(step) => added.entry(*step).or_default().push(after),
            None => found.push_with(|| {
                let hint = did_you_mean(target.as_str(), steps.iter().map(|step| step.id.as_str()));
                let target = short(target.as_str());
                let message = format!(
                    "link {} leads to `{target}`, which is not a node{hint}",
                    at + 1
                );
                Fault::new(FaultKind::Reference, message)
            }),
        }
    }
    for (at, after) in added {
        let step = Arc::make_mut(&mut steps[at]);
        step.after.extend(after);
        each_once(step);
    }
}

/// Returns the target and the predecessor of an edge: an object, or a list of two.
fn link(edge: &Value, at: usize, found: &mut FaultCollector) -> Option<(StepId, After)> {
    let place = format!("link {}", at + 1);
    match edge {
        Value::Object(map) => {
            let mut fields = Fields::new(place, map, found);
            let source = fields
                .take_any(&["source", "from"])
                .and_then(|(_, value)| id_of(value));
            let target = fields
                .take_any(&["target", "to"])
                .and_then(|(_, value)| id_of(value));
            let when = fields.condition("when");
            match (source, target) {
                (Some(source), Some(target)) => Some((
                    target,
                    After {
                        when,
                        ..After::new(source)
                    },
                )),
                _ => {
                    fields.malformed(|| "`source` and `target` must be ids of nodes".into());
                    None
                }
            }
        }
        Value::Array(pair) => match pair.as_slice() {
            [source, target, ..] => id_of(target).zip(id_of(source).map(After::new)),
            _ => None,
        }
        .or_else(|| malformed_link(&place, edge, found)),
        other => malformed_link(&place, other, found),
    }
}

fn malformed_link<T>(place: &str, edge: &Value, found: &mut FaultCollector) -> Option<T> {
    let message = format!(
        "{place} must be an object with the ids `source` and `target`, not {}",
        kind_of(edge)
    );
    found.push(Fault::new(FaultKind::Malformed, message));
    None
}
