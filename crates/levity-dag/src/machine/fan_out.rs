//! Runs steps once for each element of a list.
//!
//! A step with a fan-out starts one element at a time: after each, it returns to the queue of the
//! scheduler. So urgent steps are not blocked by a long list, and the parallel limit needs no
//! second counter. The step settles once, when no element is in progress and none remains.

use std::collections::BTreeMap;

use levity_core::MachineOutput;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::perform::Attempt;
use super::rounds::{Rejection, StepFailure};
use super::{GraphMachine, Place};
use crate::notice::{PlanNotice, Strategy, WrittenVariable};
use crate::step::{FanOut, Reducer, Step};

/// The elements of a list, and the progress of each.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct FanOutState {
    items: Vec<Value>,
    /// The next element to start.
    next: u32,
    #[serde(rename = "under_way")]
    in_progress: BTreeMap<u32, Attempt>,
    /// The values that each completed element wrote.
    results: Vec<Option<Vec<Value>>>,
    by: Vec<Strategy>,
    done: usize,
    failed: usize,
    first_error: Option<String>,
    /// The combined rejections by judges of its elements.
    rejection: Option<Box<Rejection>>,
    /// `true` if no further elements start.
    closed: bool,
}

impl FanOutState {
    pub(super) fn attempt(&mut self, item: u32) -> &mut Attempt {
        self.in_progress.entry(item).or_default()
    }

    pub(super) fn element(&self, item: u32) -> Value {
        self.items.get(item as usize).cloned().unwrap_or_default()
    }

    /// Returns the number of elements that must succeed.
    fn quorum(&self, fan_out: &FanOut) -> usize {
        fan_out
            .quorum
            .unwrap_or(self.items.len())
            .min(self.items.len())
    }

    /// Returns `true` if there are elements to start.
    pub(super) fn has_more(&self) -> bool {
        !self.closed && (self.next as usize) < self.items.len()
    }

    /// Takes the next element, and returns whether more follow it.
    fn take(&mut self) -> Option<(u32, bool)> {
        let item = self.next;
        if !self.has_more() {
            return None;
        }
        self.next += 1;
        Some((item, self.has_more()))
    }

    /// Stops starting elements once the result is certain.
    ///
    /// The result is certain when the quorum is reached and the step stops early, or when too many
    /// elements have failed for the quorum. Elements in progress still finish.
    fn close_if_clear(&mut self, fan_out: &FanOut) {
        let quorum = self.quorum(fan_out);
        let enough = fan_out.stop_early && self.done >= quorum;
        let hopeless = self.items.len() - self.failed < quorum;
        self.closed = self.closed || enough || hopeless;
    }

    fn send_back(&mut self, rejection: Option<Box<Rejection>>) {
        match (&mut self.rejection, rejection) {
            (Some(all), Some(more)) => all.add(*more),
            (None, more) => self.rejection = more,
            (_, None) => {}
        }
    }

    /// Returns `true` if the counts of its elements are consistent.
    pub(super) fn is_sound(&self) -> bool {
        let begun = self.next as usize;
        let done = self.results.iter().flatten().count();
        let started_in_order = self.in_progress.keys().all(|item| *item < self.next);
        let settled = self
            .done
            .checked_add(self.failed)
            .is_some_and(|settled| settled <= begun);
        self.results.len() == self.items.len()
            && begun <= self.items.len()
            && done == self.done
            && settled
            && started_in_order
    }

    /// Returns `true` if an element is in progress.
    pub(super) fn is_in_progress(&self, item: u32) -> bool {
        self.in_progress.contains_key(&item)
    }

    fn is_over(&self) -> bool {
        self.in_progress.is_empty() && !self.has_more()
    }
}

impl GraphMachine {
    /// Starts the next element of a step's list.
    pub(super) fn begin_item(
        &mut self,
        at: u32,
        step: &Step,
        fan_out: &FanOut,
        out: &mut MachineOutput,
    ) {
        if self.fan(at).is_none() && !self.open_list(at, fan_out, out) {
            return;
        }
        let fan = self.fan(at);
        match fan.and_then(FanOutState::take) {
            Some((item, more)) => {
                if more && let Some(running) = self.phase.running_mut() {
                    running.steps.push(at);
                }
                self.perform(
                    Place {
                        at,
                        item: Some(item),
                    },
                    out,
                );
            }
            None => self.conclude_list(at, step, out),
        }
    }

