//! Several sources share one budget.
//!
//! Sources are queried one after the other, by priority, each with the tokens that the earlier ones
//! left over. A source knows best how to shorten itself, so the remaining budget is passed on
//! instead of cutting blocks afterwards. Up to 40 tokens are reserved for a last block that names
//! omissions: a model should know that something is missing.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource};

use crate::note;

/// The tokens reserved for the note about omissions.
const RESERVED_TOKENS: usize = 40;
/// A source is not queried if fewer tokens than this remain.
const MIN_TOKENS: usize = 16;
/// The name of the block that lists omitted parts.
const LEFT_OUT: &str = "context left out";

/// Several sources of context as one, each with a priority.
///
/// Their blocks appear in the order in which you add the sources, whatever their priority. If the
/// budget is short, sources with low priority lose their blocks first.
///
/// ```
/// use levity_context::Sources;
/// use levity_core::{ContextRequest, ContextBlock, ContextSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sources = Sources::new()
///     .source_with_priority(-1, ContextBlock::new("glossary", "word, meaning\n".repeat(100)))
///     .source(ContextBlock::new("rules", "Be kind.\n".repeat(20)));
///
/// let blocks = sources.blocks(&ContextRequest::new(120)).await?;
/// let ends: Vec<_> = blocks
///     .iter()
///     .map(|block| (&*block.name, block.text.lines().last().unwrap()))
///     .collect();
/// let cut = "[cut: these are the first 154 of 1400 bytes]";
/// assert_eq!(ends, [("glossary", cut), ("rules", "Be kind.")]);
/// # Ok(())
/// # }
/// ```
///
/// If one source fails, the whole request fails; see
/// [`with_fallback_note`](crate::ContextExt::with_fallback_note).
/// Blocks with the same name get a number.
#[derive(Clone, Default)]
#[must_use]
pub struct Sources {
    slots: Vec<Slot>,
}

/// A source with its priority, at its place in the output.
#[derive(Clone)]
struct Slot {
    priority: i32,
    source: Arc<dyn ContextSource>,
}

impl Sources {
    /// Creates an empty list of sources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source with priority 0.
    pub fn source(self, source: impl ContextSource + 'static) -> Self {
        self.source_with_priority(0, source)
    }

    /// Adds a source with this priority. Sources with a higher priority are queried first; among
    /// equals, those added first.
    ///
    /// ```
    /// use levity_context::Sources;
    /// use levity_core::{ContextBlock, ContextRequest, ContextSource};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ContextError> {
    /// let sources = Sources::new()
    ///     .source_with_priority(-1, ContextBlock::new("nice to have", "a ".repeat(1_000)))
    ///     .source_with_priority(5, ContextBlock::new("vital", "b ".repeat(100)));
    /// let blocks = sources.blocks(&ContextRequest::new(90)).await?;
    /// assert!(blocks.iter().any(|block| block.name == "vital" && block.text.ends_with("b ")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn source_with_priority(
        mut self,
        priority: i32,
        source: impl ContextSource + 'static,
    ) -> Self {
        self.slots.push(Slot {
            priority,
            source: Arc::new(source),
        });
        self
    }
}

#[async_trait]
impl ContextSource for Sources {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let mut order: Vec<(usize, &Slot)> = self.slots.iter().enumerate().collect();
        order.sort_by_key(|(_, slot)| std::cmp::Reverse(slot.priority));
        let reserved = if order.len() > 1 {
            RESERVED_TOKENS.min(ask.budget / 8)
        } else {
            0
        };
        let mut remaining = RemainingBudget {
            tokens: ask.budget - reserved,
            ..RemainingBudget::default()
        };
        let mut found = vec![Vec::new(); order.len()];
        for (n, slot) in order {
            if remaining.tokens < MIN_TOKENS {
                remaining.skipped_sources += 1;
                continue;
            }
            let mut ask = ask.clone();
            ask.budget = remaining.tokens;
            found[n] = remaining.take(slot.source.blocks(&ask).await?);
        }
        let note = remaining.note(reserved);
        Ok(found.into_iter().flatten().chain(note).collect())
    }
}

/// The remaining budget, and the blocks that did not fit.
#[derive(Default)]
struct RemainingBudget {
    tokens: usize,
    names: HashSet<String>,
    left_out: Vec<String>,
    skipped_sources: usize,
}

impl RemainingBudget {
    /// Accepts the blocks that fit, cut if necessary, and remembers the names of the others. A
    /// source that ignores its budget therefore cannot exceed the total.
    fn take(&mut self, blocks: Vec<ContextBlock>) -> Vec<ContextBlock> {
        let mut accepted = Vec::with_capacity(blocks.len());
        for mut block in blocks {
            block.name = self.unique_name(block.name);
            let name = block.name.clone();
            match block.cut_to(self.tokens) {
                Some(block) => {
                    self.tokens -= block.tokens();
                    accepted.push(block);
                }
                None => self.left_out.push(name),
            }
        }
        accepted
    }

    /// Returns a unique name, with a number if the name is in use.
    fn unique_name(&mut self, name: String) -> String {
        let numbered = (2..).map(|number| format!("{name} ({number})"));
        let mut names = [name.clone()].into_iter().chain(numbered);
        names
            .find(|name| self.names.insert(name.clone()))
            .unwrap_or(name)
    }

    /// Returns the block about omissions, if something was omitted and the note fits.
    fn note(&mut self, reserved: usize) -> Option<ContextBlock> {
        let mut parts = note::named(&self.left_out, "block");
        if self.skipped_sources > 0 {
            parts.push(format!(
                "what comes from {}",
                note::count(self.skipped_sources, "source")
            ));
        }
        let name = self.unique_name(LEFT_OUT.to_owned());
        let block = note::left_out(name, &parts, reserved.saturating_add(self.tokens))?;
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
