use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Delta, Finish, Message, Model, ModelCard, ModelError, ModelErrorKind, Part, ProviderState,
    Request, Response, Role, ToolCall, Usage,
};
use levity_test::{FunctionModel, ManualWorld, ScriptedModel, Turn};
use serde_json::json;

use crate::{block_on, panic_of};

fn ask(model: &ScriptedModel) -> Result<Response, ModelError> {
    block_on(model.complete(Request::new()))
}

fn deltas(turn: Turn) -> Vec<Result<Delta, ModelError>> {
    let model = ScriptedModel::new().turn(turn);
    block_on(async {
        let mut stream = model.stream(Request::new()).await.unwrap();
        let mut all = Vec::new();
        while let Some(delta) = stream.next().await {
            all.push(delta);
        }
        all
    })
}

#[track_caller]
fn check_turn(turn: Turn, expected: Response) {
    assert_eq!(ask(&ScriptedModel::new().turn(turn)), Ok(expected));
}

fn reply(parts: impl IntoIterator<Item = Part>) -> Response {
    Response::new(Message::new(Role::Assistant, parts))
}

#[test]
fn turns_become_responses() {
    let call = |id: &str| Part::ToolCall(ToolCall::new(id, "add", json!({"a": 2})));
    let signature = ProviderState::new("test", json!("sig"));
    let mut signed = Part::thinking("hm");
    signed.set_opaque(signature.clone());
    let calls = |parts| reply(parts).with_finish(Finish::ToolCalls);

    check_turn(Turn::new(), reply([]));
    check_turn(Turn::new().text("7"), reply([Part::text("7")]));
    check_turn(
        Turn::new().in_pieces(["The su", "m"]),
        reply([Part::text("The sum")]),
    );
    check_turn(
        Turn::new().text("cut").finish(Finish::Length),
        reply([Part::text("cut")]).with_finish(Finish::Length),
    );
    check_turn(
        Turn::new().text("7").usage(10, 3),
        reply([Part::text("7")]).with_usage(Usage::new(10, 3)),
    );
    check_turn(
        Turn::new().thinking("hm").opaque(signature).text("7"),
        reply([signed, Part::text("7")]),
    );
    check_turn(
        Turn::new().call("add", json!({"a": 2})),
        calls(vec![call("call_1")]),
    );
    check_turn(
        Turn::new()
            .call("add", json!({"a": 2}))
            .call_with_id("x", "add", json!({"a": 2}))
            .call("add", json!({"a": 2})),
        calls(vec![call("call_1"), call("x"), call("call_2")]),
    );
    let broken = Part::ToolCall(ToolCall::from_text("call_1", "add", "{broken"));
    check_turn(Turn::new().raw_call("add", "{broken"), calls(vec![broken]));
}

#[test]
fn pieces_are_cut_between_characters() {
    let text = |text: &str| Ok(Delta::Text(text.into()));
    assert_eq!(
        deltas(Turn::new().text("ä🪁cde").pieces(2)),
        [text("ä🪁c"), text("de")]
    );
    assert_eq!(
        deltas(Turn::new().text("ab").pieces(9)),
        [text("a"), text("b")]
    );
    assert_eq!(deltas(Turn::new().text("").pieces(3)), [text("")]);
    let args = deltas(Turn::new().call("add", json!({"a": 2})).pieces(3));
    assert_eq!(args.len(), 4);
    let whole = Turn::new()
        .thinking("two numbers")
        .text("Let me see.")
        .call("add", json!({"ä": "🪁"}));
    let one = ask(&ScriptedModel::new().turn(whole.clone())).unwrap();
    for count in [0, 1, 2, 7, 100] {
        check_turn(whole.clone().pieces(count), one.clone());
    }
}

#[test]
fn reply_breaks_off_after_its_pieces() {
    let error = ModelError::new(ModelErrorKind::Transport, "connection reset");
    let turn = Turn::new()
        .text("half")
        .usage(1, 1)
        .finish(Finish::Stop)
        .break_off(error.clone());
    assert_eq!(
        deltas(turn.clone()),
        [Ok(Delta::Text("half".into())), Err(error.clone())]
    );
    assert_eq!(ask(&ScriptedModel::new().turn(turn)), Err(error));
}

