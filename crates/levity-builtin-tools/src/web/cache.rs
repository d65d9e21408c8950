//! A cache of recently read pages, so that later parts need no new request.
//!
//! The cache holds at most 16 pages with 8 MiB of text for 15 minutes. It belongs to one tool and
//! is lost with it; a page that is not found is downloaded again, so nothing depends on it. Time
//! comes from the caller.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levity_core::Timestamp;

use super::page::Page;

/// The maximum number of cached pages, their total size in bytes and their maximum age.
const MAX_PAGES: usize = 16;
const MAX_BYTES: usize = 8 * 1024 * 1024;
const MAX_AGE: Duration = Duration::from_secs(15 * 60);

/// Pages by requested address, most recently read last.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    url: String,
    read: Timestamp,
    page: Arc<Page>,
}

impl Cache {
    /// Removes outdated pages first.
    pub(super) fn get(&self, url: &str, now: Timestamp) -> Option<Arc<Page>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| now.since(entry.read) <= MAX_AGE);
        entries
            .iter()
            .find(|entry| entry.url == url)
            .map(|entry| entry.page.clone())
    }

    /// Replaces an older copy of the page, and removes the pages that were read longest ago.
    pub(super) fn put(&self, url: String, now: Timestamp, page: Arc<Page>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.url != url);
        entries.push(Entry {
            url,
            read: now,
            page,
        });
        let bytes = |entries: &[Entry]| {
            entries
                .iter()
                .map(|entry| entry.page.text.len())
                .sum::<usize>()
        };
        while entries.len() > MAX_PAGES || bytes(&entries) > MAX_BYTES {
            entries.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::Kind;
    use super::*;

    fn page(bytes: usize) -> Arc<Page> {
        let (url, text) = (String::new(), "x".repeat(bytes));
        Arc::new(Page {
            url,
            requested: None,
            title: None,
            kind: Kind::Text,
            text,
            notes: Vec::new(),
        })
    }

    #[test]
    fn cache_evicts_old_and_excess_pages() {
        let (cache, now) = (Cache::default(), Timestamp::from_millis(1000));
        for at in 0..20 {
            cache.put(at.to_string(), now, page(1));
        }
        assert!(cache.get("3", now).is_none() && cache.get("4", now).is_some());
        assert!(cache.get("4", now.after(MAX_AGE)).is_some());
        assert!(
            cache
                .get("4", now.after(MAX_AGE + Duration::from_millis(1)))
                .is_none()
        );
        for at in 0..9 {
            cache.put(at.to_string(), now, page(1 << 20));
        }
        assert!(cache.get("0", now).is_none() && cache.get("1", now).is_some());
        cache.put("1".into(), now, page(2));
        assert_eq!(cache.get("1", now).map(|page| page.text.len()), Some(2));
    }
}
