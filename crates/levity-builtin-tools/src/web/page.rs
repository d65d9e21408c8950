//! A page as it is shown: its text and where to find it.

use levity_sandbox::Body;

use super::charset;
use super::html::{self, visible};
use super::kind::{Kind, refuse_binary};

/// The most text that is kept of a page.
pub(super) const MAX_WHOLE: usize = 2 * 1024 * 1024;

/// JSON up to here is laid out in lines.
const MAX_PRETTY: usize = 1024 * 1024;

/// What was fetched, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Where it came from, behind all redirects.
    pub(super) url: String,
    /// What was asked for, if that is another address.
    pub(super) asked: Option<String>,
    pub(super) title: Option<String>,
    pub(super) kind: Kind,
    pub(super) text: String,
    /// What a reader should know of it.
    pub(super) notes: Vec<&'static str>,
}

/// Where a page came from and what the server said of it.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) url: String,
    pub(super) asked: Option<String>,
    pub(super) kind: Option<Kind>,
    pub(super) charset: Option<String>,
    pub(super) is_partial: bool,
}

impl Page {
    /// Reads what came; `Err` names what cannot be read.
    pub(super) fn read(body: &Body, source: Source) -> Result<Self, String> {
        refuse_binary(&body.bytes)?;
        let kind = source
            .kind
            .map_or_else(|| Kind::of_bytes(&body.bytes), Ok)?;
        let is_markup = matches!(kind, Kind::Html | Kind::Xml);
        let raw = charset::decode(&body.bytes, source.charset.as_deref(), is_markup);
        let mut notes = Vec::new();
        let (title, text, is_cut) = match kind {
            Kind::Html => {
                let found = html::extract(&raw, &source.url, MAX_WHOLE);
                if found.is_thin {
                    notes.push(
                        "the page has hardly any text of its own; it may be made by \
                        scripts, which are not run",
                    );
                }
                (found.title, found.text, found.is_cut)
            }
            Kind::Json => whole(pretty(&raw).as_deref().unwrap_or(&raw)),
            Kind::Xml | Kind::Text => whole(&raw),
        };
        if body.is_cut || is_cut {
            notes.push("the page was too long to be read whole; its end is missing");
        }
        if source.is_partial {
            notes.push("the server sent only a part of the page");
        }
        Ok(Self {
            url: source.url,
            asked: source.asked,
            title,
            kind,
            text,
            notes,
        })
    }

    /// The part of the text that begins at `offset`, and where the next one begins. A long text is
    /// cut between paragraphs where it can be.
    pub(super) fn part(&self, offset: usize, max: usize) -> (&str, Option<usize>) {
        let start = crate::text::floor(&self.text, offset);
        let rest = &self.text[start..];
        if rest.len() <= max {
            return (rest, None);
        }
        let most = crate::text::floor(rest, max);
        let most = if most == 0 {
            crate::text::ceil(rest, 1)
        } else {
            most
        };
        let half = crate::text::ceil(rest, most / 2);
        let cut = ["\n\n", "\n", ". ", " "].iter().find_map(|gap| {
            let found = rest[half..most].rfind(gap)?;
            Some(half + found + gap.len())
        });
        let end = cut.unwrap_or(most);
        (&rest[..end], (end < rest.len()).then_some(start + end))
    }
}

/// A text as it is, up to the most that is kept.
fn whole(text: &str) -> (Option<String>, String, bool) {
    let cut = crate::text::floor(text, MAX_WHOLE);
    (None, visible(text[..cut].trim()), cut < text.len())
}

/// JSON in lines; `None` when it is not JSON, too long, or would become so.
fn pretty(text: &str) -> Option<String> {
    if text.len() > MAX_PRETTY {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut out = Capped(Vec::new());
    serde_json::to_writer_pretty(&mut out, &value).ok()?;
    String::from_utf8(out.0).ok()
}

/// Takes no more than is kept: indents can make a hundred bytes of one.
struct Capped(Vec<u8>);

impl std::io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_WHOLE {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        let (url, asked) = ("https://example.org/".to_owned(), None);
        Page {
            url,
            asked,
            title: None,
            kind: Kind::Text,
            text: text.to_owned(),
            notes: Vec::new(),
        }
    }

    /// All parts, one after the other.
    fn parts(text: &str, max: usize) -> Vec<String> {
        let page = page(text);
        let (mut parts, mut next) = (Vec::new(), Some(0));
        while let Some(offset) = next {
            let (part, after) = page.part(offset, max);
            assert!(part.len() <= max.max(4) && after.is_none_or(|after| after > offset));
            parts.push(part.to_owned());
            next = after;
        }
        assert_eq!(parts.concat(), text);
        parts
    }

    #[test]
    fn long_texts_are_cut_where_it_hurts_least() {
        assert_eq!(parts("short", 10), ["short"]);
        assert_eq!(
            parts("one two\n\nthree four five", 14),
            ["one two\n\n", "three four ", "five"]
        );
        assert_eq!(
            parts("a line\nanother line", 12),
            ["a line\n", "another line"]
        );
        assert_eq!(parts("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(parts("日本語", 4), ["日", "本", "語"]);
        assert_eq!(parts("日本語", 1), ["日", "本", "語"]);
        assert_eq!(parts("", 4), [""]);
        parts(&"word ".repeat(10_000), 999);
    }

    #[test]
    fn json_is_laid_out_unless_that_makes_too_much_of_it() {
        assert_eq!(
            pretty("{\"a\":[1]}").unwrap(),
            "{\n  \"a\": [\n    1\n  ]\n}"
        );
        assert_eq!(pretty("{a"), None);
        let deep = format!(
            "[{}0]",
            format!("{}{},", "[".repeat(120), "]".repeat(120)).repeat(4000)
        );
        assert!(deep.len() < MAX_PRETTY);
        assert_eq!(pretty(&deep), None);
    }
}
