//! Construction of the tree from tokens.
//!
//! Pages often omit closing tags or close elements in the wrong order. The rules of HTML repair
//! that by a long list of cases. Only those are implemented here that change which text belongs
//! together: paragraphs, list items, cells, headings and formatting.

use super::super::names::{Attr, Name};
use super::super::tokens::{Raw, Token, Tokens};
use super::{Doc, Id, MAX_DEPTH, Node};

/// The document so far, and the elements that are open at its end.
pub(super) struct Builder<'a> {
    pub(super) doc: Doc<'a>,
    /// The open elements, outermost first.
    pub(super) open: Vec<Id>,
    /// The number of open elements beyond the maximum depth.
    pub(super) beyond: usize,
}

impl<'a> Builder<'a> {
    pub(super) fn take(&mut self, token: Token<'a>, tokens: &mut Tokens<'a>) {
        match token {
            Token::Text(from, to) => self.text(from, to),
            Token::End(name) => self.end(name),
            Token::Start(name) => self.start(name, tokens),
        }
    }

    /// Text that directly continues the previous text is joined with it, so a stray `<` does not
    /// split a word.
    fn text(&mut self, from: usize, to: usize) {
        let parent = self.top();
        if let Some(last) = self.doc.nodes.last_mut()
            && (last.name, last.parent as Id, last.to as usize) == (Name::Text, parent, from)
        {
            last.to = to as u32;
            return;
        }
        self.add(Name::Text, from, to);
    }

    /// Adds an element, and reads its content if it contains no tags, such as a script.
    fn start(&mut self, written: &'a str, tokens: &mut Tokens<'a>) {
        let name = Name::of(written).unwrap_or(Name::Other);
        // All content lies in one body, however many the page has.
        if matches!(name, Name::Html | Name::Head | Name::Body) {
            return;
        }
        self.imply(name);
        let from = written.as_ptr() as usize - self.doc.page.as_ptr() as usize;
        let id = self.add(name, from, from + written.len());
        self.store_attrs(id, tokens.attrs());
        if name.is_void() {
            return;
        }
        if self.open.len() < MAX_DEPTH && self.beyond == 0 {
            self.open.push(id);
        } else {
            self.beyond += 1;
        }
        if let Some(raw) = raw(name) {
            let (from, to) = tokens.raw(written, raw);
            if from < to && matches!(name, Name::Title | Name::Xmp | Name::Plaintext) {
                self.add(Name::Text, from, to);
            }
        }
    }

    /// Closes the elements that the start of an element closes implicitly.
    fn imply(&mut self, name: Name) {
        use Name::{
            A, Dd, Dl, Dt, Li, Menu, Ol, Optgroup, Option, P, Select, Table, Tbody, Td, Tfoot, Th,
            Thead, Tr, Ul,
        };
        if name.ends_paragraph() {
            self.close(|open| open == P, Name::is_boundary);
        }
        if name.is_heading() && self.doc.name(self.top()).is_heading() {
            self.close_to(self.open.len() - 1);
        }
        match name {
            Li => self.close(
                |open| open == Li,
                |open| matches!(open, Ul | Ol | Menu) || open.is_boundary(),
            ),
            Dt | Dd => self.close(
                |open| matches!(open, Dt | Dd),
                |open| open == Dl || open.is_boundary(),
            ),
            A => self.close(|open| open == A, Name::is_boundary),
            Option | Optgroup => self.close(|open| open == Option, |open| open == Select),
            Td | Th => self.close(|open| matches!(open, Td | Th), |open| open == Table),
            Tr => self.close(|open| open == Tr, |open| open == Table),
            Tbody | Thead | Tfoot => {
                self.close(
                    |open| matches!(open, Tbody | Thead | Tfoot),
                    |open| open == Table,
                );
            }
            _ => {}
        }
    }

