//! A matcher whose search can be cancelled at any time.
//!
//! A regular expression can take long on one line of many megabytes, and the engine offers no way
//! to stop it. So a text is searched in parts, with a check between two of them. The size of a part
//! depends on the size of the compiled pattern, since the time for a byte does.

use std::fmt;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use levity_core::CancelToken;

/// The maximum size of a compiled pattern in bytes, and the text it searches in one step. An engine
/// without a table takes a step for each state and byte, and cannot be stopped meanwhile.
const TIERS: [(usize, usize); 3] = [
    (128 << 10, 32 << 10),
    (1 << 20, 4 << 10),
    (4 << 20, 1 << 10),
];

/// The memory that an engine may use for its table.
const MAX_TABLE: usize = 2 << 20;

/// The maximum nesting of groups.
const MAX_NEST: u32 = 100;

/// Compiles a pattern and returns it with the number of bytes it can search in one step.
///
/// Tries three limits, from small patterns with large steps to large patterns with small steps.
///
/// # Errors
/// Returns the engine's error if the pattern is invalid, or needs more than 4 MiB.
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
    // Each tier has failed here, so there is always an error.
    last.map_or_else(|| builder.build(pattern).map(|matcher| (matcher, 1)), Err)
}

/// Searches a text in steps and checks for cancellation between them.
///
/// A text is split after line endings, where a line pattern loses no match. A line longer than a
/// step is searched in overlapping parts.
#[derive(Debug)]
pub(super) struct CancellableMatcher<'a, M> {
    pub(super) inner: &'a M,
    pub(super) step: usize,
    pub(super) cancel: &'a CancelToken,
}

/// The error of a cancelled search.
#[derive(Debug)]
pub(super) struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the search was cancelled")
    }
}

/// A part of a text.
struct Part {
    start: usize,
    end: usize,
    /// Set if the part ends at the end of a line.
    is_whole: bool,
}

impl<M: Matcher> CancellableMatcher<'_, M> {
    /// Passes one part after the other to `search` until it finds a match.
    ///
    /// A part ends after a line, if possible. Otherwise the next part repeats a quarter of a step:
    /// a match across the border is found if it is not longer than that.
    fn search_parts<T>(
        &self,
        text: &[u8],
        at: usize,
        mut search: impl FnMut(Part) -> Result<Option<T>, M::Error>,
    ) -> Result<Option<T>, Cancelled> {
        let mut start = at;
        loop {
            if self.cancel.is_cancelled() {
                return Err(Cancelled);
            }
            let limit = text.len().min(start.saturating_add(self.step));
            let line = text[start..limit]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map(|end| start + end + 1);
            let end = if limit == text.len() {
                limit
            } else {
                line.unwrap_or(limit)
            };
            let is_whole = end == text.len() || line.is_some();
            // The part would otherwise seem to end in an empty line after its last line ending.
            let seen = if line.is_some() && end < text.len() {
                end - 1
            } else {
                end
            };
            if let Some(found) = search(Part {
                start,
                end: seen,
                is_whole,
            })
            .map_err(|_| Cancelled)?
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

impl<M: Matcher> Matcher for CancellableMatcher<'_, M> {
    type Captures = NoCaptures;
    type Error = Cancelled;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, Cancelled> {
        self.search_parts(text, at, |part| {
            self.inner.find_at(&text[..part.end], part.start)
        })
    }

    fn new_captures(&self) -> Result<NoCaptures, Cancelled> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, text: &[u8], at: usize) -> Result<Option<usize>, Cancelled> {
        self.search_parts(text, at, |part| {
            self.inner.shortest_match_at(&text[..part.end], part.start)
        })
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.inner.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.inner.line_terminator()
    }

    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, Cancelled> {
        let mut begins_line = true;
        self.search_parts(text, 0, |part| {
            let begins = std::mem::replace(&mut begins_line, part.is_whole);
            if !begins || !part.is_whole {
                // The line is too long to be searched at once, so a part of it decides.
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

    /// A matcher that finds nothing, counts its calls and cancels the search at the third.
    struct Counting<'a> {
        calls: Cell<usize>,
        longest: Cell<usize>,
        cancel: &'a CancelToken,
    }

    impl Matcher for Counting<'_> {
        type Captures = NoCaptures;
        type Error = Cancelled;

        fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, Cancelled> {
            self.calls.set(self.calls.get() + 1);
            self.longest.set(self.longest.get().max(text.len() - at));
            if self.calls.get() == 3 {
                self.cancel.cancel();
            }
            Ok(None)
        }

        fn new_captures(&self) -> Result<NoCaptures, Cancelled> {
            Ok(NoCaptures::new())
        }
    }

    #[test]
    fn cancelled_search_stops_within_long_line() {
        let cancel = CancelToken::new();
        let inner = Counting {
            calls: Cell::new(0),
            longest: Cell::new(0),
            cancel: &cancel,
        };
        let matcher_in_steps = CancellableMatcher {
            inner: &inner,
            step: 1000,
            cancel: &cancel,
        };
        for text in [vec![b'a'; 1 << 20], b"ab\n".repeat(1 << 18)] {
            let cancel_now = cancel.is_cancelled();
            assert!(matcher_in_steps.find_at(&text, 0).is_err());
            assert_eq!(inner.calls.get(), 3, "{cancel_now}");
        }
        assert!(inner.longest.get() <= 1000);
    }

    /// Checks that a pattern finds the same in steps as in the whole text.
    #[track_caller]
    fn check(pattern: &str, text: &str, steps: &[usize]) {
        let cancel = CancelToken::new();
        let (matcher, _) = compile(pattern, false, false).unwrap();
        let whole = matcher.find(text.as_bytes()).unwrap();
        for &step in steps {
            let matcher_in_steps = CancellableMatcher {
                inner: &matcher,
                step,
                cancel: &cancel,
            };
            assert_eq!(
                matcher_in_steps.find(text.as_bytes()).unwrap(),
                whole,
                "{pattern} {step}"
            );
            let line = |kind| match kind {
                LineMatchKind::Confirmed(at) | LineMatchKind::Candidate(at) => {
                    text[..at].matches('\n').count()
                }
            };
            let found = matcher_in_steps
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
    fn search_in_steps_finds_same_matches_as_whole_text() {
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
    fn compile_rejects_pattern_that_is_too_large() {
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
