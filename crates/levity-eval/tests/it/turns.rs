//! Tests of cases with several turns and running tools.

use std::path::Path;
use std::process::Command;

use levity_core::{ModelErrorKind, Role};
use levity_eval::{
    AgentSubject, AnsweredTurn, Case, CaseMessage, CaseTurn, Evaluation, Expectation, Header,
    OfferedTool, Results, Selection, Subject, Transcript, Trial, TrialCall, bfcl,
};
use levity_test::ScriptedModel;
use serde_json::{Value, json};

use crate::{add_case, package};

fn user(text: &str) -> CaseMessage {
    CaseMessage::new(Role::User, text)
}

/// Returns a case with two turns, a tool that counts its calls, and a tool only for the second
/// turn.
fn counting_case() -> Case {
    let later =
        CaseTurn::new([user("Again.")]).with_tool(OfferedTool::new("reset", "Begins again."));
    Case::new("1", "Count.", Expectation::JudgeOnly)
        .with_tool(OfferedTool::new("count", "Counts."))
        .with_turn(later)
        .with_environment(json!({"start": 3}))
}

#[test]
fn cases_without_turns_keep_their_format() {
    let case = add_case("1");
    let written = serde_json::to_value(&case).unwrap();
    let keys: Vec<_> = written.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["id", "category", "messages", "tools", "expect"]);
    assert_eq!(serde_json::from_value::<Case>(written).unwrap(), case);
    let keys = |value: Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(case.question()),
        ["id", "category", "messages", "tools"]
    );
    assert_eq!(keys(json!(Transcript::new())), ["text", "calls", "usage"]);
}

#[test]
fn question_of_turn_has_messages_and_tools_up_to_then() {
    let case = counting_case();
    let read: Case = serde_json::from_value(json!(case)).unwrap();
    assert_eq!(read, case);
    let question = |turn: usize| {
        let question = case.question_at(turn)?;
        let tools = question["tools"]
            .as_array()?
            .iter()
            .map(|tool| tool["name"].as_str().unwrap_or_default());
        let text = question["messages"][0]["content"].as_str()?.to_owned();
        let counts = (question["turn"].as_u64()?, question["turns"].as_u64()?);
        assert!(question.get("environment").is_none() && question["tools_run"] == true);
        Some((text, tools.collect::<Vec<_>>().join(" "), counts))
    };
    assert_eq!(
        question(1),
        Some(("Count.".to_owned(), "count".to_owned(), (1, 2)))
    );
    assert_eq!(
        question(2),
        Some(("Again.".to_owned(), "count reset".to_owned(), (2, 2)))
    );
    assert_eq!((question(0), question(3)), (None, None));
}

