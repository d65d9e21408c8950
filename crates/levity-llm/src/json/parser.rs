//! The tolerant parser: reads one object or array and repairs it on the way.
//!
//! It is a loop over an explicit stack of [`Frame`]s instead of recursion, so that deep nesting
//! cannot overflow the thread's stack. Each step looks at the innermost frame and the next byte,
//! and consumes something, opens a frame or closes one. The modules `list` and `object` hold the
//! steps of each kind of frame; this one holds what they share.
//!
//! The parser never fails on bad syntax. At the end of the text it closes all frames, which yields
//! the longest prefix that makes sense. The only error is nesting beyond [`MAX_DEPTH`].

mod list;
mod object;

use serde_json::{Map, Value};

use super::cursor::{Cursor, Open};
use super::lookahead::Role;
use super::repairs::Repair;
use super::scalar::Scalar;

/// The maximum nesting of values; `serde_json` has the same limit.
const MAX_DEPTH: usize = 128;

/// An error for a value that is nested too deeply.
///
/// The position is a byte offset into the text.
pub(super) struct TooDeep {
    pub(super) at: usize,
}

/// A parser for one object or array, with an explicit stack instead of recursion.
pub(super) struct Parser<'a> {
    pub(super) cursor: Cursor<'a>,
    stack: Vec<Frame>,
    /// True if values joined by commas form one array, because the text contains nothing else.
    series: bool,
    /// The finished value, which ends the loop.
    done: Option<Value>,
}

/// A list or object whose closing bracket has not been read yet.
enum Frame {
    List(List),
    Object(Object),
}

/// A list, a tuple or the arguments of a call.
///
/// `close` is `]`, `)` for tuples and calls, `}` for sets, or [`NONE`] for a series without
/// brackets.
struct List {
    items: Vec<Value>,
    close: u8,
    /// True if a comma followed the last item.
    comma: bool,
}

/// `close` is `}`, `]` for an object that was opened as a list, or [`NONE`] without an opening
/// brace. A duplicate key keeps the last value, as in `serde_json`.
struct Object {
    map: Map<String, Value>,
    /// The key whose value is being read.
    key: Option<String>,
    close: u8,
    comma: bool,
    /// The number of braces that were opened twice and will be closed twice.
    extra: usize,
}

/// The closer of a frame that ends with the text, or with any text that does not belong to it.
const NONE: u8 = 0;

impl List {
    fn new(close: u8) -> Self {
        Self {
            items: Vec::new(),
            close,
            comma: true,
        }
    }
}

impl Object {
    fn new(close: u8) -> Self {
        Self {
            map: Map::new(),
            key: None,
            close,
            comma: true,
            extra: 0,
        }
    }
}

impl<'a> Parser<'a> {
    /// `series` allows `{..}, {..}` to become one array; it is set at the start of a text or fence.
    pub(super) fn new(cursor: Cursor<'a>, series: bool) -> Self {
        Self {
            cursor,
            stack: Vec::with_capacity(8),
            series,
            done: None,
        }
    }

    /// Parses the object or array at the current position.
    pub(super) fn value(&mut self) -> Result<Value, TooDeep> {
        self.start(Role::Alone)?;
        self.run()
    }

    /// Parses the members of an object without its opening brace.
    pub(super) fn members(&mut self) -> Result<Value, TooDeep> {
        self.cursor.mends.add(Repair::Bracket);
        self.push(Frame::Object(Object::new(NONE)))?;
        self.run()
    }

    /// Each iteration makes one step of the innermost frame.
    fn run(&mut self) -> Result<Value, TooDeep> {
        loop {
            self.cursor.skip();
            match self.stack.last_mut() {
                _ if self.cursor.peek().is_none() => self.end_of_text(),
                Some(Frame::List(list)) if list.close == NONE => self.series_item()?,
                Some(Frame::List(_)) => self.element()?,
                Some(Frame::Object(object)) if object.key.is_some() => self.member()?,
                Some(Frame::Object(_)) => self.key()?,
                None => {}
            }
            if let Some(value) = self.done.take() {
                return Ok(value);
            }
            if self.stack.is_empty() {
                return Ok(Value::Null);
            }
        }
    }

    /// Handles the end of the text: closes open frames and drops a key without a value.
    fn end_of_text(&mut self) {
        while let Some(frame) = self.stack.last() {
            let close = match frame {
                Frame::List(list) => list.close,
                Frame::Object(object) => object.close,
            };
            if close != NONE {
                self.cursor.mends.add(Repair::Truncated);
            }
            self.close();
        }
    }

