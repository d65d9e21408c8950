//! Numbers the variables of a plan, so that later stages compare numbers instead of names.

use std::collections::HashMap;
use std::sync::Arc;

use crate::plan::Plan;

/// The readers and writers of each variable; variables are numbered in order of appearance.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    /// The names of the variables.
    pub(crate) names: Vec<&'a Arc<str>>,
    /// For each variable, the steps that write it, in plan order.
    pub(crate) writers: Vec<Vec<u32>>,
    /// For each step, the variables that it needs, each once.
    pub(crate) reads: Vec<Vec<u32>>,
}

impl<'a> Variables<'a> {
    /// Collects the variables of a plan.
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let mut all = Self {
            names: Vec::new(),
            writers: Vec::new(),
            reads: Vec::new(),
        };
        let mut numbers = HashMap::with_capacity(plan.steps.len());
        for (at, step) in plan.steps.iter().enumerate() {
            for name in &step.writes {
                let variable = all.number(&mut numbers, name);
                let writers = &mut all.writers[variable as usize];
                if writers.last() != Some(&(at as u32)) {
                    writers.push(at as u32);
                }
            }
            let mut reads: Vec<_> = step
                .needs()
                .map(|name| all.number(&mut numbers, name))
                .collect();
            reads.sort_unstable();
            reads.dedup();
            all.reads.push(reads);
        }
        all
    }

    fn number(&mut self, numbers: &mut HashMap<&'a str, u32>, name: &'a Arc<str>) -> u32 {
        *numbers.entry(name).or_insert_with(|| {
            self.names.push(name);
            self.writers.push(Vec::new());
            self.names.len() as u32 - 1
        })
    }
}