    /// Closes an element. A tag that closes nothing is ignored.
    fn end(&mut self, written: &str) {
        let name = Name::of(written).unwrap_or(Name::Other);
        if name == Name::Br {
            self.add(Name::Br, 0, 0);
            return;
        }
        if self.beyond > 0 {
            self.beyond -= usize::from(!name.is_void());
            return;
        }
        if matches!(name, Name::Html | Name::Head | Name::Body) || name.is_void() {
            return;
        }
        let Some(at) = self.matching(name, written) else {
            return;
        };
        let blocks = self.open[at + 1..]
            .iter()
            .any(|id| self.doc.name(*id).is_block());
        match blocks {
            // Closing it would close blocks that are still open, so the element is treated as if it
            // had never existed.
            true if name.is_formatting() => self.doc.nodes[self.open[at]].name = Name::Span,
            true if !name.is_block() && !name.holds_blocks() => {}
            _ => self.close_to(at),
        }
    }

    /// Returns the open element that a closing tag closes.
    fn matching(&self, name: Name, written: &str) -> Option<usize> {
        use Name::{Menu, Ol, Table, Tbody, Tfoot, Thead, Tr, Ul};
        let structure = name.is_boundary() || matches!(name, Tbody | Thead | Tfoot | Tr);
        let is_it = |id: Id| {
            let open = self.doc.name(id);
            match name {
                Name::Other => {
                    open == Name::Other && self.written(id).eq_ignore_ascii_case(written)
                }
                _ => open == name || (name.is_heading() && open.is_heading()),
            }
        };
        for (at, id) in self.open.iter().enumerate().skip(1).rev() {
            if is_it(*id) {
                return Some(at);
            }
            let open = self.doc.name(*id);
            let stops = match name {
                Name::Li => matches!(open, Ul | Ol | Menu) || open.is_boundary(),
                _ if structure => open == Table,
                _ => open.is_boundary(),
            };
            if stops {
                return None;
            }
        }
        None
    }

    /// Closes the innermost element that matches, unless a stopping element comes first.
    fn close(&mut self, matches_name: impl Fn(Name) -> bool, stops: impl Fn(Name) -> bool) {
        for at in (1..self.open.len()).rev() {
            let open = self.doc.name(self.open[at]);
            if matches_name(open) {
                return self.close_to(at);
            }
            if stops(open) {
                return;
            }
        }
    }

    /// Closes the open elements from position `at` on.
    pub(super) fn close_to(&mut self, at: usize) {
        let end = self.doc.nodes.len() as u32;
        for id in self.open.drain(at..) {
            self.doc.nodes[id].end = end;
        }
        self.beyond = 0;
    }

    /// Returns the innermost open element.
    fn top(&self) -> Id {
        self.open.last().copied().unwrap_or(Doc::ROOT)
    }

    /// Returns the name of an element as the page spells it, to compare unknown names.
    fn written(&self, id: Id) -> &'a str {
        let node = &self.doc.nodes[id];
        &self.doc.page[node.from as usize..node.to as usize]
    }

    /// Appends a node below the innermost open element. Its end is corrected when the element
    /// closes.
    fn add(&mut self, name: Name, from: usize, to: usize) -> Id {
        let (id, attrs) = (self.doc.nodes.len(), self.doc.attrs.len() as u32);
        let (parent, end) = (self.top() as u32, id as u32 + 1);
        let node = Node {
            name,
            attr_count: 0,
            attrs,
            parent,
            end,
            from: from as u32,
            to: to as u32,
        };
        self.doc.nodes.push(node);
        id
    }

    /// Stores the relevant attributes; of two with the same name, the first counts.
    fn store_attrs(&mut self, id: Id, attrs: &[(&'a str, &'a str)]) {
        let start = self.doc.attrs.len();
        for (name, value) in attrs {
            if let Some(attr) = Attr::of(name)
                && self.doc.attrs[start..]
                    .iter()
                    .all(|(known, _)| *known != attr)
            {
                self.doc.attrs.push((attr, value));
            }
        }
        self.doc.nodes[id].attr_count = (self.doc.attrs.len() - start) as u8;
    }
}

/// Returns the rules for elements that contain no tags.
fn raw(name: Name) -> Option<Raw> {
    match name {
        Name::Script => Some(Raw::Script),
        Name::Plaintext => Some(Raw::Rest),
        Name::Style
        | Name::Title
        | Name::Textarea
        | Name::Xmp
        | Name::Iframe
        | Name::Noembed
        | Name::Noframes => Some(Raw::Text),
        _ => None,
    }
}
