//! Steps of the parser inside of a list, a tuple, a set or the arguments of a call.

use serde_json::Value;

use super::{Frame, NONE, Object, Parser, TooDeep};
use crate::json::lookahead::Role;
use crate::json::repairs::Repair;

impl Parser<'_> {
    /// Reads the next element, a separator, or the end of the list.
    pub(super) fn element(&mut self) -> Result<(), TooDeep> {
        let byte = self.cursor.peek().unwrap_or_default();
        let Some(list) = self.list() else {
            return Ok(());
        };
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
                    self.cursor.mends.add(Repair::MissingComma);
                }
                return self.start(Role::Element);
            }
        }
        Ok(())
    }

    /// Parses the next item of a series without brackets; any text but a comma and a value ends it.
    ///
    /// A series is `{..}, {..}` without brackets around it. A stray closing bracket after it is
    /// consumed.
    pub(super) fn series_item(&mut self) -> Result<(), TooDeep> {
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

    /// Handles a colon in a list: the item before it is a key.
    ///
    /// Three mistakes lead here. `["a": 1]` is an object with the wrong brackets. In `{"list": [1,
    /// 2, "b": 3}` the list was not closed, so the key belongs to the object around it. `[{"a": 1},
    /// "b": 2]` lacks the braces of its second element.
    fn colon_in_list(&mut self) -> Result<(), TooDeep> {
        self.cursor.at += 1;
        self.cursor.mends.add(Repair::Bracket);
        let around = self
            .stack
            .iter()
            .rev()
            .nth(1)
            .is_some_and(|frame| matches!(frame, Frame::Object(_)));
        let Some(list) = self.list().filter(|list| !list.comma) else {
            return Ok(());
        };
        let key = match list.items.pop() {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => return Ok(()),
        };
        let (empty, objects) = (
            list.items.is_empty(),
            list.items.iter().rev().take(8).any(Value::is_object),
        );
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
        self.push(Frame::Object(Object {
            key: Some(key),
            ..Object::new(close)
        }))
    }
}
