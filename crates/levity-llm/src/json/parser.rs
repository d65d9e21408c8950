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
pub(super) struct TooDeep {
    pub(super) at: usize,
}

/// A parser for one object or array, with an explicit stack instead of recursion.
pub(super) struct Parser<'a> {
    pub(super) cursor: Cursor<'a>,
    stack: Vec<Frame>,
    /// True if values joined by commas form one array, because the text contains nothing else.
    series: bool,
    done: Option<Value>,
}

enum Frame {
    List(List),
    Object(Object),
}

/// A list, a tuple or the arguments of a call.
struct List {
    items: Vec<Value>,
    close: u8,
    /// True if a comma followed the last item.
    comma: bool,
}

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

    fn push(&mut self, frame: Frame) -> Result<(), TooDeep> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(TooDeep { at: self.cursor.at });
        }
        *self.count(&frame) += 1;
        self.stack.push(frame);
        Ok(())
    }

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

    fn separator(&mut self, extra: bool) {
        if extra {
            self.cursor.mends.add(Repair::ExtraComma);
        }
        self.cursor.at += 1;
    }

    /// Handles a closing bracket: of this frame, of an outer one, or of none.
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
