//! The screen that shows a plan in progress.
//!
//! Four forms of output share one interface, so the code that drives a plan does not distinguish
//! them: a live tree, plain lines, JSON events, and nothing. The live tree needs a terminal that is
//! large enough and not dumb; `auto` falls back to lines silently, `tree` with a note.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use levity::core::{Event, Timestamp};
use levity::observe::PlanView;

use super::draw::log_line;
use super::live::Live;
use super::streamed::StreamedText;
use crate::terminal::{note, print_json, sanitize};

/// The display of a run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViewKind {
    /// A tree on a terminal, lines elsewhere.
    Auto,
    /// A live tree, and the log below it.
    Tree,
    /// One line for each important event.
    Plain,
    /// Every event as one JSON object per line on the standard output, without the answer.
    Json,
    /// Only the answer, without any events.
    None,
}

/// The use of the standard error, or of the standard output for JSON.
///
/// The live view is boxed, since it is much larger than the other variants.
pub(super) enum Screen {
    Live(Box<Live>),
    Plain {
        /// The number of log lines that are already printed.
        printed: u64,
        /// `true` if the text of running steps is printed too.
        with_text: bool,
    },
    Json,
    None,
}

impl Screen {
    /// Creates the screen. Log lines that the view already has are not printed again.
    ///
    /// A resumed run starts with a view that has the log of its earlier events; plain output
    /// continues after it.
    pub(super) fn new(kind: ViewKind, view: &PlanView) -> Self {
        let plain = || Self::Plain {
            printed: view.log_count(),
            with_text: false,
        };
        let live = || Live::new().map(|live| Self::Live(Box::new(live)));
        match kind {
            ViewKind::Auto => live().unwrap_or_else(plain),
            ViewKind::Tree => live().unwrap_or_else(|| {
                note("there is no terminal with enough room for the tree; printing lines instead");
                plain()
            }),
            ViewKind::Plain => plain(),
            ViewKind::Json => Self::Json,
            ViewKind::None => Self::None,
        }
    }

    /// Also prints the text of running steps, if the screen prints lines.
    pub(super) fn with_text(mut self) -> Self {
        if let Self::Plain { with_text, .. } = &mut self {
            *with_text = true;
        }
        self
    }

    /// Prints lines that agents of running steps have written.
    pub(super) fn text(&self, lines: &[String]) {
        if let Self::Plain {
            with_text: true, ..
        } = self
        {
            for line in lines {
                let _ = writeln!(io::stderr(), "        {}", sanitize(line));
            }
        }
    }

    /// Prints an event as JSON, if requested.
    ///
    /// JSON is printed while the event is handled, not when the screen is refreshed, so no event is
    /// lost and their order is kept.
    pub(super) fn event(&self, event: &Event) {
        if let Self::Json = self {
            print_json(event);
        }
    }

    /// Returns the time until the view may be shown again.
    ///
    /// Only the live view limits its rate; lines appear at once.
    pub(super) fn pause(&self, now: Timestamp) -> Duration {
        match self {
            Self::Live(live) => live.pause(now),
            _ => Duration::ZERO,
        }
    }

    /// Shows the current view.
    ///
    /// Plain lines are counted by their number in the whole log, so lines that the view has already
    /// dropped from memory are not printed twice.
    pub(super) fn show(&mut self, view: &PlanView, streamed: &StreamedText, now: Timestamp) {
        match self {
            Self::Live(live) => live.draw(view, streamed, now),
            Self::Plain { printed, .. } => {
                for line in view.log_after(*printed) {
                    let _ = writeln!(io::stderr(), "{}", sanitize(&log_line(view, line)));
                }
                *printed = view.log_count();
            }
            Self::Json | Self::None => {}
        }
    }

    /// Clears the view for other output or a question.
    pub(super) fn clear(&mut self) {
        if let Self::Live(live) = self {
            live.erase();
        }
    }

    /// Returns `true` if the screen shows elapsed time.
    ///
    /// A live screen is redrawn each second even without events, because it shows elapsed time.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }
}
