//! The suite for embedders.
//!
//! Vectors are compared by their cosine with a tolerance, since a provider may compute the same
//! text slightly differently in another batch.

use levity_core::{Embedder, Embeddings, Purpose};

use super::check::{abandon, expect_ok, no_panic, same};

/// Texts of different meanings.
const TEXTS: [&str; 4] = [
    "The harbour is closed in winter.",
    "Grüner Tee schmeckt am besten kühl.",
    "fn main() { println!(\"{}\", 6 * 7); }",
    "東京は雨です。",
];

/// Unusual texts, such as unchecked input.
const ODD: [&str; 6] = [
    "\0",
    "\u{202e}\u{feff}",
    "🦀🦀🦀",
    "\"}],",
    "<|endoftext|>",
    "a\r\n\tb",
];

/// The tolerance for the length of a unit vector.
const SLACK: f32 = 1e-3;

/// Checks an [`Embedder`] against its contract.
///
/// `make` returns an embedder that embeds any text.
///
/// The suite checks, for both purposes:
/// - `card` always returns the same, and survives JSON;
/// - there is one vector for each text, for zero to some hundred texts, in the order of the texts;
/// - all vectors have the same number of components, and the one on the card if it names one;
/// - a vector has the length 1, or is all zeros if its text has no content, and has only finite
///   components;
/// - unusual texts, including empty ones, may fail but never panic;
/// - dropping a call, polled or not, is harmless.
///
/// Not checked: that nothing is sent before the first poll, that a dropped call is cancelled, and
/// that the vectors reflect the meaning of the texts.
///
/// ```
/// use levity_test::{WordEmbedder, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// conformance::embedder(WordEmbedder::new).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn embedder<E: Embedder>(make: impl Fn() -> E) {
    let embedder = make();
    let card = embedder.card().clone();
    same(
        make().card(),
        &card,
        "embedder: `card` always returns the same",
    );
    let json = expect_ok(
        serde_json::to_string(&card),
        "embedder: the card survives JSON",
    );
    same(
        &expect_ok(
            serde_json::from_str(&json),
            "embedder: the card survives JSON",
        ),
        &card,
        "embedder: the card survives JSON",
    );

    let mut dimensions = card.dimensions;
    for purpose in [Purpose::Document, Purpose::Query] {
        for count in [0, 1, 2, 4, 301] {
            let texts: Vec<String> = TEXTS
                .iter()
                .cycle()
                .take(count)
                .map(|text| (*text).to_owned())
                .collect();
            check(
                &embed(&embedder, &texts, purpose).await,
                &texts,
                &mut dimensions,
            );
        }
        check_order(&embedder, purpose).await;
        check_odd(&embedder, purpose, &mut dimensions).await;
    }
    let texts = owned(&TEXTS);
    drop(embedder.embed(&texts, Purpose::Document));
    let promise = "embedder: dropping a call is harmless";
    no_panic(
        async { drop(abandon(embedder.embed(&texts, Purpose::Document))) },
        promise,
    )
    .await;
    check(
        &embed(&embedder, &texts, Purpose::Document).await,
        &texts,
        &mut dimensions,
    );
    same(
        embedder.card(),
        &card,
        "embedder: `card` always returns the same",
    );
}

async fn embed(embedder: &impl Embedder, texts: &[String], purpose: Purpose) -> Embeddings {
    let embedded = no_panic(
        embedder.embed(texts, purpose),
        "embedder: a failure is an `Err`",
    )
    .await;
    expect_ok(
        embedded,
        "embedder: `make` returns an embedder that embeds any text",
    )
}

fn check(embedded: &Embeddings, texts: &[String], dimensions: &mut Option<usize>) {
    let vectors = &embedded.vectors;
    same(
        &vectors.len(),
        &texts.len(),
        "embedder: there is one vector for each text",
    );
    for (vector, text) in vectors.iter().zip(texts) {
        let expected = *dimensions.get_or_insert(vector.len());
        same(
            &vector.len(),
            &expected,
            "embedder: all vectors have the same number of components, that of the card",
        );
        let finite = vector.iter().all(|part| part.is_finite());
        assert!(finite, "embedder: no component is infinite or not a number");
        let nothing = text.trim().is_empty() && vector.iter().all(|part| *part == 0.0);
        let length = dot(vector, vector).sqrt();
        let right = nothing || (length - 1.0).abs() <= SLACK;
        assert!(
            right,
            "embedder: a vector has the length 1\nfound: {length} for {text:?}"
        );
    }
}

/// The position of a text determines only the position of its vector.
async fn check_order(embedder: &impl Embedder, purpose: Purpose) {
    let texts = owned(&TEXTS);
    let reversed: Vec<String> = texts.iter().rev().cloned().collect();
    let forwards = embed(embedder, &texts, purpose).await;
    let backwards = embed(embedder, &reversed, purpose).await;
    for (one, other) in forwards.vectors.iter().zip(backwards.vectors.iter().rev()) {
        let close = dot(one, other);
        assert!(
            close > 0.98,
            "embedder: vectors are in the order of the texts\nfound: a cosine of {close}"
        );
    }
}

async fn check_odd(embedder: &impl Embedder, purpose: Purpose, dimensions: &mut Option<usize>) {
    let long = "harbour ".repeat(4_000);
    for text in ODD.into_iter().chain(["", " \n", &long]) {
        let texts = owned(&[TEXTS[0], text]);
        let embedded = no_panic(
            embedder.embed(&texts, purpose),
            "embedder: no text makes it panic",
        )
        .await;
        embedded
            .iter()
            .for_each(|embedded| check(embedded, &texts, dimensions));
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}
