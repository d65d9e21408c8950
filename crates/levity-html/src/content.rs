//! Detection of the main content of a page.
//!
//! The text of every element is counted, with links apart. After common boilerplate is excluded,
//! the content is the smallest element with most of the text that reads like sentences. If next to
//! nothing remains, less is excluded.

use super::class_names;
use super::names::{Attr, Name};
use super::tree::{Doc, Id};

/// The strictness of the extraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Excludes hidden elements, navigation and elements with names of noise; then finds the main
    /// part.
    Strict,
    /// Excludes hidden elements and navigation; then finds the main part.
    Moderate,
    /// Excludes hidden elements only.
    All,
}

pub(super) const LEVELS: [Level; 3] = [Level::Strict, Level::Moderate, Level::All];

/// A shorter line of text is not evidence for the main content.
const SENTENCE: u32 = 25;

/// The content of a page.
#[derive(Debug)]
pub(super) struct Content {
    /// The element that contains it.
    pub(super) root: Id,
    /// The excluded nodes, by index.
    excluded: Vec<bool>,
}

impl Content {
    /// An excluded element excludes everything in it.
    pub(super) fn excludes(&self, id: Id) -> bool {
        self.excluded[id]
    }
}

/// Finds the main content at a level of strictness.
///
/// Counts the text twice: of the whole page, to recognize elements with most of the text, and of
/// what remains.
pub(super) fn find(doc: &Doc<'_>, level: Level) -> Content {
    let all = Counts::of(doc, &vec![false; doc.len()]);
    let mut excluded = vec![false; doc.len()];
    for id in 1..doc.len() {
        excluded[id] = excluded[doc.parent(id)] || is_excluded(doc, id, level, &all);
    }
    let counts = Counts::of(doc, &excluded);
    let root = if level == Level::All {
        Doc::ROOT
    } else {
        counts.main(doc, &excluded)
    };
    if level == Level::Strict {
        counts.drop_lists_of_links(doc, root, &mut excluded);
    }
    Content { root, excluded }
}

/// The decision is about the element itself; the caller passes it on to its content.
fn is_excluded(doc: &Doc<'_>, id: Id, level: Level, all: &Counts) -> bool {
    let name = doc.name(id);
    if name == Name::Text {
        return false;
    }
    if has_no_text(name) || is_hidden(doc, id) {
        return true;
    }
    // An element with most of the text is not decoration, whatever its name.
    let is_most = all.text[id] * 2 > all.text[Doc::ROOT];
    if level == Level::All || is_most || matches!(name, Name::Main | Name::Article) {
        return false;
    }
    is_navigation(doc, id, name) || (level == Level::Strict && is_noise(doc, id, name))
}

/// Returns `true` for elements whose content is not text of the page.
fn has_no_text(name: Name) -> bool {
    use Name::{
        Audio, Base, Button, Canvas, Datalist, Embed, Iframe, Input, Link, Meta, Noembed, Noframes,
        Noscript, Object, Script, Select, Style, Svg, Template, Textarea, Title, Video,
    };
    matches!(
        name,
        Audio
            | Base
            | Button
            | Canvas
            | Datalist
            | Embed
            | Iframe
            | Input
            | Link
            | Meta
            | Noembed
            | Noframes
            | Noscript
            | Object
            | Script
            | Select
            | Style
            | Svg
            | Template
            | Textarea
            | Title
            | Video
    )
}

/// Text that a browser does not show is a common place for instructions to a model, so every usual
/// way to hide it counts.
fn is_hidden(doc: &Doc<'_>, id: Id) -> bool {
    let is = |attr, value: &str| {
        doc.attr(id, attr)
            .is_some_and(|found| found.trim().eq_ignore_ascii_case(value))
    };
    let hidden = doc
        .attr(id, Attr::Hidden)
        .is_some_and(|value| !value.eq_ignore_ascii_case("until-found"));
    hidden
        || is(Attr::AriaHidden, "true")
        || doc
            .attr(id, Attr::Class)
            .is_some_and(class_names::is_hidden)
        || doc.attr(id, Attr::Style).is_some_and(style_hides)
        || (doc.name(id) == Name::Dialog && doc.attr(id, Attr::Open).is_none())
}

