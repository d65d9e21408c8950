//! Conversion of events into log entries.
//!
//! Most events become one entry for `general.log`. Durations come from pairs of events, so starts
//! are remembered until their end; beyond 65,536 of them, entries have no duration. Failures of a
//! run, a model or a save are errors; failures of tools, limits and interventions are warnings.

use std::collections::HashMap;

use levity_core::text::chain;
use levity_core::{
    CompactionReport, Content, Decision, Delta, EffectId, Ending, Event, EventKind, Finish, Part,
    RunId, Status, Timestamp, ToolResult, Usage,
};

use crate::entry::{Entry, Field, Level};

/// The maximum number of remembered effects and runs, for their durations: 65,536.
const MAX_TRACKED: usize = 1 << 16;

/// The state from earlier events that later entries need.
#[derive(Default)]
pub(super) struct EntryBuilder {
    effects: HashMap<(RunId, EffectId), (Timestamp, String)>,
    runs: HashMap<RunId, Timestamp>,
}

/// The entries of an event: one for `general.log`, and those for `reasoning.log`.
#[derive(Default)]
pub(super) struct EventEntries {
    pub(super) general: Option<Entry>,
    pub(super) reasoning: Vec<Entry>,
}

impl EntryBuilder {
    pub(super) fn entries_for(&mut self, event: &Event, result_bytes: u64) -> EventEntries {
        let reasoning = reasoning_entries(event);
        let general = self
            .entry(event, result_bytes)
            .map(|entry| entry.for_run(&event.run));
        EventEntries { general, reasoning }
    }

