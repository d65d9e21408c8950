/// The drafts that somebody was asked for, and what was wrong with the last of them.
///
/// A plan or a verdict that cannot be used is asked for again, with the complaints, as often as it
/// may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Drafts {
    rejected: u32,
    complaints: Vec<String>,
    previous: Option<String>,
}

impl Drafts {
    /// Rejects a draft. Returns whether another may be asked for, when `most` are allowed in all.
    pub fn reject(&mut self, complaints: Vec<String>, draft: impl Into<String>, most: u32) -> bool {
        (self.complaints, self.previous) = (complaints, Some(draft.into()));
        self.fail(most)
    }

    /// Counts a draft that never came. The complaints about the one before stand.
    pub fn fail(&mut self, most: u32) -> bool {
        self.rejected = self.rejected.saturating_add(1);
        self.rejected < most
    }

    /// How many drafts were rejected or never came.
    pub fn rejected(&self) -> u32 {
        self.rejected
    }

    /// The complaints about the last draft that came.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The last draft that came, if one was rejected.
    pub fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_that_never_came_counts_and_keeps_the_complaints() {
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