/// Reads the first 512 bytes of a style, without white space.
fn style_hides(style: &str) -> bool {
    let style = style
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .take(512);
    let style = String::from_utf8_lossy(&style.collect::<Vec<_>>()).to_ascii_lowercase();
    let rules = style
        .trim_end_matches("!important")
        .split(';')
        .map(|rule| rule.trim_end_matches("!important"));
    let hides = [
        "display:none",
        "visibility:hidden",
        "opacity:0",
        "font-size:0",
        "font-size:0px",
    ];
    rules.into_iter().any(|rule| hides.contains(&rule))
}

/// Returns `true` for navigation and similar elements, by their name and role.
fn is_navigation(doc: &Doc<'_>, id: Id, name: Name) -> bool {
    let role = doc
        .attr(id, Attr::Role)
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let roles = [
        "navigation",
        "banner",
        "contentinfo",
        "complementary",
        "search",
        "dialog",
        "alertdialog",
        "menu",
        "menubar",
        "toolbar",
        "tablist",
    ];
    if roles.contains(&&*role) {
        return true;
    }
    match name {
        Name::Nav | Name::Footer | Name::Search | Name::Menu => true,
        Name::Aside => !doc
            .attr(id, Attr::Class)
            .is_some_and(class_names::is_remark),
        // The header of an article is part of it; the header of the page is navigation.
        Name::Header => !is_within_content(doc, id),
        _ => false,
    }
}

/// Returns `true` if an ancestor is the declared content of the page.
fn is_within_content(doc: &Doc<'_>, id: Id) -> bool {
    let is_it =
        |id: Id| matches!(doc.name(id), Name::Main | Name::Article) || has_role_main(doc, id);
    ancestors(doc, id).any(is_it)
}

/// Iterates over the ancestors of an element, at most the depth of the tree.
fn ancestors(doc: &Doc<'_>, id: Id) -> impl Iterator<Item = Id> {
    std::iter::successors(Some(id), |id| (*id != Doc::ROOT).then(|| doc.parent(*id))).skip(1)
}

/// Returns `true` for `role="main"`, which older pages use in place of `<main>`.
fn has_role_main(doc: &Doc<'_>, id: Id) -> bool {
    doc.attr(id, Attr::Role)
        .is_some_and(|role| role.trim().eq_ignore_ascii_case("main"))
}

/// Returns `true` for elements whose class or id indicates noise.
fn is_noise(doc: &Doc<'_>, id: Id, name: Name) -> bool {
    if name.is_heading() || matches!(name, Name::Pre | Name::Code) {
        return false;
    }
    [Attr::Class, Attr::Id]
        .into_iter()
        .any(|attr| doc.attr(id, attr).is_some_and(class_names::is_noise))
}

/// The text in each element, in characters; those of scripts without spaces count twice.
struct Counts {
    text: Vec<u32>,
    /// The part of the text that is in links.
    links: Vec<u32>,
    /// Text in lines that read like sentences.
    good: Vec<u32>,
}

impl Counts {
    /// All sums take two passes over the nodes: forward for lines and links, and backward for
    /// totals.
    fn of(doc: &Doc<'_>, excluded: &[bool]) -> Self {
        let zero = || vec![0_u32; doc.len()];
        let (mut text, mut links, mut own, mut own_links) = (zero(), zero(), zero(), zero());
        // The element whose line contains a node, and whether the node is in a link.
        let mut line = vec![Doc::ROOT as u32; doc.len()];
        let mut linked = vec![false; doc.len()];
        for id in 1..doc.len() {
            let (parent, name) = (doc.parent(id), doc.name(id));
            line[id] = if name.is_block() {
                id as u32
            } else {
                line[parent]
            };
            linked[id] = linked[parent] || name == Name::A;
            if name == Name::Text && !excluded[id] {
                let length = length(doc.text(id));
                text[id] = length;
                own[line[id] as usize] += length;
                if linked[id] {
                    links[id] = length;
                    own_links[line[id] as usize] += length;
                }
            }
        }
        let sentence = |id: usize| own[id] >= SENTENCE && own_links[id] * 2 < own[id];
        let mut good: Vec<_> = (0..doc.len())
            .map(|id| if sentence(id) { own[id] } else { 0 })
            .collect();
        // A node precedes its content, so in reverse order every sum is complete before it is added
        // to the parent.
        for id in (1..doc.len()).rev() {
            let parent = doc.parent(id);
            text[parent] += text[id];
            links[parent] += links[id];
            good[parent] += good[id];
        }
        Self { text, links, good }
    }

