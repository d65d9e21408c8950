use crate::Case;

/// A selection of the cases of each category; all by default.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Selection {
    /// Only cases whose index in their category, from 0, is odd (`Some(true)`) or even
    /// (`Some(false)`).
    pub odd: Option<bool>,
    /// The number of cases to skip.
    pub offset: usize,
    /// The number of cases to read.
    pub limit: Option<usize>,
}

impl Selection {
    /// All cases.
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses among cases, in each category for itself. Without categories, all are wanted.
    pub fn of(&self, cases: Vec<Case>, categories: &[impl AsRef<str>]) -> Vec<Case> {
        let wanted = |name: &str| {
            categories.is_empty() || categories.iter().any(|category| category.as_ref() == name)
        };
        let mut groups: Vec<(String, Vec<Case>)> = Vec::new();
        for case in cases.into_iter().filter(|case| wanted(&case.category)) {
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
