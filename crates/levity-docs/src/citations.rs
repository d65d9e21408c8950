//! Citations in answers: `"quoted words" [p17]`.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Guard, GuardCx, GuardSubject, Message, Part, SharedError, Stage, Verdict};

use crate::{DocumentError, DocumentIndex, PassageId, QuoteCheck};

/// The maximum number of citations of an answer that are checked.
const MAX_CITATIONS: usize = 500;
/// The maximum size of a quote with its marks, in bytes.
const MAX_QUOTE_BYTES: usize = 4 << 10;
/// The closing quotation marks, each with its opening one.
const MARKS: [(char, char); 3] = [('"', '"'), ('”', '“'), ('»', '«')];

/// A citation in a text: the id of a passage in brackets, and the quote before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Citation {
    /// The id of the cited passage.
    pub id: PassageId,
    /// The quoted words, if the id follows a quote.
    pub quote: Option<String>,
    /// The position of the id with its brackets in the text.
    pub position: Range<usize>,
}

/// Returns the citations of a text in order, at most 501.
///
/// ```
/// use levity_docs::citations;
///
/// let found = citations("The guide says \"high water is at six\" [p17], and more [p3].");
/// assert_eq!(found[0].quote.as_deref(), Some("high water is at six"));
/// assert_eq!((found[1].id.to_string().as_str(), &found[1].quote), ("p3", &None));
/// ```
pub fn citations(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(at) = text[start..].find("[p").map(|at| start + at) {
        start = at + 2;
        let digits = text[start..].bytes().take_while(u8::is_ascii_digit).count();
        let end = start + digits;
        let id = text[start..end].parse().ok().map(PassageId);
        if let Some(id) = id.filter(|_| text[end..].starts_with(']')) {
            found.push(Citation {
                id,
                quote: quote_before(&text[..at]),
                position: at..end + 1,
            });
            start = end + 1;
        }
        if found.len() > MAX_CITATIONS {
            break;
        }
    }
    found
}

/// Returns the quote at the end of a text, without its marks. A quote has at most 4 KiB.
fn quote_before(text: &str) -> Option<String> {
    let mut start = text.len().saturating_sub(MAX_QUOTE_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let text = &text[start..];
    let text = text.trim_end().trim_end_matches(['.', ',', ';', ':']);
    let last = text.chars().next_back()?;
    let (closing, opening) = MARKS.into_iter().find(|(closing, _)| *closing == last)?;
    let text = text.strip_suffix(closing)?;
    let (_, quote) = text.rsplit_once(opening)?;
    (!quote.trim().is_empty()).then(|| quote.to_owned())
}

/// Why a citation is not supported by the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CitationProblem {
    /// The index has no passage with this id; its document may have changed.
    NoPassage,
    /// The passage does not contain the quote.
    NotInPassage,
}

impl DocumentIndex {
    /// Checks the citations of an answer, and returns those that the documents do not support.
    ///
    /// An id without a quote only needs to exist. Quotes are compared word by word; white space and
    /// the sign at their end may differ.
    ///
    /// # Errors
    /// [`Refused`](crate::DocumentErrorKind::Refused) if the answer has more than 500 citations,
    /// and if the index cannot be read.
    ///
    /// ```
    /// use levity_docs::{CitationProblem, Document, DocumentIndex};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?;
    /// index.add(Document::new("tides.md", "High water is at six.")).await?;
    /// assert!(index.check_citations("\"High water is at six\" [p1].").await?.is_empty());
    /// let wrong = index.check_citations("\"Low water is at six\" [p1].").await?;
    /// assert_eq!(wrong[0].1, CitationProblem::NotInPassage);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_citations(
        &self,
        answer: &str,
    ) -> Result<Vec<(Citation, CitationProblem)>, DocumentError> {
        let citations = citations(answer);
        if citations.len() > MAX_CITATIONS {
            let message = format!(
                "the answer has {} citations, but the limit is {MAX_CITATIONS}",
                citations.len()
            );
            return Err(DocumentError::refused(message));
        }
        let mut problems = Vec::new();
        for citation in citations {
            let problem = match &citation.quote {
                Some(quote) => {
                    let quote = quote.trim().trim_end_matches(['.', ',', ';']);
                    match self.check_quote(citation.id, quote).await? {
                        QuoteCheck::Found(_) => continue,
                        QuoteCheck::NotInPassage(_) => CitationProblem::NotInPassage,
                        QuoteCheck::NoPassage => CitationProblem::NoPassage,
                    }
                }
                None if self.fetch(citation.id, 0).await?.is_empty() => CitationProblem::NoPassage,
                None => continue,
            };
            problems.push((citation, problem));
        }
        Ok(problems)
    }
}

