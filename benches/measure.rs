//! Measures and compares pieces of work.

use std::time::Duration;

use crate::allocations::Counter;
use crate::clock::cpu;

/// The duration of a measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    /// CPU time for each piece of work.
    budget: Duration,
    /// Minimum CPU time of a sample, so that the cost of reading the clock is negligible.
    sample: Duration,
}

impl Effort {
    pub const QUICK: Self = Self {
        budget: Duration::from_millis(60),
        sample: Duration::from_millis(5),
    };
    pub const FULL: Self = Self {
        budget: Duration::from_millis(1_200),
        sample: Duration::from_millis(20),
    };
}

/// A piece of work that processes `units` units at each call.
pub struct Work {
    pub name: &'static str,
    pub units: usize,
    pub run: Box<dyn FnMut()>,
}

/// The cost of one unit of a piece of work.
pub struct Cost {
    pub name: &'static str,
    /// Median CPU time of all samples, in nanoseconds.
    pub nanos: f64,
    /// Minimum CPU time of all samples, in nanoseconds.
    pub least: f64,
    pub allocations: f64,
    pub bytes: f64,
}

/// Measures all pieces alternately, so that a busy machine affects them equally.
pub fn compare(effort: Effort, mut works: Vec<Work>) -> Vec<Cost> {
    let counts: Vec<_> = works.iter_mut().map(count).collect();
    let repeats: Vec<_> = works.iter_mut().map(|work| repeats(effort, work)).collect();
    let mut samples = vec![Vec::new(); works.len()];
    for _ in 0..(effort.budget.as_nanos() / effort.sample.as_nanos()).max(3) {
        for ((work, &repeats), samples) in works.iter_mut().zip(&repeats).zip(&mut samples) {
            let units = (repeats * work.units) as f64;
            samples.push(time(repeats, work).as_nanos() as f64 / units);
        }
    }
    let costs = works.iter().zip(counts).zip(samples);
    costs
        .map(|((work, (allocations, bytes)), mut samples)| {
            samples.sort_by(f64::total_cmp);
            let (nanos, least) = (samples[samples.len() / 2], samples[0]);
            Cost {
                name: work.name,
                nanos,
                least,
                allocations,
                bytes,
            }
        })
        .collect()
}

/// Returns the allocations and bytes of a unit. The first call is not counted, because it
/// initializes shared state.
fn count(work: &mut Work) -> (f64, f64) {
    (work.run)();
    let counter = Counter::start();
    (work.run)();
    let count = counter.read();
    (
        count.calls as f64 / work.units as f64,
        count.bytes as f64 / work.units as f64,
    )
}

fn repeats(effort: Effort, work: &mut Work) -> usize {
    let once = time(1, work).max(Duration::from_nanos(100));
    (effort.sample.as_nanos() / once.as_nanos()).max(1) as usize
}

fn time(repeats: usize, work: &mut Work) -> Duration {
    let start = cpu();
    (0..repeats).for_each(|_| (work.run)());
    cpu() - start
}

/// Returns `met` if the value reaches the goal, else `MISSED`.
pub fn verdict(value: f64, goal: f64) -> &'static str {
    if value <= goal { "met" } else { "MISSED" }
}