    fn entry(&mut self, event: &Event, result_bytes: u64) -> Option<Entry> {
        use EventKind as Kind;
        use Level::{Debug, Info, Warn};
        let new = |level, message| Entry::new(event.at, level, message);
        Some(match &event.kind {
            Kind::RunStarted { machine } => {
                self.start_run(event);
                new(Info, "run started").with("machine", machine.to_string())
            }
            Kind::Goal { text } => new(Info, "goal").with("text", text.as_str()),
            Kind::Phase(phase) => new(Debug, "phase").with("phase", phase.to_string()),
            Kind::TurnStarted { turn, of } => new(Info, "turn").with("turn", *turn).with("of", *of),
            Kind::Plan { steps } => new(Info, "plan").with("steps", steps.join("; ")),
            Kind::Note { text } => new(Info, "note to the model").with("text", text.as_str()),
            Kind::ModelStarted { effect, slot } => {
                self.start_effect(event, *effect, slot);
                new(Info, "model called").with("slot", &**slot)
            }
            Kind::ModelFinished {
                effect,
                finish,
                usage,
                ..
            } => {
                let (slot, took) = self.finish_effect(event, *effect);
                let entry = new(Info, "model replied")
                    .with_optional("slot", slot)
                    .with_optional("ms", took);
                with_usage(entry, usage).with("finish", finish_name(finish))
            }
            Kind::ModelFailed { effect, error } => {
                let (slot, took) = self.finish_effect(event, *effect);
                let entry = new(Level::Error, "model failed")
                    .with_optional("slot", slot)
                    .with_optional("ms", took);
                entry
                    .with("kind", kind_name(&error.kind()))
                    .with("error", chain(error))
            }
            Kind::ToolStarted { effect, call } => {
                self.start_effect(event, *effect, &call.name);
                let entry = new(Info, "tool called").with("tool", call.name.as_str());
                entry
                    .with("call", call.id.as_str())
                    .with("args", call.args.clone())
            }
            Kind::ToolFinished { effect, result } => {
                let (_, took) = self.finish_effect(event, *effect);
                tool_entry(event.at, result, took, result_bytes)
            }
            Kind::Asked(ask) => {
                let entry = new(Info, "asked").with("tool", ask.call.name.as_str());
                entry
                    .with("reason", ask.reason.as_str())
                    .with("args", ask.call.args.clone())
            }
            Kind::Decided { decision, .. } => decision_entry(event.at, decision),
            Kind::WaitStarted { until, .. } => new(Info, "waits").with("until", until.to_string()),
            Kind::Woken { .. } => new(Info, "woken"),
            Kind::ChildStarted {
                effect,
                child,
                agent,
            } => {
                self.start_effect(event, *effect, agent);
                new(Info, "agent called")
                    .with("agent", &**agent)
                    .with("child", child.as_str())
            }
            Kind::ChildFinished { effect, ending } => {
                let (agent, took) = self.finish_effect(event, *effect);
                let entry =
                    new(level_of(&ending.status), "agent finished").with_optional("agent", agent);
                entry
                    .with_optional("ms", took)
                    .with("status", status(&ending.status))
            }
            Kind::Compacted(compacted) => compacted_entry(event.at, compacted),
            Kind::Saved { .. } => new(Debug, "saved"),
            Kind::SaveFailed { error, .. } => {
                new(Level::Error, "not saved").with("error", chain(error))
            }
            Kind::Refused { limit, .. } => new(Warn, "refused").with("limit", limit.to_string()),
            Kind::Denied { reason, .. } => new(Warn, "denied").with("reason", reason.as_str()),
            Kind::OutcomeUnknown { .. } => new(Warn, "outcome unknown"),
            Kind::MessageReceived { message } => {
                new(Info, "host said").with("text", message.text().into_owned())
            }
            Kind::Paused => new(Info, "paused"),
            Kind::Resumed => new(Info, "resumed"),
            Kind::Guarded { intervention, .. } => {
                new(Warn, "guard").with("what", intervention.to_string())
            }
            Kind::LimitNear(limit) => new(Warn, "limit near").with("limit", limit.to_string()),
            Kind::LimitLow(limit) => new(Warn, "limit low").with("limit", limit.to_string()),
            Kind::LimitPassed(limit) => new(Warn, "limit passed").with("limit", limit.to_string()),
            Kind::RunEnded(ending) => {
                let took = self.finish_run(event);
                ending_entry(event.at, ending, took)
            }
            Kind::Custom { name, data } => new(Info, "custom")
                .with("name", name.as_str())
                .with("data", data.clone()),
            Kind::Delta {
                delta: Delta::Waiting { time, reason },
                ..
            } => {
                let entry = new(Warn, "model waits").with("reason", reason.as_str());
                entry.with("ms", millis(*time))
            }
            Kind::Delta {
                delta: Delta::Notice { text },
                ..
            } => new(Info, "model notice").with("text", text.as_str()),
            Kind::Delta {
                delta: Delta::Restart { reason },
                ..
            } => new(Warn, "model begins anew").with("reason", reason.as_str()),
            Kind::FileChanged { change, .. } => {
                new(Info, "file changed").with("file", change.path.as_str())
            }
            Kind::Lagged { missed } => new(Warn, "events missed").with("count", *missed),
            _ => return None,
        })
    }

    /// Remembers the start of an effect, with the name that its end does not carry.
    fn start_effect(&mut self, event: &Event, effect: EffectId, name: &str) {
        if self.effects.len() < MAX_TRACKED {
            self.effects
                .insert((event.run.clone(), effect), (event.at, name.to_owned()));
        }
    }

    /// Returns the name and the duration of an effect in milliseconds, if its start is known.
    fn finish_effect(&mut self, event: &Event, effect: EffectId) -> (Option<String>, Option<u64>) {
        let began = self.effects.remove(&(event.run.clone(), effect));
        began.map_or((None, None), |(at, name)| {
            (Some(name), Some(millis(event.at.since(at))))
        })
    }

    fn start_run(&mut self, event: &Event) {
        if self.runs.len() < MAX_TRACKED {
            self.runs.insert(event.run.clone(), event.at);
        }
    }

    fn finish_run(&mut self, event: &Event) -> Option<u64> {
        // Effects in progress get no further events after the run has ended.
        self.effects.retain(|(run, _), _| *run != event.run);
        self.runs
            .remove(&event.run)
            .map(|at| millis(event.at.since(at)))
    }
}

