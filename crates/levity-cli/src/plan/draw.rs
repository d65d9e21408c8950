//! The content of the live view: the state of the run, the tree, the text that running steps are
//! writing, and the last lines of the log.
//!
//! The functions are pure: a view, a time and an area go in, cells of a buffer come out, so the
//! tests compare text. All text of models and steps is sanitized before it reaches a cell.

use std::time::Duration;

use levity::core::Timestamp;
use levity::dag::StepStatus;
use levity::observe::{PlanStage, PlanView, TreeOptions, one_line};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Style};

use super::streamed::StreamedText;
use crate::terminal::sanitize;

/// The minimum number of log lines when the tree needs the whole screen.
///
/// Four lines show the latest actions of parallel steps without taking the room of the tree.
const LOG: u16 = 4;

/// Draws the current state of the view.
///
/// Rows beyond the area are dropped silently; the head always has the first one.
pub(super) fn draw(
    view: &PlanView,
    streamed: &StreamedText,
    now: Timestamp,
    area: Rect,
    buffer: &mut Buffer,
) {
    let mut rows = area.rows();
    let mut put = |text: &str, style: Style| {
        if let Some(row) = rows.next() {
            buffer.set_stringn(row.x, row.y, sanitize(text), row.width.into(), style);
        }
    };
    put(&head(view, now), Style::new().bold());
    let rows = area.height.saturating_sub(1);
    let text: Vec<_> = streamed.last_lines().take((rows / 4).into()).collect();
    let (lines, log) = share(rows.saturating_sub(text.len() as u16), view);
    for line in tree(view, now, area.width, lines) {
        put(&line, colour(&line));
    }
    for line in text {
        put(&line, Style::new().fg(Color::DarkGray));
    }
    if log > 1 {
        put(
            &format!("── log {}", "─".repeat(area.width.into())),
            Style::new().fg(Color::DarkGray),
        );
    }
    let log = usize::from(log.saturating_sub(1));
    for line in view.log().skip(view.log().len().saturating_sub(log)) {
        put(&log_line(view, line), Style::new());
    }
}

/// Returns the number of rows for the tree, and for the log with its heading.
///
/// The tree gets as many rows as it has lines, and the log the rest. If they do not both fit, the
/// log keeps five rows, including its heading. If there are fewer than ten rows, it disappears.
fn share(rows: u16, view: &PlanView) -> (u16, u16) {
    let tree = u16::try_from(view.steps().len() + 1).unwrap_or(u16::MAX);
    // A small screen has no room for both.
    let log = if rows < 2 * (LOG + 1) { 0 } else { LOG + 1 };
    let tree = tree.min(rows - log);
    (tree, rows - tree)
}

/// Formats the state of the run as one line.
///
/// For example `running · 12 s · 2 of 5 steps · 1 failed · Ctrl-C cancels`. Zero counts are left
/// out, and Ctrl-C is not offered after the end.
fn head(view: &PlanView, now: Timestamp) -> String {
    let totals = view.totals();
    let elapsed = view
        .started()
        .map_or(Duration::ZERO, |started| now.since(started));
    let mut head = format!("{} · {} s", view.stage(), elapsed.as_secs());
    if totals.steps > 0 {
        head += &format!(" · {} of {} steps", totals.completed, totals.steps);
    }
    for (number, what) in [(totals.failed, "failed"), (totals.skipped, "skipped")] {
        if number > 0 {
            head += &format!(" · {number} {what}");
        }
    }
    if view.replans() > 0 {
        head += &format!(" · {} replans", view.replans());
    }
    if totals.usage.total() > 0 {
        head += &format!(" · {}", totals.usage);
    }
    if view.stage() == PlanStage::Ended {
        head
    } else {
        head + " · Ctrl-C cancels"
    }
}

/// Returns the part of the tree that fits, with the running steps in it.
///
/// The last running or waiting step stays visible with one line below it, because the newest work
/// is usually there. Hidden lines are counted at both ends, as in `… 12 above`; a single hidden
/// line at the end is shown itself, as the count would need the same row.
fn tree(view: &PlanView, now: Timestamp, width: u16, rows: u16) -> Vec<String> {
    let rows = usize::from(rows);
    // Running steps may be far below the first lines.
    let options = TreeOptions::new()
        .width(width.into())
        .max_lines(usize::MAX)
        .now(now);
    let lines: Vec<String> = view.tree(options).lines().map(str::to_owned).collect();
    if lines.len() <= rows || rows < 4 {
        return lines.into_iter().take(rows).collect();
    }
    let marks = [StepStatus::Running, StepStatus::Waiting].map(|status| options.mark(status));
    let last = lines
        .iter()
        .rposition(|line| marks.iter().any(|mark| line.contains(mark)));
    // The first row is the goal, and each cut end needs one row for the number of hidden lines.
    let room = rows - 2;
    let begin = last
        .map_or(1, |last| (last + 2).saturating_sub(room).max(1))
        .min(lines.len() - room);
    let mut shown = vec![lines[0].clone()];
    let above = begin - 1;
    let begin = if above > 0 { begin + 1 } else { begin };
    if above > 0 {
        shown.push(format!("… {} above", above + 1));
    }
    let end = (begin + rows - shown.len() - 1).min(lines.len());
    shown.extend_from_slice(&lines[begin..end]);
    match lines.len() - end {
        0 => {}
        1 => shown.push(lines[end].clone()),
        more => shown.push(format!("… {more} below")),
    }
    shown
}

/// Returns the colour of a step's line, by its status sign.
///
/// The sign is searched in the formatted line, since the tree is text at this point. A description
/// that contains such a sign between blanks can colour its line wrongly, which does no harm.
fn colour(line: &str) -> Style {
    let options = TreeOptions::new();
    let has = |status: StepStatus| line.contains(&format!(" {} ", options.mark(status)));
    let colour = match () {
        () if has(StepStatus::Completed) => Color::Green,
        () if has(StepStatus::Failed) => Color::Red,
        () if has(StepStatus::Running) => Color::Cyan,
        () if has(StepStatus::Waiting) => Color::Yellow,
        () if has(StepStatus::Skipped) => Color::DarkGray,
        () => return Style::new(),
    };
    Style::new().fg(colour)
}

/// Formats a line of the log: the time since the start, the step, and the text.
///
/// For example ` 12.3s fetch: calls web_fetch`. Plain output uses the same format, so a log of a
/// pipe and of a terminal can be compared.
pub(super) fn log_line(view: &PlanView, line: &levity::observe::LogLine) -> String {
    let since = view
        .started()
        .map_or(Duration::ZERO, |started| line.at.since(started));
    let time = format!("{:>6.1}s", since.as_secs_f64());
    match &line.step {
        Some(step) => format!("{time} {}: {}", one_line(step.as_str(), 40), line.text),
        None => format!("{time} {}", line.text),
    }
}

#[cfg(test)]
mod tests;
