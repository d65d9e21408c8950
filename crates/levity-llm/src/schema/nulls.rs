//! Removes nulls that mean an absent value.
//!
//! In a dialect without optional properties, a model writes `null` for a property that it would
//! omit. The tool's own schema does not allow such nulls, so they are removed as the arguments
//! arrive.
//!
//! The filter works on the text of the arguments, character by character, because arguments are
//! streamed and consumers show them as they arrive. It holds back one member at a time: its comma,
//! its name and its value as long as that may be `null`. `{"city":"Rome","unit":null}` yields
//! `{"city":"Rome"}`.
//!
//! The conversion to strict form creates the shapes, and the sink of a reply applies them to each
//! call by the tool's name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The maximum nesting of arguments. Deeper ones are invalid and cannot be parsed.
const MAX_DEPTH: usize = 200;

/// The maximum length of a member's name in bytes. No schema has longer names.
const MAX_NAME_BYTES: usize = 128 << 10;

/// The shapes of arguments that contain removable nulls, by tool name.
pub(crate) type Nulls = HashMap<String, Arc<Shape>>;

/// The positions in a value at which null means an absent value. The value itself is node 0.
///
/// Nodes refer to each other by their index, so a recursive schema needs no pointers.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub(crate) nodes: Vec<Node>,
}

/// One position in a value.
///
/// A property that is neither in `drop` nor in `keep` cannot be `null` in the schema. Its nulls
/// stay, and the validation of the arguments reports them.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Properties whose null means an absent value.
    pub(crate) drop: HashSet<String>,
    /// Properties whose null is a value.
    pub(crate) keep: HashSet<String>,
    /// The nodes of the properties.
    pub(crate) members: HashMap<String, usize>,
    /// The node of each item.
    pub(crate) items: Option<usize>,
    /// The alternatives, any of which the value may be.
    pub(crate) alternatives: Vec<usize>,
}

impl Shape {
    /// Returns the nodes that a value may be at, with all alternatives expanded.
    ///
    /// A cycle of alternatives ends, because every node is visited once.
    pub(crate) fn positions(&self, from: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut pending: Vec<usize> = from.into_iter().collect();
        while let Some(at) = pending.pop() {
            if seen.insert(at) {
                found.push(at);
                pending.extend(
                    self.nodes
                        .get(at)
                        .into_iter()
                        .flat_map(|node| &node.alternatives),
                );
            }
        }
        found
    }

    /// Iterates over the nodes at these positions.
    fn nodes<'a>(&'a self, positions: &'a [usize]) -> impl Iterator<Item = &'a Node> {
        positions.iter().filter_map(|at| self.nodes.get(*at))
    }

    /// Returns `true` if a null of this property means an absent value.
    ///
    /// If one alternative drops the null and another keeps it, the null stays.
    fn drops(&self, positions: &[usize], name: &str) -> bool {
        self.nodes(positions).any(|node| node.drop.contains(name))
            && !self.nodes(positions).any(|node| node.keep.contains(name))
    }

    /// Returns the nodes of a property.
    fn member(&self, positions: &[usize], name: &str) -> Vec<usize> {
        self.positions(
            self.nodes(positions)
                .filter_map(|node| node.members.get(name).copied()),
        )
    }

    /// Returns the nodes of the items of a list.
    fn item(&self, positions: &[usize]) -> Vec<usize> {
        self.positions(self.nodes(positions).filter_map(|node| node.items))
    }
}

/// A streaming filter that removes such nulls from JSON text. Invalid JSON stays invalid.
///
/// One filter belongs to one call. It allocates only the held member and the stack of open objects.
#[derive(Debug)]
pub(crate) struct Filter {
    shape: Arc<Shape>,
    stack: Vec<Frame>,
    state: State,
    /// True if the previous character was a backslash that escapes the next one.
    escaped: bool,
    /// A member up to its value, held until it is clear whether the member stays.
    held: String,
    /// The name of the member, as it is written.
    key: String,
    /// The nodes of the next value, and `true` if a null there is removed.
    next: Vec<usize>,
    droppable: bool,
}

/// An open object or list, with the nodes that it may be at.
#[derive(Debug)]
struct Frame {
    is_object: bool,
    positions: Vec<usize>,
    /// True if a member has been emitted.
    filled: bool,
}

/// The position of the parser, between two characters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Value,
    /// Inside a value that may be null.
    Null,
    String,
    After,
    Member,
    Key,
    Colon,
    /// Too deeply nested or too long to filter.
    Unfiltered,
}

impl Filter {
    /// Creates a filter for the arguments of one call.
    pub(crate) fn new(shape: Arc<Shape>) -> Self {
        let next = shape.positions([0]);
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

    /// Returns the part of the text that can be emitted.
    ///
    /// A member with a name of more than 128 KiB disables the filter for the rest; the text then
    /// passes unchanged.
    pub(crate) fn feed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.take(c, &mut out);
            if self.held.len() > MAX_NAME_BYTES {
                self.commit(&mut out);
                self.state = State::Unfiltered;
            }
        }
        out
    }

    /// Handles one character in the current state.
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
            State::Unfiltered => out.push(c),
        }
    }

    /// Handles the start of a value. Anything but a droppable `n` releases the held member.
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

    /// Enters an object or a list. Beyond 200 levels the filter is disabled.
    fn open(&mut self, is_object: bool) {
        let positions = std::mem::take(&mut self.next);
        if self.stack.len() >= MAX_DEPTH {
            self.state = State::Unfiltered;
            return;
        }
        if !is_object {
            self.next = self.shape.item(&positions);
        }
        self.state = if is_object {
            State::Member
        } else {
            State::Value
        };
        self.stack.push(Frame {
            is_object,
            positions,
            filled: false,
        });
    }

    /// Handles a character behind a value: a comma, a closing bracket or white space.
    fn after(&mut self, c: char, out: &mut String) {
        self.state = State::After;
        match (c, self.stack.last()) {
            (',', Some(frame)) if frame.is_object => {
                self.held.push(c);
                self.state = State::Member;
            }
            (',', Some(frame)) => {
                out.push(c);
                self.next = self.shape.item(&frame.positions);
                self.state = State::Value;
            }
            ('}' | ']', _) => {
                out.push(c);
                self.stack.pop();
            }
            _ => out.push(c),
        }
    }

    /// Handles a character where a member may start.
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

    /// Handles a character of a name, which is held until the value is known.
    fn key(&mut self, c: char) {
        self.held.push(c);
        if self.closes(c) {
            self.state = State::Colon;
        } else {
            self.key.push(c);
        }
    }

    /// Handles the colon behind a name, and looks up what a null would mean.
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
        let positions = self
            .stack
            .last()
            .map(|frame| &*frame.positions)
            .unwrap_or_default();
        self.droppable = self.shape.drops(positions, &name);
        self.next = self.shape.member(positions, &name);
        self.state = State::Value;
    }

    /// Returns `true` if this is the quote that ends a string.
    fn closes(&mut self, c: char) -> bool {
        let escaped = std::mem::replace(&mut self.escaped, false);
        self.escaped = c == '\\' && !escaped;
        c == '"' && !escaped
    }

    /// Emits the held member. The first one of an object has no comma before it.
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
