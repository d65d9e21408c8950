//! Marks that control how much of a request the prompt cache stores.
//!
//! A mark ends a prefix of the request that the API stores and finds again. The API allows four
//! marks per request, and rejects a long-lived mark after a short-lived one. All marks of levity
//! therefore have the same lifetime.

/// The lifetime of entries in the prompt cache.
///
/// Choose [`OneHour`](Self::OneHour) if the pauses between two turns exceed five minutes, as in a
/// chat with a person. The API charges more for writing such an entry and the same for reading it.
///
/// ```
/// use levity_llm::CacheTtl;
///
/// assert_eq!(CacheTtl::default(), CacheTtl::FiveMinutes);
/// ```
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
///
/// `None` means that the request has no marks at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks(Option<CacheTtl>);

impl Default for Marks {
    fn default() -> Self {
        Self::with_ttl(CacheTtl::default())
    }
}

impl Marks {
    /// Creates marks with this lifetime.
    pub(super) fn with_ttl(ttl: CacheTtl) -> Self {
        Self(Some(ttl))
    }

    /// Returns `true` if marked content is cached for an hour.
    pub(super) fn caches_for_hour(self) -> bool {
        matches!(self.0, Some(CacheTtl::OneHour))
    }

    /// Creates a setting without marks.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Returns `true` if marks are set.
    pub(super) fn are_set(self) -> bool {
        self.0.is_some()
    }

    /// Marks the object at the end of `bytes`. It overwrites the closing brace, so that a moving
    /// mark requires no new encoding.
    ///
    /// Bytes that do not end with `}` stay unchanged.
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
