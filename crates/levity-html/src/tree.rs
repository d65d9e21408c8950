//! A page as a flat tree: its nodes in page order, each with the index where it ends.
//!
//! The content of a node is thus a range, and no walk needs a stack. Elements are nested up to a
//! limit, beyond which they become siblings. Closing follows the rules of HTML as far as they
//! affect text.

mod build;

use super::names::{Attr, Name};
use super::tokens::Tokens;
use build::Builder;

/// The maximum nesting of elements.
const MAX_DEPTH: usize = 128;

/// The index of a node.
pub(super) type Id = usize;

/// A node takes 24 bytes, and a page has at most 250,000 of them. The text stays in the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) name: Name,
    /// The number of attributes from `attrs` on that belong to the node.
    attr_count: u8,
    attrs: u32,
    pub(super) parent: u32,
    /// The index of the first node after this one that is not in it.
    end: u32,
    /// The range in the page of a text, or of an element's name.
    from: u32,
    to: u32,
}

/// A parsed page as a tree of nodes.
#[derive(Debug)]
pub(super) struct Doc<'a> {
    page: &'a str,
    nodes: Vec<Node>,
    attrs: Vec<(Attr, &'a str)>,
    /// Set if the page has more nodes than the limit.
    pub(super) is_cut: bool,
}

impl<'a> Doc<'a> {
    /// The node that contains all others.
    pub(super) const ROOT: Id = 0;

    /// Parses a page, up to `max` nodes.
    ///
    /// The result always has a root. A page beyond the limit is cut, and `is_cut` is set.
    pub(super) fn parse(page: &'a str, max: usize) -> Self {
        // Positions are stored in four bytes; no download is larger.
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

    /// Returns the number of stored nodes and attributes.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.nodes.len(), self.attrs.len())
    }

    /// Returns the depth of the deepest node.
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

    /// Returns the first node after this one that is not in it.
    pub(super) fn end(&self, id: Id) -> Id {
        self.nodes[id].end as Id
    }

    /// Returns the content of a text node, not decoded.
    pub(super) fn text(&self, id: Id) -> &'a str {
        let node = &self.nodes[id];
        match node.name {
            Name::Text => &self.page[node.from as usize..node.to as usize],
            _ => "",
        }
    }

    /// Iterates over all texts in a node.
    pub(super) fn texts(&self, id: Id) -> impl Iterator<Item = &'a str> {
        (id..self.end(id))
            .filter(|id| self.name(*id) == Name::Text)
            .map(|id| self.text(id))
    }

    /// Returns the value of an attribute, not decoded.
    pub(super) fn attr(&self, id: Id, attr: Attr) -> Option<&'a str> {
        let node = &self.nodes[id];
        let start = node.attrs as usize;
        let own = &self.attrs[start..start + usize::from(node.attr_count)];
        own.iter()
            .find(|(name, _)| *name == attr)
            .map(|(_, value)| *value)
    }

    /// Iterates over all elements with a name.
    pub(super) fn all(&self, name: Name) -> impl Iterator<Item = Id> {
        (0..self.len()).filter(move |id| self.name(*id) == name)
    }

    /// Returns the first element with a name.
    pub(super) fn find(&self, name: Name) -> Option<Id> {
        self.all(name).next()
    }

    /// Iterates over the direct children of a node.
    pub(super) fn children(&self, id: Id) -> impl Iterator<Item = Id> {
        let (mut next, end) = (id + 1, self.end(id));
        std::iter::from_fn(move || {
            let child = (next < end).then_some(next)?;
            next = self.end(child);
            Some(child)
        })
    }
}
