//! A part of a page as Markdown, in one pass over its nodes.

mod table;

use url::Url;

use super::entities::{decode, decode_attr};
use super::main::Content;
use super::names::{Attr, Name};
use super::out::{Mark, Out};
use super::tree::{Doc, Id};
use super::words;

/// Longer addresses are left out, and their text stays.
const MAX_URL: usize = 1000;

/// A table with longer cells is there for the layout.
const MAX_CELL: usize = 400;

/// A text, and whether it was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) is_cut: bool,
}

/// Writes down the content, up to `max` bytes.
pub(super) fn render(doc: &Doc<'_>, content: &Content, base: Option<&Url>, max: usize) -> Text {
    let shapes = Shapes::of(doc);
    let mut writer = Writer {
        doc,
        content,
        base,
        shapes: &shapes,
        out: Out::new(max),
        leave: Vec::new(),
        lists: Vec::new(),
    };
    writer.range(content.root, doc.end(content.root));
    let (text, is_cut) = writer.out.finish();
    Text {
        text: text.trim().to_owned(),
        is_cut,
    }
}

/// What is in an element, as far as it decides how the element is shown.
struct Shapes {
    /// Whether there is a table in it.
    tables: Vec<bool>,
    /// Whether there is something in it that does not fit into a cell of a table.
    large: Vec<bool>,
}

impl Shapes {
    fn of(doc: &Doc<'_>) -> Self {
        let mut tables = vec![false; doc.len()];
        let mut large = vec![false; doc.len()];
        for id in (1..doc.len()).rev() {
            use Name::{Blockquote, Dl, Figure, Form, Ol, Pre, Table};
            let (parent, name) = (doc.parent(id), doc.name(id));
            tables[parent] |= tables[id] || name == Table;
            let is_large =
                name.is_heading() || matches!(name, Blockquote | Dl | Figure | Form | Ol | Pre);
            let is_long = name == Name::Text && doc.text(id).len() > MAX_CELL;
            large[parent] |= large[id] || is_large || is_long;
        }
        Self { tables, large }
    }
}

/// What is done at the end of an element.
enum Leave {
    Mark,
    Block(usize),
    Prefix(usize),
    Heading(bool),
    List,
    Quote,
}

struct Writer<'d, 'p> {
    doc: &'d Doc<'p>,
    content: &'d Content,
    base: Option<&'d Url>,
    shapes: &'d Shapes,
    out: Out,
    /// Elements that are open: where they end, and what is done then.
    leave: Vec<(Id, Leave)>,
    /// Lists that are open, each with the number of its next item.
    lists: Vec<Option<u64>>,
}

impl Writer<'_, '_> {
    fn range(&mut self, from: Id, to: Id) {
        let mut id = from;
        while id < to && !self.out.is_full() {
            while self.leave.last().is_some_and(|(end, _)| *end <= id) {
                self.leave();
            }
            id = self.node(id);
        }
        while !self.leave.is_empty() {
            self.leave();
        }
    }

    fn leave(&mut self) {
        match self.leave.pop().map(|(_, leave)| leave) {
            None => {}
            Some(Leave::Mark) => self.out.close(),
            Some(Leave::Block(breaks)) => self.out.block(breaks),
            Some(Leave::Prefix(breaks)) => {
                self.out.block(breaks);
                self.out.pop_prefix();
            }
            Some(Leave::Heading(one_line)) => {
                self.out.set_one_line(one_line);
                self.out.block(2);
                self.out.pop_prefix();
            }
            Some(Leave::List) => {
                self.lists.pop();
                self.out.block(if self.lists.is_empty() { 2 } else { 1 });
            }
            Some(Leave::Quote) => self.out.flow("”"),
        }
    }

    fn then(&mut self, id: Id, leave: Leave) {
        self.leave.push((self.doc.end(id), leave));
    }