    /// Opens a frame and counts it among the open brackets of the cursor.
    fn push(&mut self, frame: Frame) -> Result<(), TooDeep> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(TooDeep { at: self.cursor.at });
        }
        *self.count(&frame) += 1;
        self.stack.push(frame);
        Ok(())
    }

    /// Returns the counter that a frame belongs to, by the bracket that closes it.
    fn count(&mut self, frame: &Frame) -> &mut usize {
        let Open {
            lists,
            objects,
            calls,
        } = &mut self.cursor.open;
        match frame {
            Frame::List(List { close: b')', .. }) => calls,
            Frame::List(List { close: b'}', .. }) | Frame::Object(_) => objects,
            Frame::List(_) => lists,
        }
    }

    /// Removes the innermost frame.
    fn pop(&mut self) -> Option<Frame> {
        let frame = self.stack.pop()?;
        *self.count(&frame) -= 1;
        Some(frame)
    }

    /// Closes the innermost list or object.
    ///
    /// A call with a single argument, such as `ObjectId("5f")`, becomes that argument; with
    /// several, it becomes a list.
    fn close(&mut self) {
        let value = match self.pop() {
            // A comma turns a value in brackets into a tuple.
            Some(Frame::List(mut list))
                if list.close == b')' && list.items.len() == 1 && !list.comma =>
            {
                list.items.remove(0)
            }
            Some(Frame::List(list)) => Value::Array(list.items),
            Some(Frame::Object(object)) => Value::Object(object.map),
            None => return,
        };
        self.put(value);
    }

    /// Adds a value to the innermost frame.
    ///
    /// Without any frame, the value is the result.
    fn put(&mut self, value: Value) {
        match self.stack.last_mut() {
            Some(Frame::List(list)) => {
                list.items.push(value);
                list.comma = false;
            }
            Some(Frame::Object(object)) => {
                if let Some(key) = object.key.take() {
                    object.map.insert(key, value);
                    object.comma = false;
                }
            }
            None => self.finish(value),
        }
    }

    /// Handles the completed outermost value. If others follow after a comma, the brackets around
    /// them are missing.
    fn finish(&mut self, value: Value) {
        let cursor = &mut self.cursor;
        let next = cursor.past_space(cursor.at);
        let follows = matches!(cursor.byte(cursor.past_space(next + 1)), Some(b'{' | b'['));
        if !self.series || cursor.byte(next) != Some(b',') || !follows {
            self.done = Some(value);
            return;
        }
        self.series = false;
        cursor.mends.add(Repair::Bracket);
        cursor.open.lists += 1;
        self.stack.push(Frame::List(List {
            items: vec![value],
            close: NONE,
            comma: false,
        }));
    }

    /// Parses a value, or starts to.
    ///
    /// A list, object or call becomes a frame that later steps fill. Strings and scalars are
    /// complete at once. Stray text yields nothing, and the caller continues after it.
    fn start(&mut self, role: Role) -> Result<(), TooDeep> {
        let cursor = &mut self.cursor;
        match cursor.peek() {
            Some(b'{') => self.open(Frame::Object(Object::new(b'}'))),
            Some(b'[') => self.open(Frame::List(List::new(b']'))),
            Some(b'(') => {
                cursor.mends.add(Repair::Call);
                self.open(Frame::List(List::new(b')')))
            }
            _ if cursor.quote(cursor.at).is_some() => {
                let text = cursor.string(role).unwrap_or_default();
                self.put(Value::String(text));
                Ok(())
            }
            _ => match cursor.scalar(role) {
                Scalar::Value(value) => {
                    self.put(value);
                    Ok(())
                }
                Scalar::Call => self.push(Frame::List(List::new(b')'))),
                Scalar::Nothing => Ok(()),
            },
        }
    }

    fn open(&mut self, frame: Frame) -> Result<(), TooDeep> {
        self.push(frame)?;
        self.cursor.at += 1;
        Ok(())
    }

    fn list(&mut self) -> Option<&mut List> {
        match self.stack.last_mut() {
            Some(Frame::List(list)) => Some(list),
            _ => None,
        }
    }

    fn object(&mut self) -> Option<&mut Object> {
        match self.stack.last_mut() {
            Some(Frame::Object(object)) => Some(object),
            _ => None,
        }
    }

    /// Consumes a comma or semicolon; `extra` marks it as superfluous.
    fn separator(&mut self, extra: bool) {
        if extra {
            self.cursor.mends.add(Repair::ExtraComma);
        }
        self.cursor.at += 1;
    }

    /// Handles a closing bracket: of this frame, of an outer one, or of none.
    ///
    /// A bracket of an outer frame closes this one without being consumed, so the outer frame sees
    /// it next. A bracket that closes nothing is dropped.
    fn closer(&mut self, byte: u8, close: u8, comma: bool) {
        let Open {
            lists,
            objects,
            calls,
        } = self.cursor.open;
        let around = match byte {
            b']' => lists,
            b'}' => objects,
            _ => calls,
        };
        if comma {
            self.cursor.mends.add(Repair::ExtraComma);
        }
        if byte == close {
            self.cursor.at += 1;
            self.close();
            return;
        }
        self.cursor.mends.add(Repair::Bracket);
        if around > 0 {
            self.close();
        } else {
            self.cursor.at += 1;
        }
    }
}
