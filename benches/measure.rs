//! Measures pieces of work side by side.

use std::time::Duration;

use crate::clock::cpu;
use crate::count::Counter;

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// CPU time for each piece of work.
    budget: Duration,
    /// CPU time of a sample at least, so that reading the clock costs nothing beside it.
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

/// A piece of work that does `units` things at each call.
pub struct Work {
    pub name: &'static str,
    pub units: usize,
    pub run: Box<dyn FnMut()>,
}

/// What one unit of a piece of work costs.
pub struct Cost {
    pub name: &'static str,
    /// CPU time in nanoseconds: the median of all samples, and the least.
    pub nanos: f64,
    pub least: f64,
    pub allocations: f64,
    pub bytes: f64,
}

/// Measures all of them in turns, so that a busy machine is as bad for one as for the other.
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

/// Allocations and bytes of a unit. The first call is not counted: it makes what is made once.
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

/// Says whether a goal is met.
pub fn verdict(value: f64, goal: f64) -> &'static str {
    if value <= goal { "met" } else { "MISSED" }
}
