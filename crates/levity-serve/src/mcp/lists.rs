//! Pages of lists, and the list of tools as clients see it.
//!
//! Clients see several providers as one list. A cursor is `PROVIDER:CURSOR`, so that each provider
//! keeps its own cursors; an empty provider is skipped, because clients take an empty page for the
//! end. Cursors are untrusted: an invalid one is an error and never a panic.

use std::sync::{Arc, PoisonError};

use levity_rpc::mcp::Tool;

use super::portable::portable;
use super::server::Inner;
use super::{Page, RequestError, wire};

impl Inner {
    /// Returns all tools. Listeners are notified if the list has changed.
    ///
    /// The list is built again only if the specs have changed, which a pointer comparison shows.
    /// Handlers come after plain tools.
    pub(super) fn tools(&self) -> Arc<[Tool]> {
        let specs = self.dispatcher.specs();
        let mut tool_list = self
            .tool_list
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((of, tools)) = tool_list.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &specs)) {
            let _ = of;
            return tools.clone();
        }
        let plain = specs
            .iter()
            .filter(|spec| !self.offers.contains_key(&spec.name))
            .filter_map(|spec| {
                wire::tool(
                    spec,
                    &portable(&spec.input),
                    spec.output.as_ref().map(portable).as_ref(),
                )
            });
        let offers = self
            .order
            .iter()
            .filter_map(|name| self.offers.get(name))
            .filter_map(|offer| {
                let spec = offer.handler.spec();
                wire::tool(spec, &spec.input, spec.output.as_ref())
            });
        let tools: Arc<[Tool]> = plain.chain(offers).collect();
        let changed = tool_list.replace((specs, tools.clone())).is_some();
        drop(tool_list);
        if changed {
            self.changes.tools();
        }
        tools
    }
}

/// Returns the page of `items` that `cursor` selects, and the next cursor.
pub(super) fn page<T: Clone>(
    items: &[T],
    cursor: Option<&str>,
    size: usize,
) -> Result<Page<T>, RequestError> {
    let start = match cursor {
        None => 0,
        Some(cursor) => cursor
            .parse()
            .ok()
            .filter(|at| *at <= items.len())
            .ok_or_else(unknown)?,
    };
    let end = start.saturating_add(size.max(1)).min(items.len());
    let next = (end < items.len()).then(|| end.to_string());
    Ok(Page {
        items: items[start..end].to_vec(),
        next,
    })
}

/// Returns the list that a cursor selects, and the cursor within that list.
///
/// `1:abc` selects the second provider with its cursor `abc`, and `1:` its beginning.
pub(super) fn parse_cursor(
    cursor: Option<&str>,
    lists: usize,
) -> Result<(usize, Option<String>), RequestError> {
    let Some(cursor) = cursor else {
        return Ok((0, None));
    };
    let (at, rest) = cursor.split_once(':').ok_or_else(unknown)?;
    let at = at
        .parse()
        .ok()
        .filter(|at| *at < lists)
        .ok_or_else(unknown)?;
    Ok((at, (!rest.is_empty()).then(|| rest.to_owned())))
}

/// Returns the next cursor: in this list, or at the beginning of the next.
pub(super) fn next_cursor(at: usize, lists: usize, next_cursor: Option<String>) -> Option<String> {
    match next_cursor {
        Some(next_cursor) => Some(format!("{at}:{next_cursor}")),
        None => (at + 1 < lists).then(|| format!("{}:", at + 1)),
    }
}

/// Returns `true` if a list is empty and another one follows, because clients take an empty page
/// for the end.
pub(super) fn is_skipped<T>(page: &Page<T>, at: usize, lists: usize) -> bool {
    page.items.is_empty() && page.next.is_none() && at + 1 < lists
}

fn unknown() -> RequestError {
    RequestError::invalid("`cursor` is not from this server; start again without it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_all_items_once() {
        let items: Vec<u32> = (0..7).collect();
        let (mut seen, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = page(&items, cursor.as_deref(), 3).unwrap();
            assert!(page.items.len() <= 3);
            seen.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, items);
        for bad in ["", "-1", "8", "x", "99999999999999999999999"] {
            assert!(page(&items, Some(bad), 3).is_err(), "{bad}");
        }
    }

    #[test]
    fn cursor_continues_with_the_next_list() {
        assert_eq!(
            next_cursor(0, 2, Some("a:b".into())).as_deref(),
            Some("0:a:b")
        );
        assert_eq!(
            parse_cursor(Some("0:a:b"), 2).unwrap(),
            (0, Some("a:b".into()))
        );
        assert_eq!(next_cursor(0, 2, None).as_deref(), Some("1:"));
        assert_eq!(parse_cursor(Some("1:"), 2).unwrap(), (1, None));
        assert_eq!(next_cursor(1, 2, None), None);
        assert!(parse_cursor(Some("2:"), 2).is_err() && parse_cursor(Some("x"), 2).is_err());
    }
}
