//! The meaning of class names for an element.
//!
//! Class names are conventions and not rules, so a name alone never removes most of the text: see
//! `content`. Names are matched by their parts. Only the first 256 bytes of a list of classes are
//! read.

/// The number of bytes of a class list that are read.
const MAX_CLASS_LIST: usize = 256;

/// Words for the elements around the content of pages.
const NOISE: &[&str] = &[
    "ad",
    "ads",
    "adsbygoogle",
    "advert",
    "advertisement",
    "advertising",
    "author-bio",
    "banner",
    "breadcrumb",
    "breadcrumbs",
    "byline-social",
    "ccpa",
    "comment-form",
    "comment-respond",
    "commentlist",
    "comments",
    "comment-list",
    "consent",
    "cookie",
    "cookies",
    "cookiebar",
    "disqus",
    "disqus_thread",
    "dropdown",
    "editsection",
    "feedback",
    "flyout",
    "footer",
    "gdpr",
    "global-nav",
    "headerlink",
    "hatnote",
    "jump-link",
    "jump-to-nav",
    "lightbox",
    "login",
    "masthead",
    "mega-menu",
    "menu",
    "metadata",
    "modal",
    "more-stories",
    "mw-editsection",
    "mw-jump-link",
    "nav",
    "navbar",
    "navbox",
    "navigation",
    "newsletter",
    "noprint",
    "outbrain",
    "overlay",
    "pager",
    "pagination",
    "popup",
    "popover",
    "post-nav",
    "prev-next",
    "promo",
    "promoted",
    "read-next",
    "recirc",
    "recommendations",
    "recommended",
    "related",
    "related-posts",
    "respond",
    "screen-reader-text",
    "share",
    "sharebar",
    "sharedaddy",
    "sharethis",
    "addtoany",
    "sharing",
    "sidebar",
    "sidenav",
    "signin",
    "signup",
    "sitemap",
    "skip-link",
    "skiplink",
    "social",
    "sponsor",
    "sponsored",
    "sr-only",
    "subscribe",
    "subscription",
    "tab-bar",
    "taboola",
    "tag-list",
    "tags",
    "toolbar",
    "tooltip",
    "topbar",
    "trending",
    "visually-hidden",
    "visuallyhidden",
    "widget",
];

/// Words for elements that are hidden, or shown next to every line.
const HIDDEN: &[&str] = &[
    "d-none",
    "hidden",
    "hide",
    "is-hidden",
    "lineno",
    "linenos",
    "linenumber",
    "gutter",
    "rouge-gutter",
];

/// Words for asides that belong to the content.
const REMARK: &[&str] = &[
    "admonition",
    "callout",
    "caution",
    "important",
    "infobox",
    "note",
    "tip",
    "warning",
];

/// Prefixes of names that describe the page, not the element.
const PAGE_PREFIXES: &[&str] = &["has-", "with-", "no-", "without-", "js-", "layout-"];

/// Returns `true` for advertisements, cookie notices, comments, sharing buttons and the like.
pub(super) fn is_noise(names: &str) -> bool {
    any(names, |name| {
        NOISE.iter().any(|word| begins_or_ends(name, word))
    })
}

/// Returns `true` for names that style sheets use to hide an element, and for line numbers beside
/// code.
pub(super) fn is_hidden(names: &str) -> bool {
    any(names, |name| HIDDEN.contains(&name))
}

/// Returns `true` for notes and warnings, which belong to the text although they are asides.
pub(super) fn is_remark(names: &str) -> bool {
    any(names, |name| {
        REMARK.iter().any(|word| begins_or_ends(name, word))
    })
}

/// Returns the language that a class of a code block names.
pub(super) fn language(names: &str) -> Option<&str> {
    const BEFORE: &[&str] = &[
        "language-",
        "lang-",
        "highlight-source-",
        "highlight-",
        "brush:",
        "prettyprint-",
    ];
    let names = short(names).split_ascii_whitespace();
    let found = names.filter_map(|name| BEFORE.iter().find_map(|before| name.strip_prefix(before)));
    let sound = |name: &&str| {
        (1..=24).contains(&name.len())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-#._".contains(c))
    };
    found
        .filter(sound)
        .find(|name| !matches!(*name, "default" | "none" | "plain" | "notranslate"))
}

/// Names that describe the whole page, such as `has-sidebar`, are skipped.
fn any(names: &str, is_it: impl Fn(&str) -> bool) -> bool {
    short(names).split_ascii_whitespace().any(|name| {
        let name = name.to_ascii_lowercase();
        !PAGE_PREFIXES.iter().any(|about| name.starts_with(about)) && is_it(&name)
    })
}

/// Matches `share`, `share-buttons` and `post__share`, but not `shareholder`.
fn begins_or_ends(name: &str, word: &str) -> bool {
    let parts = |rest: &str, c: Option<char>| rest.is_empty() || matches!(c, Some('-' | '_'));
    let begins = name
        .strip_prefix(word)
        .is_some_and(|rest| parts(rest, rest.chars().next()));
    begins
        || name
            .strip_suffix(word)
            .is_some_and(|rest| parts(rest, rest.chars().next_back()))
}

/// Cuts a list of classes to the length that is read.
fn short(names: &str) -> &str {
    levity_core::text::head(names, MAX_CLASS_LIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_match_by_their_parts() {
        for noise in [
            "share",
            "x Share-Buttons",
            "post__share",
            "cookie-banner",
            "comments",
            "main-nav",
            "ad",
        ] {
            assert!(is_noise(noise), "{noise}");
        }
        for content in [
            "shareholder",
            "has-sidebar",
            "layout-sidebar",
            "content",
            "article",
            "adventure",
            "header",
        ] {
            assert!(!is_noise(content), "{content}");
        }
        assert!(is_hidden("a d-none b") && !is_hidden("hidden-gem"));
        assert!(is_remark("admonition-title") && !is_remark("notebook"));
        assert!(!is_noise(&format!("{} ads", "x".repeat(MAX_CLASS_LIST))));
    }

    #[test]
    fn language_of_code_block_is_found() {
        assert_eq!(language("hljs language-rust"), Some("rust"));
        assert_eq!(language("highlight-source-c++ notranslate"), Some("c++"));
        assert_eq!(language("language-none"), None);
        assert_eq!(language("sourceCode"), None);
        assert_eq!(language("lang-a`b"), None);
    }
}
