//! Checks that every variable has a value when a step reads it.
//!
//! A writer counts unless it runs after the reader, or is an alternative of the reader: a fallback
//! that updates a variable does not read the value of the step that it replaces.

use std::collections::HashSet;

use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::graph::Variables;
use crate::names::{did_you_mean, short};
use crate::plan::Plan;

/// Checks that every variable that a step reads is an initial variable or is written before.
pub(crate) struct Reads<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) variables: &'a Variables<'a>,
    pub(crate) families: &'a [u32],
    pub(crate) settled: &'a [bool],
}

impl Reads<'_> {
    /// Checks all reads; `later` contains the pairs of a reader and a writer that follows it.
    pub(crate) fn check(&self, later: &[(u32, u32)], found: &mut FaultCollector) {
        let later: HashSet<_> = later.iter().copied().collect();
        for (at, reads) in self.variables.reads.iter().enumerate() {
            if self.settled[at] {
                continue;
            }
            for variable in reads {
                let name = self.variables.names[*variable as usize];
                if !self.plan.given.contains_key(name)
                    && !self.is_written(at as u32, *variable, &later)
                {
                    found.push_with(|| self.fault(at as u32, *variable));
                }
            }
        }
    }

    fn is_written(&self, reader: u32, variable: u32, later: &HashSet<(u32, u32)>) -> bool {
        let writers = &self.variables.writers[variable as usize];
        let updates = writers.binary_search(&reader).is_ok();
        writers.iter().any(|writer| {
            let alternative =
                updates && self.families[reader as usize] == self.families[*writer as usize];
            *writer != reader && !alternative && !later.contains(&(reader, *writer))
        })
    }

    fn fault(&self, reader: u32, variable: u32) -> Fault {
        let id = &self.plan.steps[reader as usize].id;
        let name = self.variables.names[variable as usize];
        let writers = &self.variables.writers[variable as usize];
        let reason = match writers.iter().find(|writer| **writer != reader) {
            Some(later) => {
                let later = &self.plan.steps[*later as usize].id;
                format!("which only the later step `{later}` writes; put that step before it")
            }
            None if writers.contains(&reader) => {
                "which no other step writes; set an initial value in `given`".into()
            }
            None => format!(
                "which no step writes and `given` does not set{}",
                self.near(name)
            ),
        };
        Fault::at(
            FaultKind::Read,
            id,
            format!("step `{id}` reads `{}`, {reason}", short(name)),
        )
    }

    fn near(&self, name: &str) -> String {
        let all = self.variables.names.iter().zip(&self.variables.writers);
        let written = all
            .filter(|(_, writers)| !writers.is_empty())
            .map(|(name, _)| &***name);
        did_you_mean(
            name,
            written.chain(self.plan.given.keys().map(AsRef::as_ref)),
        )
    }
}
