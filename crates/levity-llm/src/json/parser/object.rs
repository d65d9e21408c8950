//! Steps of the parser inside of an object: keys, colons, braces.
//!
//! A frame alternates between two states. Without a key, [`Parser::key`] reads the next key or the
//! end; with one, [`Parser::member`] reads its value. Missing values become null and missing colons
//! and commas are added.

use serde_json::Value;

use super::{Frame, List, MAX_DEPTH, Parser, TooDeep};
use crate::json::cursor::Cursor;
use crate::json::lookahead::Role;
use crate::json::repairs::Repair;

impl Parser<'_> {
    /// Reads the next key with its colon, a separator, or the end of the object.
    pub(super) fn key(&mut self) -> Result<(), TooDeep> {
        let byte = self.cursor.peek().unwrap_or_default();
        let Some(object) = self.object() else {
            return Ok(());
        };
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

    /// Handles a closing brace. If another member follows the outermost one, the brace was too
    /// early.
    ///
    /// Models close an object too early and then continue: `{"a": 1}, "b": 2}`. The lookahead
    /// accepts only a quoted key with a colon, so that a following array or prose still ends the
    /// value.
    fn end_of_object(&mut self, close: u8, comma: bool) {
        let cursor = &mut self.cursor;
        let next = cursor.past_space(cursor.at + 1);
        let early = self.stack.len() == 1
            && cursor.byte(next) == Some(b',')
            && cursor.quoted_colon(cursor.past_space(next + 1));
        if early {
            cursor.mends.add(Repair::Bracket);
            cursor.at += 1;
            return;
        }
        if close != b'}' {
            cursor.mends.add(Repair::Bracket);
        }
        self.closer(b'}', b'}', comma);
    }

    /// Handles an opening brace in place of a key: it was doubled, or the last object in a list was
    /// not closed.
    ///
    /// `{{"a": 1}}` of a template is one object, whose second closing brace is counted in `extra`.
    /// `[{"a": 1, {"a": 2}]` lacks a closing brace.
    fn brace_for_key(&mut self, empty: bool) -> Result<(), TooDeep> {
        self.cursor.mends.add(Repair::Bracket);
        let in_list = self
            .stack
            .iter()
            .rev()
            .nth(1)
            .is_some_and(|frame| matches!(frame, Frame::List(_)));
        if in_list && !empty {
            self.close();
            return Ok(());
        }
        let at = self.cursor.at;
        if let Some(object) = self.object() {
            object.extra += 1;
            if object.extra >= MAX_DEPTH {
                return Err(TooDeep { at });
            }
        }
        self.cursor.at += 1;
        Ok(())
    }

    /// The text after the key decides: a colon or a substitute, the end of a set, a missing value,
    /// or a missing colon. A bare word before anything else is stray text and is dropped.
    fn read_key(&mut self, comma: bool, empty: bool) {
        if !comma {
            self.cursor.mends.add(Repair::MissingComma);
        }
        let start = self.cursor.at;
        let quoted = self.cursor.quote(start).is_some();
        let key = if quoted {
            self.cursor.string(Role::Key)
        } else {
            self.cursor.bare_key_text()
        };
        self.cursor.skip();
        let Some(key) = key else { return };
        let next = self.cursor.peek();
        match next {
            None => {}
            Some(b':' | b'=') => self.cursor.pass_colon(),
            Some(b',' | b'}' | b']' | b')') if empty => return self.become_set(start),
            Some(b',' | b'}' | b']' | b')') if quoted => {
                self.cursor.mends.add(Repair::MissingValue);
            }
            Some(_) if quoted || matches!(next, Some(b'"' | b'\'' | b'{' | b'[')) => {
                self.cursor.mends.add(Repair::Colon);
            }
            Some(_) => return self.cursor.mends.add(Repair::Dropped),
        }
        if let Some(object) = self.object() {
            object.key = Some(key);
        }
    }

    /// Converts a Python set such as `{1, 2}` to a list, its closest equivalent.
    ///
    /// The frame is replaced by a list with the same closing brace, and reading continues at the
    /// first element.
    fn become_set(&mut self, start: usize) {
        let Some(object) = self
            .object()
            .filter(|object| object.extra == 0 && object.close == b'}')
        else {
            return;
        };
        let close = object.close;
        self.pop();
        self.cursor.open.objects += 1;
        self.stack.push(Frame::List(List::new(close)));
        self.cursor.at = start;
        self.cursor.mends.add(Repair::Call);
    }

    /// Reads the value of the current key, or null if it is missing.
    pub(super) fn member(&mut self) -> Result<(), TooDeep> {
        match self.cursor.peek() {
            Some(b',' | b'}' | b']' | b')') => {
                self.cursor.mends.add(Repair::MissingValue);
                self.put(Value::Null);
                Ok(())
            }
            Some(b':') => {
                self.cursor.mends.add(Repair::Colon);
                self.cursor.at += 1;
                Ok(())
            }
            _ => self.start(Role::Member),
        }
    }
}

impl Cursor<'_> {
    /// Skips a colon, or a character that replaces it.
    ///
    /// The substitutes are `=`, `=>` and `:=`.
    fn pass_colon(&mut self) {
        let length = if self.is(self.at, "=>") || self.is(self.at, ":=") {
            2
        } else {
            1
        };
        if length == 2 || self.peek() == Some(b'=') {
            self.mends.add(Repair::Colon);
        }
        self.at += length;
    }

    /// Parses an unquoted key. Returns `None` if there is none.
    ///
    /// The key reaches up to the next structural character or quote. A lone closing quote after it,
    /// as in `name": 1`, is consumed.
    fn bare_key_text(&mut self) -> Option<String> {
        let rest = &self.text[self.at..self.end];
        let stops = [':', '=', ',', '}', ']', '{', '[', '\n', '"', '\''];
        let length = rest.find(stops).unwrap_or(rest.len());
        let key = rest[..length].trim();
        self.at += length;
        if self.quote(self.at).is_some()
            && matches!(self.byte(self.past_space(self.at + 1)), Some(b':'))
        {
            self.at += 1;
        }
        if key.is_empty() || key.starts_with("...") || key.starts_with('…') {
            self.mends.add(Repair::Dropped);
            if length == 0 {
                self.bump();
            }
            return None;
        }
        self.mends.add(Repair::BareKey);
        self.loose |= key.contains(' ');
        Some(key.to_owned())
    }
}
