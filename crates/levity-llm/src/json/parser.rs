use serde_json::{Map, Value};

use super::ahead::Role;
use super::cursor::{Cursor, Open};
use super::mend::Mend;
use super::scalar::Scalar;

/// How deep values may be nested; `serde_json` has the same limit.
const DEPTH: usize = 128;

/// A value is nested too deep.
pub(super) struct TooDeep {
    pub(super) at: usize,
}

/// Reads one object or array, with a stack of its own instead of recursion.
pub(super) struct Parser<'a> {
    pub(super) cursor: Cursor<'a>,
    stack: Vec<Frame>,
    /// Values that are joined by commas are one array: nothing but them is in the text.
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
    /// Whether a comma came since the last item.
    comma: bool,
}

struct Object {
    map: Map<String, Value>,
    /// The key whose value is being read.
    key: Option<String>,
    close: u8,
    comma: bool,
    /// Braces that were opened a second time, and will be closed a second time.
    extra: usize,
}

/// What is closed by the end of the text, or by whatever does not belong to it.
const NONE: u8 = 0;

impl List {
    fn new(close: u8) -> Self {
        Self { items: Vec::new(), close, comma: true }
    }
}

impl Object {
    fn new(close: u8) -> Self {
        Self { map: Map::new(), key: None, close, comma: true, extra: 0 }
    }
}

impl<'a> Parser<'a> {
    pub(super) fn new(cursor: Cursor<'a>, series: bool) -> Self {
        Self { cursor, stack: Vec::with_capacity(8), series, done: None }
    }

    /// Reads the object or array that begins here.
    pub(super) fn value(&mut self) -> Result<Value, TooDeep> {
        self.start(Role::Alone)?;
        self.run()
    }

    /// Reads the members of an object without its opening brace.
    pub(super) fn members(&mut self) -> Result<Value, TooDeep> {
        self.cursor.mends.add(Mend::Bracket);
        self.push(Frame::Object(Object::new(NONE)))?;
        self.run()
    }

