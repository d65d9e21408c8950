//! Nulls that stand for nothing.
//!
//! Where a dialect has no optional properties, a model is told to write `null` for one that it
//! would leave out. The tool's own schema knows nothing of that, so such members are taken out
//! again while arguments arrive.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How deep arguments are looked into. Deeper ones are no arguments: they cannot be read.
const DEEPEST: usize = 200;

/// How long a member's name may be, in bytes. No schema has longer ones.
const LONGEST: usize = 128 << 10;

/// Where nulls stand for nothing, by the tool's name.
pub(crate) type Nulls = HashMap<String, Arc<Shape>>;

/// Where in a value nulls stand for nothing. The value itself is node 0.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub(crate) nodes: Vec<Node>,
}

/// One place in a value.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Properties whose null stands for nothing.
    pub(crate) drop: HashSet<String>,
    /// Properties whose null is a value.
    pub(crate) keep: HashSet<String>,
    /// What is below a property.
    pub(crate) members: HashMap<String, usize>,
    /// What is below each item.
    pub(crate) items: Option<usize>,
    /// The value may be any of these.
    pub(crate) either: Vec<usize>,
}

impl Shape {
    /// The places that a value may be at, each alternative by itself.
    pub(crate) fn places(&self, from: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut left: Vec<usize> = from.into_iter().collect();
        while let Some(at) = left.pop() {
            if seen.insert(at) {
                found.push(at);
                left.extend(self.nodes.get(at).into_iter().flat_map(|node| &node.either));
            }
        }
        found
    }

    fn nodes<'a>(&'a self, places: &'a [usize]) -> impl Iterator<Item = &'a Node> {
        places.iter().filter_map(|at| self.nodes.get(*at))
    }

    /// Whether a null of this property stands for nothing.
    fn drops(&self, places: &[usize], name: &str) -> bool {
        self.nodes(places).any(|node| node.drop.contains(name))
            && !self.nodes(places).any(|node| node.keep.contains(name))
    }

    fn member(&self, places: &[usize], name: &str) -> Vec<usize> {
        self.places(
            self.nodes(places)
                .filter_map(|node| node.members.get(name).copied()),
        )
    }

    fn item(&self, places: &[usize]) -> Vec<usize> {
        self.places(self.nodes(places).filter_map(|node| node.items))
    }
}

/// Takes such nulls out of a text of JSON that comes in pieces. What is no JSON stays none.
#[derive(Debug)]
pub(crate) struct Filter {
    shape: Arc<Shape>,
    stack: Vec<Frame>,
    state: State,
    escaped: bool,
    /// A member, up to its value, while it is not known whether it stays.
    held: String,
    /// Its name, as it is written.
    key: String,
    /// The places of the value that comes now, and whether it goes if it is null.
    next: Vec<usize>,
    droppable: bool,
}

#[derive(Debug)]
struct Frame {
    is_object: bool,
    places: Vec<usize>,
    /// Whether there is a member already.
    filled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Value,
    /// In a value that may turn out to be null.
    Null,
    String,
    After,
    Member,
    Key,
    Colon,
    /// Too deep or too long to look at.
    Blind,
}

impl Filter {
    pub(crate) fn new(shape: Arc<Shape>) -> Self {
        let next = shape.places([0]);
        let (held, key) = (String::new(), String::new());
        Self {
            shape,
            stack: Vec::new(),
            state: State::Value,
            escaped: false,
            held,
            key,
            next,
            droppable: false,
        }
    }

    /// What of the text so far can be given out.
    pub(crate) fn feed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.take(c, &mut out);
            if self.held.len() > LONGEST {
                self.commit(&mut out);
                self.state = State::Blind;
            }
        }
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        match self.state {
            State::Value => self.value(c, out),
            State::Null if c.is_ascii_alphabetic() => self.held.push(c),
            State::Null => {
                if self.held.ends_with("null") {
                    self.held.clear();
                } else {
                    self.commit(out);
                }
                self.after(c, out);
            }
            State::String => {
                out.push(c);
                if self.closes(c) {
                    self.state = State::After;
                }
            }
            State::After => self.after(c, out),
            State::Member => self.member(c, out),
            State::Key => self.key(c),
            State::Colon => self.colon(c),
            State::Blind => out.push(c),
        }
    }

    fn value(&mut self, c: char, out: &mut String) {
        match c {
            c if c.is_ascii_whitespace() && !self.held.is_empty() => return self.held.push(c),
            c if c.is_ascii_whitespace() => return out.push(c),
            'n' if self.droppable => {
                self.held.push(c);
                self.state = State::Null;
                return;
            }
            _ => self.commit(out),
        }
        self.droppable = false;
        match c {
            '{' | '[' => {
                out.push(c);
                self.open(c == '{');
            }
            ']' => self.after(c, out),
            _ => {
                out.push(c);
                self.state = if c == '"' {
                    State::String
                } else {
                    State::After
                };
            }
        }
    }

    fn open(&mut self, is_object: bool) {
        let places = std::mem::take(&mut self.next);
        if self.stack.len() >= DEEPEST {
            self.state = State::Blind;
            return;
        }
        if !is_object {
            self.next = self.shape.item(&places);
        }
        self.state = if is_object {
            State::Member
        } else {
            State::Value
        };
        self.stack.push(Frame {
            is_object,
            places,
            filled: false,
        });
    }

    fn after(&mut self, c: char, out: &mut String) {
        self.state = State::After;
        match (c, self.stack.last()) {
            (',', Some(frame)) if frame.is_object => {
                self.held.push(c);
                self.state = State::Member;
            }
            (',', Some(frame)) => {
                out.push(c);
                self.next = self.shape.item(&frame.places);
                self.state = State::Value;
            }
            ('}' | ']', _) => {
                out.push(c);
                self.stack.pop();
            }
            _ => out.push(c),
        }
    }

    fn member(&mut self, c: char, out: &mut String) {
        if c == '"' {
            self.key.clear();
            self.state = State::Key;
        } else if !c.is_ascii_whitespace() {
            out.push_str(&std::mem::take(&mut self.held));
            return self.after(c, out);
        }
        self.held.push(c);
    }

    fn key(&mut self, c: char) {
        self.held.push(c);
        if self.closes(c) {
            self.state = State::Colon;
        } else {
            self.key.push(c);
        }
    }

    fn colon(&mut self, c: char) {
        self.held.push(c);
        if c != ':' {
            return;
        }
        let name = if self.key.contains('\\') {
            serde_json::from_str(&format!("\"{}\"", self.key)).unwrap_or_default()
        } else {
            std::mem::take(&mut self.key)
        };
        let places = self
            .stack
            .last()
            .map(|frame| &*frame.places)
            .unwrap_or_default();
        self.droppable = self.shape.drops(places, &name);
        self.next = self.shape.member(places, &name);
        self.state = State::Value;
    }

    /// Whether this is the quote that ends a string.
    fn closes(&mut self, c: char) -> bool {
        let escaped = std::mem::replace(&mut self.escaped, false);
        self.escaped = c == '\\' && !escaped;
        c == '"' && !escaped
    }

    /// The held member stays. The first one of an object has no comma before it.
    fn commit(&mut self, out: &mut String) {
        if self.held.is_empty() {
            return;
        }
        let filled = self
            .stack
            .last_mut()
            .is_none_or(|frame| std::mem::replace(&mut frame.filled, true));
        let held = std::mem::take(&mut self.held);
        out.push_str(if filled {
            &held
        } else {
            held.strip_prefix(',').unwrap_or(&held)
        });
    }
}

#[cfg(test)]
mod tests;
