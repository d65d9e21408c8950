use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::{Tool, ToolOutput, ToolSource};
use levity_test::{RecordingTool, conformance};

use crate::{block_on, refuses};

#[derive(Clone, Copy, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    NoName,
    TwoOfAName,
    ShufflesTools,
    RestlessVersion,
    SilentChange,
}

/// A source with `1 + changes` tools.
#[derive(Default)]
struct Source {
    flaw: Flaw,
    changes: AtomicU64,
    looks: AtomicU64,
}

impl Source {
    fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

fn tool(n: u64) -> Arc<dyn Tool> {
    Arc::new(RecordingTool::new(format!("tool_{n}"), |_| {
        Ok(ToolOutput::text("done"))
    }))
}

impl ToolSource for Source {
    fn name(&self) -> &str {
        if self.flaw == Flaw::NoName {
            ""
        } else {
            "folder"
        }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        let count = 2 + self.changes.load(Ordering::SeqCst);
        let mut tools: Vec<_> = (0..count).map(tool).collect();
        match self.flaw {
            Flaw::TwoOfAName => tools.push(tool(0)),
            Flaw::ShufflesTools if looks % 2 == 1 => tools.reverse(),
            _ => {}
        }
        tools
    }

    fn version(&self) -> u64 {
        match self.flaw {
            Flaw::RestlessVersion => self.looks.load(Ordering::SeqCst),
            Flaw::SilentChange => 1,
            _ => self.changes.load(Ordering::SeqCst),
        }
    }
}

#[test]
fn tool_source_suite_accepts_correct_source() {
    block_on(conformance::tool_source(
        &Source::default(),
        async |source| source.change(),
    ));
    block_on(conformance::tool_source(&Source::default(), async |_| ()));
}

#[test]
fn tool_source_suite_rejects_every_flaw() {
    let check = |flaw, promise| {
        let source = Source {
            flaw,
            ..Source::default()
        };
        refuses(
            conformance::tool_source(&source, async |source| source.change()),
            promise,
        );
    };
    check(Flaw::NoName, "tool source: it has a name");
    check(Flaw::TwoOfAName, "tool source: no two tools share a name");
    check(
        Flaw::ShufflesTools,
        "tool source: `tools` are in a stable order",
    );
    check(
        Flaw::RestlessVersion,
        "tool source: `version` stays while nothing changes",
    );
    check(
        Flaw::SilentChange,
        "tool source: `version` changes whenever `tools` would return something else",
    );
}