    /// Writes what a node begins with, and returns where to go on.
    fn node(&mut self, id: Id) -> Id {
        let (name, end) = (self.doc.name(id), self.doc.end(id));
        if self.content.leaves_out(id) {
            return end;
        }
        match name {
            Name::Text => self.out.flow(&decode(self.doc.text(id))),
            Name::Br => self.out.line_break(),
            Name::Hr => self.rule(),
            Name::Img => self.image(id),
            Name::A => return self.link(id),
            Name::Pre | Name::Listing | Name::Xmp | Name::Plaintext => return self.code_block(id),
            Name::Table => return self.table(id),
            Name::Math if self.doc.attr(id, Attr::Alttext).is_some() => {
                self.out.flow(&decode_attr(
                    self.doc.attr(id, Attr::Alttext).unwrap_or_default(),
                ));
                return end;
            }
            Name::Q => {
                self.out.flow("“");
                self.then(id, Leave::Quote);
            }
            Name::Sup => self.raised(id),
            Name::Ul | Name::Ol | Name::Menu | Name::Dir => self.list(id, name),
            Name::Li => self.item(id),
            Name::Dd => self.described(id),
            Name::Blockquote => self.quote(id),
            _ if name.is_heading() => self.heading(id, name),
            _ if name.is_block() => self.plain_block(id, name),
            _ => self.formatted(id, name),
        }
        id + 1
    }

    fn plain_block(&mut self, id: Id, name: Name) {
        use Name::{Dt, Figcaption, Legend, Summary, Tbody, Td, Tfoot, Th, Thead, Tr};
        let breaks = match name {
            Dt | Figcaption | Legend | Summary | Tbody | Td | Tfoot | Th | Thead | Tr => 1,
            Name::P => 2,
            // Boxes in a list's item do not make it a long one.
            _ if !self.lists.is_empty() => 1,
            _ => 2,
        };
        self.out.block(breaks);
        // A paragraph that is all of an item does not keep the next item away.
        let in_item = matches!(self.doc.name(self.doc.parent(id)), Name::Li | Name::Dd);
        self.then(
            id,
            Leave::Block(if name == Name::P && in_item {
                1
            } else {
                breaks
            }),
        );
    }

    fn formatted(&mut self, id: Id, name: Name) {
        use Name::{B, Code, Del, Em, I, Kbd, S, Samp, Strike, Strong, Tt};
        let mark = match name {
            B | Strong => Mark::Strong,
            Em | I => Mark::Emphasis,
            Del | S | Strike => Mark::Struck,
            Code | Kbd | Samp | Tt => Mark::Code,
            _ => return,
        };
        if !self.out.in_code() && !self.out.has(&mark) {
            self.out.open(mark);
            self.then(id, Leave::Mark);
        }
    }

    fn heading(&mut self, id: Id, name: Name) {
        self.out.block(2);
        let marks = format!("{} ", "#".repeat(name.level().unwrap_or(0) + 1));
        self.out.push_prefix(Some(&marks), "");
        let one_line = self.out.set_one_line(true);
        self.then(id, Leave::Heading(one_line));
    }

    fn rule(&mut self) {
        self.out.block(2);
        self.out.flow("---");
        self.out.block(2);
    }

    fn image(&mut self, id: Id) {
        let alt = super::one_line(
            &decode_attr(self.doc.attr(id, Attr::Alt).unwrap_or_default()),
            500,
        );
        if !alt.is_empty() {
            self.out.flow(&format!("![{alt}]"));
        }
    }

    /// A number above the line is a power, unless it leads to a note.
    fn raised(&mut self, id: Id) {
        let mut inside = self.doc.children(id);
        let is_number = inside
            .next()
            .is_some_and(|id| self.doc.text(id).trim().parse::<i64>().is_ok());
        let is_note = inside.next().is_some() || self.out.in_link();
        if is_number && !is_note {
            self.out.flow("^");
        }
    }

