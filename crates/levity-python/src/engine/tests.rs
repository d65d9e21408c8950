use std::time::Duration;

use crate::function::Function;
use crate::output::PrintedText;

use super::*;

fn job(code: &str, functions: Vec<Function>) -> Job {
    Job {
        from: JobStart::Source {
            file: FILE.to_owned(),
            code: code.to_owned(),
            inputs: Map::new(),
        },
        functions,
        limits: ProgramLimits::new().time(Duration::from_secs(3600)),
        calls_left: 10,
        printed: PrintedText::default(),
    }
}

fn f() -> Vec<Function> {
    vec![Function {
        name: "f".to_owned(),
        tool: "f".to_owned(),
        params: vec!["x".to_owned()],
        json: false,
    }]
}

#[test]
fn cancelled_program_stops() {
    let cancel = CancelToken::new();
    cancel.cancel();
    for code in [
        "while True: pass",
        "while True: print(1)",
        "for _ in iter(int, 1): pass",
    ] {
        let End::Failed(fault) = run(&job(code, Vec::new()), &cancel).end else {
            panic!("{code}")
        };
        assert_eq!(fault.kind, ProgramFaultKind::Cancelled, "{code}");
    }
}

#[test]
fn paused_program_resumes() {
    let cancel = CancelToken::new();
    let mut first = job("print('a')\ny = f(x=[1])\nprint('b')\ny + 1", f());
    let paused = run(&first, &cancel);
    let End::Paused {
        state,
        awaits,
        calls,
    } = paused.end
    else {
        panic!("{paused:?}")
    };
    assert_eq!(calls[0].args["x"], serde_json::json!([1]));
    let answers = vec![(calls[0].id, Answer::Value(serde_json::json!(41)))];
    first.from = JobStart::Snapshot {
        state,
        awaits,
        answers,
    };
    first.printed = paused.printed;
    let done = run(&first, &cancel);
    assert_eq!(
        done.end,
        End::Done {
            result: serde_json::json!(42),
            cut: false
        }
    );
    assert_eq!(done.printed.text(), "a\nb\n");
}

#[test]
fn invalid_state_returns_fault() {
    for state in ["", "%%%", "AAAA", "TU9OVFkACAA="] {
        let mut job = job("", f());
        job.from = JobStart::Snapshot {
            state: state.to_owned(),
            awaits: false,
            answers: Vec::new(),
        };
        let End::Failed(fault) = run(&job, &CancelToken::new()).end else {
            panic!("{state}")
        };
        assert_eq!(fault.kind, ProgramFaultKind::Crashed);
        assert!(
            fault.message.starts_with("cannot read the paused program"),
            "{fault}"
        );
    }
}
