//! Conversion of a part of a page to Markdown, in one pass over its nodes.
//!
//! The writer visits each node once and keeps a stack of what to do at the end of open elements.
//! There is no recursion, except for table cells, whose tables are not nested.

mod table;

use url::Url;

use super::class_names;
use super::content::Content;
use super::entities::{decode, decode_attr};
use super::names::{Attr, Name};
use super::output::{Mark, MarkdownOutput};
use super::tree::{Doc, Id};

/// The maximum size of a link's address, in bytes; only the text of a longer one is shown.
const MAX_URL: usize = 1000;

/// The maximum size of a cell, in bytes; a table with longer cells is treated as layout.
const MAX_CELL: usize = 400;

/// A text, with a flag that is set if it was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) is_cut: bool,
}

/// Renders the content, up to `max` bytes.
///
/// `base` is the address against which links are resolved. The result is cut at `max` bytes,
/// between words.
pub(super) fn render(doc: &Doc<'_>, content: &Content, base: Option<&Url>, max: usize) -> Text {
    let shapes = Shapes::of(doc);
    let mut writer = Writer {
        doc,
        content,
        base,
        shapes: &shapes,
        out: MarkdownOutput::new(max),
        end_action: Vec::new(),
        lists: Vec::new(),
    };
    writer.range(content.root, doc.end(content.root));
    let (text, is_cut) = writer.out.finish();
    Text {
        text: text.trim().to_owned(),
        is_cut,
    }
}

/// The properties of an element's content that decide its rendering.
struct Shapes {
    /// Set for elements that contain a table.
    tables: Vec<bool>,
    /// Set for elements whose content does not fit into a table cell.
    large: Vec<bool>,
}

impl Shapes {
    /// One pass backward, so that each element knows its content before it is asked.
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

/// The action at the end of an element.
enum EndAction {
    Mark,
    Block(usize),
    Prefix(usize),
    Heading(bool),
    List,
    Quote,
}

/// The state of the conversion.
struct Writer<'d, 'p> {
    doc: &'d Doc<'p>,
    content: &'d Content,
    base: Option<&'d Url>,
    shapes: &'d Shapes,
    out: MarkdownOutput,
    /// The open elements: where they end, and the action at that point.
    end_action: Vec<(Id, EndAction)>,
    /// The open lists, each with the number of its next item.
    lists: Vec<Option<u64>>,
}

impl Writer<'_, '_> {
    /// Writes the nodes from `from` to `to`, and then everything that is still open.
    fn range(&mut self, from: Id, to: Id) {
        let mut id = from;
        while id < to && !self.out.is_full() {
            while self.end_action.last().is_some_and(|(end, _)| *end <= id) {
                self.end_action();
            }
            id = self.node(id);
        }
        while !self.end_action.is_empty() {
            self.end_action();
        }
    }

    /// Performs the action of the innermost open element.
    fn end_action(&mut self) {
        match self.end_action.pop().map(|(_, end_action)| end_action) {
            None => {}
            Some(EndAction::Mark) => self.out.close(),
            Some(EndAction::Block(breaks)) => self.out.block(breaks),
            Some(EndAction::Prefix(breaks)) => {
                self.out.block(breaks);
                self.out.pop_prefix();
            }
            Some(EndAction::Heading(one_line)) => {
                self.out.set_one_line(one_line);
                self.out.block(2);
                self.out.pop_prefix();
            }
            Some(EndAction::List) => {
                self.lists.pop();
                self.out.block(if self.lists.is_empty() { 2 } else { 1 });
            }
            Some(EndAction::Quote) => self.out.flow("”"),
        }
    }

    /// Registers an action for the end of an element.
    fn then(&mut self, id: Id, end_action: EndAction) {
        self.end_action.push((self.doc.end(id), end_action));
    }

