//! The suite for sources of context.
//!
//! It asks with every budget from 0 to 16 tokens, where cutting goes wrong first, and with larger
//! ones.

use std::collections::BTreeMap;

use levity_core::{ContextBlock, ContextLifetime, ContextRequest, ContextSource};

use super::check::{abandon, expect_ok, no_panic, same};

/// Checks a [`ContextSource`] against its contract.
///
/// `make` returns a source over the same material each time, preferably more of it than fits a
/// small budget.
///
/// The suite checks, for budgets from zero to unlimited, with and without a goal:
/// - the texts of the blocks together have no more bytes than four times the budget;
/// - every block has a name, and no two have the same;
/// - the same sources give the same blocks in the same order;
/// - the lifetime of a block depends neither on the budget nor on the goal;
/// - dropping the future is harmless.
///
/// ```
/// use levity_core::ContextBlock;
/// use levity_test::conformance;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let guide = || ContextBlock::new("style.md", "Write short sentences. ".repeat(50));
/// conformance::context_source(guide).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn context_source<S: ContextSource>(make: impl Fn() -> S) {
    context_source_for("Tidy up", make).await;
}

/// Checks a [`ContextSource`] that depends on the goal of a run, as [`context_source`] does.
///
/// `goal` is a text for which the source returns something, in addition to an empty goal and an
/// unusual one.
///
/// # Panics
/// Panics if a promise is broken.
pub async fn context_source_for<S: ContextSource>(goal: &str, make: impl Fn() -> S) {
    let source = make();
    let mut seen = BTreeMap::new();
    for goal in ["", goal, "--- a ---\n\0\u{202e}\u{1f600} \"AND\" *"] {
        for budget in (0..=16).chain([64, 1_000, 100_000, usize::MAX]) {
            let ask = ContextRequest::new(budget).for_goal(goal);
            let blocks = blocks(&source, &ask).await;
            check_budget(&blocks, budget);
            check_names(&blocks);
            check_lasts(&blocks, &mut seen);
            let promise = "context source: the same sources give the same blocks in the same order";
            same(&self::blocks(&source, &ask).await, &blocks, promise);
            same(&self::blocks(&make(), &ask).await, &blocks, promise);
        }
    }
    let promise = "context source: dropping the future is harmless";
    let ask = ContextRequest::new(usize::MAX);
    let all = blocks(&source, &ask).await;
    no_panic(async { drop(abandon(source.blocks(&ask))) }, promise).await;
    same(&blocks(&source, &ask).await, &all, promise);
}

async fn blocks(source: &impl ContextSource, ask: &ContextRequest) -> Vec<ContextBlock> {
    let blocks = no_panic(
        source.blocks(ask),
        "context source: neither a budget nor a goal makes it panic",
    )
    .await;
    expect_ok(
        blocks,
        "context source: `make` returns a source that can be read",
    )
}

/// A block that is sometimes before the instructions and sometimes behind them invalidates the
/// caches of providers.
fn check_lasts(blocks: &[ContextBlock], seen: &mut BTreeMap<String, ContextLifetime>) {
    for block in blocks {
        let lasts = *seen.entry(block.name.clone()).or_insert(block.lasts);
        let promise =
            "context source: the lifetime of a block depends neither on the budget nor on the goal";
        assert!(
            lasts == block.lasts,
            "{promise}\nfound both for `{}`",
            block.name
        );
    }
}

fn check_budget(blocks: &[ContextBlock], budget: usize) {
    let bytes: usize = blocks.iter().map(|block| block.text.len()).sum();
    assert!(
        bytes <= budget.saturating_mul(4),
        "context source: the blocks together have no more than `budget` tokens\nfound {bytes} \
            bytes for {budget}"
    );
}

fn check_names(blocks: &[ContextBlock]) {
    for (n, block) in blocks.iter().enumerate() {
        assert!(
            !block.name.is_empty(),
            "context source: every block has a name"
        );
        let again = blocks[..n].iter().any(|other| other.name == block.name);
        assert!(
            !again,
            "context source: no two blocks have the same name\nfound twice: `{}`",
            block.name
        );
    }
}
