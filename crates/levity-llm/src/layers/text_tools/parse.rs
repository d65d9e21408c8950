//! Finds thoughts and calls in a text that arrives in pieces.
//!
//! What it finds does not depend on where the text is cut: each decision is made only when no further text
//! could change it.

use super::calls::{Known, Piece};

mod forms;

/// How much text may be held back before it is known not to be a call: 8 MiB.
const HELD: usize = 8 << 20;
/// How often something may be opened and not closed before nothing more is looked for.
const MOST_OPEN: usize = 64;
/// How much more it counts when as much stands behind it as may be held back.
const LONG_OPEN: usize = 8;
/// How much blank space is held back until something follows it.
const BLANK: usize = 64 << 10;

const THINK_END: &str = "</think>";
/// How a fence of up to eight backticks ends: with as many as it begins with.
const FENCE_END: &str = "\n````````";

#[derive(Debug)]
pub(super) struct Parser {
    known: Known,
    /// Whether calls are looked for, or only thoughts.
    calls: bool,
    /// Whether it reads what stands between fences.
    nested: bool,
    pending: String,
    /// How long `pending` must be before it is looked at again: looking at each piece anew would cost the
    /// square of the length.
    look_at: usize,
    blank: String,
    line_start: bool,
    /// Nothing but blanks came since a thought or a call.
    fresh: bool,
    called: bool,
    answered: bool,
    /// The last character was a backtick: what follows is shown, not meant.
    quoted: bool,
    /// How often something was opened and not closed before the end.
    open: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Text,
    /// Within `<think>`.
    Think,
    /// Within a fence of so many backticks that holds no calls.
    Code(usize),
    /// The model makes up what comes.
    Over,
}

/// What to make of what stands at the front.
enum Read {
    /// It may be something; more text will tell.
    More,
    /// It is nothing but text.
    Not,
    /// It is nothing but text, since what it opens is never closed.
    Open,
    /// It is this, and so long.
    Done(usize, Vec<Piece>),
    /// It opens something that is handed on as it comes.
    Enter(usize, State),
}

impl Parser {
    pub(super) fn new(known: Known, calls: bool) -> Self {
        Self {
            known,
            calls,
            nested: false,
            pending: String::new(),
            look_at: 0,
            blank: String::new(),
            line_start: true,
            fresh: false,
            called: false,
            answered: false,
            quoted: false,
            open: 0,
            state: State::Text,
        }
    }