#[test]
fn steps_are_used_in_order_and_run_out() {
    let model = ScriptedModel::new()
        .reply("one")
        .fail(ModelErrorKind::Overloaded)
        .reply("three");
    let clone = model.clone();
    assert_eq!(ask(&model).unwrap().message.text(), "one");
    assert_eq!(ask(&clone).unwrap_err().kind(), ModelErrorKind::Overloaded);
    assert_eq!(model.remaining(), 1);
    assert_eq!(ask(&clone).unwrap().message.text(), "three");
    model.assert_finished();
    let error = ask(&model).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::BadRequest);
    assert_eq!(
        error.to_string(),
        "call 4 of the model has no step: the script has only 3 steps; add one"
    );
}

#[test]
fn unused_steps_are_listed() {
    let turn = Turn::new()
        .thinking("hm")
        .text("7")
        .call("add", json!({"a": 2}))
        .raw_call("add", "{");
    let model = ScriptedModel::new()
        .reply("used")
        .turn(turn)
        .turn(Turn::new())
        .hang()
        .panic("boom");
    let model = model.fail(ModelErrorKind::Auth);
    ask(&model).unwrap();
    assert_eq!(
        panic_of(|| model.assert_finished()),
        "the script has 5 unused steps\n\
         2: thinks \"hm\", says \"7\", calls add {\"a\":2}, calls add {\n\
         3: says nothing\n\
         4: hangs\n\
         5: panics: \"boom\"\n\
         6: fails: Auth"
    );
    assert_eq!(model.remaining(), 5);
}

#[test]
fn script_can_hang_and_panic() {
    let model = ScriptedModel::new()
        .hang()
        .panic("boom")
        .reply("still here");
    block_on(async {
        tokio::select! {
            biased;
            _ = model.complete(Request::new()) => unreachable!(),
            () = tokio::task::yield_now() => {}
        }
    });
    assert_eq!(panic_of(|| drop(ask(&model))), "boom");
    assert_eq!(ask(&model).unwrap().message.text(), "still here");
}

#[test]
fn looping_script_never_ends_and_numbers_its_calls() {
    let model = ScriptedModel::looping(Turn::new().call("add", json!({}))).reply("first");
    assert_eq!(ask(&model).unwrap().message.text(), "first");
    for n in 1..4 {
        let id = ask(&model)
            .unwrap()
            .message
            .calls()
            .next()
            .map(|call| call.id.to_string());
        assert_eq!(id, Some(format!("call_{n}")));
    }
    model.assert_finished();
}

#[test]
fn requests_are_recorded_unless_disabled() {
    let request = Request::new().with_message(Message::user("hi"));
    let model = ScriptedModel::new().reply("a").reply("b");
    block_on(model.complete(request.clone())).unwrap();
    assert_eq!(model.requests(), std::slice::from_ref(&request));
    let model = model.without_recording();
    block_on(model.complete(request.clone())).unwrap();
    assert_eq!(model.requests(), [request]);
}

#[test]
fn expectation_of_request_is_checked() {
    let polite = |request: &Request| match &request.system {
        Some(_) => Ok(()),
        None => Err("no system prompt".to_owned()),
    };
    let model = ScriptedModel::new().turn(Turn::new().text("a").expect(polite));
    let model = model.turn(Turn::new().text("b").expect(polite));
    assert!(block_on(model.complete(Request::new().with_system("Be brief."))).is_ok());
    let error = ask(&model).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::BadRequest);
    assert_eq!(
        error.to_string(),
        "step 2 of the script expects another request: no system prompt"
    );
}

#[test]
fn delay_uses_the_given_clock() {
    let slow = Turn::new().text("late").delay(Duration::from_secs(60));
    let error = ask(&ScriptedModel::new().turn(slow.clone())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "step 1 of the script has a delay but no clock; add one with `.with_world(..)`"
    );

    let world = ManualWorld::new();
    let model = ScriptedModel::new()
        .turn(slow)
        .with_world(Arc::new(world.clone()));
    let turn = async {
        world.until_sleeping(1).await;
        world.advance(Duration::from_secs(60));
    };
    let (reply, ()) = block_on(async { tokio::join!(model.complete(Request::new()), turn) });
    assert_eq!(reply.unwrap().message.text(), "late");
}

#[track_caller]
fn check_json(json: &str, expected: ScriptedModel) {
    let model = ScriptedModel::from_json(json).unwrap();
    assert_eq!(
        panic_of(|| model.assert_finished()),
        panic_of(|| expected.assert_finished())
    );
    while expected.remaining() > 0 {
        assert_eq!(ask(&model), ask(&expected));
    }
    model.assert_finished();
}

