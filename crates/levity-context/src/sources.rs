use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{ContextAsk, ContextBlock, ContextError, ContextLifetime, ContextSource};

use crate::note;

/// What is kept for saying what is left out, in tokens.
const SPARE: usize = 40;
/// A source is not asked when there are fewer tokens than this.
const LEAST: usize = 16;
/// What the block is called that says what is left out.
const LEFT_OUT: &str = "context left out";

/// Several sources of context as one, each of its own weight.
///
/// Their blocks come in the order in which the sources were added, whatever their priority is. When
/// there is not room for all, those of low priority yield first.
///
/// ```
/// use levity_context::Sources;
/// use levity_core::{ContextAsk, ContextBlock, ContextSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sources = Sources::new()
///     .source_at(-1, ContextBlock::new("glossary", "word, meaning\n".repeat(100)))
///     .source(ContextBlock::new("rules", "Be kind.\n".repeat(20)));
///
/// let blocks = sources.blocks(&ContextAsk::new(120)).await?;
/// let ends: Vec<_> = blocks.iter().map(|block| (&*block.name, block.text.lines().last().unwrap())).collect();
/// let cut = "[cut: these are the first 154 of 1400 bytes]";
/// assert_eq!(ends, [("glossary", cut), ("rules", "Be kind.")]);
/// # Ok(())
/// # }
/// ```
///
/// A source that fails makes the whole fail; see [`or_note`](crate::ContextExt::or_note). Blocks of
/// the same name are told apart by a number.
#[derive(Clone, Default)]
#[must_use]
pub struct Sources {
    slots: Vec<Slot>,
}

#[derive(Clone)]
struct Slot {
    priority: i32,
    source: Arc<dyn ContextSource>,
}

impl Sources {
    /// No source yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source of priority 0.
    pub fn source(self, source: impl ContextSource + 'static) -> Self {
        self.source_at(0, source)
    }

    /// Adds a source of this priority. Those of a higher one are asked first; among equals, those
    /// that were added first.
    pub fn source_at(mut self, priority: i32, source: impl ContextSource + 'static) -> Self {
        self.slots.push(Slot {
            priority,
            source: Arc::new(source),
        });
        self
    }
}

#[async_trait]
impl ContextSource for Sources {
    async fn blocks(&self, ask: &ContextAsk) -> Result<Vec<ContextBlock>, ContextError> {
        let mut order: Vec<(usize, &Slot)> = self.slots.iter().enumerate().collect();
        order.sort_by_key(|(_, slot)| std::cmp::Reverse(slot.priority));
        let kept = if order.len() > 1 {
            SPARE.min(ask.budget / 8)
        } else {
            0
        };
        let mut room = Room {
            tokens: ask.budget - kept,
            ..Room::default()
        };
        let mut found = vec![Vec::new(); order.len()];
        for (n, slot) in order {
            if room.tokens < LEAST {
                room.unasked += 1;
                continue;
            }
            let ask = ContextAsk::new(room.tokens).for_goal(ask.goal.as_str());
            found[n] = room.take(slot.source.blocks(&ask).await?);
        }
        let note = room.note(kept);
        Ok(found.into_iter().flatten().chain(note).collect())
    }
}

/// How much room is left, and what found none.
#[derive(Default)]
struct Room {
    tokens: usize,
    names: HashSet<String>,
    left_out: Vec<String>,
    unasked: usize,
}

impl Room {
    fn take(&mut self, blocks: Vec<ContextBlock>) -> Vec<ContextBlock> {
        let mut taken = Vec::with_capacity(blocks.len());
        for mut block in blocks {
            block.name = self.told_apart(block.name);
            let name = block.name.clone();
            match block.cut_to(self.tokens) {
                Some(block) => {
                    self.tokens -= block.tokens();
                    taken.push(block);
                }
                None => self.left_out.push(name),
            }
        }
        taken
    }

    /// The name, with a number if it is taken already.
    fn told_apart(&mut self, name: String) -> String {
        let numbered = (2..).map(|number| format!("{name} ({number})"));
        let mut names = [name.clone()].into_iter().chain(numbered);
        names
            .find(|name| self.names.insert(name.clone()))
            .unwrap_or(name)
    }

    fn note(&mut self, kept: usize) -> Option<ContextBlock> {
        let mut parts = note::named(&self.left_out, "block");
        if self.unasked > 0 {
            parts.push(format!(
                "what comes from {}",
                note::count(self.unasked, "source")
            ));
        }
        let name = self.told_apart(LEFT_OUT.to_owned());
        let block = note::left_out(name, &parts, kept.saturating_add(self.tokens))?;
        Some(block.lasting(ContextLifetime::Run))
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let priorities: Vec<_> = self.slots.iter().map(|slot| slot.priority).collect();
        f.debug_struct("Sources")
            .field("priorities", &priorities)
            .finish_non_exhaustive()
    }
}
