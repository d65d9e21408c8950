//! A page as a flat tree: its nodes in the order of the page, each with the place where it ends.
//!
//! What is inside of a node is thus a range, and no walk needs a stack. Elements are nested up to a
//! limit, beyond which they lie side by side; what closes what follows the rules of HTML as far as
//! text is concerned.

mod build;

use super::names::{Attr, Name};
use super::tokens::Tokens;
use build::Builder;

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
        let root = Node {
            name: Name::Body,
            attr_count: 0,
            attrs: 0,
            parent: 0,
            end: 0,
            from: 0,
            to: 0,
        };
        let doc = Self {
            page,
            nodes: vec![root],
            attrs: Vec::new(),
            is_cut: false,
        };
        let mut builder = Builder {
            doc,
            open: vec![Self::ROOT],
            beyond: 0,
        };
        let mut tokens = Tokens::new(page);
        while let Some(token) = tokens.next() {
            if builder.doc.nodes.len() >= max {
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
        (id..self.end(id))
            .filter(|id| self.name(*id) == Name::Text)
            .map(|id| self.text(id))
    }

    /// An attribute, not decoded.
    pub(super) fn attr(&self, id: Id, attr: Attr) -> Option<&'a str> {
        let node = &self.nodes[id];
        let start = node.attrs as usize;
        let own = &self.attrs[start..start + usize::from(node.attr_count)];
        own.iter()
            .find(|(name, _)| *name == attr)
            .map(|(_, value)| *value)
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
