//! Finds thoughts and calls in a text that arrives in pieces.
//!
//! What it finds does not depend on where the text is cut: each decision is made only when no further text
//! could change it.

use super::calls::{Known, Piece, read_json, salvage};

/// How much text may be held back before it is known not to be a call: 8 MiB.
const HELD: usize = 8 << 20;
/// How often something may be opened and not closed before nothing more is looked for.
const MOST_OPEN: usize = 64;
/// How much blank space is held back until something follows it.
const BLANK: usize = 64 << 10;

const TAG: &str = "<tool_call>";
const TAG_END: &str = "</tool_call>";
const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const THINKING: &str = "[Thinking:";
const FENCE: &str = "```";
const FENCE_END: &str = "\n```";
const MARK: &str = "TOOL_CALL:";
const MARK_ARGS: &str = "ARGUMENTS:";
const ACTION: &str = "Action:";
const ACTION_ARGS: &str = "Action Input:";
/// What a model writes that makes the tool's answer up.
const MADE_UP: [&str; 3] = ["Observation:", "<tool_response", "TOOL_RESULT:"];

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
    /// How often something was opened and not closed before the end.
    open: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Text,
    /// Within `<think>`.
    Think,
    /// Within a fence that holds no calls.
    Code,
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
        *self = Self { called: self.called, nested: self.nested, ..Self::new(known, self.calls) };
        pieces
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
            State::Code => self.through(rest, FENCE_END, end, out),
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
            Read::More | Read::Not => {}
            // Each costs a look at all that follows.
            Read::Open if self.open >= MOST_OPEN => {
                self.text(rest, out);
                return Some(rest.len());
            }
            Read::Open => self.open += 1,
            Read::Enter(used, state) => {
                if state == State::Code {
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
            other => {
                self.called |= other.is_call();
                self.blank.clear();
                (self.line_start, self.fresh) = (true, true);
                out.push(other);
            }
        }
    }

    /// Hands text out; blanks at its end wait for something to follow, since a blank text is none.
    fn text(&mut self, text: &str, out: &mut Vec<Piece>) {
        let (line, fresh) = text.rsplit_once('\n').map_or((text, self.line_start), |(_, line)| (line, true));
        self.line_start = fresh && line.chars().all(char::is_whitespace);
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
        if self.state == State::Code {
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

/// How much of the end of `text` may be the beginning of `mark`.
fn overlap(text: &str, mark: &str) -> usize {
    let longest = mark.len().min(text.len() + 1) - 1;
    (1..=longest).rev().find(|length| text.as_bytes().ends_with(&mark.as_bytes()[..*length])).unwrap_or(0)
}

/// Whether a text begins with a mark; `None` when more text is needed to tell.
fn begins(text: &str, mark: &str, end: bool) -> Option<bool> {
    let length = text.len().min(mark.len());
    let same = text.as_bytes()[..length].eq_ignore_ascii_case(&mark.as_bytes()[..length]);
    match same && length < mark.len() {
        true if !end => None,
        true => Some(false),
        false => Some(same),
    }
}

/// Tries one form after the other: a mark that may still come is waited for.
macro_rules! try_mark {
    ($text:expr, $mark:expr, $end:expr, $found:expr) => {
        match begins($text, $mark, $end) {
            None => return Read::More,
            Some(true) => return $found,
            Some(false) => {}
        }
    };
}

impl Parser {
    fn read(&self, rest: &str, end: bool) -> Read {
        match rest.as_bytes().first() {
            Some(b'<') => self.angle(rest, end),
            Some(b'[') => {
                try_mark!(rest, THINKING, end, thinking(rest, end));
                let Some(next) = rest[1..].trim_start().chars().next() else {
                    return if end { Read::Not } else { Read::More };
                };
                let list = self.calls && self.line_start && next == '{';
                if list { self.json(rest, end) } else { Read::Not }
            }
            Some(b'{') => self.json(rest, end),
            Some(b'`') if !self.nested => {
                try_mark!(rest, FENCE, end, self.fence(rest, end));
                Read::Not
            }
            Some(b'T') => {
                try_mark!(rest, MARK, end, self.marked(rest, end));
                self.made_up(rest, end)
            }
            Some(b'A') => {
                try_mark!(rest, ACTION, end, self.action(rest, end));
                Read::Not
            }
            _ => self.made_up(rest, end),
        }
    }

    fn angle(&self, rest: &str, end: bool) -> Read {
        try_mark!(rest, THINK, end, Read::Enter(THINK.len(), State::Think));
        if self.calls {
            try_mark!(rest, TAG, end, self.tagged(rest, end));
        }
        self.made_up(rest, end)
    }

    /// What a model makes up after a call, and all that follows, is left out.
    fn made_up(&self, rest: &str, end: bool) -> Read {
        if self.called && self.line_start {
            for mark in MADE_UP {
                try_mark!(rest, mark, end, Read::Enter(rest.len(), State::Over));
            }
        }
        Read::Not
    }

    fn tagged(&self, rest: &str, end: bool) -> Read {
        let inner = &rest[TAG.len()..];
        let (body, used) = match (inner.find(TAG_END), inner.find(TAG)) {
            (Some(close), Some(next)) if next < close => (next, next),
            (None, Some(next)) => (next, next),
            (Some(close), _) => (close, close + TAG_END.len()),
            (None, None) if end => (inner.len(), inner.len()),
            (None, None) => return Read::More,
        };
        let (body, used) = (inner[..body].trim(), TAG.len() + used);
        let calls = match read_json(body) {
            Some(value) => self.known.calls(&value, true),
            None => salvage(body).map(|call| vec![call]),
        };
        Read::Done(used, calls.unwrap_or_else(|| vec![Piece::Text(rest[..used].to_owned())]))
    }

    fn json(&self, rest: &str, end: bool) -> Read {
        let Some(length) = balanced(rest) else { return if end { Read::Open } else { Read::More } };
        let calls = read_json(&rest[..length]).and_then(|value| self.known.calls(&value, false));
        Read::Done(length, calls.unwrap_or_else(|| vec![Piece::Text(rest[..length].to_owned())]))
    }

    /// What is fenced is read on its own when it begins like a call, and is text otherwise.
    fn fence(&self, rest: &str, end: bool) -> Read {
        let Some(line) = rest.find('\n') else { return if end { Read::Not } else { Read::More } };
        let body = &rest[line..];
        let start = body.trim_start();
        let Some(first) = start.chars().next() else { return if end { Read::Not } else { Read::More } };
        let mut inner = Self { nested: true, ..Self::new(self.known.clone(), true) };
        let may_be = matches!(first, '{' | '[' | '<' | 'T' | 'A');
        match may_be.then(|| inner.read(start, end)) {
            None | Some(Read::Not | Read::Open | Read::Enter(..)) => return Read::Enter(line, State::Code),
            Some(Read::More | Read::Done(..)) => {}
        }
        let (body, used) = match body.find(FENCE_END) {
            Some(close) => (&body[..close], line + close + FENCE_END.len()),
            None if end => (body, rest.len()),
            None => return Read::More,
        };
        let mut pieces = inner.push(body);
        pieces.extend(inner.finish());
        if !pieces.iter().any(Piece::is_call) {
            pieces = vec![Piece::Text(rest[..used].to_owned())];
        }
        Read::Done(used, pieces)
    }

    /// `TOOL_CALL: name`, then `ARGUMENTS: {..}`.
    fn marked(&self, rest: &str, end: bool) -> Read {
        let Some((name, after)) = line(rest, MARK.len(), end) else { return Read::More };
        // Both may stand on one line.
        let (name, after) = match name.find(MARK_ARGS) {
            Some(at) => (&name[..at], MARK.len() + at),
            None => (name, after),
        };
        match clean(name) {
            Some(name) => with_args(rest, name, after, MARK_ARGS, end, true),
            None => Read::Not,
        }
    }

    /// `Action: name`, then perhaps `Action Input: {..}`. Prose may begin so too, so without arguments only
    /// a known tool is called.
    fn action(&self, rest: &str, end: bool) -> Read {
        let Some((name, after)) = line(rest, ACTION.len(), end) else { return Read::More };
        match clean(name) {
            Some(name) => with_args(rest, name, after, ACTION_ARGS, end, self.known.contains(name)),
            None => Read::Not,
        }
    }
}

fn thinking(rest: &str, end: bool) -> Read {
    let mut depth = 0_usize;
    for (at, c) in rest.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => {
                let thought = rest[THINKING.len()..at].trim().to_owned();
                return Read::Done(at + 1, vec![Piece::Thinking(thought)]);
            }
            ']' => depth -= 1,
            _ => {}
        }
    }
    if end { Read::Open } else { Read::More }
}

