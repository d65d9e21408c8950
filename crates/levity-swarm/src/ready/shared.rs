//! What several workers have together.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Approver, Ask, Decision, Tool, ToolSource};

use super::reads;

/// An approver of several workers.
pub(super) struct Shared(pub(super) Arc<dyn Approver>);

#[async_trait]
impl Approver for Shared {
    async fn decide(&self, ask: &Ask) -> Decision {
        self.0.decide(ask).await
    }
}

/// The tools of a source that a worker is offered: who only reads would be denied the others.
pub(super) struct Offered {
    pub(super) source: Arc<dyn ToolSource>,
    pub(super) only_reads: bool,
}

impl ToolSource for Offered {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.source.tools();
        tools.retain(|tool| !self.only_reads || reads(tool.spec()));
        tools
    }

    fn version(&self) -> u64 {
        self.source.version()
    }

    fn problems(&self) -> Vec<String> {
        self.source.problems()
    }

    fn part(&self, tool: &str) -> Option<String> {
        self.source.part(tool)
    }
}