/// Returns the reasoning of a model as entries.
fn reasoning_entries(event: &Event) -> Vec<Entry> {
    let EventKind::ModelFinished { message, .. } = &event.kind else {
        return Vec::new();
    };
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Thinking(thinking) if !thinking.text.is_empty() => Some(&thinking.text),
        _ => None,
    });
    let entry = |text: &String| {
        let entry = Entry::new(event.at, Level::Info, "thought").for_run(&event.run);
        entry.with("text", Field::Whole(text.clone()))
    };
    thoughts.map(entry).collect()
}

/// Describes a tool result by its size, or by its error; the answer itself may be confidential.
fn tool_entry(at: Timestamp, result: &ToolResult, took: Option<u64>, result_bytes: u64) -> Entry {
    let (level, message) = match result.error {
        Some(_) => (Level::Warn, "tool failed"),
        None => (Level::Info, "tool answered"),
    };
    let entry = Entry::new(at, level, message)
        .with("tool", result.name.as_str())
        .with("call", result.call.as_str());
    let entry = entry.with_optional("ms", took);
    let Some(kind) = result.error else {
        return entry.with("bytes", result_bytes);
    };
    let error_text = result.content.iter().find_map(|content| match content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    entry
        .with("kind", kind_name(&kind))
        .with_optional("error", error_text)
}

fn decision_entry(at: Timestamp, decision: &Decision) -> Entry {
    let entry = Entry::new(at, Level::Info, "decided");
    match decision {
        Decision::Allow => entry.with("decision", "allow"),
        Decision::Edit { args } => entry.with("decision", "edit").with("args", args.clone()),
        Decision::Answer { text } => entry.with("decision", "answer").with("text", text.as_str()),
        Decision::Deny { reason } => entry
            .with("decision", "deny")
            .with("reason", reason.as_str()),
        _ => entry,
    }
}

fn compacted_entry(at: Timestamp, compacted: &CompactionReport) -> Entry {
    let entry = Entry::new(at, Level::Info, "conversation shortened");
    let entry = entry
        .with("before", compacted.before)
        .with("after", compacted.after);
    let folded = u64::try_from(compacted.folded).unwrap_or(u64::MAX);
    entry
        .with("folded", folded)
        .with_optional("fell_back", compacted.fell_back.as_deref())
}

fn ending_entry(at: Timestamp, ending: &Ending, took: Option<u64>) -> Entry {
    let stats = &ending.stats;
    let entry = Entry::new(at, level_of(&ending.status), "run ended")
        .with("status", status(&ending.status));
    let entry = entry
        .with_optional("ms", took)
        .with("turns", stats.turns)
        .with("model_calls", stats.model_calls);
    let entry = entry
        .with("tool_calls", stats.tool_calls)
        .with("failed_calls", stats.failed_calls);
    let entry = entry.with("reasoning_steps", stats.reasoning_steps);
    with_usage(entry, &ending.usage).with("answer", ending.text.as_str())
}

fn with_usage(entry: Entry, usage: &Usage) -> Entry {
    let entry = entry
        .with_optional("input", usage.input)
        .with_optional("output", usage.output);
    let entry = entry
        .with_optional("cached", usage.cached)
        .with_optional("reasoning", usage.reasoning);
    let entry = entry.with_optional("cost", usage.cost.map(|cost| cost.to_string()));
    if usage.estimated {
        entry.with("estimated", "yes")
    } else {
        entry
    }
}

/// Returns the level of an ending: partial and cancelled runs are warnings.
fn level_of(status: &Status) -> Level {
    match status {
        Status::Complete => Level::Info,
        Status::Failed(_) => Level::Error,
        _ => Level::Warn,
    }
}

/// Formats the status of a run, with the whole error chain.
fn status(status: &Status) -> String {
    match status {
        Status::Failed(failure) => format!("failed: {}", chain(failure)),
        other => other.to_string(),
    }
}

/// Returns the name of a kind as it appears in journals.
fn kind_name(kind: &impl serde::Serialize) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(kind_name)) => kind_name,
        Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}

fn finish_name(finish: &Finish) -> String {
    match finish {
        Finish::Other(kind_name) => kind_name.clone(),
        known => kind_name(known),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