/// The rest of the line from `from` on, and where the next begins; `None` when it may go on.
fn line(text: &str, from: usize, end: bool) -> Option<(&str, usize)> {
    match text[from..].find('\n') {
        Some(at) => Some((&text[from..from + at], from + at + 1)),
        None => end.then_some((&text[from..], text.len())),
    }
}

/// A name without what models put around it; `None` when it is more than a name.
fn clean(name: &str) -> Option<&str> {
    let name = name.trim_matches(|c: char| c.is_whitespace() || "`*\"'()[]<>".contains(c));
    let plain = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    (!name.is_empty() && name.len() <= 128 && name.chars().all(plain)).then_some(name)
}

/// Reads the arguments behind `mark`, which may stand after some blanks from `after` on.
fn with_args(rest: &str, name: &str, after: usize, mark: &str, end: bool, bare: bool) -> Read {
    let done = |used, args: &str| {
        Read::Done(used, vec![Piece::Call { name: name.to_owned(), args: args.to_owned() }])
    };
    let tail = rest[after..].trim_start();
    match if tail.is_empty() && !end { None } else { begins(tail, mark, end) } {
        None => return Read::More,
        Some(false) if bare => return done(after, ""),
        Some(false) => return Read::Not,
        Some(true) => {}
    }
    let args = tail[mark.len()..].trim_start();
    let from = rest.len() - args.len();
    let (length, shown) = match args.chars().next() {
        None if end => (0, 0),
        None => return Read::More,
        Some('{' | '[') => match balanced(args) {
            Some(length) => (length, length),
            None if end => (args.len(), args.len()),
            None => return Read::More,
        },
        Some('`') => match fenced(args, end) {
            Some((inner, used)) => return done(from + used, inner.trim()),
            None => return Read::More,
        },
        Some(_) => match line(args, 0, end) {
            Some((text, next)) => (next, text.trim_end().len()),
            None => return Read::More,
        },
    };
    done(from + length, &args[..shown])
}

/// What stands between backticks, and how long all of it is.
fn fenced(text: &str, end: bool) -> Option<(&str, usize)> {
    let after = text.trim_start_matches('`');
    let ticks = text.len() - after.len();
    let fence = &text[..ticks];
    let open = if ticks >= FENCE.len() { text.find('\n').map(|at| at + 1) } else { Some(ticks) };
    let open = match open {
        Some(open) if open <= text.len() => open,
        _ if end => return Some(("", text.len())),
        _ => return None,
    };
    match text[open..].find(fence) {
        Some(close) => Some((&text[open..open + close], open + close + ticks)),
        None if end => Some((&text[open..], text.len())),
        None => None,
    }
}

/// How long the object or list is that a text begins with; `None` when it does not end.
fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted && depth <= 1 => return Some(at + 1),
            b'}' | b']' if !quoted => depth -= 1,
            _ => {}
        }
    }
    None
}
