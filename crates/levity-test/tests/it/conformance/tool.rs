use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use levity_core::{Hints, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use levity_test::{FaultyTool, RecordingTool, conformance};
use serde_json::{Value, json};

use crate::{block_on, refuses};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    BadName,
    LongName,
    NoDescription,
    NoObject,
    OddOutputSchema,
    SpecChanges,
    Fails,
    WrongType,
    NothingRequired,
    PanicsOnJunk,
    SilentError,
    ClaimsUnknown,
    PanicsWhenDropped,
    DefaultUndo,
    UndoesOnlyWhatWas,
    UndoesOnce,
    UndoPanics,
    UndoLeavesSomething,
}

struct Broken {
    flaw: Flaw,
    spec: ToolSpec,
    called: AtomicBool,
    undone: AtomicBool,
}

impl Broken {
    fn new(flaw: Flaw, made: usize) -> Self {
        let mut spec = ToolSpec::new("sum", "Adds.")
            .with_output(json!({"type": "object", "required": ["sum"]}));
        match flaw {
            Flaw::BadName => spec.name = "add numbers".into(),
            Flaw::LongName => spec.name = "a".repeat(65),
            Flaw::NoDescription => spec.description = " ".into(),
            Flaw::NoObject => spec.input = json!({"type": "string"}),
            Flaw::OddOutputSchema => spec.output = Some(json!("number")),
            Flaw::SpecChanges => spec.description = format!("Adds, {made}."),
            Flaw::DefaultUndo
            | Flaw::UndoesOnlyWhatWas
            | Flaw::UndoesOnce
            | Flaw::UndoPanics
            | Flaw::UndoLeavesSomething => spec.hints = Hints::new().compensable(),
            _ => {}
        }
        Self {
            flaw,
            spec,
            called: AtomicBool::default(),
            undone: AtomicBool::default(),
        }
    }
}

/// A guard that panics when it is dropped half-way.
struct Fragile(bool);

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(self.0 || std::thread::panicking(), "dropped too early");
    }
}

#[async_trait]
impl Tool for Broken {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        let mut fragile = Fragile(self.flaw != Flaw::PanicsWhenDropped);
        tokio::task::yield_now().await;
        fragile.0 = true;
        let junk = !args.is_object();
        self.called.store(true, Ordering::SeqCst);
        if self.flaw == Flaw::UndoLeavesSomething && self.undone.load(Ordering::SeqCst) {
            return Err(ToolError::failed("it is there already"));
        }
        match self.flaw {
            Flaw::Fails => Err(ToolError::failed("no")),
            Flaw::WrongType => Ok(ToolOutput::value(json!([7]))),
            Flaw::NothingRequired => Ok(ToolOutput::value(json!({"total": 7}))),
            Flaw::PanicsOnJunk => Ok(ToolOutput::value(
                json!({"sum": args.as_object().unwrap().len()}),
            )),
            Flaw::SilentError if junk => Err(ToolError::failed("")),
            Flaw::ClaimsUnknown if junk => Err(ToolError::new(ToolErrorKind::Unknown, "who knows")),
            _ => Ok(ToolOutput::value(json!({"sum": 7}))),
        }
    }

    async fn undo(&self, _: Value, _: &ToolCx) -> Result<(), ToolError> {
        let again = self.undone.swap(true, Ordering::SeqCst);
        match self.flaw {
            Flaw::DefaultUndo => Err(ToolError::failed("it cannot be undone")),
            Flaw::UndoesOnlyWhatWas if !self.called.load(Ordering::SeqCst) => {
                Err(ToolError::failed("there is nothing"))
            }
            Flaw::UndoesOnce if again => Err(ToolError::failed("there is nothing any more")),
            Flaw::UndoPanics => panic!("oh no"),
            _ => Ok(()),
        }
    }
}

#[test]
fn tool_suite_accepts_correct_tool() {
    let echo = || RecordingTool::new("echo", |args| Ok(ToolOutput::value(args.clone())));
    block_on(conformance::tool(echo, json!({"a": 1})));
    block_on(conformance::tool(|| FaultyTool::fails(0), json!({})));
    block_on(conformance::tool(|| FaultyTool::huge(1000), json!({})));
    block_on(conformance::tool(
        || echo().with_undo(|_| Ok(())),
        json!({"a": 1}),
    ));
}

#[test]
fn tool_suite_rejects_every_flaw() {
    let check = |flaw, promise| {
        let made = AtomicUsize::new(0);
        let make = || Broken::new(flaw, made.fetch_add(1, Ordering::SeqCst));
        refuses(conformance::tool(make, json!({})), promise);
    };
    let name = "tool: a name has 1 to 64 letters, digits, `_` and `-`";
    check(Flaw::BadName, name);
    check(Flaw::LongName, name);
    check(Flaw::NoDescription, "tool: `sum` has a description");
    check(Flaw::NoObject, "tool: the input schema is an object schema");
    check(
        Flaw::OddOutputSchema,
        "tool: the output schema of `sum` is a JSON Schema",
    );
    check(Flaw::SpecChanges, "tool: `spec` always returns the same");
    check(
        Flaw::Fails,
        "tool: `make` returns a tool that succeeds with `args`",
    );
    check(
        Flaw::WrongType,
        "tool: the output has the type of the output schema",
    );
    check(
        Flaw::NothingRequired,
        "tool: the output has the field that its schema requires: `sum`",
    );
    check(Flaw::PanicsOnJunk, "tool: no arguments make it panic");
    check(Flaw::SilentError, "tool: a failure describes the problem");
    check(
        Flaw::ClaimsUnknown,
        "tool: a failure is of a kind that a tool can know",
    );
    check(Flaw::PanicsWhenDropped, "tool: dropping a call is harmless");
    let never = "tool: a call that was never made can be undone";
    check(Flaw::DefaultUndo, never);
    check(Flaw::UndoesOnlyWhatWas, never);
    check(Flaw::UndoesOnce, "tool: a call can be undone twice");
    check(
        Flaw::UndoPanics,
        "tool: a failure to undo is an `Err`; it panicked: oh no",
    );
    check(
        Flaw::UndoLeavesSomething,
        "tool: a call that was undone can be made again",
    );
    let panics = conformance::tool(FaultyTool::panics, json!({}));
    refuses(
        panics,
        "tool: a failure is an `Err`; it panicked: tool `panics` panics as planned",
    );
}
