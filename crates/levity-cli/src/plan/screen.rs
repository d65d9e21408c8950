//! Where a run under way is shown.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use levity::core::{Event, Timestamp};
use levity::observe::PlanView;

use super::draw::log_line;
use super::live::Live;
use crate::terminal::{harmless, note, say_json};

/// How a run is shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViewKind {
    /// A tree on a terminal, lines elsewhere.
    Auto,
    /// A live tree, and the log below it.
    Tree,
    /// A line for everything that matters.
    Plain,
    /// Every event as one JSON object on a line of its own, on the standard output, and no answer
    /// there.
    Json,
    /// Only the answer.
    None,
}

/// The standard error as it is used, or the standard output for JSON.
pub(super) enum Screen {
    Live(Box<Live>),
    /// How many lines of the log are printed.
    Plain(u64),
    Json,
    None,
}

impl Screen {
    /// What the view knows already is not printed again.
    pub(super) fn new(kind: ViewKind, view: &PlanView) -> Self {
        let plain = || Self::Plain(view.log_count());
        let live = || Live::new().map(|live| Self::Live(Box::new(live)));
        match kind {
            ViewKind::Auto => live().unwrap_or_else(plain),
            ViewKind::Tree => live().unwrap_or_else(|| {
                note("there is no terminal with room for the tree; lines are printed");
                plain()
            }),
            ViewKind::Plain => plain(),
            ViewKind::Json => Self::Json,
            ViewKind::None => Self::None,
        }
    }

    /// Something has happened.
    pub(super) fn event(&self, event: &Event) {
        if let Self::Json = self {
            say_json(event);
        }
    }

    /// How long it is until the view may be shown again.
    pub(super) fn pause(&self, now: Timestamp) -> Duration {
        match self {
            Self::Live(live) => live.pause(now),
            _ => Duration::ZERO,
        }
    }

    /// Shows the view.
    pub(super) fn show(&mut self, view: &PlanView, now: Timestamp) {
        match self {
            Self::Live(live) => live.draw(view, now),
            Self::Plain(printed) => {
                for line in view.log_after(*printed) {
                    let _ = writeln!(io::stderr(), "{}", harmless(&log_line(view, line)));
                }
                *printed = view.log_count();
            }
            Self::Json | Self::None => {}
        }
    }

    /// Makes room for something that is printed or asked.
    pub(super) fn yield_to_others(&mut self) {
        if let Self::Live(live) = self {
            live.erase();
        }
    }

    /// Whether time that passes is to be seen.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }
}
