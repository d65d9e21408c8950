//! The runs below the root, and the causal order of their events.
//!
//! Events of different runs can have the same time. A counter in the manner of Lamport then orders
//! them: the first event of a child run comes after its start in the parent run, and its last event
//! before the end that the parent reports.

use std::sync::Arc;

use levity_core::{Event, RunId, Timestamp};

use super::items::ItemKey;
use super::{MAX_EARLY, MAX_RUNS, RunView};

/// A run with events.
#[derive(Clone, Debug)]
pub(super) struct RunInfo {
    /// The node that the run works for.
    pub(super) node: Arc<str>,
    /// The time and the causal number of the last durable event.
    pub(super) clock: (u64, u64),
    /// The number of durable events.
    pub(super) events: u64,
    /// The id of the latest text of the run.
    pub(super) last_text: Option<String>,
}

impl RunInfo {
    pub(super) fn new(node: Arc<str>) -> Self {
        Self {
            node,
            clock: (0, 0),
            events: 0,
            last_text: None,
        }
    }
}

/// An event that is being applied.
#[derive(Clone, Debug)]
pub(super) struct Cx {
    pub(super) run: RunId,
    pub(super) node: Arc<str>,
    pub(super) at: Timestamp,
    /// The number of the record that the event follows from.
    pub(super) record: u64,
    pub(super) key: ItemKey,
}

impl RunView {
    /// Returns the context of an event of a known run, and advances the clock of the run for a
    /// durable one.
    pub(super) fn context(&mut self, event: &Event) -> Option<Cx> {
        let info = self.runs.get_mut(&event.run)?;
        if !event.kind.is_transient() {
            let (at, count) = info.clock;
            info.clock = (at.max(event.at.as_millis()), count + 1);
            info.events += 1;
        }
        let key = ItemKey {
            at: info.clock.0,
            seq: info.clock.1,
            run: event.run.clone(),
            part: 0,
        };
        Some(Cx {
            run: event.run.clone(),
            node: info.node.clone(),
            at: event.at,
            record: event.seq,
            key,
        })
    }

    /// Registers a child run that works for a node, and applies its events that came too early.
    pub(super) fn add_run(&mut self, parent: &RunId, child: &RunId, node: &Arc<str>) {
        let clock = self.runs.get(parent).map_or((0, 0), |info| info.clock);
        if !self.runs.contains_key(child) && self.runs.len() < MAX_RUNS {
            let info = RunInfo {
                clock,
                ..RunInfo::new(node.clone())
            };
            self.runs.insert(child.clone(), info);
        }
        self.apply_early(|event| event.run == *child);
    }

    /// Advances the clock of a run past the end of its child run.
    pub(super) fn follow_child(&mut self, parent: &RunId, child: &RunId) {
        let Some((at, count)) = self.runs.get(child).map(|info| info.clock) else {
            return;
        };
        if let Some(info) = self.runs.get_mut(parent) {
            info.clock = (info.clock.0.max(at), info.clock.1.max(count + 1));
        }
    }

    /// Keeps an event whose run has not started yet. If there are too many, the runs are shown
    /// without their start.
    pub(super) fn keep_early(&mut self, event: &Event) {
        self.early.push(event.clone());
        if self.early.len() < MAX_EARLY {
            return;
        }
        let runs: std::collections::BTreeSet<RunId> =
            self.early.iter().map(|event| event.run.clone()).collect();
        for run in runs {
            let parent = run.parent().filter(|parent| self.runs.contains_key(parent));
            let parent = parent.unwrap_or_else(|| self.run.clone());
            let node = self.node_of_child(&parent, &run, run.as_str());
            self.add_run(&parent, &run, &node);
        }
        self.early.clear();
    }

    fn apply_early(&mut self, is_ready: impl Fn(&Event) -> bool) {
        let (ready, early) = std::mem::take(&mut self.early)
            .into_iter()
            .partition(|event| is_ready(event));
        self.early = early;
        let ready: Vec<Event> = ready;
        ready.iter().for_each(|event| self.fold(event));
    }
}
