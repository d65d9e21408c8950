/// The drafts requested from a model, with the complaints about the last one.
///
/// A plan or a verdict that cannot be used is requested again with the complaints, up to a limit.
///
/// ```
/// use levity_graph::Drafts;
///
/// let mut drafts = Drafts::default();
/// assert!(drafts.reject(vec!["`id` is missing".to_owned()], "{}", 2));
/// assert_eq!((drafts.rejected(), drafts.previous()), (1, Some("{}")));
/// // The second draft never arrives, and two is the limit.
/// assert!(!drafts.fail(2));
/// assert_eq!(drafts.complaints(), ["`id` is missing"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Drafts {
    rejected: u32,
    complaints: Vec<String>,
    previous: Option<String>,
}

impl Drafts {
    /// Rejects a draft. Returns `true` if another may be requested, given a limit of `max` in all.
    ///
    /// ```
    /// use levity_graph::Drafts;
    ///
    /// let mut drafts = Drafts::default();
    /// // With a limit of one draft, there is no second attempt.
    /// assert!(!drafts.reject(Vec::new(), "no plan", 1));
    /// ```
    pub fn reject(&mut self, complaints: Vec<String>, draft: impl Into<String>, max: u32) -> bool {
        (self.complaints, self.previous) = (complaints, Some(draft.into()));
        self.fail(max)
    }

    /// Counts a draft that never arrived. The complaints about the previous one remain.
    pub fn fail(&mut self, max: u32) -> bool {
        self.rejected = self.rejected.saturating_add(1);
        self.rejected < max
    }

    /// Returns how many drafts were rejected or never arrived.
    pub fn rejected(&self) -> u32 {
        self.rejected
    }

    /// Returns the complaints about the last draft that arrived.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Returns the last draft that arrived, if one was rejected.
    pub fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail_counts_missing_draft_and_keeps_complaints() {
        let mut drafts = Drafts::default();
        assert!(drafts.reject(vec!["no".to_owned()], "{}", 3));
        assert!(drafts.fail(3));
        assert_eq!(
            (drafts.complaints(), drafts.previous()),
            (&["no".to_owned()][..], Some("{}"))
        );
        assert!(!drafts.fail(3));
        assert_eq!(drafts.rejected(), 3);
    }
}
