//! Marks that tell the prompt cache how far to keep a request.

/// How long the prompt cache keeps what is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheTtl {
    /// Five minutes from the last use.
    #[default]
    FiveMinutes,
    /// An hour from the last use; putting it there costs more.
    OneHour,
}

/// The field of a mark.
pub(super) const MARK: &str = "cache_control";

/// The mark that is set, if any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks(Option<CacheTtl>);

impl Default for Marks {
    fn default() -> Self {
        Self::lasting(CacheTtl::default())
    }
}

impl Marks {
    pub(super) fn lasting(ttl: CacheTtl) -> Self {
        Self(Some(ttl))
    }

    /// Whether what is marked is kept for an hour.
    pub(super) fn keeps_an_hour(self) -> bool {
        matches!(self.0, Some(CacheTtl::OneHour))
    }

    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Whether there are any.
    pub(super) fn are_set(self) -> bool {
        self.0.is_some()
    }

    /// Marks the object that `bytes` end with. It is written over the object's end, so that nothing
    /// has to be encoded anew for a mark that moves.
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

/// Whether somebody has set a mark in these blocks. In a text the quotation marks would not stand
/// so.
pub(super) fn is_marked(json: &[u8]) -> bool {
    memchr::memmem::find(json, br#""cache_control":"#).is_some()
}
