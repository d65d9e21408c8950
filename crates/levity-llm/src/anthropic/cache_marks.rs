//! Marks that control how much of a request the prompt cache stores.

/// The lifetime of entries in the prompt cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheTtl {
    /// Five minutes from the last use.
    #[default]
    FiveMinutes,
    /// One hour from the last use; writing to the cache costs more.
    OneHour,
}

/// The field of a cache mark.
pub(super) const MARK: &str = "cache_control";

/// The cache mark to set, if any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks(Option<CacheTtl>);

impl Default for Marks {
    fn default() -> Self {
        Self::with_ttl(CacheTtl::default())
    }
}

impl Marks {
    pub(super) fn with_ttl(ttl: CacheTtl) -> Self {
        Self(Some(ttl))
    }

    /// Returns `true` if marked content is cached for an hour.
    pub(super) fn caches_for_hour(self) -> bool {
        matches!(self.0, Some(CacheTtl::OneHour))
    }

    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Returns `true` if marks are set.
    pub(super) fn are_set(self) -> bool {
        self.0.is_some()
    }

    /// Marks the object at the end of `bytes`. It overwrites the closing brace, so that a moving
    /// mark requires no new encoding.
    pub(super) fn put(self, bytes: &mut Vec<u8>) {
        let Some(ttl) = self.0 else { return };
        if bytes.pop_if(|last| *last == b'}').is_some() {
            bytes.extend_from_slice(match ttl {
                CacheTtl::FiveMinutes => br#","cache_control":{"type":"ephemeral"}}"#,
                CacheTtl::OneHour => br#","cache_control":{"type":"ephemeral","ttl":"1h"}}"#,
            });
        }
    }
}

/// Returns `true` if the user has set a mark in these blocks. In a text, the quotes would be
/// escaped.
pub(super) fn is_marked(json: &[u8]) -> bool {
    memchr::memmem::find(json, br#""cache_control":"#).is_some()
}
