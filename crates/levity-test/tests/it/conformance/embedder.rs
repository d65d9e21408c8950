use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use levity_core::{Embedder, EmbedderCard, Embeddings, ModelError, ModelErrorKind, Purpose};
use levity_test::{WordEmbedder, conformance};

use crate::{block_on, refuses};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    OneTooFew,
    OneForNone,
    AnotherSize,
    NotOnTheCard,
    TooLong,
    ZeroForAText,
    NotANumber,
    Backwards,
    OnlySome,
    PanicsAtNul,
    Restless,
    Fails,
}

/// An embedder that is correct except for one flaw.
struct Flawed {
    inner: WordEmbedder,
    card: EmbedderCard,
    flaw: Flaw,
    calls: AtomicUsize,
}

static MADE: AtomicUsize = AtomicUsize::new(0);

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        let inner = WordEmbedder::new();
        let mut card = inner.card().clone();
        match flaw {
            Flaw::NotOnTheCard => card.dimensions = Some(7),
            Flaw::AnotherSize => card.dimensions = None,
            Flaw::Restless => card.id = format!("made {}", MADE.fetch_add(1, Ordering::SeqCst)),
            _ => {}
        }
        Self {
            inner,
            card,
            flaw,
            calls: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl Embedder for Flawed {
    fn card(&self) -> &EmbedderCard {
        &self.card
    }

    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embeddings, ModelError> {
        let mut embedded = self.inner.embed(texts, purpose).await?;
        let vectors = &mut embedded.vectors;
        let calls = self.calls.fetch_add(1, Ordering::SeqCst);
        match self.flaw {
            Flaw::OneTooFew => drop(vectors.pop()),
            Flaw::OneForNone if texts.is_empty() => vectors.push(vec![0.0; 256]),
            Flaw::AnotherSize if calls % 2 == 1 => {
                vectors.iter_mut().for_each(|vector| vector.push(0.0));
            }
            Flaw::TooLong => vectors.iter_mut().flatten().for_each(|part| *part *= 2.0),
            Flaw::ZeroForAText => vectors.iter_mut().flatten().for_each(|part| *part = 0.0),
            Flaw::NotANumber => vectors
                .iter_mut()
                .flatten()
                .take(1)
                .for_each(|part| *part = f32::NAN),
            Flaw::Backwards if texts.first().is_some_and(|text| text.starts_with("The")) => {
                vectors.reverse();
            }
            Flaw::OnlySome => vectors.truncate(100),
            Flaw::PanicsAtNul => assert!(!texts.iter().any(|text| text.contains('\0')), "a NUL"),
            Flaw::Fails => {
                return Err(ModelError::new(
                    ModelErrorKind::Overloaded,
                    "the service is busy",
                ));
            }
            _ => {}
        }
        Ok(embedded)
    }
}

#[test]
fn embedder_suite_accepts_correct_embedder() {
    block_on(conformance::embedder(WordEmbedder::new));
}

#[test]
fn embedder_suite_rejects_every_flaw() {
    let check = |flaw, promise| refuses(conformance::embedder(|| Flawed::new(flaw)), promise);
    let each = "embedder: there is one vector for each text";
    check(Flaw::OneTooFew, each);
    check(Flaw::OneForNone, each);
    check(Flaw::OnlySome, each);
    let size = "embedder: all vectors have the same number of components";
    check(Flaw::AnotherSize, size);
    check(Flaw::NotOnTheCard, size);
    check(Flaw::TooLong, "embedder: a vector has the length 1");
    check(Flaw::ZeroForAText, "embedder: a vector has the length 1");
    check(
        Flaw::NotANumber,
        "embedder: no component is infinite or not a number",
    );
    check(
        Flaw::Backwards,
        "embedder: vectors are in the order of the texts",
    );
    check(Flaw::PanicsAtNul, "embedder: no text makes it panic");
    check(Flaw::Restless, "embedder: `card` always returns the same");
    check(
        Flaw::Fails,
        "embedder: `make` returns an embedder that embeds any text",
    );
}