#[test]
fn bfcl_multi_turn_cases_have_state_and_withheld_functions() {
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let cases = bfcl::cases(
        &data,
        &["multi_turn_miss_func", "multi_turn_base"],
        Selection::new(),
    )
    .unwrap();
    let names = |tools: &[OfferedTool]| {
        tools
            .iter()
            .map(|tool| tool.name.clone())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let case = &cases[0];
    assert_eq!(
        (&*case.category, &case.expect),
        ("multi_turn_miss_func", &Expectation::JudgeOnly)
    );
    assert_eq!(
        (&*case.messages[0].content, &*names(&case.tools)),
        ("Open a ticket about rain.", "open_ticket list_tickets wait")
    );
    assert_eq!(case.tools[0].parameters["type"], "object");
    let turns: Vec<_> = case
        .turns
        .iter()
        .map(|turn| (&*turn.messages[0].content, names(&turn.tools)))
        .collect();
    assert_eq!(
        turns,
        [
            ("Remove all tickets.", String::new()),
            ("There is one more function.", "clear_tickets".to_owned()),
            ("Thanks.", String::new()),
        ]
    );
    let environment = json!({"classes": ["TicketAPI"],
        "config": {"TicketAPI": {"titles": ["snow"]}}, "long_context": false});
    assert_eq!(case.environment, Some(environment));
    assert_eq!(
        names(&cases[1].tools),
        "add open_ticket list_tickets clear_tickets wait"
    );
}

#[test]
fn bfcl_multi_turn_error_names_case() {
    let row = json!({"id": "multi_turn_base_0", "involved_classes": ["TicketAPI"],
        "question": [[{"role": "user", "content": "?"}]]});
    for (change, problem) in [
        (
            json!({"involved_classes": ["WebSearchAPI"]}),
            "the unknown class `WebSearchAPI`",
        ),
        (json!({"question": []}), "a different number of turns"),
        (json!({"question": [[]]}), "a turn without a message"),
        (
            json!({"missed_function": {"0": ["fly"]}}),
            "withholds `fly`",
        ),
        (
            json!({"missed_function": {"7": ["wait"]}}),
            "a turn that does not exist",
        ),
        (
            json!({"involved_classes": ["TicketAPI", "TicketAPI"]}),
            "two functions `open_ticket`",
        ),
        (
            json!({"id": "multi_turn_base_1"}),
            "`multi_turn_base_1` has no possible answer",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = package::write(folder.path());
        let mut row = row.clone();
        row.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        std::fs::write(data.join("BFCL_v4_multi_turn_base.json"), row.to_string()).unwrap();
        let error = bfcl::cases(&data, &["multi_turn_base"], Selection::new())
            .unwrap_err()
            .to_string();
        assert!(error.contains(problem), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    std::fs::write(data.join("../constants/default_prompts.py"), "A = 1\n").unwrap();
    let error = bfcl::cases(&data, &["multi_turn_miss_func"], Selection::new())
        .unwrap_err()
        .to_string();
    assert!(error.contains("default_prompts.py` has no text"), "{error}");
}

#[cfg(unix)]
mod tools {
    use std::time::Duration;

    use levity_eval::{AgentSubject, Case, CommandSubject, Expectation, Subject, ToolHost};
    use levity_test::ScriptedModel;
    use serde_json::json;

    use super::{counting_case, user};

    /// Counts from the start value of the case.
    const COUNT: &str = r#"read -r first; n=${first#*start\":}; n=${n%%\}*}; echo '{"ready": true}'
        while read -r call; do
            case "$call" in *reset*) n=0;; *) n=$((n+1));; esac
            case "$n" in
                9) echo '{"result": "nine is bad", "failed": true}';;
                *) echo "{\"result\": \"$n\"}";;
            esac
        done"#;

    fn host(script: &str) -> ToolHost {
        ToolHost::new("sh").args(["-c", script])
    }

    #[tokio::test]
    async fn session_preserves_state_and_records_calls() {
        let session = host(COUNT).open(&counting_case()).await.unwrap();
        for expected in ["4", "5"] {
            let reply = session.call("count", json!({})).await.unwrap();
            assert_eq!((&*reply.text, reply.failed), (expected, false));
        }
        for (name, arguments, problem) in [
            ("steal", json!({}), "do not include `steal`"),
            ("count", json!([1]), "`count` got another value"),
        ] {
            let error = session.call(name, arguments).await.unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        session.call("reset", json!({})).await.unwrap();
        let calls: Vec<_> = session
            .take_calls()
            .await
            .into_iter()
            .map(|call| call.name)
            .collect();
        assert_eq!(calls, ["count", "count", "reset"]);
        assert_eq!(
            (session.take_calls().await.len(), session.failure().await),
            (0, None)
        );
        let other = host(COUNT).open(&counting_case()).await.unwrap();
        assert_eq!(
            other.call("count", json!({})).await.unwrap().text,
            "4",
            "each trial has its own state"
        );
    }

    #[tokio::test]
    async fn misbehaving_host_returns_error_with_reason() {
        for (script, problem) in [
            ("exit 3", "ended without an answer (exit status: 3)"),
            (
                r#"read -r first; echo '{"error": "no mpmath"}'"#,
                "cannot run: no mpmath",
            ),
            (
                "echo hello",
                "gave no answer: expected value at line 1 column 1: hello",
            ),
            (
                r#"echo '{"result": "4"}'"#,
                "did not report that it is ready",
            ),
            ("exec sleep 60", "gave no answer within 0.5 seconds"),
            ("head -c 20000000 /dev/zero | tr '\\0' x", "gave no answer"),
        ] {
            let timeout = Duration::from_millis(if script.contains("sleep") {
                500
            } else {
                60_000
            });
            let error = host(script)
                .timeout(timeout)
                .open(&counting_case())
                .await
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("the tools of case `1` ") && error.contains(problem),
                "{error}"
            );
        }
        let error = ToolHost::new("/nowhere")
            .open(&counting_case())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot start `/nowhere`"), "{error}");
        let plain = Case::new("2", "Well?", Expectation::NoCalls);
        let error = host(COUNT).open(&plain).await.unwrap_err().to_string();
        assert!(error.contains("has no environment"), "{error}");
    }

    #[tokio::test]
    async fn unanswered_call_ends_session() {
        for (script, problem) in [
            (
                "read -r first; echo '{\"ready\": true}'; read -r call; exit 4",
                "exit status: 4",
            ),
            (
                "read -r first; echo '{\"ready\": true}'; read -r call; exec sleep 60",
                "within 3 seconds",
            ),
            (
                "read -r first; echo '{\"ready\": true}'; read -r call; echo no; cat",
                "gave no answer",
            ),
            (
                "read -r first; echo '{\"ready\": true}'; read -r call; echo '{\"ready\": true}'; \
                    cat",
                "no result",
            ),
        ] {
            // The start has the same time limit, and must not time out on a busy machine.
            let timeout = Duration::from_secs(if script.contains("sleep") { 3 } else { 60 });
            let host = host(script).timeout(timeout);
            let session = host.open(&counting_case()).await.unwrap();
            for _ in 0..2 {
                let error = session
                    .call("count", json!({}))
                    .await
                    .unwrap_err()
                    .to_string();
                assert!(error.contains(problem), "{error}");
            }
            assert!(session.failure().await.unwrap().contains(problem));
            assert_eq!(session.take_calls().await, []);
        }
    }

    #[tokio::test]
    async fn dropped_call_ends_session() {
        let session = host("read -r first; echo '{\"ready\": true}'; read -r call; cat >/dev/null")
            .open(&counting_case())
            .await
            .unwrap();
        let call = session.call("count", json!({}));
        assert!(
            tokio::time::timeout(Duration::from_millis(50), call)
                .await
                .is_err()
        );
        assert_eq!(
            session.failure().await.as_deref(),
            Some("were stopped in a call")
        );
    }

    #[tokio::test]
    async fn agent_subject_continues_conversation_with_running_tools() {
        let model = ScriptedModel::new()
            .call("count", json!({}))
            .call("count", json!({}))
            .reply("Five.")
            .call("reset", json!({}))
            .reply("Nothing.");
        let script = model.clone();
        let transcript = AgentSubject::new("levity", model)
            .tool_host(host(COUNT))
            .answer(&counting_case())
            .await;
        assert_eq!((transcript.error, transcript.replies), (None, Some(5)));
        let turns: Vec<_> = transcript
            .turns
            .iter()
            .map(|turn| {
                (
                    &*turn.text,
                    turn.calls
                        .iter()
                        .map(|call| &*call.name)
                        .collect::<Vec<_>>(),
                    turn.run.is_some(),
                )
            })
            .collect();
        assert_eq!(
            turns,
            [
                ("Five.", vec!["count", "count"], true),
                ("Nothing.", vec!["reset"], true)
            ]
        );
        assert_eq!((transcript.calls.len(), &*transcript.text), (3, "Nothing."));
        assert!(transcript.usage.output.unwrap_or_default() > 0);
        let requests = script.requests();
        let offered = |at: usize| {
            requests[at]
                .tools
                .iter()
                .map(|tool| &*tool.name)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            (&*offered(0), &*offered(3)),
            ("count", "count reset"),
            "a held-back tool comes at its turn"
        );
        let messages = requests[3].history.messages();
        assert_eq!(messages[0].text(), "Count.");
        assert!(
            messages
                .iter()
                .any(|message| message.results().any(|result| result.text() == "5"))
        );
        assert_eq!(messages.last().unwrap().text(), "Again.");
        assert_eq!(transcript.messages.len(), 10);
    }

    #[tokio::test]
    async fn agent_subject_returns_failed_calls_to_model() {
        let mut case = counting_case();
        case.environment = Some(json!({"start": 8}));
        let model = ScriptedModel::new()
            .call("count", json!({}))
            .reply("Bad.")
            .reply("Bye.");
        let script = model.clone();
        let transcript = AgentSubject::new("levity", model)
            .tool_host(host(COUNT))
            .answer(&case)
            .await;
        assert_eq!(
            (transcript.error, transcript.turns[0].calls.len()),
            (None, 1)
        );
        let requests = script.requests();
        let messages = requests[1].history.messages().iter();
        let result: String = messages
            .flat_map(|message| message.results())
            .map(|result| result.text())
            .collect();
        assert!(result.contains("nine is bad"), "{result}");
    }

    #[tokio::test]
    async fn agent_subject_stops_when_tools_end() {
        // A second reply would be an error of the script.
        let model = ScriptedModel::new().call("count", json!({}));
        let host = host("read -r first; echo '{\"ready\": true}'; read -r call; exit 4");
        let transcript = AgentSubject::new("levity", model)
            .tool_host(host)
            .answer(&counting_case())
            .await;
        let error = transcript.error.unwrap();
        assert!(
            error.contains("the tools ended without an answer (exit status: 4) (in `count`)"),
            "{error}"
        );
        assert_eq!(
            (
                transcript.turns.len(),
                transcript.calls.len(),
                transcript.replies
            ),
            (1, 0, Some(1))
        );
    }

    #[tokio::test]
    async fn subject_reports_missing_environment_or_tool_host() {
        let talk = Case::new("2", "Hello.", Expectation::contains("Bye"))
            .with_turn(levity_eval::CaseTurn::new([user("Goodbye.")]));
        let model = ScriptedModel::new().reply("Hello!").reply("Bye!");
        let transcript = AgentSubject::new("levity", model).answer(&talk).await;
        assert_eq!(
            (&*transcript.text, transcript.turns.len(), &transcript.error),
            ("Bye!", 2, &None)
        );
        let mut idle = counting_case();
        idle.environment = None;
        let failed = |transcript: levity_eval::Transcript| transcript.error.unwrap();
        let subject = AgentSubject::new("levity", ScriptedModel::new());
        assert!(failed(subject.answer(&idle).await).contains("no `environment`"));
        assert!(failed(subject.answer(&counting_case()).await).contains("no tool host"));
        assert!(
            failed(
                subject
                    .tool_host(host("exit 3"))
                    .answer(&counting_case())
                    .await
            )
            .contains("exit status: 3")
        );
        let program = CommandSubject::new("script", "true");
        assert!(failed(program.answer(&counting_case()).await).contains("no tool host"));
    }

    #[tokio::test]
    async fn command_subject_requests_calls_and_answers_each_turn() {
        // The program makes one call in each turn, by the number of the turn in the question.
        let script = r#"while read -r question; do
            case "$question" in *'"turn":1'*) name=count;; *) name=reset;; esac
            echo "{\"call\": {\"name\": \"$name\", \"arguments\": {}}}"; read -r result
            text=$(echo "$result" | tr -d '{}"')
            echo "{\"text\": \"$text\", \"usage\": {\"input\": 5, \"output\": 1}, \"replies\": 2}"
        done"#;
        let subject = CommandSubject::new("script", "sh")
            .args(["-c", script])
            .tool_host(host(COUNT));
        for _ in 0..2 {
            let transcript = subject.answer(&counting_case()).await;
            assert_eq!(
                (
                    &transcript.error,
                    transcript.replies,
                    transcript.usage.input
                ),
                (&None, Some(4), Some(10))
            );
            let turns: Vec<_> = transcript
                .turns
                .iter()
                .map(|turn| (&*turn.text, &*turn.calls[0].name))
                .collect();
            assert_eq!(turns, [("result:4", "count"), ("result:0", "reset")]);
        }
    }

    #[tokio::test]
    async fn command_subject_protocol_error_fails_trial() {
        for (script, problem) in [
            (
                r#"echo '{"calls": [{"name": "count", "arguments": {}}]}'; cat"#,
                "must request each with a line",
            ),
            (
                r#"while echo '{"call": {"name": "count", "arguments": {}}}'; do
                    read -r result
                done"#,
                "more than 200 calls",
            ),
            (
                r#"echo '{"call": {"nam": "count"}}'; cat"#,
                "missing field `name`",
            ),
            (
                r#"echo '{"call": {"name": "count", "arguments": {}}}'; read -r q; read -r r"#,
                "ended without an answer",
            ),
            (
                r#"read -r q; echo '{"text": "one"}'"#,
                "ended without an answer",
            ),
            (r#"read -r q; echo '{"error": "no key"}'; cat"#, "no key"),
        ] {
            let subject = CommandSubject::new("script", "sh")
                .args(["-c", script])
                .tool_host(host(COUNT));
            let error = subject.answer(&counting_case()).await.error.unwrap();
            assert!(error.contains(problem), "{error}");
        }
        // A tool that is offered later and arguments that are not an object are failed calls, as
        // for a model.
        let script = r#"ask() {
                echo "$1"; read -r result; said="$said $(echo "$result" | tr -d '{}"')"
            }
            while read -r q; do said=
                ask '{"call": {"name": "reset", "arguments": {}}}'
                ask '{"call": {"name": "count", "arguments": 1}}'
                echo "{\"text\": \"$said\"}"; done"#;
        let subject = CommandSubject::new("script", "sh")
            .args(["-c", script])
            .tool_host(host(COUNT));
        let transcript = subject.answer(&counting_case()).await;
        assert_eq!(transcript.error, None);
        assert!(
            transcript.turns[0].text.contains("unknown tool `reset`"),
            "{}",
            transcript.turns[0].text
        );
        assert!(
            transcript.turns[1].text.contains("result:0")
                && transcript.turns[1].text.contains("not an object")
        );
    }
}

