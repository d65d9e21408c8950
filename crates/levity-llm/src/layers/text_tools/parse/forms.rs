//! The forms that calls and thoughts have, each read from the front of a text.

use super::super::calls::{Piece, read_json, salvage};
use super::{Parser, Read, State, fence_end};
use crate::json::balanced;

const TAG: &str = "<tool_call>";
const TAG_END: &str = "</tool_call>";
const THINK: &str = "<think>";
const THINKING: &str = "[Thinking:";
const FENCE: &str = "```";
const MARK: &str = "TOOL_CALL:";
const MARK_ARGS: &str = "ARGUMENTS:";
const ACTION: &str = "Action:";
const ACTION_ARGS: &str = "Action Input:";
/// What a model writes that makes the tool's answer up.
const MADE_UP: [&str; 3] = ["Observation:", "<tool_response", "TOOL_RESULT:"];

/// Marks around a call that has its name in front. To this parser it is text, and JSON in it is arguments.
const NAMED: [(&str, &str); 5] = [
    ("<function=", "</function>"),
    ("<invoke name=", "</invoke>"),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    ("<|tool▁call▁begin|>", "<|tool▁call▁end|>"),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
];

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
    pub(super) fn read(&self, rest: &str, end: bool) -> Read {
        match rest.as_bytes().first() {
            // Between backticks it is only spoken of.
            Some(b'<' | b'[') if self.quoted => Read::Not,
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
        // In the middle of a line it is a word like others: all that follows would be taken for a thought.
        if self.line_start {
            try_mark!(rest, THINK, end, Read::Enter(THINK.len(), State::Think));
        }
        if self.calls {
            try_mark!(rest, TAG, end, self.tagged(rest, end));
            for (open, close) in NAMED {
                try_mark!(rest, open, end, named(rest, close, end));
            }
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
        let next = inner.find(TAG);
        // Looking further than the next one would cost the square of their number.
        let (body, used) = match (inner[..next.unwrap_or(inner.len())].find(TAG_END), next) {
            (Some(close), _) => (close, close + TAG_END.len()),
            (None, Some(next)) => (next, next),
            (None, None) if end => (inner.len(), inner.len()),
            (None, None) => return Read::More,
        };
        let (body, used) = (inner[..body].trim(), TAG.len() + used);
        let calls = match read_json(body) {
            Some(value) => self.known.calls(&value, true),
            // Each argument has a tag, and JSON is the text of one.
            None if ["<function=", "<invoke name="].iter().any(|open| body.starts_with(open)) => None,
            None if body.contains("<arg_key>") => None,
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
        let Some(first) = body.trim_start().chars().next() else {
            return if end { Read::Not } else { Read::More };
        };
        let ticks = rest.bytes().take_while(|byte| *byte == b'`').count();
        let close = body.find(fence_end(ticks));
        let (body, used) = match close {
            Some(close) => (&body[..close], line + close + fence_end(ticks).len()),
            None => (body, rest.len()),
        };
        let ended = end || close.is_some();
        let mut inner = Self { nested: true, ..Self::new(self.known.clone(), true) };
        let may_be = matches!(first, '{' | '[' | '<' | 'T' | 'A');
        match may_be.then(|| inner.read(body.trim_start(), ended)) {
            None | Some(Read::Not | Read::Open | Read::Enter(..)) => {
                return Read::Enter(line, State::Code(ticks));
            }
            Some(Read::More | Read::Done(..)) if !ended => return Read::More,
            Some(Read::More | Read::Done(..)) => {}
        }
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

fn named(rest: &str, close: &str, end: bool) -> Read {
    match rest.find(close) {
        // A call in the taught form counts wherever it stands.
        Some(at) if rest[..at].contains(TAG) => Read::Not,
        Some(at) => Read::Done(at + close.len(), vec![Piece::Text(rest[..at + close.len()].to_owned())]),
        None if end => Read::Open,
        None => Read::More,
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
