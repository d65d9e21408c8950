use levity_core::{Message, ModelErrorKind, Options, Part, Role, Usage};
use levity_eval::{AgentSubject, Case, CaseMessage, Expectation, Subject};
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::ScriptedModel;
use serde_json::json;

use crate::add_case;

#[tokio::test]
async fn agent_subject_stops_after_first_turn_with_tool_call() {
    // A second reply would be an error of the script.
    let model = ScriptedModel::new().call("add", json!({"a": 2, "b": 5}));
    let transcript = AgentSubject::new("levity", model)
        .answer(&add_case("1"))
        .await;
    assert_eq!(transcript.error, None);
    assert_eq!(
        (&*transcript.calls[0].name, &transcript.calls[0].arguments),
        ("add", &json!({"a": 2, "b": 5}))
    );
    assert_eq!(
        (
            transcript.calls.len(),
            transcript.replies,
            &*transcript.text
        ),
        (1, Some(1), "")
    );
    assert_eq!(
        transcript.messages.len(),
        3,
        "the question, the call and its result"
    );
}

#[tokio::test]
async fn agent_subject_stops_even_if_note_follows_result() {
    // The second turn is the last one, and the loop announces it after the result.
    let model = ScriptedModel::new().call("add", json!({"a": 2, "b": 5}));
    let subject = AgentSubject::new("levity", model).configure(|agent| agent.max_turns(2));
    let transcript = subject.answer(&add_case("1")).await;
    assert_eq!(
        (transcript.error, transcript.calls.len(), transcript.replies),
        (None, 1, Some(1))
    );
}

#[tokio::test]
async fn agent_subject_lets_the_model_correct_arguments() {
    let model = ScriptedModel::new()
        .call("add", json!({"a": 2}))
        .call("add", json!({"a": 2, "b": 5}));
    let transcript = AgentSubject::new("levity", model)
        .answer(&add_case("1"))
        .await;
    assert_eq!(
        (transcript.error, transcript.calls.len(), transcript.replies),
        (None, 1, Some(2))
    );
}

#[tokio::test]
async fn agent_subject_keeps_text_usage_and_run() {
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let runtime_handle = runtime.clone();
    let model = ScriptedModel::new().reply("Seven.");
    let subject =
        AgentSubject::new("levity", model).configure(move |agent| agent.runtime(runtime.clone()));
    let transcript = subject.answer(&add_case("1")).await;
    assert_eq!(
        (&*transcript.text, transcript.calls.len(), transcript.error),
        ("Seven.", 0, None)
    );
    assert_ne!(transcript.usage, Usage::default());
    let run = transcript.run.unwrap();
    assert!(
        runtime_handle
            .journal()
            .open(&run.as_str().into())
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn agent_subject_reports_error_with_partial_answer() {
    let model = ScriptedModel::new()
        .call("add", json!({"a": "two"}))
        .fail(ModelErrorKind::Overloaded);
    let transcript = AgentSubject::new("levity", model)
        .answer(&add_case("1"))
        .await;
    assert!(transcript.error.is_some() && transcript.calls.is_empty());
    assert_eq!(transcript.replies, Some(2));
    let mut case = add_case("1");
    case.tools[0].name = "not a name".to_owned();
    let transcript = AgentSubject::new("levity", ScriptedModel::new())
        .answer(&case)
        .await;
    assert!(transcript.error.unwrap().contains("not a name"));
}

#[tokio::test]
async fn agent_subject_sends_system_history_and_options() {
    let model = ScriptedModel::new().reply("Blue.");
    let script = model.clone();
    let subject = AgentSubject::new("levity", model).configure(|agent| {
        let mut options = Options::new();
        options.temperature = Some(0.0);
        agent.instructions("Replaced by the case.").options(options)
    });
    let messages = [
        (Role::System, "Be brief."),
        (Role::User, "I like blue."),
        (Role::Assistant, "Noted."),
        (Role::User, "What do I like?"),
    ];
    let case = Case::new("1", "", Expectation::contains("Blue"))
        .with_messages(messages.map(|(role, text)| CaseMessage::new(role, text)));
    assert_eq!(subject.answer(&case).await.text, "Blue.");
    let request = script.requests().remove(0);
    assert_eq!(request.system.as_deref(), Some("Be brief."));
    assert_eq!(request.options.temperature, Some(0.0));
    let texts: Vec<_> = request
        .history
        .messages()
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(texts, ["I like blue.", "Noted.", "What do I like?"]);
}

#[tokio::test]
async fn agent_subject_keeps_parallel_calls_of_one_turn() {
    let call = |id: &str, a: i64| {
        Part::ToolCall(levity_core::ToolCall::new(
            id,
            "add",
            json!({"a": a, "b": 5}),
        ))
    };
    let reply = Message::new(Role::Assistant, [call("1", 1), call("2", 2)]);
    let model =
        levity_test::FunctionModel::new(move |_| Ok(levity_core::Response::new(reply.clone())));
    let transcript = AgentSubject::new("levity", model)
        .answer(&add_case("1"))
        .await;
    let first: Vec<_> = transcript
        .calls
        .iter()
        .map(|call| call.arguments["a"].clone())
        .collect();
    assert_eq!(first, [1, 2]);
}

#[cfg(unix)]
mod command {
    use levity_eval::{CommandSubject, Subject};

    use crate::add_case;

    fn sh(script: &str) -> CommandSubject {
        CommandSubject::new("script", "sh").args(["-c", script])
    }

    #[tokio::test]
    async fn command_subject_answers_many_cases_in_one_process() {
        let subject = sh(r#"while read question; do n=$((n+1)); echo "{\"text\": \"$n\"}"; done"#);
        let mut texts = Vec::new();
        for id in ["1", "2", "3"] {
            texts.push(subject.answer(&add_case(id)).await.text);
        }
        assert_eq!(texts, ["1", "2", "3"]);
    }

    #[tokio::test]
    async fn command_subject_restarts_after_exit() {
        let subject =
            sh(r#"read question; echo '{"calls": [{"name": "add", "arguments": {"a": 2}}]}'"#);
        for id in ["1", "2", "3"] {
            let transcript = subject.answer(&add_case(id)).await;
            assert_eq!(
                (transcript.error, &transcript.calls[0].arguments["a"]),
                (None, &2.into())
            );
        }
    }

    #[tokio::test]
    async fn command_subject_receives_question_without_expectation() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let subject = sh(&format!(
            "read -r question; printf '%s' \"$question\" > {}; echo '{{}}'",
            seen.display()
        ));
        subject.answer(&add_case("1")).await;
        let seen: serde_json::Value =
            serde_json::from_slice(&std::fs::read(seen).unwrap()).unwrap();
        assert_eq!(seen["tools"][0]["name"], "add");
        assert!(
            seen.get("expect").is_none() && seen.get("source").is_none(),
            "{seen}"
        );
    }

    #[tokio::test]
    async fn command_subject_reports_program_errors() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("subject.log");
        for (subject, reason) in [
            (sh("exit 3"), "exit status: 3"),
            (
                sh("read question; echo no json"),
                "did not write a transcript",
            ),
            (sh("read question; echo; sleep 0"), "without an answer"),
            (
                CommandSubject::new("none", "/nowhere/at/all"),
                "cannot start",
            ),
            (
                sh("read question; echo oops >&2; exit 1").log(&log),
                "subject.log",
            ),
            (
                sh(r#"read question; echo '{"error": "out of memory"}'"#),
                "out of memory",
            ),
        ] {
            let error = subject.answer(&add_case("1")).await.error.unwrap();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(std::fs::read_to_string(log).unwrap(), "oops\n");
    }
}
