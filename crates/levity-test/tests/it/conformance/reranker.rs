use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use levity_core::{ModelError, ModelErrorKind, Reranker, RerankerCard, Reranking};
use levity_test::{WordReranker, conformance};

use crate::{block_on, refuses};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    OneTooFew,
    OneForNone,
    OnlySome,
    NotANumber,
    Infinite,
    ByPosition,
    PanicsAtNul,
    Restless,
    Fails,
}

/// A reranker that is correct except for one flaw.
struct Flawed {
    inner: WordReranker,
    card: RerankerCard,
    flaw: Flaw,
}

static MADE: AtomicUsize = AtomicUsize::new(0);

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        let inner = WordReranker::new();
        let mut card = inner.card().clone();
        if flaw == Flaw::Restless {
            card.id = format!("made {}", MADE.fetch_add(1, Ordering::SeqCst));
        }
        Self { inner, card, flaw }
    }
}

#[async_trait]
impl Reranker for Flawed {
    fn card(&self) -> &RerankerCard {
        &self.card
    }

    async fn rerank(&self, query: &str, texts: &[String]) -> Result<Reranking, ModelError> {
        let mut ranked = self.inner.rerank(query, texts).await?;
        let scores = &mut ranked.scores;
        match self.flaw {
            Flaw::OneTooFew => drop(scores.pop()),
            Flaw::OneForNone if texts.is_empty() => scores.push(0.0),
            Flaw::OnlySome => scores.truncate(100),
            Flaw::NotANumber => scores
                .iter_mut()
                .take(1)
                .for_each(|score| *score = f32::NAN),
            Flaw::Infinite => scores.iter_mut().for_each(|score| *score *= f32::INFINITY),
            Flaw::ByPosition => scores.sort_by(f32::total_cmp),
            Flaw::PanicsAtNul => assert!(!texts.iter().any(|text| text.contains('\0')), "a NUL"),
            Flaw::Fails => {
                let busy = "the service is busy";
                return Err(ModelError::new(ModelErrorKind::Overloaded, busy));
            }
            _ => {}
        }
        Ok(ranked)
    }
}

#[test]
fn reranker_suite_accepts_correct_reranker() {
    block_on(conformance::reranker(WordReranker::new));
    block_on(conformance::reranker(|| {
        Box::new(WordReranker::new()) as Box<dyn Reranker>
    }));
}

#[test]
fn reranker_suite_rejects_every_flaw() {
    let check = |flaw, promise| refuses(conformance::reranker(|| Flawed::new(flaw)), promise);
    let each = "reranker: there is one score for each text";
    check(Flaw::OneTooFew, each);
    check(Flaw::OneForNone, each);
    check(Flaw::OnlySome, each);
    let finite = "reranker: no score is infinite or not a number";
    check(Flaw::NotANumber, finite);
    check(Flaw::Infinite, finite);
    check(
        Flaw::ByPosition,
        "reranker: the scores are in the order of the texts",
    );
    check(Flaw::PanicsAtNul, "reranker: no text makes it panic");
    check(Flaw::Restless, "reranker: `card` always returns the same");
    check(
        Flaw::Fails,
        "reranker: `make` returns a reranker that accepts any text",
    );
}