    /// Renders the start of a node and returns the next node.
    fn node(&mut self, id: Id) -> Id {
        let (name, end) = (self.doc.name(id), self.doc.end(id));
        if self.content.excludes(id) {
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
                self.then(id, EndAction::Quote);
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

    /// Decides on the gap around a block: rows and captions get a line break, and paragraphs an
    /// empty line.
    fn plain_block(&mut self, id: Id, name: Name) {
        use Name::{Dt, Figcaption, Legend, Summary, Tbody, Td, Tfoot, Th, Thead, Tr};
        let breaks = match name {
            Dt | Figcaption | Legend | Summary | Tbody | Td | Tfoot | Th | Thead | Tr => 1,
            Name::P => 2,
            // Boxes in a list item do not make it a long one.
            _ if !self.lists.is_empty() => 1,
            _ => 2,
        };
        self.out.block(breaks);
        // A paragraph that is the whole item adds no gap before the next item.
        let in_item = matches!(self.doc.name(self.doc.parent(id)), Name::Li | Name::Dd);
        self.then(
            id,
            EndAction::Block(if name == Name::P && in_item {
                1
            } else {
                breaks
            }),
        );
    }

    /// A mark within the same mark is ignored, and so is any mark within code.
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
            self.then(id, EndAction::Mark);
        }
    }

    /// A heading is one line, whatever it contains, as Markdown requires.
    fn heading(&mut self, id: Id, name: Name) {
        self.out.block(2);
        let marks = format!("{} ", "#".repeat(name.level().unwrap_or(0) + 1));
        self.out.push_prefix(Some(&marks), "");
        let one_line = self.out.set_one_line(true);
        self.then(id, EndAction::Heading(one_line));
    }

    /// Writes a horizontal rule as a block of its own.
    fn rule(&mut self) {
        self.out.block(2);
        self.out.flow("---");
        self.out.block(2);
    }

    /// Shows the text that describes an image, and not its address, which a model cannot open.
    fn image(&mut self, id: Id) {
        let alt = super::one_line(
            &decode_attr(self.doc.attr(id, Attr::Alt).unwrap_or_default()),
            500,
        );
        if !alt.is_empty() {
            self.out.flow(&format!("![{alt}]"));
        }
    }

    /// A raised number is a power, unless it links to a note.
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

    /// Links within links, links in code and links to the same page are shown as plain text.
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
            self.then(id, EndAction::Mark);
        }
        id + 1
    }

    /// Returns the absolute address of a link; `None` if it stays on the page.
    fn address(&self, href: &str) -> Option<String> {
        let href = levity_core::text::head(href, MAX_URL * 2);
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

    /// A list within a list gets no empty line before it. An ordered list may start at another
    /// number.
    fn list(&mut self, id: Id, name: Name) {
        self.out.block(if self.lists.is_empty() { 2 } else { 1 });
        let start = self
            .doc
            .attr(id, Attr::Start)
            .and_then(|start| start.trim().parse().ok());
        self.lists
            .push((name == Name::Ol).then(|| start.unwrap_or(1)));
        self.then(id, EndAction::List);
    }

    /// Lines after the first are indented by the width of the marker.
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
        self.then(id, EndAction::Prefix(1));
    }

    /// Writes a description (`<dd>`) with a colon before it.
    fn described(&mut self, id: Id) {
        self.out.block(1);
        self.out.push_prefix(Some(": "), "  ");
        self.then(id, EndAction::Prefix(1));
    }

    /// Every line of a quote begins with `> `.
    fn quote(&mut self, id: Id) {
        self.out.block(2);
        self.out.push_prefix(None, "> ");
        self.then(id, EndAction::Prefix(2));
    }

    /// White space is preserved. The language follows the fence if a class names it.
    fn code_block(&mut self, id: Id) -> Id {
        let end = self.doc.end(id);
        let mut code = String::new();
        let mut at = id + 1;
        while at < end && code.len() <= self.out.room() {
            if self.content.excludes(at) {
                at = self.doc.end(at);
                continue;
            }
            match self.doc.name(at) {
                Name::Text => code.push_str(&decode(self.doc.text(at))),
                Name::Br => code.push('\n'),
                // Some pages put every line into a separate element.
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

    /// Returns the language of a code block from its own classes, its ancestors' or those of the
    /// inner code.
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
            lang.or_else(|| {
                self.doc
                    .attr(id, Attr::Class)
                    .and_then(class_names::language)
            })
        };
        inside.into_iter().chain(around).find_map(named)
    }
}

/// Returns `true` if a link only marks a position next to a heading.
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