/// A guard that checks the citations of answers. It marks those that the documents do not support,
/// or blocks the answer.
///
/// ```
/// use levity_core::{Guard, GuardCx, GuardSubject, Message, Verdict};
/// use levity_docs::{CitationGuard, Document, DocumentIndex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let index = DocumentIndex::in_memory()?;
/// index.add(Document::new("tides.md", "High water is at six.")).await?;
/// let guard = CitationGuard::marking(index);
/// let answer = Message::assistant("It is \"at seven\" [p1].");
/// let verdict = guard.check(&GuardSubject::Answer(answer.into()), &GuardCx::new()).await?;
/// let Verdict::Rewrite(marked) = verdict else { panic!("{verdict:?}") };
/// assert_eq!(marked.text(), "It is \"at seven\" [p1: not in this passage].");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CitationGuard {
    index: DocumentIndex,
    blocks: bool,
}

impl CitationGuard {
    /// Marks citations that the documents do not support, such as `[p17: not in this passage]`.
    pub fn marking(index: DocumentIndex) -> Self {
        Self {
            index,
            blocks: false,
        }
    }

    /// Blocks answers with a citation that the documents do not support.
    pub fn blocking(index: DocumentIndex) -> Self {
        Self {
            index,
            blocks: true,
        }
    }

    /// Returns a text with marks, or `None` if all citations are supported.
    async fn marked(&self, text: &str) -> Result<Option<String>, DocumentError> {
        let problems = self.index.check_citations(text).await?;
        if problems.is_empty() {
            return Ok(None);
        }
        let mut marked = text.to_owned();
        // From the end, so that the earlier positions stay valid.
        for (citation, problem) in problems.iter().rev() {
            let reason = match problem {
                CitationProblem::NoPassage => "no such passage",
                CitationProblem::NotInPassage => "not in this passage",
            };
            let new = format!("[{}: {reason}]", citation.id);
            marked.replace_range(citation.position.clone(), &new);
        }
        Ok(Some(marked))
    }
}

#[async_trait]
impl Guard for CitationGuard {
    fn name(&self) -> &str {
        "citations"
    }

    fn watches(&self, stage: Stage) -> bool {
        stage == Stage::Answer
    }

    async fn check(&self, subject: &GuardSubject, _: &GuardCx) -> Result<Verdict, SharedError> {
        let GuardSubject::Answer(message) = subject else {
            return Ok(Verdict::Pass);
        };
        let mut new = Message::clone(message);
        let mut changed = false;
        for part in &mut new.parts {
            let Part::Text(part) = part else { continue };
            if let Some(marked) = self.marked(&part.text).await.map_err(SharedError::new)? {
                part.text = marked;
                changed = true;
            }
        }
        Ok(match changed {
            true if self.blocks => {
                Verdict::block("it cites passages that do not exist or do not contain the quote")
            }
            true => Verdict::rewrite(GuardSubject::Answer(Arc::new(new))),
            false => Verdict::Pass,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations_are_found_with_their_quotes() {
        let quotes = |text: &str| -> Vec<(i64, Option<String>)> {
            let found = citations(text).into_iter();
            found
                .map(|citation| (citation.id.0, citation.quote))
                .collect()
        };
        assert_eq!(quotes("\"one two\" [p1]"), [(1, Some("one two".into()))]);
        assert_eq!(quotes("“one”, [p2]"), [(2, Some("one".into()))]);
        assert_eq!(quotes("«a» [p3][p4]"), [(3, Some("a".into())), (4, None)]);
        assert_eq!(quotes("plain [p5], \"\" [p6]"), [(5, None), (6, None)]);
        for text in [
            "[p]",
            "[p 1]",
            "[px]",
            "[p1",
            "p1]",
            "[p-1]",
            "[p99999999999999999999]",
            "[p+1]",
        ] {
            assert_eq!(quotes(text), [], "{text}");
        }
        assert_eq!(quotes("[p[p7]"), [(7, None)]);
        let long = format!("«{}", "x» [p1]".repeat(100_000));
        let found = citations(&long);
        assert_eq!(found.len(), MAX_CITATIONS + 1);
        let quoted: usize = found
            .iter()
            .filter_map(|one| Some(one.quote.as_ref()?.len()))
            .sum();
        assert!(quoted <= found.len() * MAX_QUOTE_BYTES);
        assert!(citations(&"[p".repeat(1 << 20)).is_empty());
    }
}
