use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use levity_core::{ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource};
use levity_test::conformance;

use crate::{block_on, refuses};

#[derive(Clone, Copy, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    OverBudget,
    CountsCharacters,
    NoName,
    SameName,
    Restless,
    OverflowsBudget,
    Unreadable,
    PanicsOnGoal,
    OverBudgetForGoal,
    FickleByBudget,
    FickleByGoal,
}

/// Notes of different lengths, as many as fit.
#[derive(Default)]
struct Notes {
    flaw: Flaw,
    looks: AtomicUsize,
}

const NOTES: [(&str, &str); 3] = [
    ("readme.md", "Überall"),
    ("rules.md", "Be brief."),
    ("long.md", "ä ä ä ä ä ä ä ä"),
];

#[async_trait]
impl ContextSource for Notes {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let budget = ask.budget;
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        let mut room = match self.flaw {
            Flaw::OverBudget => usize::MAX,
            Flaw::OverBudgetForGoal if !ask.goal.is_empty() => usize::MAX,
            Flaw::PanicsOnGoal if ask.goal.contains('\0') => panic!("what is this?"),
            Flaw::OverflowsBudget => budget.checked_mul(4).unwrap(),
            Flaw::Unreadable => return Err(ContextError::new("notes", "permission denied")),
            _ => budget.saturating_mul(4),
        };
        let mut blocks = Vec::new();
        for (name, text) in NOTES {
            let size = if self.flaw == Flaw::CountsCharacters {
                text.chars().count()
            } else {
                text.len()
            };
            if size <= room {
                room -= size;
                blocks.push(ContextBlock::new(name, text));
            }
        }
        match self.flaw {
            Flaw::NoName => blocks.iter_mut().for_each(|block| block.name.clear()),
            Flaw::SameName => blocks
                .iter_mut()
                .for_each(|block| block.name = "note".into()),
            Flaw::FickleByBudget if budget > 100 => blocks[0].lasts = ContextLifetime::Run,
            Flaw::FickleByGoal if !ask.goal.is_empty() && budget > 100 => {
                blocks[1].lasts = ContextLifetime::Run;
            }
            Flaw::Restless if looks % 2 == 1 => blocks.reverse(),
            _ => {}
        }
        Ok(blocks)
    }
}

#[test]
fn context_source_suite_accepts_correct_source() {
    block_on(conformance::context_source(Notes::default));
}

#[test]
fn context_source_suite_rejects_every_flaw() {
    let check = |flaw, promise| {
        refuses(
            conformance::context_source(|| Notes {
                flaw,
                ..Notes::default()
            }),
            promise,
        );
    };
    let budget = "context source: the blocks together have no more than `budget` tokens";
    check(Flaw::OverBudget, budget);
    check(Flaw::CountsCharacters, budget);
    check(Flaw::NoName, "context source: every block has a name");
    check(
        Flaw::SameName,
        "context source: no two blocks have the same name",
    );
    check(
        Flaw::Restless,
        "context source: the same sources give the same blocks in the same order",
    );
    check(
        Flaw::OverflowsBudget,
        "context source: neither a budget nor a goal makes it panic",
    );
    check(
        Flaw::PanicsOnGoal,
        "context source: neither a budget nor a goal makes it panic",
    );
    check(Flaw::OverBudgetForGoal, budget);
    let lasts =
        "context source: the lifetime of a block depends neither on the budget nor on the goal";
    check(Flaw::FickleByBudget, lasts);
    check(Flaw::FickleByGoal, lasts);
    check(
        Flaw::Unreadable,
        "context source: `make` returns a source that can be read; it failed",
    );
}