    /// Reads the list; returns `false` and fails the step if it is invalid.
    fn open_list(&mut self, at: u32, fan_out: &FanOut, out: &mut MachineOutput) -> bool {
        self.begin_work(at);
        let list = self
            .phase
            .steps()
            .and_then(|steps| steps.read(&fan_out.over, Some(at)));
        let problem = match &list {
            Some(Value::Array(items)) if items.len() > fan_out.max_items => {
                let (limit, count) = (fan_out.max_items, items.len());
                Some(format!(
                    "`{}` has {count} elements, more than the limit of {limit}; raise `most`",
                    fan_out.over
                ))
            }
            Some(Value::Array(_)) => None,
            _ => Some(format!("`{}` is not a list", fan_out.over)),
        };
        if let Some(problem) = problem {
            self.step_failed(at, StepFailure::permanent(problem), out);
            return false;
        }
        let Some(Value::Array(items)) = list else {
            return false;
        };
        let (results, count) = (
            vec![None; items.len()],
            u32::try_from(items.len()).unwrap_or(u32::MAX),
        );
        Self::notify(out, || PlanNotice::FannedOut {
            step: self.id(at),
            items: count,
        });
        if let Some(work) = self.work(at) {
            work.fan = Some(Box::new(FanOutState {
                items,
                results,
                ..FanOutState::default()
            }));
        }
        true
    }

    pub(super) fn item_done(
        &mut self,
        at: u32,
        item: u32,
        written: Vec<WrittenVariable>,
        out: &mut MachineOutput,
    ) {
        self.item_settled(at, item, Ok(written), out);
    }

    pub(super) fn item_failed(
        &mut self,
        at: u32,
        item: u32,
        failed: StepFailure,
        out: &mut MachineOutput,
    ) {
        self.item_settled(at, item, Err(failed), out);
    }

    fn item_settled(
        &mut self,
        at: u32,
        item: u32,
        result: Result<Vec<WrittenVariable>, StepFailure>,
        out: &mut MachineOutput,
    ) {
        let Some(step) = self.step(at) else { return };
        let fan = self.fan(at);
        let (Some(fan), Some(fan_out)) = (fan, step.fan_out()) else {
            return;
        };
        fan.in_progress.remove(&item);
        let error = result.as_ref().err().map(|failed| failed.reason.clone());
        Self::notify(out, || PlanNotice::ItemFinished {
            step: step.id.clone(),
            item,
            error,
        });
        match result {
            Ok(written) => {
                fan.done += 1;
                fan.by = written.iter().map(|written| written.by).collect();
                if let Some(slot) = fan.results.get_mut(item as usize) {
                    *slot = Some(written.into_iter().map(|written| written.value).collect());
                }
            }
            Err(failed) => {
                fan.failed += 1;
                fan.first_error
                    .get_or_insert_with(|| format!("element {item}: {}", failed.reason));
                fan.send_back(failed.rejection);
            }
        }
        fan.close_if_clear(fan_out);
        if fan.is_over() {
            self.conclude_list(at, &step, out);
        }
    }

    /// Settles the step when every element is settled or skipped.
    fn conclude_list(&mut self, at: u32, step: &Step, out: &mut MachineOutput) {
        let fan = self.fan(at);
        let (Some(fan), Some(fan_out)) = (fan, step.fan_out()) else {
            return;
        };
        if !fan.is_over() {
            return;
        }
        let quorum = fan.quorum(fan_out);
        if fan.done < quorum {
            let error = fan.first_error.take().unwrap_or_default();
            let (done, of) = (fan.done, fan.items.len());
            let reason = format!(
                "{done} of {of} elements succeeded, but {quorum} are required; \
                {error}"
            );
            let rejection = fan.rejection.take();
            return self.step_failed(
                at,
                StepFailure {
                    rejection,
                    ..StepFailure::permanent(reason)
                },
                out,
            );
        }
        let fan = std::mem::take(fan);
        let written = gather(step, fan_out, &fan);
        let problem = written.iter().find_map(|written| {
            let problem = self.schema(&written.name)?.problems(&written.value)?;
            Some(format!(
                "`{}` does not match its schema: {problem}",
                written.name
            ))
        });
        if let Some(problem) = problem {
            return self.step_failed(at, StepFailure::permanent(problem), out);
        }
        self.step_done(at, written, Value::Null, out);
    }
}

/// Collects the results of all elements, in list order.
fn gather(step: &Step, fan_out: &FanOut, fan: &FanOutState) -> Vec<WrittenVariable> {
    let one = |(place, name): (usize, &std::sync::Arc<str>)| {
        let of = |result: &'_ Option<Vec<Value>>| {
            result
                .as_ref()
                .and_then(|values| values.get(place).cloned())
        };
        let values: Vec<Value> = match fan_out.reducer {
            // The position in the list identifies the element.
            Reducer::List => fan
                .results
                .iter()
                .map(|result| of(result).unwrap_or_default())
                .collect(),
            _ => fan.results.iter().filter_map(of).collect(),
        };
        let by = fan.by.get(place).copied().unwrap_or(Strategy::Output);
        WrittenVariable {
            name: name.clone(),
            by,
            value: fan_out.reducer.reduce(values.iter()),
        }
    };
    step.writes.iter().enumerate().map(one).collect()
}