#[test]
fn scripts_are_read_from_json() {
    let new = ScriptedModel::new;
    check_json(r#"[{"reply": "7"}]"#, new().reply("7"));
    check_json(r#"[{"text": "7"}]"#, new().reply("7"));
    check_json(
        r#"[{"call": {"name": "add", "args": {"a": 2}}}]"#,
        new().call("add", json!({"a": 2})),
    );
    check_json(
        r#"[{"call": {"name": "now"}}]"#,
        new().call("now", json!({})),
    );
    check_json(
        r#"[{"calls": [{"id": "x", "name": "a"}, {"name": "b"}], "text": "Both.",
            "thinking": "hm"}]"#,
        new().turn(
            Turn::new()
                .thinking("hm")
                .text("Both.")
                .call_with_id("x", "a", json!({}))
                .call("b", json!({})),
        ),
    );
    check_json(
        r#"[{"reply": "7", "usage": {"input": 10, "output": 3}, "finish": "length"}]"#,
        new().turn(Turn::new().text("7").usage(10, 3).finish(Finish::Length)),
    );
    check_json(
        r#"[{"fail": "overloaded"}, {"fail": "rate_limited"}]"#,
        new()
            .fail(ModelErrorKind::Overloaded)
            .fail(ModelErrorKind::RateLimited { retry_after: None }),
    );
    assert_eq!(
        panic_of(|| ScriptedModel::from_json(r#"[{"hang": true}]"#)
            .unwrap()
            .assert_finished()),
        "the script has 1 unused steps\n1: hangs"
    );
    assert_eq!(ScriptedModel::from_json("[]").unwrap().remaining(), 0);
}

#[track_caller]
fn check_json_error(json: &str, expected: &str) {
    let error = ScriptedModel::from_json(json).unwrap_err();
    let cause = error
        .source()
        .map(|cause| format!(": {cause}"))
        .unwrap_or_default();
    assert_eq!(format!("{error}{cause}"), expected);
}

#[test]
fn invalid_script_is_rejected_with_its_step() {
    let unclear = |at| {
        format!(
            "step {at} of the script needs one of `reply`, `call`, `calls`, `text`, `fail` and \
                `hang`"
        )
    };
    for json in ["{}", "[", ""] {
        let error = ScriptedModel::from_json(json).unwrap_err();
        assert_eq!(error.to_string(), "the script is not a JSON list of steps");
    }
    check_json_error(r#"[{"reply": "a"}, {}]"#, &unclear(2));
    check_json_error(r#"[{"reply": "a", "call": {"name": "b"}}]"#, &unclear(1));
    check_json_error(r#"[{"reply": "a", "text": "b"}]"#, &unclear(1));
    check_json_error(r#"[{"call": {"name": "a"}, "calls": []}]"#, &unclear(1));
    check_json_error(r#"[{"fail": "auth", "reply": "a"}]"#, &unclear(1));
    check_json_error(r#"[{"fail": "auth", "thinking": "a"}]"#, &unclear(1));
    check_json_error(r#"[{"hang": false}]"#, &unclear(1));
    check_json_error(r#"[{"thinking": "a"}]"#, &unclear(1));
    check_json_error(
        r#"[{"reply": 7}]"#,
        "step 1 of the script cannot be read: invalid type: integer, expected a string",
    );
    let error = ScriptedModel::from_json(r#"[{"fail": "tired"}]"#).unwrap_err();
    assert!(
        error
            .source()
            .unwrap()
            .to_string()
            .starts_with("unknown variant, expected one of")
    );
    let error = ScriptedModel::from_json(r#"[{"say": "a"}]"#).unwrap_err();
    assert!(
        error
            .source()
            .unwrap()
            .to_string()
            .starts_with("unknown field `say`")
    );
}

#[test]
fn function_model_answers_with_function() {
    let card = ModelCard::new("test", "mine");
    let model = FunctionModel::new(|request: &Request| match request.history.len() {
        0 => Err(ModelError::new(
            ModelErrorKind::BadRequest,
            "nothing was said",
        )),
        n => Ok(Response::new(Message::assistant(n.to_string())).with_usage(Usage::new(1, 1))),
    });
    let model = model.with_card(card.clone());
    assert_eq!(model.card(), &card);
    let heard = block_on(model.complete(Request::new().with_message(Message::user("hi")))).unwrap();
    assert_eq!(
        heard,
        Response::new(Message::assistant("1")).with_usage(Usage::new(1, 1))
    );
    let error = block_on(model.complete(Request::new())).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::BadRequest);
}
