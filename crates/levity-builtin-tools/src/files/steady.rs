//! A pattern whose search can be stopped at any time.

use std::fmt;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use levity_core::CancelToken;

/// How large a compiled pattern may be, in bytes, and how much text it is given at once: an engine
/// without a table takes a step for each state and each byte, and cannot be stopped meanwhile.
const TIERS: [(usize, usize); 3] = [
    (128 << 10, 32 << 10),
    (1 << 20, 4 << 10),
    (4 << 20, 1 << 10),
];

/// How much memory an engine takes for its table.
const MAX_TABLE: usize = 2 << 20;

/// How deep groups may be nested.
const MAX_NEST: u32 = 100;

/// Compiles a pattern, and says how much text it can be given at once.
pub(super) fn compile(
    pattern: &str,
    literal: bool,
    ignore_case: bool,
) -> Result<(RegexMatcher, usize), grep_regex::Error> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .line_terminator(Some(b'\n'))
        .multi_line(true)
        .dfa_size_limit(MAX_TABLE)
        .nest_limit(MAX_NEST);
    builder.fixed_strings(literal).case_insensitive(ignore_case);
    let mut last = None;
    for (size, step) in TIERS {
        match builder.size_limit(size).build(pattern) {
            Ok(matcher) => return Ok((matcher, step)),
            Err(error) => last = Some(error),
        }
    }
    // There is always an error here, as each tier has failed.
    last.map_or_else(|| builder.build(pattern).map(|matcher| (matcher, 1)), Err)
}

/// Gives a pattern some text at a time, and looks in between whether anybody still waits.
///
/// A text is divided behind line ends, where no match of a pattern for lines is lost. A line that
/// is longer than a step is searched in parts that overlap.
#[derive(Debug)]
pub(super) struct Steady<'a, M> {
    pub(super) inner: &'a M,
    pub(super) step: usize,
    pub(super) cancel: &'a CancelToken,
}

/// Why a search did not come to its end.
#[derive(Debug)]
pub(super) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the search was stopped")
    }
}

/// A part of a text.
struct Part {
    start: usize,
    end: usize,
    /// Whether it ends where a line does.
    is_whole: bool,
}

impl<M: Matcher> Steady<'_, M> {
    /// Looks at one part after the other until `look` finds something.
    fn each<T>(
        &self,
        text: &[u8],
        at: usize,
        mut look: impl FnMut(Part) -> Result<Option<T>, M::Error>,
    ) -> Result<Option<T>, Stopped> {
        let mut start = at;
        loop {
            if self.cancel.is_cancelled() {
                return Err(Stopped);
            }
            let most = text.len().min(start.saturating_add(self.step));
            let line = text[start..most]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map(|end| start + end + 1);
            let end = if most == text.len() {
                most
            } else {
                line.unwrap_or(most)
            };
            let is_whole = end == text.len() || line.is_some();
            // Behind the last line end a line would seem to begin that is empty.
            let seen = if line.is_some() && end < text.len() {
                end - 1
            } else {
                end
            };
            if let Some(found) = look(Part {
                start,
                end: seen,
                is_whole,
            })
            .map_err(|_| Stopped)?
            {
                return Ok(Some(found));
            }
            if end == text.len() {
                return Ok(None);
            }
            start = if is_whole { end } else { end - self.step / 4 };
        }
    }
}

