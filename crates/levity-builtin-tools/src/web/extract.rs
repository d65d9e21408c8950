//! Extraction of the paragraphs of a page that match some words.
//!
//! This is a filter for long pages without a model: it counts words in paragraphs and keeps the
//! best ones with their headings. Words match as parts of others, so `tide` also finds `tides`.

/// The maximum number of words in a query.
const MAX_WORDS: usize = 16;

/// The maximum size of a paragraph in bytes; a longer one is split between lines.
const MAX_PARAGRAPH: usize = 2000;

/// The mark in place of omitted text.
const GAP: &str = "[…]";

/// The paragraphs that match a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) text: String,
    /// The offset at which to continue, if the text does not contain all matches.
    pub(super) next: Option<usize>,
}

/// Returns the unique words of a query, in lower case.
///
/// For example, `"High tide, high water"` gives `high`, `tide` and `water`. At most 16 words count.
pub(super) fn words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in query
        .split(|char: char| !char.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let word = word.to_lowercase();
        if !words.contains(&word) && words.len() < MAX_WORDS {
            words.push(word);
        }
    }
    words
}

/// Extracts the paragraphs after `offset` that contain the most of these words, themselves or in
/// their heading. A paragraph needs at least half as many as the best one. The result has at most
/// `max` bytes, but at least one paragraph; `None` if no paragraph matches.
pub(super) fn find(text: &str, words: &[String], offset: usize, max: usize) -> Option<Found> {
    let paragraphs = paragraphs(text);
    let mut heading = None;
    let mut scored: Vec<(usize, Option<usize>)> = Vec::with_capacity(paragraphs.len());
    for (at, (_, paragraph)) in paragraphs.iter().enumerate() {
        if paragraph.starts_with('#') {
            heading = Some(at);
        }
        let above = heading.map_or("", |above| paragraphs[above].1);
        let both = format!("{above}\n{paragraph}").to_lowercase();
        let score = words.iter().filter(|word| both.contains(&***word)).count();
        scored.push((score, heading));
    }
    let best = scored
        .iter()
        .map(|(score, _)| *score)
        .max()
        .filter(|best| *best > 0)?;
    let least = best.div_ceil(2);
    let mut found = Found::default();
    let mut last = None;
    for (at, (score, heading)) in scored.iter().enumerate() {
        if *score < least || paragraphs[at].0 < offset {
            continue;
        }
        let mut piece = String::new();
        for part in heading.iter().copied().chain([at]) {
            if last.is_some_and(|last| part <= last) {
                continue;
            }
            if last.map_or(part > 0, |last| part > last + 1) {
                piece.push_str(GAP);
                piece.push_str("\n\n");
            }
            piece.push_str(paragraphs[part].1.trim_end());
            piece.push_str("\n\n");
            last = Some(part);
        }
        if !found.text.is_empty() && found.text.len() + piece.len() > max {
            found.next = Some(paragraphs[at].0);
            break;
        }
        found.text.push_str(&piece);
    }
    found.text.truncate(found.text.trim_end().len());
    let cut = crate::text::floor(&found.text, max.max(MAX_PARAGRAPH * 2));
    found.text.truncate(cut);
    Some(found)
}

/// Returns the paragraphs of a text with their offsets.
fn paragraphs(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut at) = (Vec::new(), 0);
    for paragraph in text.split("\n\n") {
        let mut rest = paragraph;
        while rest.len() > MAX_PARAGRAPH {
            let max = crate::text::floor(rest, MAX_PARAGRAPH);
            let end = rest[..max].rfind('\n').map_or(max, |line| line + 1);
            found.push((at, &rest[..end]));
            at += end;
            rest = &rest[end..];
        }
        if !rest.trim().is_empty() {
            found.push((at, rest));
        }
        at += rest.len() + 2;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Tides\n\nWater comes and goes.\n\n## Dover\n\nHigh water is at \
        six.\n\nLow water is at noon.\n\n\
                        ## Brest\n\nHigh water is at seven.\n\nThe harbour is large.";

    #[track_caller]
    fn check(query: &str, expected: Option<&str>) {
        let found = find(PAGE, &words(query), 0, 10_000);
        assert_eq!(
            found.map(|found| found.text).as_deref(),
            expected,
            "{query}"
        );
    }

    #[test]
    fn find_returns_matching_paragraphs_with_headings() {
        check(
            "harbour",
            Some("[…]\n\n## Brest\n\n[…]\n\nThe harbour is large."),
        );
        check(
            "HARBOUR, size",
            Some("[…]\n\n## Brest\n\n[…]\n\nThe harbour is large."),
        );
        check(
            "dover high water",
            Some(
                "[…]\n\n## Dover\n\nHigh water is at six.\n\nLow water is at noon.\n\n## \
                    Brest\n\nHigh water is at seven.",
            ),
        );
        check("tides", Some("# Tides\n\nWater comes and goes."));
        check("moon", None);
        check("", None);
    }

    #[test]
    fn find_splits_long_result_into_parts() {
        let text: Vec<String> = (0..200)
            .map(|n| format!("Line {n} of a tide table, with some words."))
            .collect();
        let text = text.join("\n\n");
        let (mut offset, mut whole) = (0, String::new());
        loop {
            let found = find(&text, &words("tide"), offset, 500).unwrap();
            assert!(found.text.len() <= 520, "{}", found.text.len());
            whole.push_str(&found.text.replace("[…]\n\n", ""));
            whole.push_str("\n\n");
            match found.next {
                Some(next) => assert!(std::mem::replace(&mut offset, next) < next),
                None => break,
            }
        }
        assert_eq!(whole.trim_end(), text);
    }

    #[test]
    fn find_splits_text_without_paragraphs_between_lines() {
        let text = "{\n".to_owned() + &"  \"é\": 1,\n".repeat(1000) + "  \"tide\": 6\n}";
        let found = find(&text, &words("tide"), 0, 1000).unwrap();
        assert!(
            found.text.contains("\"tide\": 6") && found.text.len() < 3000,
            "{}",
            found.text.len()
        );
        assert_eq!(
            find(&"日".repeat(5000), &words("日"), 0, 100).map(|found| found.next.is_some()),
            Some(true)
        );
    }

    #[test]
    fn words_are_unique_and_limited() {
        assert_eq!(words("High-water, HIGH!"), ["high", "water"]);
        assert_eq!(
            words(&"a b c d e f g h i j k l m n o p q r s".repeat(3)).len(),
            MAX_WORDS
        );
    }
}
