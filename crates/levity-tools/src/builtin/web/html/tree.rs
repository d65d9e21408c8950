//! A page as a flat tree: its nodes in the order of the page, each with the place where it ends.
//!
//! What is inside of a node is thus a range, and no walk needs a stack. Elements are nested up to a limit, beyond which
//! they lie side by side; what closes what follows the rules of HTML as far as text is concerned.

use super::names::{Attr, Name};
use super::tokens::{Raw, Token, Tokens};

/// How deep elements are nested.
const MAX_DEPTH: usize = 128;

/// The number of a node.
pub(super) type Id = usize;

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) name: Name,
    /// How many of the attributes from `attrs` on are its own.
    attr_count: u8,
    attrs: u32,
    pub(super) parent: u32,
    /// The first node behind it that is not in it.
    end: u32,
    /// A text, or the name of an element, by its place in the page.
    from: u32,
    to: u32,
}

/// A page.
#[derive(Debug)]
pub(super) struct Doc<'a> {
    page: &'a str,
    nodes: Vec<Node>,
    attrs: Vec<(Attr, &'a str)>,
    /// Whether there was more.
    pub(super) is_cut: bool,
}

impl<'a> Doc<'a> {
    /// The node that holds all others.
    pub(super) const ROOT: Id = 0;

    /// Reads a page, and no more than so many nodes of it.
    pub(super) fn parse(page: &'a str, max: usize) -> Self {
        // Places are kept in four bytes. Nobody downloads as much.
        let page = page.get(..1 << 31).unwrap_or(page);
        let root = Node { name: Name::Body, attr_count: 0, attrs: 0, parent: 0, end: 0, from: 0, to: 0 };
        let doc = Self { page, nodes: vec![root], attrs: Vec::new(), is_cut: false };
        let mut builder = Builder { doc, open: vec![Self::ROOT], beyond: 0, max };
        let mut tokens = Tokens::new(page);
        while let Some(token) = tokens.next() {
            if builder.doc.nodes.len() >= builder.max {
                builder.doc.is_cut = true;
                break;
            }
            builder.take(token, &mut tokens);
        }
        builder.close_to(0);
        builder.doc
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How many nodes and attributes are kept.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.nodes.len(), self.attrs.len())
    }

    /// How deep the deepest node lies.
    #[cfg(test)]
    pub(super) fn depth(&self) -> usize {
        let mut depths = vec![0; self.len()];
        (1..self.len()).for_each(|id| depths[id] = depths[self.parent(id)] + 1);
        depths.into_iter().max().unwrap_or(0)
    }

    pub(super) fn name(&self, id: Id) -> Name {
        self.nodes[id].name
    }

    pub(super) fn parent(&self, id: Id) -> Id {
        self.nodes[id].parent as Id
    }

    /// The first node behind this one that is not in it.
    pub(super) fn end(&self, id: Id) -> Id {
        self.nodes[id].end as Id
    }

    /// The text of a text, not decoded.
    pub(super) fn text(&self, id: Id) -> &'a str {
        let node = &self.nodes[id];
        match node.name {
            Name::Text => &self.page[node.from as usize..node.to as usize],
            _ => "",
        }
    }

    /// All texts in a node.
    pub(super) fn texts(&self, id: Id) -> impl Iterator<Item = &'a str> {
        (id..self.end(id)).filter(|id| self.name(*id) == Name::Text).map(|id| self.text(id))
    }

    /// An attribute, not decoded.
    pub(super) fn attr(&self, id: Id, attr: Attr) -> Option<&'a str> {
        let node = &self.nodes[id];
        let start = node.attrs as usize;
        let own = &self.attrs[start..start + usize::from(node.attr_count)];
        own.iter().find(|(name, _)| *name == attr).map(|(_, value)| *value)
    }

    /// All elements of a name.
    pub(super) fn all(&self, name: Name) -> impl Iterator<Item = Id> {
        (0..self.len()).filter(move |id| self.name(*id) == name)
    }

    /// The first element of a name.
    pub(super) fn find(&self, name: Name) -> Option<Id> {
        self.all(name).next()
    }

    /// The nodes right below one.
    pub(super) fn children(&self, id: Id) -> impl Iterator<Item = Id> {
        let (mut next, end) = (id + 1, self.end(id));
        std::iter::from_fn(move || {
            let child = (next < end).then_some(next)?;
            next = self.end(child);
            Some(child)
        })
    }
}

struct Builder<'a> {
    doc: Doc<'a>,
    /// The elements that are open, outermost first.
    open: Vec<Id>,
    /// How many more are open beyond the deepest that are kept.
    beyond: usize,
    max: usize,
}

