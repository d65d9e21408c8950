//! The suite for rerankers.

use levity_core::{Reranker, Reranking};

use super::check::{abandon, expect_ok, no_panic, same};

/// Texts of different meanings.
const TEXTS: [&str; 4] = [
    "The harbour is closed in winter.",
    "Grüner Tee schmeckt am besten kühl.",
    "fn main() { println!(\"{}\", 6 * 7); }",
    "東京は雨です。",
];

/// Unusual texts, such as unchecked input.
const ODD: [&str; 8] = [
    "",
    " \n",
    "\0",
    "\u{202e}\u{feff}",
    "🦀🦀🦀",
    "\"}],",
    "<|endoftext|>",
    "a\r\n\tb",
];

/// Checks a [`Reranker`] against its contract.
///
/// `make` returns a reranker that accepts any text, and that gives the highest score to a text that
/// is equal to the query.
///
/// The suite checks:
/// - `card` always returns the same, and survives JSON;
/// - there is one finite score for each text, for zero to some hundred texts;
/// - the scores are in the order of the texts;
/// - unusual queries and texts, including empty ones, may fail but never panic;
/// - dropping a call, polled or not, is harmless.
///
/// Not checked: that nothing is sent before the first poll, that a dropped call is cancelled, and
/// that the scores reflect the meaning of the texts.
///
/// ```
/// use levity_test::{WordReranker, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// conformance::reranker(WordReranker::new).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn reranker<R: Reranker>(make: impl Fn() -> R) {
    let reranker = make();
    let card = reranker.card().clone();
    let stable = "reranker: `card` always returns the same";
    same(make().card(), &card, stable);
    let survives = "reranker: the card survives JSON";
    let json = expect_ok(serde_json::to_string(&card), survives);
    same(
        &expect_ok(serde_json::from_str(&json), survives),
        &card,
        survives,
    );

    for count in [0, 1, 2, 4, 301] {
        let texts: Vec<String> = TEXTS
            .iter()
            .cycle()
            .take(count)
            .map(|text| (*text).into())
            .collect();
        check(&rerank(&reranker, TEXTS[0], &texts).await, &texts);
    }
    check_order(&reranker).await;
    check_odd(&reranker).await;

    let texts = owned(&TEXTS);
    drop(reranker.rerank(TEXTS[0], &texts));
    let promise = "reranker: dropping a call is harmless";
    no_panic(
        async { drop(abandon(reranker.rerank(TEXTS[0], &texts))) },
        promise,
    )
    .await;
    check(&rerank(&reranker, TEXTS[0], &texts).await, &texts);
    same(reranker.card(), &card, stable);
}

async fn rerank(reranker: &impl Reranker, query: &str, texts: &[String]) -> Reranking {
    let call = reranker.rerank(query, texts);
    let ranked = no_panic(call, "reranker: a failure is an `Err`").await;
    expect_ok(
        ranked,
        "reranker: `make` returns a reranker that accepts any text",
    )
}

fn check(ranked: &Reranking, texts: &[String]) {
    let promise = "reranker: there is one score for each text";
    same(&ranked.scores.len(), &texts.len(), promise);
    let finite = ranked.scores.iter().all(|score| score.is_finite());
    assert!(finite, "reranker: no score is infinite or not a number");
}

/// A text that is equal to the query is the best one, wherever it is.
async fn check_order(reranker: &impl Reranker) {
    for at in 0..TEXTS.len() {
        let mut texts = owned(&TEXTS);
        texts.rotate_right(at);
        let ranked = rerank(reranker, TEXTS[0], &texts).await;
        let best = ranked.order().first().copied();
        let promise = "reranker: the scores are in the order of the texts";
        same(&best, &Some(at), promise);
    }
}

async fn check_odd(reranker: &impl Reranker) {
    let long = "harbour ".repeat(4_000);
    for odd in ODD.into_iter().chain([&*long]) {
        for (query, texts) in [(TEXTS[0], [TEXTS[1], odd]), (odd, [TEXTS[0], TEXTS[1]])] {
            let texts = owned(&texts);
            let call = reranker.rerank(query, &texts);
            let ranked = no_panic(call, "reranker: no text makes it panic").await;
            ranked.iter().for_each(|ranked| check(ranked, &texts));
        }
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
