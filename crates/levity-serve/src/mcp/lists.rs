//! Lists in parts, and the tools as clients are told of them.

use std::sync::{Arc, PoisonError};

use levity_rpc::mcp::Tool;

use super::portable::portable;
use super::server::Inner;
use super::{Page, RequestError, wire};

impl Inner {
    /// All tools. Those who listen are told when they are others than before.
    pub(super) fn tools(&self) -> Arc<[Tool]> {
        let specs = self.dispatcher.specs();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, tools)) = told.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &specs)) {
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
        let changed = told.replace((specs, tools.clone())).is_some();
        drop(told);
        if changed {
            self.changes.tools();
        }
        tools
    }
}

/// The part of `items` that `cursor` names, and where the next begins.
pub(super) fn part<T: Clone>(
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

/// Which of several lists a cursor is about, and what it says there.
pub(super) fn place(
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

/// Where it goes on: in this list, or at the beginning of the next.
pub(super) fn next(at: usize, lists: usize, next: Option<String>) -> Option<String> {
    match next {
        Some(next) => Some(format!("{at}:{next}")),
        None => (at + 1 < lists).then(|| format!("{}:", at + 1)),
    }
}

/// Whether a list has nothing and another one follows: clients take an empty page for the end.
pub(super) fn is_passed_over<T>(page: &Page<T>, at: usize, lists: usize) -> bool {
    page.items.is_empty() && page.next.is_none() && at + 1 < lists
}

fn unknown() -> RequestError {
    RequestError::invalid("`cursor` is not of this server; begin again without it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up() {
        let items: Vec<u32> = (0..7).collect();
        let (mut seen, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = part(&items, cursor.as_deref(), 3).unwrap();
            assert!(page.items.len() <= 3);
            seen.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, items);
        for bad in ["", "-1", "8", "x", "99999999999999999999999"] {
            assert!(part(&items, Some(bad), 3).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_follow_each_other() {
        assert_eq!(next(0, 2, Some("a:b".into())).as_deref(), Some("0:a:b"));
        assert_eq!(place(Some("0:a:b"), 2).unwrap(), (0, Some("a:b".into())));
        assert_eq!(next(0, 2, None).as_deref(), Some("1:"));
        assert_eq!(place(Some("1:"), 2).unwrap(), (1, None));
        assert_eq!(next(1, 2, None), None);
        assert!(place(Some("2:"), 2).is_err() && place(Some("x"), 2).is_err());
    }
}