impl<'a> Builder<'a> {
    fn take(&mut self, token: Token<'a>, tokens: &mut Tokens<'a>) {
        match token {
            Token::Text(from, to) => self.text(from, to),
            Token::End(name) => self.end(name),
            Token::Start(name) => self.start(name, tokens),
        }
    }

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

    fn start(&mut self, written: &'a str, tokens: &mut Tokens<'a>) {
        let name = Name::of(written).unwrap_or(Name::Other);
        // Everything lies in one body, however many there are.
        if matches!(name, Name::Html | Name::Head | Name::Body) {
            return;
        }
        self.imply(name);
        let from = written.as_ptr() as usize - self.doc.page.as_ptr() as usize;
        let id = self.add(name, from, from + written.len());
        self.keep(id, tokens.attrs());
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

    /// Closes what the beginning of an element closes.
    fn imply(&mut self, name: Name) {
        use Name::{
            A, Dd, Dl, Dt, Li, Menu, Ol, Optgroup, Option, P, Select, Table, Tbody, Td, Tfoot, Th, Thead, Tr,
            Ul,
        };
        if name.ends_paragraph() {
            self.close(|open| open == P, Name::is_boundary);
        }
        if name.is_heading() && self.doc.name(self.top()).is_heading() {
            self.close_to(self.open.len() - 1);
        }
        match name {
            Li => self.close(|open| open == Li, |open| matches!(open, Ul | Ol | Menu) || open.is_boundary()),
            Dt | Dd => self.close(|open| matches!(open, Dt | Dd), |open| open == Dl || open.is_boundary()),
            A => self.close(|open| open == A, Name::is_boundary),
            Option | Optgroup => self.close(|open| open == Option, |open| open == Select),
            Td | Th => self.close(|open| matches!(open, Td | Th), |open| open == Table),
            Tr => self.close(|open| open == Tr, |open| open == Table),
            Tbody | Thead | Tfoot => {
                self.close(|open| matches!(open, Tbody | Thead | Tfoot), |open| open == Table);
            }
            _ => {}
        }
    }

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
        let Some(at) = self.matching(name, written) else { return };
        let blocks = self.open[at + 1..].iter().any(|id| self.doc.name(*id).is_block());
        match blocks {
            // Closing it would close blocks that go on: from here it is as if it had never been there.
            true if name.is_formatting() => self.doc.nodes[self.open[at]].name = Name::Span,
            true if !name.is_block() && !name.holds_blocks() => {}
            _ => self.close_to(at),
        }
    }

    /// Which open element a closing tag closes.
    fn matching(&self, name: Name, written: &str) -> Option<usize> {
        use Name::{Menu, Ol, Table, Tbody, Tfoot, Thead, Tr, Ul};
        let structure = name.is_boundary() || matches!(name, Tbody | Thead | Tfoot | Tr);
        let is_it = |id: Id| {
            let open = self.doc.name(id);
            match name {
                Name::Other => open == Name::Other && self.written(id).eq_ignore_ascii_case(written),
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

    /// Closes the innermost element that is wanted, unless one that stops the search comes first.
    fn close(&mut self, wanted: impl Fn(Name) -> bool, stops: impl Fn(Name) -> bool) {
        for at in (1..self.open.len()).rev() {
            let open = self.doc.name(self.open[at]);
            if wanted(open) {
                return self.close_to(at);
            }
            if stops(open) {
                return;
            }
        }
    }

    /// Closes the elements from the one at `at` on.
    fn close_to(&mut self, at: usize) {
        let end = self.doc.nodes.len() as u32;
        for id in self.open.drain(at..) {
            self.doc.nodes[id].end = end;
        }
        self.beyond = 0;
    }

    fn top(&self) -> Id {
        self.open.last().copied().unwrap_or(Doc::ROOT)
    }

    fn written(&self, id: Id) -> &'a str {
        let node = &self.doc.nodes[id];
        &self.doc.page[node.from as usize..node.to as usize]
    }

    fn add(&mut self, name: Name, from: usize, to: usize) -> Id {
        let (id, attrs) = (self.doc.nodes.len(), self.doc.attrs.len() as u32);
        let (parent, end) = (self.top() as u32, id as u32 + 1);
        let node = Node { name, attr_count: 0, attrs, parent, end, from: from as u32, to: to as u32 };
        self.doc.nodes.push(node);
        id
    }

    /// Keeps the attributes that matter; of two with one name, the first counts.
    fn keep(&mut self, id: Id, attrs: &[(&'a str, &'a str)]) {
        let start = self.doc.attrs.len();
        for (name, value) in attrs {
            if let Some(attr) = Attr::of(name)
                && self.doc.attrs[start..].iter().all(|(known, _)| *known != attr)
            {
                self.doc.attrs.push((attr, value));
            }
        }
        self.doc.nodes[id].attr_count = (self.doc.attrs.len() - start) as u8;
    }
}

/// Elements in which there are no tags.
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
