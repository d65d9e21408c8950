//! A fetched page as text, with its address.
//!
//! A page is stored as text and never as HTML. At most 2 MiB of text are kept, and positions are
//! byte offsets into it. JSON is indented, so that it can be cut between lines.

use levity_sandbox::Body;

use levity_html::{decode, extract, visible};

use super::kind::{Kind, refuse_binary};

/// The maximum size of a page's stored text, in bytes.
pub(super) const MAX_TEXT: usize = 2 * 1024 * 1024;

/// The maximum size of JSON that is pretty-printed, in bytes.
const MAX_PRETTY: usize = 1024 * 1024;

/// A fetched page as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The address of the page, after all redirects.
    pub(super) url: String,
    /// The requested address, if it differs.
    pub(super) requested: Option<String>,
    pub(super) title: Option<String>,
    pub(super) kind: Kind,
    pub(super) text: String,
    /// Notes about the page for the reader.
    pub(super) notes: Vec<&'static str>,
}

/// The origin of a page and its properties from the response header.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) url: String,
    pub(super) requested: Option<String>,
    pub(super) kind: Option<Kind>,
    pub(super) charset: Option<String>,
    pub(super) is_partial: bool,
}

impl Page {
    /// Parses a response body; `Err` names content that cannot be read.
    pub(super) fn read(body: &Body, source: Source) -> Result<Self, String> {
        refuse_binary(&body.bytes)?;
        let kind = source
            .kind
            .map_or_else(|| Kind::of_bytes(&body.bytes), Ok)?;
        let is_markup = matches!(kind, Kind::Html | Kind::Xml);
        let raw = decode(&body.bytes, source.charset.as_deref(), is_markup);
        let mut notes = Vec::new();
        let (title, text, is_cut) = match kind {
            Kind::Html => {
                let found = extract(&raw, &source.url, MAX_TEXT);
                if found.is_thin {
                    notes.push(
                        "the page has hardly any text of its own; it may be made by \
                        scripts, which are not run",
                    );
                }
                (found.title, found.text, found.is_cut)
            }
            Kind::Json => capped(pretty(&raw).as_deref().unwrap_or(&raw)),
            Kind::Xml | Kind::Text => capped(&raw),
        };
        if body.is_truncated || is_cut {
            notes.push("the page was too long to be read whole; its end is missing");
        }
        if source.is_partial {
            notes.push("the server sent only a part of the page");
        }
        Ok(Self {
            url: source.url,
            requested: source.requested,
            title,
            kind,
            text,
            notes,
        })
    }

    /// Returns the part of the text that begins at `offset`, and the offset of the next part. A
    /// long text is cut between paragraphs if possible.
    ///
    /// The cut is in the second half of the part, so no part is tiny. An offset within a character
    /// moves back to its beginning.
    pub(super) fn part(&self, offset: usize, max: usize) -> (&str, Option<usize>) {
        let start = crate::text::floor(&self.text, offset);
        let rest = &self.text[start..];
        if rest.len() <= max {
            return (rest, None);
        }
        let limit = crate::text::floor(rest, max);
        let limit = if limit == 0 {
            crate::text::ceil(rest, 1)
        } else {
            limit
        };
        let half = crate::text::ceil(rest, limit / 2);
        let cut = ["\n\n", "\n", ". ", " "].iter().find_map(|gap| {
            let found = rest[half..limit].rfind(gap)?;
            Some(half + found + gap.len())
        });
        let end = cut.unwrap_or(limit);
        (&rest[..end], (end < rest.len()).then_some(start + end))
    }
}

/// Returns the text, cut to the size limit.
fn capped(text: &str) -> (Option<String>, String, bool) {
    let cut = crate::text::floor(text, MAX_TEXT);
    (None, visible(text[..cut].trim()), cut < text.len())
}

/// Pretty-prints JSON; `None` if it is not JSON, or too long before or after.
fn pretty(text: &str) -> Option<String> {
    if text.len() > MAX_PRETTY {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut out = CappedBuffer(Vec::new());
    serde_json::to_writer_pretty(&mut out, &value).ok()?;
    String::from_utf8(out.0).ok()
}

/// A buffer with a size limit, because indentation can multiply the size a hundred times.
struct CappedBuffer(Vec<u8>);

impl std::io::Write for CappedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT {
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
        let (url, requested) = ("https://example.org/".to_owned(), None);
        Page {
            url,
            requested,
            title: None,
            kind: Kind::Text,
            text: text.to_owned(),
            notes: Vec::new(),
        }
    }

    /// Returns all parts, one after the other.
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
    fn part_cuts_text_between_paragraphs_lines_or_words() {
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
    fn json_is_pretty_printed_within_size_limit() {
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