    /// Returns the smallest element with most of the good text.
    fn main(&self, doc: &Doc<'_>, excluded: &[bool]) -> Id {
        let start = self.named_main(doc, excluded).unwrap_or(Doc::ROOT);
        let enough = u64::from(self.good[start]) * 85;
        let mut root = start;
        while !matches!(doc.name(root), Name::Article | Name::Table) {
            let best = doc.children(root).max_by_key(|child| self.good[*child]);
            match best {
                // A single paragraph is not the main content, however long it is.
                Some(best)
                    if u64::from(self.good[best]) * 100 >= enough && !is_line(doc.name(best)) =>
                {
                    root = best;
                }
                _ => break,
            }
            if self.good[root] == 0 {
                return start;
            }
        }
        root
    }

    /// Returns the element that the page declares as its content.
    fn named_main(&self, doc: &Doc<'_>, excluded: &[bool]) -> Option<Id> {
        let total = self.good[Doc::ROOT];
        let largest = |is_it: &dyn Fn(Id) -> bool, within: Id| {
            (within..doc.end(within))
                .filter(|id| !excluded[*id] && is_it(*id))
                .max_by_key(|id| self.good[*id])
        };
        let is_main = |id| doc.name(id) == Name::Main || has_role_main(doc, id);
        let is_article = |id| {
            doc.name(id) == Name::Article || doc.attr(id, Attr::Itemprop) == Some("articleBody")
        };
        let main =
            largest(&is_main, Doc::ROOT).filter(|id| self.good[*id] * 5 >= total * 2 && total > 0);
        let within = main.unwrap_or(Doc::ROOT);
        // Several articles form a list and belong together.
        let article = largest(&is_article, within)
            .filter(|id| self.good[*id] * 5 >= self.good[within] * 3 && total > 0);
        article.or(main)
    }

    /// Excludes lists of mostly links within a text, because they lead elsewhere.
    fn drop_lists_of_links(&self, doc: &Doc<'_>, root: Id, excluded: &mut [bool]) {
        let (text, links) = (self.text[root], self.links[root]);
        if links * 10 > text * 4 {
            return;
        }
        let is_list = |id: Id| {
            let name = doc.name(id);
            let holds = matches!(name, Name::Div | Name::Ul | Name::Ol | Name::Section);
            holds
                && self.links[id] * 4 > self.text[id] * 3
                && self.text[id] * 4 < text
                && self.good[id] == 0
        };
        for id in root + 1..doc.end(root) {
            excluded[id] |= (doc.parent(id) != root && excluded[doc.parent(id)])
                || (is_list(id) && self.is_long(doc, id));
        }
    }

    /// Returns `true` if an element contains more than a few links.
    fn is_long(&self, doc: &Doc<'_>, id: Id) -> bool {
        (id..doc.end(id))
            .filter(|id| doc.name(*id) == Name::A)
            .take(4)
            .count()
            == 4
    }
}

/// Returns `true` for elements that contain a line of text, and never the content of a page.
fn is_line(name: Name) -> bool {
    use Name::{A, Blockquote, Dd, Dt, Li, P, Plaintext, Pre, Span, Td, Th, Tr, Xmp};
    name.is_heading()
        || matches!(
            name,
            A | Blockquote
                | Dd
                | Dt
                | Li
                | P
                | Plaintext
                | Pre
                | Span
                | Td
                | Th
                | Tr
                | Xmp
                | Name::Text
        )
}

/// Returns the length of a text without its white space.
fn length(text: &str) -> u32 {
    let count = |c: char| match c {
        '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{3ffff}' => 2,
        c if c.is_whitespace() => 0,
        _ => 1,
    };
    text.chars().map(count).sum()
}