    fn link(&mut self, id: Id) -> Id {
        let end = self.doc.end(id);
        if is_anchor_sign(self.doc, id) {
            return end;
        }
        let href = self
            .doc
            .attr(id, Attr::Href)
            .and_then(|href| self.address(href));
        if let Some(url) = href
            && !self.out.in_code()
            && !self.out.in_link()
        {
            self.out.open(Mark::Link(url));
            self.then(id, Leave::Mark);
        }
        id + 1
    }

    /// The whole address of a link; `None` when it leads nowhere else.
    fn address(&self, href: &str) -> Option<String> {
        let href = &href[..crate::text::floor(href, MAX_URL * 2)];
        let href = decode_attr(href);
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        let url = super::join(self.base, href)?;
        let known = matches!(url.scheme(), "http" | "https" | "mailto" | "tel" | "ftp");
        (known && url.as_str().len() <= MAX_URL)
            .then(|| url.as_str().replace('(', "%28").replace(')', "%29"))
    }

    fn list(&mut self, id: Id, name: Name) {
        self.out.block(if self.lists.is_empty() { 2 } else { 1 });
        let start = self
            .doc
            .attr(id, Attr::Start)
            .and_then(|start| start.trim().parse().ok());
        self.lists
            .push((name == Name::Ol).then(|| start.unwrap_or(1)));
        self.then(id, Leave::List);
    }

    fn item(&mut self, id: Id) {
        self.out.block(1);
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        self.out
            .push_prefix(Some(&marker), &" ".repeat(marker.len()));
        self.then(id, Leave::Prefix(1));
    }

    fn described(&mut self, id: Id) {
        self.out.block(1);
        self.out.push_prefix(Some(": "), "  ");
        self.then(id, Leave::Prefix(1));
    }

    fn quote(&mut self, id: Id) {
        self.out.block(2);
        self.out.push_prefix(None, "> ");
        self.then(id, Leave::Prefix(2));
    }

    fn code_block(&mut self, id: Id) -> Id {
        let end = self.doc.end(id);
        let mut code = String::new();
        let mut at = id + 1;
        while at < end && code.len() <= self.out.room() {
            if self.content.leaves_out(at) {
                at = self.doc.end(at);
                continue;
            }
            match self.doc.name(at) {
                Name::Text => code.push_str(&decode(self.doc.text(at))),
                Name::Br => code.push('\n'),
                // Some write every line as an element of its own.
                Name::Div | Name::P | Name::Li if !code.is_empty() && !code.ends_with('\n') => {
                    code.push('\n');
                }
                _ => {}
            }
            at += 1;
        }
        let code = code.replace("\r\n", "\n").replace('\r', "\n");
        let code = code.trim_end().trim_start_matches('\n');
        if !code.trim().is_empty() {
            let language = self.language(id).unwrap_or_default().to_owned();
            self.out.fenced(&language, code);
        }
        end
    }

    /// The language of a code block, by its own classes, those around it or those of the code in
    /// it.
    fn language(&self, id: Id) -> Option<&str> {
        let around = std::iter::successors(Some(id), |id| Some(self.doc.parent(*id))).take(8);
        let inside = self
            .doc
            .children(id)
            .find(|child| self.doc.name(*child) == Name::Code);
        let named = |id: Id| {
            let lang = self
                .doc
                .attr(id, Attr::DataLang)
                .or_else(|| self.doc.attr(id, Attr::DataLanguage));
            let lang = lang
                .filter(|lang| lang.len() <= 24 && lang.chars().all(|c| c.is_ascii_alphanumeric()));
            lang.or_else(|| self.doc.attr(id, Attr::Class).and_then(words::language))
        };
        inside.into_iter().chain(around).find_map(named)
    }
}

/// Whether a link only marks a place in the page, beside a heading.
fn is_anchor_sign(doc: &Doc<'_>, id: Id) -> bool {
    let is_here = doc
        .attr(id, Attr::Href)
        .is_some_and(|href| href.starts_with('#'));
    let mut texts = doc.texts(id);
    is_here
        && matches!(
            texts.next().map(str::trim),
            Some("#" | "¶" | "§" | "🔗" | "&para;" | "&#182;")
        )
        && texts.next().is_none()
}
