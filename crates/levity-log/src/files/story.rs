//! What events say, in entries.

use std::collections::HashMap;

use levity_core::text::chain;
use levity_core::{
    Compacted, Content, Decision, Delta, EffectId, Ending, Event, EventKind, Finish, Part, RunId,
    Status, Timestamp, ToolResult, Usage,
};

use crate::entry::{Entry, Field, Level};

/// The most effects and runs that are remembered, to say how long they took: 65,536.
const MAX_OPEN: usize = 1 << 16;

/// What must be known of earlier events to tell of later ones.
#[derive(Default)]
pub(super) struct Story {
    effects: HashMap<(RunId, EffectId), (Timestamp, String)>,
    runs: HashMap<RunId, Timestamp>,
}

/// What an event is worth: an entry of `general.log`, and those of `reasoning.log`.
#[derive(Default)]
pub(super) struct Told {
    pub(super) general: Option<Entry>,
    pub(super) reasoning: Vec<Entry>,
}

impl Story {
    pub(super) fn tell(&mut self, event: &Event, answered: u64) -> Told {
        let reasoning = reasoning(event);
        let general = self
            .entry(event, answered)
            .map(|entry| entry.of(&event.run));
        Told { general, reasoning }
    }

    fn entry(&mut self, event: &Event, answered: u64) -> Option<Entry> {
        use EventKind as Kind;
        use Level::{Debug, Info, Warn};
        let new = |level, what| Entry::new(event.at, level, what);
        Some(match &event.kind {
            Kind::RunStarted { machine } => {
                self.run_begins(event);
                new(Info, "run started").with("machine", machine.to_string())
            }
            Kind::Goal { text } => new(Info, "goal").with("text", text.as_str()),
            Kind::Phase(phase) => new(Debug, "phase").with("phase", phase.to_string()),
            Kind::TurnStarted { turn, of } => new(Info, "turn").with("turn", *turn).with("of", *of),
            Kind::Plan { steps } => new(Info, "plan").with("steps", steps.join("; ")),
            Kind::Note { text } => new(Info, "note to the model").with("text", text.as_str()),
            Kind::ModelStarted { effect, slot } => {
                self.begins(event, *effect, slot);
                new(Info, "model called").with("slot", &**slot)
            }
            Kind::ModelFinished {
                effect,
                finish,
                usage,
                ..
            } => {
                let (slot, took) = self.ends(event, *effect);
                let entry = new(Info, "model replied")
                    .with_some("slot", slot)
                    .with_some("ms", took);
                with_usage(entry, usage).with("finish", finish_word(finish))
            }
            Kind::ModelFailed { effect, error } => {
                let (slot, took) = self.ends(event, *effect);
                let entry = new(Level::Error, "model failed")
                    .with_some("slot", slot)
                    .with_some("ms", took);
                entry
                    .with("kind", word(&error.kind()))
                    .with("error", chain(error))
            }
            Kind::ToolStarted { effect, call } => {
                self.begins(event, *effect, &call.name);
                let entry = new(Info, "tool called").with("tool", call.name.as_str());
                entry
                    .with("call", call.id.as_str())
                    .with("args", call.args.clone())
            }
            Kind::ToolFinished { effect, result } => {
                let (_, took) = self.ends(event, *effect);
                tool_finished(event.at, result, took, answered)
            }
            Kind::Asked(ask) => {
                let entry = new(Info, "asked").with("tool", ask.call.name.as_str());
                entry
                    .with("reason", ask.reason.as_str())
                    .with("args", ask.call.args.clone())
            }
            Kind::Decided { decision, .. } => decided(event.at, decision),
            Kind::WaitStarted { until, .. } => new(Info, "waits").with("until", until.to_string()),
            Kind::Woken { .. } => new(Info, "woken"),
            Kind::ChildStarted {
                effect,
                child,
                agent,
            } => {
                self.begins(event, *effect, agent);
                new(Info, "agent called")
                    .with("agent", &**agent)
                    .with("child", child.as_str())
            }
            Kind::ChildFinished { effect, ending } => {
                let (agent, took) = self.ends(event, *effect);
                let entry =
                    new(level_of(&ending.status), "agent finished").with_some("agent", agent);
                entry
                    .with_some("ms", took)
                    .with("status", status(&ending.status))
            }
            Kind::Compacted(compacted) => shortened(event.at, compacted),
            Kind::Saved { .. } => new(Debug, "saved"),
            Kind::SaveFailed { error, .. } => {
                new(Level::Error, "not saved").with("error", chain(error))
            }
            Kind::Refused { limit, .. } => new(Warn, "refused").with("limit", limit.to_string()),
            Kind::Denied { reason, .. } => new(Warn, "denied").with("reason", reason.as_str()),
            Kind::OutcomeUnknown { .. } => new(Warn, "outcome unknown"),
            Kind::Said { message } => {
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
                let took = self.run_ends(event);
                ended(event.at, ending, took)
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

    fn begins(&mut self, event: &Event, effect: EffectId, name: &str) {
        if self.effects.len() < MAX_OPEN {
            self.effects
                .insert((event.run.clone(), effect), (event.at, name.to_owned()));
        }
    }

    fn ends(&mut self, event: &Event, effect: EffectId) -> (Option<String>, Option<u64>) {
        let began = self.effects.remove(&(event.run.clone(), effect));
        began.map_or((None, None), |(at, name)| {
            (Some(name), Some(millis(event.at.since(at))))
        })
    }

    fn run_begins(&mut self, event: &Event) {
        if self.runs.len() < MAX_OPEN {
            self.runs.insert(event.run.clone(), event.at);
        }
    }

    fn run_ends(&mut self, event: &Event) -> Option<u64> {
        // What the run had under way is never told to end.
        self.effects.retain(|(run, _), _| *run != event.run);
        self.runs
            .remove(&event.run)
            .map(|at| millis(event.at.since(at)))
    }
}

/// What a model thought.
fn reasoning(event: &Event) -> Vec<Entry> {
    let EventKind::ModelFinished { message, .. } = &event.kind else {
        return Vec::new();
    };
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Thinking(thinking) if !thinking.text.is_empty() => Some(&thinking.text),
        _ => None,
    });
    let entry = |text: &String| {
        let entry = Entry::new(event.at, Level::Info, "thought").of(&event.run);
        entry.with("text", Field::Whole(text.clone()))
    };
    thoughts.map(entry).collect()
}

fn tool_finished(at: Timestamp, result: &ToolResult, took: Option<u64>, answered: u64) -> Entry {
    let (level, what) = match result.error {
        Some(_) => (Level::Warn, "tool failed"),
        None => (Level::Info, "tool answered"),
    };
    let entry = Entry::new(at, level, what)
        .with("tool", result.name.as_str())
        .with("call", result.call.as_str());
    let entry = entry.with_some("ms", took);
    let Some(kind) = result.error else {
        return entry.with("bytes", answered);
    };
    let words = result.content.iter().find_map(|content| match content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    entry.with("kind", word(&kind)).with_some("error", words)
}

fn decided(at: Timestamp, decision: &Decision) -> Entry {
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

fn shortened(at: Timestamp, compacted: &Compacted) -> Entry {
    let entry = Entry::new(at, Level::Info, "conversation shortened");
    let entry = entry
        .with("before", compacted.before)
        .with("after", compacted.after);
    let folded = u64::try_from(compacted.folded).unwrap_or(u64::MAX);
    entry
        .with("folded", folded)
        .with_some("fell_back", compacted.fell_back.as_deref())
}

fn ended(at: Timestamp, ending: &Ending, took: Option<u64>) -> Entry {
    let stats = &ending.stats;
    let entry = Entry::new(at, level_of(&ending.status), "run ended")
        .with("status", status(&ending.status));
    let entry = entry
        .with_some("ms", took)
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
        .with_some("input", usage.input)
        .with_some("output", usage.output);
    let entry = entry
        .with_some("cached", usage.cached)
        .with_some("reasoning", usage.reasoning);
    let entry = entry.with_some("cost", usage.cost.map(|cost| cost.to_string()));
    if usage.estimated {
        entry.with("estimated", "yes")
    } else {
        entry
    }
}

fn level_of(status: &Status) -> Level {
    match status {
        Status::Complete => Level::Info,
        Status::Failed(_) => Level::Error,
        _ => Level::Warn,
    }
}

/// How a run ended, with all that it came from.
fn status(status: &Status) -> String {
    match status {
        Status::Failed(failure) => format!("failed: {}", chain(failure)),
        other => other.to_string(),
    }
}

/// The name of a kind, as it is in journals.
fn word(kind: &impl serde::Serialize) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}

fn finish_word(finish: &Finish) -> String {
    match finish {
        Finish::Other(word) => word.clone(),
        known => word(known),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