    fn run(&mut self) -> Result<Value, TooDeep> {
        loop {
            self.cursor.skip();
            match self.stack.last_mut() {
                _ if self.cursor.peek().is_none() => self.cut_off(),
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

    /// The text has ended: what is open is closed, and a key without a value is left out.
    fn cut_off(&mut self) {
        while let Some(frame) = self.stack.last() {
            let close = match frame {
                Frame::List(list) => list.close,
                Frame::Object(object) => object.close,
            };
            if close != NONE {
                self.cursor.mends.add(Mend::Truncated);
            }
            self.close();
        }
    }

    fn push(&mut self, frame: Frame) -> Result<(), TooDeep> {
        if self.stack.len() >= DEPTH {
            return Err(TooDeep { at: self.cursor.at });
        }
        *self.count(&frame) += 1;
        self.stack.push(frame);
        Ok(())
    }

    fn count(&mut self, frame: &Frame) -> &mut usize {
        let Open { lists, objects, calls } = &mut self.cursor.open;
        match frame {
            Frame::List(List { close: b')', .. }) => calls,
            Frame::List(List { close: b'}', .. }) | Frame::Object(_) => objects,
            Frame::List(_) => lists,
        }
    }

    /// Takes the innermost frame away.
    fn pop(&mut self) -> Option<Frame> {
        let frame = self.stack.pop()?;
        *self.count(&frame) -= 1;
        Some(frame)
    }

    /// Closes the innermost list or object.
    fn close(&mut self) {
        let value = match self.pop() {
            // A comma makes a tuple of what would be a value in brackets.
            Some(Frame::List(mut list)) if list.close == b')' && list.items.len() == 1 && !list.comma => {
                list.items.remove(0)
            }
            Some(Frame::List(list)) => Value::Array(list.items),
            Some(Frame::Object(object)) => Value::Object(object.map),
            None => return,
        };
        self.put(value);
    }

    /// Puts a value where it belongs.
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

    /// The outermost value is there. If others follow behind a comma, the brackets around them are missing.
    fn finish(&mut self, value: Value) {
        let cursor = &mut self.cursor;
        let next = cursor.past_space(cursor.at);
        let follows = matches!(cursor.byte(cursor.past_space(next + 1)), Some(b'{' | b'['));
        if !self.series || cursor.byte(next) != Some(b',') || !follows {
            self.done = Some(value);
            return;
        }
        self.series = false;
        cursor.mends.add(Mend::Bracket);
        cursor.open.lists += 1;
        self.stack.push(Frame::List(List { items: vec![value], close: NONE, comma: false }));
    }

    /// The next item of a series without brackets; anything but a comma and a value ends it.
    fn series_item(&mut self) -> Result<(), TooDeep> {
        let next = self.cursor.past_space(self.cursor.at + 1);
        match self.cursor.peek() {
            Some(b',') if matches!(self.cursor.byte(next), Some(b'{' | b'[')) => {
                self.cursor.at = next;
                self.start(Role::Element)
            }
            other => {
                self.cursor.at += usize::from(other == Some(b']'));
                self.close();
                Ok(())
            }
        }
    }

    /// Reads a value, or begins to.
    fn start(&mut self, role: Role) -> Result<(), TooDeep> {
        let cursor = &mut self.cursor;
        match cursor.peek() {
            Some(b'{') => self.open(Frame::Object(Object::new(b'}'))),
            Some(b'[') => self.open(Frame::List(List::new(b']'))),
            Some(b'(') => {
                cursor.mends.add(Mend::Call);
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

    fn element(&mut self) -> Result<(), TooDeep> {
        let byte = self.cursor.peek().unwrap_or_default();
        let Some(list) = self.list() else { return Ok(()) };
        let (close, comma, empty) = (list.close, list.comma, list.items.is_empty());
        match byte {
            b',' | b';' => {
                list.comma = true;
                self.separator(comma);
            }
            b']' | b'}' | b')' => self.closer(byte, close, comma && !empty),
            b':' => return self.colon_in_list(),
            _ => {
                if !comma {
                    self.cursor.mends.add(Mend::MissingComma);
                }
                return self.start(Role::Element);
            }
        }
        Ok(())
    }

    fn separator(&mut self, extra: bool) {
        if extra {
            self.cursor.mends.add(Mend::ExtraComma);
        }
        self.cursor.at += 1;
    }

    /// A closing bracket: of this frame, of one around it, or of none.
    fn closer(&mut self, byte: u8, close: u8, comma: bool) {
        let Open { lists, objects, calls } = self.cursor.open;
        let around = match byte {
            b']' => lists,
            b'}' => objects,
            _ => calls,
        };
        if comma {
            self.cursor.mends.add(Mend::ExtraComma);
        }
        if byte == close {
            self.cursor.at += 1;
            self.close();
            return;
        }
        self.cursor.mends.add(Mend::Bracket);
        if around > 0 {
            self.close();
        } else {
            self.cursor.at += 1;
        }
    }

    /// A colon in a list: what came before it is a key.
    fn colon_in_list(&mut self) -> Result<(), TooDeep> {
        self.cursor.at += 1;
        self.cursor.mends.add(Mend::Bracket);
        let around = self.stack.iter().rev().nth(1).is_some_and(|frame| matches!(frame, Frame::Object(_)));
        let Some(list) = self.list().filter(|list| !list.comma) else { return Ok(()) };
        let key = match list.items.pop() {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => return Ok(()),
        };
        let (empty, objects) = (list.items.is_empty(), list.items.iter().rev().take(8).any(Value::is_object));
        let mut close = NONE;
        if empty && !around {
            close = b']';
            self.pop();
        } else if around && !objects {
            self.close();
            if let Some(object) = self.object() {
                object.key = Some(key);
            }
            return Ok(());
        }
        self.push(Frame::Object(Object { key: Some(key), ..Object::new(close) }))
    }

    fn key(&mut self) -> Result<(), TooDeep> {
        let byte = self.cursor.peek().unwrap_or_default();
        let Some(object) = self.object() else { return Ok(()) };
        let (close, comma, empty) = (object.close, object.comma, object.map.is_empty());
        match byte {
            b',' | b';' => {
                object.comma = true;
                self.separator(comma);
            }
            b'}' if object.extra > 0 => {
                object.extra -= 1;
                self.cursor.at += 1;
            }
            b'}' => self.end_of_object(close, comma && !empty),
            b']' | b')' => self.closer(byte, close, comma && !empty),
            b'{' => return self.brace_for_key(empty),
            _ => self.read_key(comma, empty),
        }
        Ok(())
    }

    /// A closing brace. If another member follows the outermost one, it came too early.
    fn end_of_object(&mut self, close: u8, comma: bool) {
        let cursor = &mut self.cursor;
        let next = cursor.past_space(cursor.at + 1);
        let early = self.stack.len() == 1
            && cursor.byte(next) == Some(b',')
            && cursor.quoted_colon(cursor.past_space(next + 1));
        if early {
            cursor.mends.add(Mend::Bracket);
            cursor.at += 1;
            return;
        }
        if close != b'}' {
            cursor.mends.add(Mend::Bracket);
        }
        self.closer(b'}', b'}', comma);
    }

    /// An opening brace where a key should be: opened twice, or the last object in a list was not closed.
    fn brace_for_key(&mut self, empty: bool) -> Result<(), TooDeep> {
        self.cursor.mends.add(Mend::Bracket);
        let in_list = self.stack.iter().rev().nth(1).is_some_and(|frame| matches!(frame, Frame::List(_)));
        if in_list && !empty {
            self.close();
            return Ok(());
        }
        let at = self.cursor.at;
        if let Some(object) = self.object() {
            object.extra += 1;
            if object.extra >= DEPTH {
                return Err(TooDeep { at });
            }
        }
        self.cursor.at += 1;
        Ok(())
    }

    fn read_key(&mut self, comma: bool, empty: bool) {
        if !comma {
            self.cursor.mends.add(Mend::MissingComma);
        }
        let start = self.cursor.at;
        let quoted = self.cursor.quote(start).is_some();
        let key = if quoted { self.cursor.string(Role::Key) } else { self.cursor.bare_key_text() };
        self.cursor.skip();
        let Some(key) = key else { return };
        let next = self.cursor.peek();
        match next {
            None => {}
            Some(b':' | b'=') => self.cursor.pass_colon(),
            Some(b',' | b'}' | b']' | b')') if empty => return self.become_set(start),
            Some(b',' | b'}' | b']' | b')') if quoted => self.cursor.mends.add(Mend::MissingValue),
            Some(_) if quoted || matches!(next, Some(b'"' | b'\'' | b'{' | b'[')) => {
                self.cursor.mends.add(Mend::Colon);
            }
            Some(_) => return self.cursor.mends.add(Mend::Dropped),
        }
        if let Some(object) = self.object() {
            object.key = Some(key);
        }
    }

    /// `{1, 2}` is a set in Python, and the nearest to it is a list.
    fn become_set(&mut self, start: usize) {
        let Some(object) = self.object().filter(|object| object.extra == 0 && object.close == b'}') else {
            return;
        };
        let close = object.close;
        self.pop();
        self.cursor.open.objects += 1;
        self.stack.push(Frame::List(List::new(close)));
        self.cursor.at = start;
        self.cursor.mends.add(Mend::Call);
    }

    fn member(&mut self) -> Result<(), TooDeep> {
        match self.cursor.peek() {
            Some(b',' | b'}' | b']' | b')') => {
                self.cursor.mends.add(Mend::MissingValue);
                self.put(Value::Null);
                Ok(())
            }
            Some(b':') => {
                self.cursor.mends.add(Mend::Colon);
                self.cursor.at += 1;
                Ok(())
            }
            _ => self.start(Role::Member),
        }
    }
}

impl Cursor<'_> {
    /// Passes over a colon, or what stands for one.
    fn pass_colon(&mut self) {
        let length = if self.is(self.at, "=>") || self.is(self.at, ":=") { 2 } else { 1 };
        if length == 2 || self.peek() == Some(b'=') {
            self.mends.add(Mend::Colon);
        }
        self.at += length;
    }

    /// A key without quotes. None if there is nothing like one.
    fn bare_key_text(&mut self) -> Option<String> {
        let rest = &self.text[self.at..self.end];
        let stops = [':', '=', ',', '}', ']', '{', '[', '\n', '"', '\''];
        let length = rest.find(stops).unwrap_or(rest.len());
        let key = rest[..length].trim();
        self.at += length;
        if self.quote(self.at).is_some() && matches!(self.byte(self.past_space(self.at + 1)), Some(b':')) {
            self.at += 1;
        }
        if key.is_empty() || key.starts_with("...") || key.starts_with('…') {
            self.mends.add(Mend::Dropped);
            if length == 0 {
                self.bump();
            }
            return None;
        }
        self.mends.add(Mend::BareKey);
        self.loose |= key.contains(' ');
        Some(key.to_owned())
    }
}
