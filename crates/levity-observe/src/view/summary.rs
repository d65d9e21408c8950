//! A table of the usage of each step, for the end of a run.

use std::fmt::Write as _;
use std::time::Duration;

use levity_core::{Money, Usage};
use levity_dag::StepStatus;

use super::text::{number, one_line, time};
use super::{PlanView, StepView};

/// The maximum number of characters in a cell.
const MAX_CELL_CHARS: usize = 40;
/// The maximum number of listed steps; all failed steps are named below the table.
const MAX_STEPS: usize = 500;
/// The maximum number of characters of a reason.
const MAX_REASON_CHARS: usize = 400;
const HEADER: [&str; 7] = [
    "step", "agent", "status", "time", "tokens", "cost", "attempts",
];

impl PlanView {
    /// Renders a text summary: the usage of each step, the totals, and the reasons of failures.
    ///
    /// The table lists the first 500 steps. A `~` marks tokens and costs that are estimates.
    ///
    /// ```
    /// use levity_dag::{Plan, Step};
    /// use levity_observe::PlanView;
    ///
    /// let view = PlanView::of_plan(Plan::new().step(Step::new("fetch", "Retriever")));
    /// let summary = view.summary();
    /// assert!(summary.starts_with("step "));
    /// assert!(summary.lines().any(|line| line.starts_with("fetch  Retriever  pending")));
    /// ```
    pub fn summary(&self) -> String {
        let mut rows = vec![HEADER.map(str::to_owned)];
        for (name, preparation) in [("profiling", &self.profiling), ("planning", &self.planning)] {
            if preparation.times > 0 {
                let times = preparation.times.to_string();
                rows.push(row(
                    [name, "", ""],
                    Some(preparation.took),
                    &preparation.usage,
                    times,
                ));
            }
        }
        rows.extend(self.steps.iter().take(MAX_STEPS).map(step_row));
        let totals = self.totals();
        let omitted = match self.steps.len().saturating_sub(MAX_STEPS) {
            0 => String::new(),
            more => format!("… {more} more\n"),
        };
        let completed_of_total = format!("{} of {}", totals.completed, totals.steps);
        rows.push(row(
            ["total", "", &completed_of_total],
            Some(totals.took),
            &totals.usage,
            String::new(),
        ));
        let mut out = table(&rows) + &omitted;
        self.outcome(&mut out);
        out
    }

    /// Appends the ending, and the reasons why steps failed or were skipped.
    fn outcome(&self, out: &mut String) {
        if self.replans > 0 {
            let _ = writeln!(out, "\nreplans: {}", self.replans);
        }
        let mut head = "\n";
        for step in &self.steps {
            let Some(reason) = step
                .error
                .as_deref()
                .filter(|_| step.status != StepStatus::Completed)
            else {
                continue;
            };
            let id = one_line(step.id.as_str(), MAX_CELL_CHARS);
            let _ = writeln!(
                out,
                "{head}{id} {}: {}",
                step.status.as_str(),
                one_line(reason, MAX_REASON_CHARS)
            );
            head = "";
        }
        if let Some(reason) = &self.gave_up {
            let _ = writeln!(out, "{head}gave up: {}", one_line(reason, MAX_REASON_CHARS));
            head = "";
        }
        if let Some(ending) = &self.ending {
            let _ = writeln!(
                out,
                "{head}{}",
                one_line(&ending.status.to_string(), MAX_REASON_CHARS)
            );
        }
    }
}

fn step_row(step: &StepView) -> [String; 7] {
    let agent = if step.agent.is_empty() {
        "code"
    } else {
        &step.agent
    };
    let attempts = match step.spent.attempts.max(step.attempt) {
        0 => "-".to_owned(),
        attempts => attempts.to_string(),
    };
    row(
        [step.id.as_str(), agent, step.status.as_str()],
        step.took(None),
        &step.spent.usage,
        attempts,
    )
}

fn row(texts: [&str; 3], took: Option<Duration>, usage: &Usage, attempts: String) -> [String; 7] {
    let [step, agent, status] = texts.map(|text| one_line(text, MAX_CELL_CHARS));
    let took = took.map_or_else(|| "-".to_owned(), time);
    // `~` marks an estimate without a count of the provider.
    let approx = if usage.estimated { "~" } else { "" };
    let tokens = match usage.total() {
        0 => "-".to_owned(),
        tokens => format!("{approx}{}", number(tokens)),
    };
    let cost = usage
        .cost
        .filter(|cost| *cost > Money::ZERO)
        .map_or_else(|| "-".to_owned(), |cost| format!("{approx}{cost}"));
    [step, agent, status, took, tokens, cost, attempts]
}

fn table(rows: &[[String; 7]]) -> String {
    let mut widths = [0; 7];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Text columns are left-aligned, numbers right-aligned.
            let _ = if at < 3 {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}
