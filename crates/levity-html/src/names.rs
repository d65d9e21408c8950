//! The elements and attributes that the conversion uses.
//!
//! Unknown elements are treated as inline ones without a meaning. A name is looked up once, and
//! compared as a number from then on.

/// Defines an enum of names and a lookup whose cost depends only on the length of the name.
macro_rules! names {
    (
        $(#[$doc:meta])*
        $enum:ident { $($variant:ident = $name:literal),* $(,)? } $($rest:ident)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum $enum { $($variant,)* $($rest)? }

        impl $enum {
            /// Looks up a name, ignoring case.
            pub(super) fn of(name: &str) -> Option<Self> {
                let mut lower = [0_u8; 16];
                let lower = lower.get_mut(..name.len())?;
                lower.copy_from_slice(name.as_bytes());
                lower.make_ascii_lowercase();
                match &*lower {
                    $(lower if lower == $name.as_bytes() => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    /// An element of a page. The order has no meaning.
    Name {
        A = "a", Abbr = "abbr", Address = "address", Area = "area", Article = "article",
        Aside = "aside", Audio = "audio", B = "b", Base = "base", Big = "big",
        Blockquote = "blockquote", Body = "body", Br = "br", Button = "button", Canvas = "canvas",
        Caption = "caption", Center = "center", Code = "code", Col = "col", Colgroup = "colgroup",
        Datalist = "datalist", Dd = "dd", Del = "del", Details = "details", Dialog = "dialog",
        Dir = "dir", Div = "div", Dl = "dl", Dt = "dt", Em = "em", Embed = "embed",
        Fieldset = "fieldset", Figcaption = "figcaption", Figure = "figure", Font = "font",
        Footer = "footer", Form = "form", Frame = "frame", Frameset = "frameset", H1 = "h1",
        H2 = "h2", H3 = "h3", H4 = "h4", H5 = "h5", H6 = "h6", Head = "head", Header = "header",
        Hgroup = "hgroup", Hr = "hr", Html = "html", I = "i", Iframe = "iframe", Img = "img",
        Input = "input", Kbd = "kbd", Legend = "legend", Li = "li", Link = "link",
        Listing = "listing", Main = "main", Map = "map", Math = "math", Menu = "menu",
        Meta = "meta", Nav = "nav", Nobr = "nobr", Noembed = "noembed", Noframes = "noframes",
        Noscript = "noscript", Object = "object", Ol = "ol", Optgroup = "optgroup",
        Option = "option", P = "p", Param = "param", Picture = "picture", Plaintext = "plaintext",
        Pre = "pre", Q = "q", S = "s", Samp = "samp", Script = "script", Search = "search",
        Section = "section", Select = "select", Small = "small", Source = "source", Span = "span",
        Strike = "strike", Strong = "strong", Style = "style", Sub = "sub", Summary = "summary",
        Sup = "sup", Svg = "svg", Table = "table", Tbody = "tbody", Td = "td",
        Template = "template", Textarea = "textarea", Tfoot = "tfoot", Th = "th", Thead = "thead",
        Title = "title", Tr = "tr", Track = "track", Tt = "tt", U = "u", Ul = "ul", Video = "video",
        Wbr = "wbr", Xmp = "xmp", Other = "", Text = "#text",
    }
}

names! {
    /// An attribute of an element.
    Attr {
        Alt = "alt", Alttext = "alttext", AriaHidden = "aria-hidden", Class = "class",
        Content = "content", DataLang = "data-lang", DataLanguage = "data-language",
        Hidden = "hidden", Href = "href", Id = "id", Itemprop = "itemprop", Name = "name",
        Open = "open", Property = "property", Role = "role", Start = "start", Style = "style",
    }
}

impl Name {
    /// Returns `true` for elements without content.
    pub(super) fn is_void(self) -> bool {
        use Name::{
            Area, Base, Br, Col, Embed, Frame, Hr, Img, Input, Link, Meta, Param, Source, Track,
            Wbr,
        };
        matches!(
            self,
            Area | Base
                | Br
                | Col
                | Embed
                | Frame
                | Hr
                | Img
                | Input
                | Link
                | Meta
                | Param
                | Source
                | Track
                | Wbr
        )
    }

    pub(super) fn is_heading(self) -> bool {
        self.level().is_some()
    }

    /// Returns the level of a heading.
    pub(super) fn level(self) -> Option<usize> {
        [Self::H1, Self::H2, Self::H3, Self::H4, Self::H5, Self::H6]
            .iter()
            .position(|one| *one == self)
    }

    /// Returns `true` for elements that begin and end lines.
    pub(super) fn is_block(self) -> bool {
        use Name::{
            Address, Article, Aside, Blockquote, Caption, Center, Dd, Details, Dialog, Dir, Div,
            Dl, Dt, Fieldset, Figcaption, Figure, Footer, Form, Header, Hgroup, Hr, Legend, Li,
            Listing, Main, Menu, Nav, Ol, P, Plaintext, Pre, Search, Section, Summary, Table,
            Tbody, Td, Tfoot, Th, Thead, Tr, Ul, Xmp,
        };
        self.is_heading()
            || matches!(
                self,
                Address
                    | Article
                    | Aside
                    | Blockquote
                    | Caption
                    | Center
                    | Dd
                    | Details
                    | Dialog
                    | Dir
                    | Div
                    | Dl
                    | Dt
                    | Fieldset
                    | Figcaption
                    | Figure
                    | Footer
                    | Form
                    | Header
                    | Hgroup
                    | Hr
                    | Legend
                    | Li
                    | Listing
                    | Main
                    | Menu
                    | Nav
                    | Ol
                    | P
                    | Plaintext
                    | Pre
                    | Search
                    | Section
                    | Summary
                    | Table
                    | Tbody
                    | Td
                    | Tfoot
                    | Th
                    | Thead
                    | Tr
                    | Ul
                    | Xmp
            )
    }

    /// Returns `true` for blocks that end an open paragraph.
    pub(super) fn ends_paragraph(self) -> bool {
        use Name::{Caption, Legend, Tbody, Td, Tfoot, Th, Thead, Tr};
        self.is_block()
            && !matches!(
                self,
                Caption | Legend | Tbody | Td | Tfoot | Th | Thead | Tr
            )
    }

    /// Returns `true` for elements that only format text, and that are often closed in the wrong
    /// order.
    pub(super) fn is_formatting(self) -> bool {
        use Name::{A, B, Big, Code, Em, Font, I, Nobr, S, Small, Strike, Strong, Tt, U};
        matches!(
            self,
            A | B | Big | Code | Em | Font | I | Nobr | S | Small | Strike | Strong | Tt | U
        )
    }

    /// Returns `true` for inline elements that close even if a block is open in them.
    pub(super) fn holds_blocks(self) -> bool {
        use Name::{
            Audio, Button, Canvas, Map, Math, Noscript, Object, Select, Svg, Template, Video,
        };
        matches!(
            self,
            Audio
                | Button
                | Canvas
                | Map
                | Math
                | Noscript
                | Object
                | Select
                | Svg
                | Template
                | Video
        )
    }

    /// Returns `true` for cells and tables: elements inside are not closed from outside, or vice
    /// versa.
    pub(super) fn is_boundary(self) -> bool {
        use Name::{Caption, Object, Table, Td, Template, Th};
        matches!(self, Caption | Object | Table | Td | Template | Th)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_lookup_ignores_case() {
        assert_eq!(Name::of("BlockQuote"), Some(Name::Blockquote));
        assert_eq!(Name::of("blink"), None);
        assert_eq!(Name::of(&"a".repeat(100)), None);
        assert_eq!(Attr::of("ARIA-hidden"), Some(Attr::AriaHidden));
    }
}
