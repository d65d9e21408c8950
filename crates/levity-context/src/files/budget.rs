//! Distribution of the budget among the files.
//!
//! The goal is that short files are complete and long ones are cut to about the same length. Each
//! selected file first gets a minimum, then all get the same additional number of tokens, up to
//! their own need. Files are selected by rank until the minimum no longer fits, and the others are
//! named in a note, for which tokens are reserved.

use levity_core::ContextBlock;

use super::find::File;
use super::read::not_shown;

/// The minimum number of tokens for a file, without its name; fewer are not useful.
const MIN_TOKENS: usize = 40;
/// The tokens reserved for naming the omitted files.
const RESERVED_TOKENS: usize = 64;

/// A file and its number of tokens.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) file: File,
    pub(super) tokens: usize,
}

/// The distribution of the budget.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The files that are shown, in their order.
    pub(super) shares: Vec<Share>,
    /// The names of the omitted files.
    pub(super) left_out: Vec<String>,
    /// The number of tokens for naming the omitted files.
    pub(super) reserved: usize,
    /// The number of unused tokens.
    pub(super) spare: usize,
}

/// Distributes the budget among the files.
///
/// The reservation is returned to the files if all of them were selected.
pub(super) fn plan(files: Vec<File>, room: usize, max_files: usize) -> Plan {
    let demands: Vec<TokenDemand> = files.iter().map(TokenDemand::of).collect();
    let all = demands
        .iter()
        .fold(0, |sum: usize, demand| sum.saturating_add(demand.cost()));
    let is_short = all > room || files.len() > max_files;
    let reserved = if is_short {
        RESERVED_TOKENS.min(room / 4)
    } else {
        0
    };
    let (chosen, rest) = choose(&files, &demands, room - reserved, max_files);
    let (reserved, rest) = if chosen.contains(&false) {
        (reserved, rest)
    } else {
        (0, rest + reserved)
    };
    let (level, spare) = level(&demands, &chosen, rest);
    let mut plan = Plan {
        spare,
        reserved,
        ..Plan::default()
    };
    for ((file, demand), is_chosen) in files.into_iter().zip(demands).zip(chosen) {
        match is_chosen {
            true => plan.shares.push(Share {
                file,
                tokens: demand.least + demand.more.min(level),
            }),
            false => plan.left_out.push(file.name),
        }
    }
    plan
}

/// The number of tokens that a file needs.
struct TokenDemand {
    /// The minimum number of tokens, including those of the name.
    least: usize,
    /// The additional tokens for the complete file.
    more: usize,
}

impl TokenDemand {
    /// An unreadable file needs the tokens of its note.
    fn of(file: &File) -> Self {
        let text = match &file.at {
            Ok((_, size)) => usize::try_from(*size).unwrap_or(usize::MAX).div_ceil(4),
            Err(reason) => not_shown(reason).len().div_ceil(4),
        };
        let name = ContextBlock::new(file.name.as_str(), "").tokens();
        Self {
            least: name + text.min(MIN_TOKENS),
            more: text.saturating_sub(MIN_TOKENS),
        }
    }

    fn cost(&self) -> usize {
        self.least.saturating_add(self.more)
    }
}

/// Selects files by rank, then by order, as long as their minimum fits. Returns the selection and
/// the remaining tokens.
fn choose(
    files: &[File],
    demands: &[TokenDemand],
    room: usize,
    max_files: usize,
) -> (Vec<bool>, usize) {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(files[*n].rank));
    let mut chosen = vec![false; files.len()];
    let (mut room, mut places) = (room, max_files);
    for n in order {
        if demands[n].least <= room && places > 0 {
            chosen[n] = true;
            (room, places) = (room - demands[n].least, places - 1);
        }
    }
    (chosen, room)
}

/// Returns the equal share of additional tokens per selected file, up to its full size, and the
/// remainder.
///
/// This is water filling: the smallest needs are met first, and the rest is divided evenly. The
/// level is `usize::MAX` if all needs can be met.
fn level(demands: &[TokenDemand], chosen: &[bool], room: usize) -> (usize, usize) {
    let chosen = demands.iter().zip(chosen).filter(|(_, chosen)| **chosen);
    let mut demanded: Vec<usize> = chosen.map(|(demand, _)| demand.more).collect();
    demanded.sort_unstable();
    let (mut room, mut remaining_files) = (room, demanded.len());
    for more in demanded {
        if more > room / remaining_files {
            return (room / remaining_files, room % remaining_files);
        }
        (room, remaining_files) = (room - more, remaining_files - 1);
    }
    (usize::MAX, room)
}

#[cfg(test)]
mod tests {
    use super::super::find::FileLocation;
    use super::*;

    fn file(name: &str, bytes: u64, rank: usize) -> File {
        File {
            name: name.to_owned(),
            at: Ok((FileLocation::Inside(name.to_owned()), bytes)),
            rank,
        }
    }

    #[track_caller]
    fn check(
        files: &[(&str, u64, usize)],
        room: usize,
        expected: &[(&str, usize)],
        left_out: &[&str],
    ) {
        let files = files
            .iter()
            .map(|(name, bytes, rank)| file(name, *bytes, *rank))
            .collect();
        let plan = plan(files, room, 4);
        let shares: Vec<_> = plan
            .shares
            .iter()
            .map(|share| (share.file.name.as_str(), share.tokens))
            .collect();
        assert_eq!(
            (shares.as_slice(), plan.left_out),
            (
                expected,
                left_out.iter().map(|&name| name.to_owned()).collect()
            )
        );
        assert_eq!(
            shares.iter().map(|(_, tokens)| tokens).sum::<usize>() + plan.spare + plan.reserved,
            room
        );
    }

    #[test]
    fn files_within_budget_are_complete() {
        check(
            &[("a", 400, 0), ("b", 0, 0)],
            106,
            &[("a", 103), ("b", 3)],
            &[],
        );
        check(&[], 0, &[], &[]);
        check(&[], 100, &[], &[]);
    }

    #[test]
    fn long_files_are_cut_before_short_ones() {
        check(
            &[("a", 4_000, 0), ("b", 200, 0), ("c", 8_000, 2)],
            400,
            &[("a", 173), ("b", 53), ("c", 173)],
            &[],
        );
    }

    #[test]
    fn nearest_files_are_selected_first() {
        let files = [
            ("a", 4_000, 0),
            ("b", 4_000, 0),
            ("c", 4_000, 2),
            ("d", 4_000, 3),
        ];
        check(&files, 180, &[("a", 45), ("c", 45), ("d", 45)], &["b"]);
        check(&files, 60, &[("d", 45)], &["a", "b", "c"]);
        check(&files, 20, &[], &["a", "b", "c", "d"]);
        check(&files, 0, &[], &["a", "b", "c", "d"]);
    }

    #[test]
    fn number_of_files_is_limited() {
        let files = [
            ("a", 4, 0),
            ("b", 4, 0),
            ("c", 4, 0),
            ("d", 4, 0),
            ("e", 4, 2),
        ];
        check(
            &files,
            1_000,
            &[("a", 4), ("b", 4), ("c", 4), ("e", 4)],
            &["d"],
        );
    }
}
