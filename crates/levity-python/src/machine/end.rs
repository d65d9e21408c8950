//! The end of a program: a result, or the reason why there is none.

use levity_core::{Ending, Failure, Limit, Stats, Status, ToolError, ToolErrorKind};
use serde_json::{Value, json};

use crate::fault::ProgramFaultKind;
use crate::output::shorten;

use super::PythonMachine;

/// The number of bytes shown of an earlier variant's failure.
const MAX_REASON: usize = 1_000;

impl PythonMachine {
    /// Reports why each variant failed, the last one in full.
    pub(super) fn all_failed(&mut self) {
        let failed = &self.state.failed;
        let mut text = String::new();
        for (at, fault) in failed
            .iter()
            .enumerate()
            .take(failed.len().saturating_sub(1))
        {
            text.push_str(&format!(
                "variant {}: {}\n",
                at + 1,
                shorten(&fault.traceback, MAX_REASON)
            ));
        }
        if failed.len() > 1 {
            text.push_str(&format!("variant {}: ", failed.len()));
        }
        text.push_str(
            failed
                .last()
                .map_or("there is no code", |fault| &fault.traceback),
        );
        let printed = self.state.printed.text();
        if !printed.is_empty() {
            text.push_str(&format!("\nprinted before it failed:\n{printed}"));
        }
        let timeout = failed
            .last()
            .is_some_and(|fault| fault.kind == ProgramFaultKind::Time);
        let kind = if timeout {
            ToolErrorKind::Timeout
        } else {
            ToolErrorKind::Failed
        };
        self.fail(ToolError::new(kind, text));
    }

    /// Ends the run with the result and the statistics of the successful variant.
    pub(super) fn done(&mut self, result: Value) {
        let state = &self.state;
        let mut value = json!({
            "result": null,
            "output": state.printed.text(),
            "seconds": (state.time.as_secs_f64() * 1e6).round() / 1e6,
            "calls": state.calls,
        });
        value["result"] = result;
        if state.setup.variants.len() > 1 {
            let reasons = state
                .failed
                .iter()
                .map(|fault| shorten(&fault.traceback, MAX_REASON));
            value["variant"] = json!(state.variant + 1);
            value["failed"] = reasons.collect();
        }
        self.end(Status::Complete);
        if let Some(ending) = &mut self.state.ending {
            ending.text = value.to_string();
            ending.value = Some(value);
        }
    }

    pub(super) fn fail(&mut self, error: ToolError) {
        self.end(Status::Failed(Failure::Program(error)));
    }

    pub(super) fn end(&mut self, status: Status) {
        self.state.waiting.clear();
        self.state.paused = None;
        let mut ending = Ending::new(status);
        let mut stats = Stats::default();
        stats.tool_calls = self.state.calls as u64;
        stats.failed_calls = self.state.failed_calls;
        ending.stats = stats;
        self.state.ending = Some(ending);
    }

    /// Ends the run at a limit. The printed text is the partial result.
    pub(super) fn stop(&mut self, limit: Limit) {
        let printed = self.state.printed.text();
        self.end(Status::Partial(limit));
        if let Some(ending) = &mut self.state.ending {
            ending.text = printed;
        }
    }
}