impl<M: Matcher> Matcher for Steady<'_, M> {
    type Captures = NoCaptures;
    type Error = Stopped;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
        self.each(text, at, |part| {
            self.inner.find_at(&text[..part.end], part.start)
        })
    }

    fn new_captures(&self) -> Result<NoCaptures, Stopped> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, text: &[u8], at: usize) -> Result<Option<usize>, Stopped> {
        self.each(text, at, |part| {
            self.inner.shortest_match_at(&text[..part.end], part.start)
        })
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.inner.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.inner.line_terminator()
    }

    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, Stopped> {
        let mut begins_line = true;
        self.each(text, 0, |part| {
            let begins = std::mem::replace(&mut begins_line, part.is_whole);
            if !begins || !part.is_whole {
                // The line is too long to be looked at whole, so a part of it decides.
                let found = self
                    .inner
                    .shortest_match_at(&text[..part.end], part.start)?;
                return Ok(found
                    .map(|end| LineMatchKind::Confirmed(end.saturating_sub(1).max(part.start))));
            }
            let found = self
                .inner
                .find_candidate_line(&text[part.start..part.end])?;
            Ok(found.map(|kind| match kind {
                LineMatchKind::Confirmed(at) => LineMatchKind::Confirmed(part.start + at),
                LineMatchKind::Candidate(at) => LineMatchKind::Candidate(part.start + at),
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A matcher that finds nothing, counts how often it is asked, and cancels the search at its
    /// third look.
    struct Counting<'a> {
        looks: Cell<usize>,
        longest: Cell<usize>,
        cancel: &'a CancelToken,
    }

    impl Matcher for Counting<'_> {
        type Captures = NoCaptures;
        type Error = Stopped;

        fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, Stopped> {
            self.looks.set(self.looks.get() + 1);
            self.longest.set(self.longest.get().max(text.len() - at));
            if self.looks.get() == 3 {
                self.cancel.cancel();
            }
            Ok(None)
        }

        fn new_captures(&self) -> Result<NoCaptures, Stopped> {
            Ok(NoCaptures::new())
        }
    }

    #[test]
    fn search_stops_within_one_long_line_when_it_is_cancelled() {
        let cancel = CancelToken::new();
        let inner = Counting {
            looks: Cell::new(0),
            longest: Cell::new(0),
            cancel: &cancel,
        };
        let steady = Steady {
            inner: &inner,
            step: 1000,
            cancel: &cancel,
        };
        for text in [vec![b'a'; 1 << 20], b"ab\n".repeat(1 << 18)] {
            let cancel_now = cancel.is_cancelled();
            assert!(steady.find_at(&text, 0).is_err());
            assert_eq!(inner.looks.get(), 3, "{cancel_now}");
        }
        assert!(inner.longest.get() <= 1000);
    }

    /// What a pattern finds whole and what it finds step by step are the same.
    #[track_caller]
    fn check(pattern: &str, text: &str, steps: &[usize]) {
        let cancel = CancelToken::new();
        let (matcher, _) = compile(pattern, false, false).unwrap();
        let whole = matcher.find(text.as_bytes()).unwrap();
        for &step in steps {
            let steady = Steady {
                inner: &matcher,
                step,
                cancel: &cancel,
            };
            assert_eq!(
                steady.find(text.as_bytes()).unwrap(),
                whole,
                "{pattern} {step}"
            );
            let line = |kind| match kind {
                LineMatchKind::Confirmed(at) | LineMatchKind::Candidate(at) => {
                    text[..at].matches('\n').count()
                }
            };
            let found = steady
                .find_candidate_line(text.as_bytes())
                .unwrap()
                .map(line);
            let expected = matcher
                .find_candidate_line(text.as_bytes())
                .unwrap()
                .map(line);
            assert_eq!(found, expected, "{pattern} {step}");
        }
    }

    #[test]
    fn steps_find_what_the_whole_text_has() {
        let text = "a\nbc\n\nabc\nab c\nend";
        for pattern in [
            "b", "^a", "c$", "^$", "d$", "a b|b c", "^end$", "zz", "\\bbc\\b", "(?i)END",
        ] {
            check(pattern, text, &[4, 7, 64]);
        }
        check(
            "needle",
            "a long line that has a needle in it\nneedle\n",
            &[24, 30, 64],
        );
    }

    #[test]
    fn pattern_that_is_too_heavy_is_refused() {
        assert_eq!(compile("fn \\w+_test", false, false).unwrap().1, TIERS[0].1);
        assert!(compile("\\w{3,20}x", false, false).unwrap().1 < TIERS[0].1);
        assert!(compile("(\\w{1,100}){1,100}", false, false).is_err());
        assert!(compile(&"(".repeat(500), false, false).is_err());
        assert!(
            compile(
                &format!("{}a{}", "(".repeat(500), ")".repeat(500)),
                false,
                false
            )
            .is_err()
        );
    }
}
