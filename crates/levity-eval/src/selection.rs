//! The choice of cases, for quick evaluations and for a held-out half.
//!
//! Odd and even cases split a suite into two halves that never overlap: one to develop with, one to
//! measure.

use crate::Case;

/// A selection of the cases of each category; all by default.
///
/// ```
/// use levity_eval::{Case, Expectation, Selection};
///
/// let case = |id: &str| Case::new(id, "", Expectation::NoCalls).with_category("irrelevance");
/// let mut selection = Selection::new();
/// selection.odd = Some(false);
/// selection.limit = Some(1);
/// let chosen = selection.of(vec![case("a"), case("b"), case("c")], &["irrelevance"]);
/// assert_eq!(chosen.len(), 1);
/// assert_eq!(chosen[0].id, "a");
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Selection {
    /// Selects only cases whose index in their category, from 0, is odd (`Some(true)`) or even
    /// (`Some(false)`).
    pub odd: Option<bool>,
    /// The number of cases to skip.
    pub offset: usize,
    /// The maximum number of cases.
    pub limit: Option<usize>,
}

impl Selection {
    /// Creates a selection of all cases.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects among cases, separately in each category. Without categories, all are included.
    pub fn of(&self, cases: Vec<Case>, categories: &[impl AsRef<str>]) -> Vec<Case> {
        let is_selected = |name: &str| {
            categories.is_empty() || categories.iter().any(|category| category.as_ref() == name)
        };
        let mut groups: Vec<(String, Vec<Case>)> = Vec::new();
        for case in cases.into_iter().filter(|case| is_selected(&case.category)) {
            match groups.iter_mut().find(|(name, _)| *name == case.category) {
                Some((_, group)) => group.push(case),
                None => groups.push((case.category.clone(), vec![case])),
            }
        }
        groups
            .into_iter()
            .flat_map(|(_, group)| self.choose(group))
            .collect()
    }

    /// Filters by parity first; offset and limit then count the remaining rows.
    pub(crate) fn choose<T>(self, rows: Vec<T>) -> impl Iterator<Item = T> {
        let is_chosen = move |at: &usize| self.odd.is_none_or(|odd| (at % 2 == 1) == odd);
        let chosen = rows
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| is_chosen(at))
            .map(|(_, row)| row);
        chosen
            .skip(self.offset)
            .take(self.limit.unwrap_or(usize::MAX))
    }
}
