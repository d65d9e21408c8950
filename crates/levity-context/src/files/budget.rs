//! How much of each file is shown.

use levity_core::ContextBlock;

use super::find::File;
use super::read::not_shown;

/// How many tokens of a file are shown at least, its name aside: fewer are no use to anybody.
const LEAST: usize = 40;
/// What is kept for naming the files that are left out, in tokens.
const SPARE: usize = 64;

/// A file, and how many tokens it may take.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) file: File,
    pub(super) tokens: usize,
}

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The files that are shown, in their order.
    pub(super) shares: Vec<Share>,
    /// The names of the others.
    pub(super) left_out: Vec<String>,
    /// How many tokens there are for naming those.
    pub(super) kept: usize,
    /// How many tokens are left.
    pub(super) spare: usize,
}

/// Gives each file its share of the room.
pub(super) fn plan(files: Vec<File>, room: usize, max_files: usize) -> Plan {
    let wishes: Vec<Wish> = files.iter().map(Wish::of).collect();
    let all = wishes
        .iter()
        .fold(0, |sum: usize, wish| sum.saturating_add(wish.cost()));
    let is_short = all > room || files.len() > max_files;
    let kept = if is_short { SPARE.min(room / 4) } else { 0 };
    let (chosen, rest) = choose(&files, &wishes, room - kept, max_files);
    let (kept, rest) = if chosen.contains(&false) {
        (kept, rest)
    } else {
        (0, rest + kept)
    };
    let (level, spare) = level(&wishes, &chosen, rest);
    let mut plan = Plan {
        spare,
        kept,
        ..Plan::default()
    };
    for ((file, wish), is_chosen) in files.into_iter().zip(wishes).zip(chosen) {
        match is_chosen {
            true => plan.shares.push(Share {
                file,
                tokens: wish.least + wish.more.min(level),
            }),
            false => plan.left_out.push(file.name),
        }
    }
    plan
}

/// How many tokens a file takes.
struct Wish {
    /// At least.
    least: usize,
    /// And how many more when it is whole.
    more: usize,
}

impl Wish {
    fn of(file: &File) -> Self {
        let text = match &file.at {
            Ok((_, size)) => usize::try_from(*size).unwrap_or(usize::MAX).div_ceil(4),
            Err(reason) => not_shown(reason).len().div_ceil(4),
        };
        let name = ContextBlock::new(file.name.as_str(), "").tokens();
        Self {
            least: name + text.min(LEAST),
            more: text.saturating_sub(LEAST),
        }
    }

    fn cost(&self) -> usize {
        self.least.saturating_add(self.more)
    }
}

/// Which files have a place, and what is left when each takes the least: those of the highest rank
/// first, and of one rank in their order.
fn choose(files: &[File], wishes: &[Wish], room: usize, max_files: usize) -> (Vec<bool>, usize) {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(files[*n].rank));
    let mut chosen = vec![false; files.len()];
    let (mut room, mut places) = (room, max_files);
    for n in order {
        if wishes[n].least <= room && places > 0 {
            chosen[n] = true;
            (room, places) = (room - wishes[n].least, places - 1);
        }
    }
    (chosen, room)
}

/// How much more each file may take so that all that were chosen take the same or are whole, and
/// what is left then.
fn level(wishes: &[Wish], chosen: &[bool], room: usize) -> (usize, usize) {
    let chosen = wishes.iter().zip(chosen).filter(|(_, chosen)| **chosen);
    let mut wanted: Vec<usize> = chosen.map(|(wish, _)| wish.more).collect();
    wanted.sort_unstable();
    let (mut room, mut left) = (room, wanted.len());
    for more in wanted {
        if more > room / left {
            return (room / left, room % left);
        }
        (room, left) = (room - more, left - 1);
    }
    (usize::MAX, room)
}

#[cfg(test)]
mod tests {
    use super::super::find::Place;
    use super::*;

    fn file(name: &str, bytes: u64, rank: usize) -> File {
        File {
            name: name.to_owned(),
            at: Ok((Place::Inside(name.to_owned()), bytes)),
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
            shares.iter().map(|(_, tokens)| tokens).sum::<usize>() + plan.spare + plan.kept,
            room
        );
    }

    #[test]
    fn what_fits_is_whole() {
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
    fn long_files_yield_to_short_ones() {
        check(
            &[("a", 4_000, 0), ("b", 200, 0), ("c", 8_000, 2)],
            400,
            &[("a", 173), ("b", 53), ("c", 173)],
            &[],
        );
    }

    #[test]
    fn what_is_nearest_has_its_place_first() {
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
    fn there_are_no_more_files_than_may_be() {
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