#[tokio::test]
async fn bfcl_tools_run_only_offered_methods() {
    if !package::has_python() {
        println!("SKIPPED: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let mut case = bfcl::cases(&data, &["multi_turn_base"], Selection::new())
        .unwrap()
        .remove(0);
    let host = bfcl::tool_host("python3", Some(&data));
    bfcl::require_tools(&host, std::slice::from_ref(&case))
        .await
        .unwrap();
    let session = host.open(&case).await.unwrap();
    for (name, arguments, text, failed) in [
        (
            "open_ticket",
            json!({"title": "__import__('os').system('true')"}),
            r#"{"number": 1}"#,
            false,
        ),
        (
            "open_ticket",
            json!({"title": ""}),
            "the call failed: a ticket needs a title",
            true,
        ),
        (
            "open_ticket",
            json!({"tittle": "x"}),
            "unexpected keyword argument",
            true,
        ),
        (
            "open_ticket",
            json!({"title": "é\n\u{0}\"", "self": 1}),
            "multiple values",
            true,
        ),
        ("add", json!({"a": 2.5, "b": 1}), "3.5", false),
        ("add", json!({"a": "2", "b": 1}), "the call failed: ", true),
        (
            "list_tickets",
            json!({}),
            r#"["__import__('os').system('true')"]"#,
            false,
        ),
    ] {
        let reply = session.call(name, arguments).await.unwrap();
        assert!(
            reply.failed == failed && reply.text.contains(text),
            "{name}: {reply:?}"
        );
    }
    for hidden in ["unlisted", "_secret", "_load_scenario", "eval"] {
        assert!(session.call(hidden, json!({})).await.is_err());
    }
    for (name, problem) in [
        ("_secret", "no class has the tools _secret"),
        ("eval", "no class has the tools eval"),
    ] {
        case.tools = vec![OfferedTool::new(name, "")];
        let error = host.open(&case).await.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    case.environment = Some(json!({"classes": ["WebSearchAPI"], "config": {}}));
    let error = bfcl::require_tools(&host, &[case])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("no class `WebSearchAPI`"), "{error}");
}

#[tokio::test]
async fn bfcl_judge_scores_state_after_each_turn() {
    if !package::has_python() {
        println!("SKIPPED: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let cases = bfcl::cases(
        &data,
        &["multi_turn_miss_func", "multi_turn_base"],
        Selection::new(),
    )
    .unwrap();
    let marker = folder.path().join("marker");
    let hostile = format!("__import__('os').mkdir('{}')", marker.display());
    let open = |title: &str| TrialCall::new("open_ticket", json!({"title": title}));
    let clear = || TrialCall::new("clear_tickets", json!({}));
    let trials: Vec<(usize, Vec<Vec<TrialCall>>, &str)> = vec![
        (
            0,
            vec![vec![open("rain")], vec![], vec![clear()], vec![]],
            "",
        ),
        (
            0,
            vec![vec![open("sun")], vec![], vec![clear()], vec![]],
            "state: turn 0 {'ours': {'titles': ['snow', 'sun']}",
        ),
        (
            0,
            vec![vec![open("rain")], vec![], vec![]],
            "3 of 4 turns were answered",
        ),
        // The state of earlier trials is forgotten.
        (
            0,
            vec![vec![open("rain")], vec![], vec![clear()], vec![]],
            "",
        ),
        (1, vec![vec![open("f(x)")]], ""),
        (
            1,
            vec![vec![TrialCall::new("exec", json!({"title": hostile}))]],
            "no function `exec`",
        ),
        (
            1,
            vec![vec![TrialCall::new(&*hostile, json!({}))]],
            "no function `__import__",
        ),
        (
            1,
            vec![vec![TrialCall::new("_secret", json!({})), open("f(x)")]],
            "no function `_secret`",
        ),
        (
            1,
            vec![vec![TrialCall::new("open_ticket", json!("f(x)"))]],
            "are not an object",
        ),
        (
            1,
            vec![vec![TrialCall::new(
                "open_ticket",
                json!({format!("title=1, x={hostile}"): 1}),
            )]],
            "state",
        ),
        (1, vec![vec![open(&format!("' + {hostile} + '"))]], "state"),
        (
            1,
            vec![vec![
                open("\\' + 1 + '\\\n\u{0}\u{2028}"),
                clear(),
                open("f(x)"),
            ]],
            "",
        ),
    ];
    let mut results =
        Results::create(folder.path().join("out"), &Header::new("bfcl", "x"), &cases).unwrap();
    for (repetition, (case, turns, _)) in trials.iter().enumerate() {
        let turns = turns
            .iter()
            .map(|calls| AnsweredTurn::new("", calls.clone()));
        let transcript = turns.fold(Transcript::new(), Transcript::with_turn);
        results
            .append(Trial::new(
                &cases[*case],
                "x",
                u32::try_from(repetition).unwrap(),
                transcript,
            ))
            .unwrap();
    }
    let judge = bfcl::judge("python3", Some(&data));
    let results = Results::open(results.folder()).unwrap();
    let scores = judge.score(&results).await.unwrap();
    for (score, (_, _, reason)) in scores.scores.iter().zip(&trials) {
        assert_eq!(score.score.passed, reason.is_empty(), "{score:?}");
        assert!(score.score.reason.contains(reason), "{score:?}");
    }
    assert!(!marker.exists(), "text of a model was run");
    let own = results.check_all();
    assert!(
        own.scores
            .iter()
            .all(|score| !score.score.passed && score.score.reason.contains("only the judge"))
    );
}

#[tokio::test]
async fn bfcl_judge_rejects_answer_that_is_not_plain_call() {
    if !package::has_python() {
        println!("SKIPPED: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let mut case = bfcl::cases(&data, &["multi_turn_base"], Selection::new())
        .unwrap()
        .remove(0);
    let marker = folder.path().join("marker");
    let hostile = format!("__import__('os').mkdir('{}')", marker.display());
    for (number, answer) in [
        hostile.clone(),
        format!("open_ticket({hostile})"),
        format!("open_ticket(title={hostile})"),
        "1 +".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        case.source = json!({"answer": [[answer]]});
        let header = Header::new("bfcl", "x");
        let folder = folder.path().join(number.to_string());
        let mut results = Results::create(folder, &header, std::slice::from_ref(&case)).unwrap();
        let turn = AnsweredTurn::new("", vec![]);
        results
            .append(Trial::new(&case, "x", 0, Transcript::new().with_turn(turn)))
            .unwrap();
        let scores = bfcl::judge("python3", Some(&data))
            .score(&results)
            .await
            .unwrap();
        assert!(
            scores.scores[0].score.reason.contains("the checker failed"),
            "{scores:?}"
        );
    }
    assert!(!marker.exists(), "a possible answer was run");
}

#[tokio::test]
async fn bfcl_judge_does_not_evaluate_case_id() {
    if !package::has_python() {
        println!("SKIPPED: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let mut case = bfcl::cases(&data, &["multi_turn_base"], Selection::new())
        .unwrap()
        .remove(0);
    let marker = folder.path().join("marker");
    let code: String = format!("import os; os.mkdir('{}')", marker.display())
        .bytes()
        .map(|byte| format!("\\x{byte:02x}"))
        .collect();
    case.id = format!("a if 0 else exec(\"{code}\") or b");
    case.source = json!({"answer": [["open_ticket(title='rain')"]]});
    let mut results = Results::create(
        folder.path().join("results"),
        &Header::new("bfcl", "x"),
        std::slice::from_ref(&case),
    )
    .unwrap();
    let turn = AnsweredTurn::new(
        "",
        vec![TrialCall::new("open_ticket", json!({"title": "rain"}))],
    );
    results
        .append(Trial::new(&case, "x", 0, Transcript::new().with_turn(turn)))
        .unwrap();
    let scores = bfcl::judge("python3", Some(&data))
        .score(&results)
        .await
        .unwrap();
    assert!(scores.scores[0].score.passed, "{scores:?}");
    assert!(!marker.exists(), "an id was run");
}

#[tokio::test]
async fn multi_turn_evaluation_is_judged_from_folder() {
    if !package::has_python() {
        println!("SKIPPED: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = package::write(folder.path());
    let cases = bfcl::cases(&data, &["multi_turn_miss_func"], Selection::new()).unwrap();
    let model = ScriptedModel::new()
        .call("open_ticket", json!({"title": "rain"}))
        .reply("It is open.")
        .reply("I cannot.")
        .call("clear_tickets", json!({}))
        .reply("They are gone.")
        .reply("You are welcome.")
        .fail(ModelErrorKind::Overloaded);
    let subject =
        AgentSubject::new("levity", model).tool_host(bfcl::tool_host("python3", Some(&data)));
    let mut results = Results::create(
        folder.path().join("out"),
        &Header::new("bfcl", "levity"),
        &cases,
    )
    .unwrap();
    let mut seen = Vec::new();
    let evaluation = Evaluation::new().repetitions(2);
    evaluation
        .run(&subject, &mut results, |progress| {
            seen.push((
                progress.done,
                progress.passed,
                progress.unjudged,
                progress.errors,
            ));
        })
        .await
        .unwrap();
    assert_eq!(seen, [(1, 0, 1, 0), (2, 0, 1, 1)]);
    let results = Results::open(results.folder()).unwrap();
    let scores = bfcl::judge("python3", Some(&data))
        .score(&results)
        .await
        .unwrap();
    let passed: Vec<_> = scores
        .scores
        .iter()
        .map(|score| score.score.passed)
        .collect();
    assert_eq!(passed, [true, false], "{scores:?}");
}

/// Prints the possible answers of a case as JSON: the calls of each turn, with named arguments.
const ANSWERS: &str = r#"
import ast, importlib, inspect, json, sys
sys.path.insert(0, sys.argv[1])
from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
def parsed(text, classes):
    call = ast.parse(text, mode="eval").body
    owner = [c for c in classes if hasattr(c, call.func.id)][-1]
    values = [ast.literal_eval(value) for value in call.args]
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    bound = inspect.signature(getattr(owner, call.func.id)).bind(None, *values, **named)
    return {"name": call.func.id, "arguments": dict(list(bound.arguments.items())[1:])}
for line in sys.stdin:
    case = json.loads(line)
    names = case["environment"]["classes"]
    modules = [importlib.import_module(CLASS_FILE_PATH_MAPPING[name]) for name in names]
    classes = [getattr(module, name) for module, name in zip(modules, names)]
    answers = case["source"]["answer"]
    print(json.dumps([[parsed(text, classes) for text in turn] for turn in answers]))
"#;

/// Runs the possible answers of the real package on its simulators and checker. Set
/// `LEVITY_TEST_BFCL` to a folder that contains it, unpacked, with `mpmath` next to it.
/// `LEVITY_TEST_BFCL_ALL` runs all cases instead of some.
#[tokio::test]
async fn package_answers_pass_checker_on_simulators() {
    let Some(package) = std::env::var_os("LEVITY_TEST_BFCL") else {
        println!("SKIPPED: LEVITY_TEST_BFCL names no folder with bfcl_eval");
        return;
    };
    let data = Path::new(&package).join("bfcl_eval/data");
    let cases = bfcl::cases(&data, &bfcl::MULTI_TURN_CATEGORIES, Selection::new()).unwrap();
    assert_eq!(cases.len(), 800);
    let step = if std::env::var_os("LEVITY_TEST_BFCL_ALL").is_some() {
        1
    } else {
        67
    };
    let cases: Vec<Case> = cases.into_iter().step_by(step).collect();
    let host = bfcl::tool_host("python3", Some(&data));
    if let Err(error) = bfcl::require_tools(&host, &cases).await {
        assert!(error.to_string().contains("mpmath"), "{error}");
        println!("SKIPPED: {error}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut results =
        Results::create(folder.path(), &Header::new("bfcl", "answers"), &cases).unwrap();
    let lines = std::fs::File::open(folder.path().join("cases.jsonl")).unwrap();
    let answers = Command::new("python3")
        .args(["-c", ANSWERS])
        .arg(&package)
        .stdin(lines)
        .output()
        .unwrap();
    assert!(
        answers.status.success(),
        "{}",
        String::from_utf8_lossy(&answers.stderr)
    );
    let answers = String::from_utf8(answers.stdout).unwrap();
    let mut rejected = Vec::new();
    for (case, line) in cases.iter().zip(answers.lines()) {
        let turns: Vec<Vec<Value>> = serde_json::from_str(line).unwrap();
        let asked: usize = turns.iter().map(Vec::len).sum();
        let mut model = ScriptedModel::new();
        for call in turns
            .into_iter()
            .flat_map(|turn| turn.into_iter().map(Some).chain([None]))
        {
            model = match call {
                Some(call) => model.call(call["name"].as_str().unwrap(), call["arguments"].clone()),
                None => model.reply("Done."),
            };
        }
        let subject = AgentSubject::new("answers", model)
            .tool_host(host.clone())
            .configure(|agent| agent.max_turns(40));
        let transcript = subject.answer(case).await;
        assert_eq!(
            (&transcript.error, transcript.turns.len()),
            (&None, 1 + case.turns.len()),
            "{}",
            case.id
        );
        if transcript.calls.len() != asked {
            rejected.push(&case.id);
        }
        results
            .append(Trial::new(case, "answers", 0, transcript))
            .unwrap();
    }
    let scores = bfcl::judge("python3", Some(&data))
        .score(&results)
        .await
        .unwrap();
    let failed: Vec<_> = scores
        .scores
        .iter()
        .filter(|score| !score.score.passed)
        .collect();
    println!(
        "{} of {} passed; with a call that is not on offer or does not fit its schema: \
            {rejected:?}",
        scores.scores.len() - failed.len(),
        scores.scores.len()
    );
    // One answer of the package calls a withheld function, and four pass a text for a number.
    assert!(
        failed.len() <= 5 && failed.iter().all(|score| rejected.contains(&&score.case)),
        "{failed:#?}"
    );
}