    /// Takes more text; returns what is certain.
    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        self.pending.push_str(text);
        if self.pending.len() < self.look_at {
            return Vec::new();
        }
        let pieces = self.run(false);
        self.look_at = self.pending.len() + self.pending.len() / 8 + usize::from(!self.pending.is_empty());
        pieces
    }

    /// There is no more text; returns what was held back, and is ready for another text.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        let pieces = self.run(true);
        let known = std::mem::take(&mut self.known);
        let (called, answered, nested) = (self.called, self.answered, self.nested);
        *self = Self { called, answered, nested, ..Self::new(known, self.calls) };
        pieces
    }

    /// Returns whether the model marked something as its answer.
    pub(super) fn has_answer(&self) -> bool {
        self.answered
    }

    /// Forgets everything: the reply begins anew.
    pub(super) fn restart(&mut self) {
        let known = std::mem::take(&mut self.known);
        *self = Self::new(known, self.calls);
    }

    fn run(&mut self, end: bool) -> Vec<Piece> {
        let pending = std::mem::take(&mut self.pending);
        let (mut at, mut out) = (0, Vec::new());
        while at < pending.len() {
            match self.step(&pending[at..], end, &mut out) {
                Some(used) => at += used,
                None => break,
            }
        }
        self.pending = pending[at..].to_owned();
        out
    }

    /// Takes something from the front; `None` when more text is needed first.
    fn step(&mut self, rest: &str, end: bool, out: &mut Vec<Piece>) -> Option<usize> {
        match self.state {
            State::Over => Some(rest.len()),
            State::Think => self.through(rest, THINK_END, end, out),
            State::Code(ticks) => self.through(rest, fence_end(ticks), end, out),
            State::Text => match self.candidate(rest) {
                0 => self.special(rest, end, out),
                text => {
                    self.text(&rest[..text], out);
                    Some(text)
                }
            },
        }
    }

    /// Where the first thing stands that may be more than text.
    fn candidate(&self, rest: &str) -> usize {
        let mut line_start = self.line_start;
        for (at, c) in rest.char_indices() {
            let here = matches!(c, '<' | '[')
                || (line_start && self.calls && matches!(c, '{' | '`' | 'T' | 'A' | 'O'));
            if here {
                return at;
            }
            line_start = c == '\n' || (line_start && c.is_whitespace());
        }
        rest.len()
    }

    fn special(&mut self, rest: &str, end: bool, out: &mut Vec<Piece>) -> Option<usize> {
        let (window, cut) = window(rest);
        match self.read(window, end && !cut) {
            Read::More if !cut => return None,
            Read::Not => {}
            // Each costs a look at all that follows.
            Read::More | Read::Open if self.open >= MOST_OPEN => {
                self.text(rest, out);
                return Some(rest.len());
            }
            Read::More => self.open += LONG_OPEN,
            Read::Open => self.open += 1,
            Read::Enter(used, state) => {
                if matches!(state, State::Code(_)) {
                    self.text(&rest[..used], out);
                }
                self.state = state;
                return Some(used);
            }
            Read::Done(used, pieces) => {
                pieces.into_iter().for_each(|piece| self.piece(piece, out));
                return Some(used);
            }
        }
        let first = rest.chars().next().map_or(rest.len(), char::len_utf8);
        self.text(&rest[..first], out);
        Some(first)
    }

    fn piece(&mut self, piece: Piece, out: &mut Vec<Piece>) {
        match piece {
            Piece::Text(text) => self.text(&text, out),
            Piece::Answer(text) => {
                self.answered = true;
                self.text(&text, out);
            }
            other => {
                self.called |= other.is_call();
                self.blank.clear();
                (self.line_start, self.fresh, self.quoted) = (true, true, false);
                out.push(other);
            }
        }
    }

    /// Hands text out; blanks at its end wait for something to follow, since a blank text is none.
    fn text(&mut self, text: &str, out: &mut Vec<Piece>) {
        let (line, fresh) = text.rsplit_once('\n').map_or((text, self.line_start), |(_, line)| (line, true));
        self.line_start = fresh && line.chars().all(char::is_whitespace);
        self.quoted = text.ends_with('`');
        let text = if self.fresh { text.trim_start() } else { text };
        self.fresh &= text.is_empty();
        let words = text.trim_end();
        if !words.is_empty() {
            let words = std::mem::take(&mut self.blank) + words;
            match out.last_mut() {
                Some(Piece::Text(before)) => before.push_str(&words),
                _ => out.push(Piece::Text(words)),
            }
        }
        for c in text[words.len()..].chars() {
            if self.blank.len() < BLANK {
                self.blank.push(c);
            }
        }
    }

    /// Hands on what comes before `close`, as thought or as text.
    fn through(&mut self, rest: &str, close: &str, end: bool, out: &mut Vec<Piece>) -> Option<usize> {
        let (inner, used) = match rest.find(close) {
            Some(at) => (at, at + close.len()),
            None if end => (rest.len(), rest.len()),
            None => {
                let cut = rest.len() - overlap(rest, close);
                (cut, cut)
            }
        };
        let closed = used > inner;
        if matches!(self.state, State::Code(_)) {
            self.text(&rest[..used], out);
        } else if inner > 0 {
            self.blank.clear();
            self.fresh = true;
            match out.last_mut() {
                Some(Piece::Thinking(before)) => before.push_str(&rest[..inner]),
                _ => out.push(Piece::Thinking(rest[..inner].to_owned())),
            }
        }
        if closed {
            self.line_start = self.state == State::Think;
            self.state = State::Text;
        }
        (used > 0).then_some(used)
    }
}

/// As much of a text as is held back, and whether that is not all.
fn window(text: &str) -> (&str, bool) {
    if text.len() <= HELD {
        return (text, false);
    }
    let cut = (HELD - 3..=HELD).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    (&text[..cut], true)
}

fn fence_end(ticks: usize) -> &'static str {
    FENCE_END.get(..=ticks).unwrap_or(FENCE_END)
}

/// How much of the end of `text` may be the beginning of `mark`.
fn overlap(text: &str, mark: &str) -> usize {
    let longest = mark.len().min(text.len() + 1) - 1;
    (1..=longest).rev().find(|length| text.as_bytes().ends_with(&mark.as_bytes()[..*length])).unwrap_or(0)
}
