//! Several libraries behind one `search` and one `fetch`.
//!
//! Libraries are searched one after the other, in the order in which they were added. For `fetch`,
//! the first library that knows the id answers; an error ends the lookup.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Document, Hit, Library, LibraryError};

/// Several libraries combined into one.
#[derive(Clone, Default)]
pub(crate) struct CombinedLibrary(Vec<Arc<dyn Library>>);

impl CombinedLibrary {
    pub(crate) fn push(&mut self, library: impl Library + 'static) {
        self.0.push(Arc::new(library));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[async_trait]
impl Library for CombinedLibrary {
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, LibraryError> {
        self.search_for("", query, limit).await
    }

    /// Interleaves the results, best first, because scores of different libraries are not
    /// comparable. If a library fails, the results of the others remain.
    async fn search_for(
        &self,
        tenant: &str,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, LibraryError> {
        let mut failed = None;
        let mut lists = Vec::new();
        for library in &self.0 {
            match library.search_for(tenant, query, limit).await {
                Ok(hits) => lists.push(hits.into_iter()),
                Err(error) => failed = Some(error),
            }
        }
        let mut found = Vec::new();
        while found.len() < limit {
            let before = found.len();
            found.extend(lists.iter_mut().filter_map(Iterator::next));
            if found.len() == before {
                break;
            }
        }
        found.truncate(limit);
        match failed {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    async fn fetch(&self, id: &str) -> Result<Option<Document>, LibraryError> {
        let mut failed = None;
        for library in &self.0 {
            match library.fetch(id).await {
                Ok(Some(document)) => return Ok(Some(document)),
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }
}
