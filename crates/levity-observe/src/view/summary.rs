use std::fmt::Write as _;
use std::time::Duration;

use levity_core::{Money, Usage};
use levity_dag::StepStatus;

use super::text::{number, one_line, time};
use super::{PlanView, StepView};

/// How many characters a cell has at most.
const CELL: usize = 40;
/// How many steps are listed; those that failed are all named below.
const MOST: usize = 500;
/// How many characters of a reason are shown.
const REASON: usize = 400;
const HEAD: [&str; 7] = [
    "step", "agent", "status", "time", "tokens", "cost", "attempts",
];

impl PlanView {
    /// What each step took, what all took, and what failed and why; as text for people.
    pub fn summary(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned)];
        for (name, before) in [("profiling", &self.profiling), ("planning", &self.planning)] {
            if before.times > 0 {
                let times = before.times.to_string();
                rows.push(row([name, "", ""], Some(before.took), &before.usage, times));
            }
        }
        rows.extend(self.steps.iter().take(MOST).map(step_row));
        let totals = self.totals();
        let left = match self.steps.len().saturating_sub(MOST) {
            0 => String::new(),
            more => format!("… {more} more\n"),
        };
        let done = format!("{} of {}", totals.completed, totals.steps);
        rows.push(row(
            ["total", "", &done],
            Some(totals.took),
            &totals.usage,
            String::new(),
        ));
        let mut out = table(&rows) + &left;
        self.outcome(&mut out);
        out
    }

    /// The ending, and why steps failed or were skipped.
    fn outcome(&self, out: &mut String) {
        if self.replans > 0 {
            let _ = writeln!(out, "\nreplans: {}", self.replans);
        }
        let mut head = "\n";
        for step in &self.steps {
            let Some(why) = step
                .error
                .as_deref()
                .filter(|_| step.status != StepStatus::Completed)
            else {
                continue;
            };
            let id = one_line(step.id.as_str(), CELL);
            let _ = writeln!(
                out,
                "{head}{id} {}: {}",
                step.status.as_str(),
                one_line(why, REASON)
            );
            head = "";
        }
        if let Some(why) = &self.gave_up {
            let _ = writeln!(out, "{head}no other way: {}", one_line(why, REASON));
            head = "";
        }
        if let Some(ending) = &self.ending {
            let _ = writeln!(
                out,
                "{head}{}",
                one_line(&ending.status.to_string(), REASON)
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
    let [step, agent, status] = texts.map(|text| one_line(text, CELL));
    let took = took.map_or_else(|| "-".to_owned(), time);
    // `~` says that the provider did not count.
    let about = if usage.estimated { "~" } else { "" };
    let tokens = match usage.total() {
        0 => "-".to_owned(),
        tokens => format!("{about}{}", number(tokens)),
    };
    let cost = usage
        .cost
        .filter(|cost| *cost > Money::ZERO)
        .map_or_else(|| "-".to_owned(), |cost| format!("{about}{cost}"));
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
            // Words stand on the left, numbers on the right.
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
