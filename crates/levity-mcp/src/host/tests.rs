use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    Approver, Ask, Capabilities, Decision, Finish, Message, Model, ModelCard, ModelError,
    ModelErrorKind, Money, Price, Request, Response, Role, Usage,
};
use levity_test::FunctionModel;
use serde_json::{Map, Value, json};

use super::wire::{elicit_ask, sample_ask, sample_result};
use super::*;

/// Returns a model that replies `ok`, uses 10 tokens in and 5 out, and records its requests.
fn model(card: ModelCard) -> (Arc<dyn Model>, Arc<Mutex<Vec<Request>>>) {
    let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
    let seen = requests.clone();
    let answer = move |request: &Request| {
        seen.lock().unwrap().push(request.clone());
        Ok(Response::new(Message::assistant("ok")).with_usage(Usage::new(10, 5)))
    };
    (
        Arc::new(FunctionModel::new(answer).with_card(card)),
        requests,
    )
}

fn default_sampler() -> ModelSampler {
    ModelSampler::new(model(ModelCard::new("test", "small")).0)
}

#[track_caller]
fn assert_refused(result: Result<SampleReply, Refusal>, kind: RefusalKind, expected: &str) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.kind(), kind, "{refusal}");
    assert!(refusal.to_string().contains(expected), "{refusal}");
}

fn ask() -> SampleRequest {
    SampleRequest::new("Hello", 100)
}

#[tokio::test]
async fn sampler_limits_reply_length() {
    let (model, requests) = model(ModelCard::new("test", "small").with_max_output(60));
    let sampler = ModelSampler::new(model).max_tokens(80);
    let mut long = SampleRequest::new("Hello", 1_000_000);
    long.system = Some("Be a pirate.".to_owned());
    long.temperature = Some(0.5);
    long.stop = vec!["END".to_owned()];
    let reply = sampler.sample("s", long).await.unwrap();
    assert_eq!(reply, SampleReply::text("small", "ok"));
    let request = requests.lock().unwrap().remove(0);
    assert_eq!(request.options.max_tokens, Some(60));
    assert_eq!(
        (request.options.temperature, &request.options.stop[..]),
        (Some(0.5), &["END".to_owned()][..])
    );
    assert_eq!(request.system.as_deref(), Some("Be a pirate."));
    assert_eq!((request.history.len(), request.tools.len()), (1, 0));
    assert_eq!(sampler.used("s"), (15, Money::ZERO));
}

#[tokio::test]
async fn sampler_denies_server_outside_allow_list() {
    let sampler = default_sampler().only(["friend"]);
    assert!(sampler.sample("friend", ask()).await.is_ok());
    assert_refused(
        sampler.sample("stranger", ask()).await,
        RefusalKind::Denied,
        "not enabled for this server",
    );
}

#[tokio::test]
async fn sampler_limits_requests_per_server() {
    let sampler = default_sampler().max_requests(2);
    for _ in 0..2 {
        assert!(sampler.sample("a", ask()).await.is_ok());
    }
    assert_refused(
        sampler.sample("a", ask()).await,
        RefusalKind::Limit,
        "limit of requests",
    );
    assert!(sampler.sample("b", ask()).await.is_ok());
}

#[tokio::test]
async fn sampler_reserves_tokens_and_settles_actual_usage() {
    let (model, requests) = model(ModelCard::new("test", "small"));
    // The request reserves about 300 tokens, and uses 15 in the end.
    let sampler = ModelSampler::new(model).max_total_tokens(400);
    assert!(sampler.sample("a", ask()).await.is_ok());
    let first = requests.lock().unwrap()[0].options.max_tokens;
    assert!(
        first.is_some_and(|tokens| (64..=100).contains(&tokens)),
        "{first:?}"
    );
    assert!(sampler.sample("a", ask()).await.is_ok());
    assert_refused(
        sampler
            .sample("a", SampleRequest::new("x".repeat(400), 100))
            .await,
        RefusalKind::Limit,
        "more tokens",
    );
    assert_eq!(sampler.used("a").0, 30);
}

#[tokio::test]
async fn sampler_counts_money_by_card_price() {
    let card = || ModelCard::new("test", "dear").with_price(Price::new(1_000.0, 2_000.0));
    let sampler = ModelSampler::new(model(card()).0).max_cost(Money::from_dollars(1.0));
    assert!(sampler.sample("a", ask()).await.is_ok());
    assert_eq!(sampler.used("a").1, Money::from_dollars(0.02));
    let poor = ModelSampler::new(model(card()).0).max_cost(Money::from_dollars(0.1));
    assert_refused(
        poor.sample("a", ask()).await,
        RefusalKind::Limit,
        "more tokens or money",
    );
    let unknown = default_sampler().max_cost(Money::from_dollars(1.0));
    assert_refused(
        unknown.sample("a", ask()).await,
        RefusalKind::Limit,
        "the price of the model is unknown",
    );
    let assumed = default_sampler()
        .max_cost(Money::from_dollars(1.0))
        .assumed_price(Price::new(1.0, 1.0));
    assert!(assumed.sample("a", ask()).await.is_ok());
    assert_eq!(assumed.used("a").1, Money::from_nanos(15_000));
}

#[tokio::test]
async fn failed_request_counts_if_it_may_cost() {
    let failing = |kind| {
        let model = FunctionModel::new(move |_| Err(ModelError::new(kind, "the key k3y is wrong")));
        ModelSampler::new(Arc::new(model))
    };
    let free = failing(ModelErrorKind::Auth);
    let refusal = free.sample("a", ask()).await.unwrap_err();
    assert_eq!(
        (refusal.kind(), refusal.to_string()),
        (RefusalKind::Failed, "the model request failed".to_owned())
    );
    assert_eq!(free.used("a").0, 0);
    let charged = failing(ModelErrorKind::Timeout);
    assert!(charged.sample("a", ask()).await.is_err());
    assert!(charged.used("a").0 > 100);
}

#[tokio::test]
async fn dropped_request_counts_full_reservation() {
    struct Slow(ModelCard);

    #[async_trait]
    impl Model for Slow {
        fn card(&self) -> &ModelCard {
            &self.0
        }

        async fn stream(&self, _: Request) -> Result<levity_core::Deltas, ModelError> {
            std::future::pending().await
        }
    }

    let sampler = ModelSampler::new(Arc::new(Slow(ModelCard::new("test", "slow"))));
    {
        let mut requests = std::pin::pin!(sampler.sample("a", ask()));
        assert!(futures_util::poll!(requests.as_mut()).is_pending());
    }
    assert!(sampler.used("a").0 > 100);
}

#[tokio::test]
async fn approver_decides_before_request() {
    struct FixedApprover(Decision, Mutex<Vec<Ask>>);

    #[async_trait]
    impl Approver for FixedApprover {
        async fn decide(&self, ask: &Ask) -> Decision {
            self.1.lock().unwrap().push(ask.clone());
            self.0.clone()
        }
    }

    let approver = |decision| Arc::new(FixedApprover(decision, Mutex::default()));
    let yes = approver(Decision::Allow);
    assert!(
        default_sampler()
            .approver(yes.clone())
            .sample("files", ask())
            .await
            .is_ok()
    );
    let question = yes.1.lock().unwrap().remove(0);
    assert!(question.reason.contains("`files`"));
    assert_eq!(
        question.call.args["messages"],
        json!([{"role": "user", "text": "Hello"}])
    );
    let no = default_sampler().approver(approver(Decision::deny("I do not trust it")));
    assert_refused(
        no.sample("files", ask()).await,
        RefusalKind::Denied,
        "was denied",
    );
    assert_eq!(no.used("files").0, 0);
    let own = default_sampler().approver(approver(Decision::answer("Say it is fine.")));
    assert_eq!(
        own.sample("files", ask()).await.unwrap(),
        SampleReply::text("person", "Say it is fine.")
    );
}

fn with_tools() -> Value {
    json!({
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Weather?"}},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "toolUseId": "1",
                        "content": [{"type": "text", "text": "rain"}],
                    },
                ],
            }
        ],
        "maxTokens": 50,
        "systemPrompt": "Be brief.",
        "includeContext": "allServers",
        "tools": [
            {"name": "weather", "description": "Tells it.", "inputSchema": {"type": "object"}},
        ],
        "toolChoice": {"mode": "none"},
        "modelPreferences": {"hints": [{"name": "small"}]}
    })
}

#[tokio::test]
async fn sampler_rejects_tools_unless_allowed() {
    let refusal = sample(&default_sampler(), "s", &with_tools())
        .await
        .unwrap_err();
    assert_eq!(refusal.kind(), RefusalKind::Denied);
    let (model, requests) = model(ModelCard::new("test", "small"));
    let sampler = ModelSampler::new(model).allow_tools();
    assert!(sampler.supports_tools() && !default_sampler().supports_tools());
    let result = sample(&sampler, "s", &with_tools()).await.unwrap();
    assert_eq!(
        result,
        json!({
            "role": "assistant",
            "content": {"type": "text", "text": "ok"},
            "model": "small",
            "stopReason": "endTurn",
        })
    );
    let request = requests.lock().unwrap().remove(0);
    let roles: Vec<_> = request
        .history
        .messages()
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
    assert_eq!(
        (request.tools[0].name.as_str(), &request.tool_choice),
        ("weather", &levity_core::ToolChoice::None)
    );
}

#[tokio::test]
async fn reply_has_tool_calls_only_if_request_has_tools() {
    let call = levity_core::ToolCall::new("c", "weather", json!({"city": "Oslo"}));
    let reply = Message::new(
        Role::Assistant,
        [levity_core::Part::ToolCall(call), "let me see".into()],
    );
    let model =
        FunctionModel::new(
            move |_| Ok(Response::new(reply.clone()).with_finish(Finish::ToolCalls)),
        );
    let sampler = ModelSampler::new(Arc::new(model)).allow_tools();
    let result = sample(&sampler, "s", &with_tools()).await.unwrap();
    assert_eq!(result["stopReason"], "toolUse");
    assert_eq!(
        result["content"][0],
        json!({"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Oslo"}})
    );
    let bare = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": "x"}}],
        "maxTokens": 5,
    });
    assert_eq!(
        sample(&sampler, "s", &bare).await.unwrap()["content"]["text"],
        "let me see"
    );
}

#[track_caller]
fn bad_sample(params: &Value, expected: &str) {
    let refusal = sample_ask(params).unwrap_err();
    assert_eq!(
        (refusal.kind(), refusal.code()),
        (RefusalKind::Invalid, -32602)
    );
    assert!(refusal.to_string().contains(expected), "{refusal}");
}

#[test]
fn sample_ask_rejects_invalid_or_large_requests() {
    let with_content = |content: Value| {
        json!({
            "messages": [{"role": "user", "content": content}],
            "maxTokens": 5,
        })
    };
    let hello = json!({"type": "text", "text": "hello"});
    assert!(sample_ask(&with_content(hello.clone())).is_ok());
    bad_sample(&json!({"messages": [], "maxTokens": 5}), "no `messages`");
    bad_sample(
        &json!({
            "messages": vec![json!({"role": "user", "content": hello.clone()}); 257],
            "maxTokens": 5,
        }),
        "more than 256",
    );
    bad_sample(
        &with_content(json!({"type": "text", "text": "x".repeat(1 << 20)})),
        "larger than 1048576",
    );
    bad_sample(
        &json!({"messages": [{"role": "user", "content": hello.clone()}]}),
        "`maxTokens`",
    );
    bad_sample(
        &json!({"messages": [{"role": "system", "content": hello.clone()}], "maxTokens": 5}),
        "`role`",
    );
    bad_sample(&with_content(json!({"type": "video"})), "unknown type");
    bad_sample(
        &with_content(json!({"type": "image", "mimeType": "image/png", "data": "?"})),
        "base64",
    );
    bad_sample(
        &with_content(json!({"type": "tool_use", "id": "1", "name": "x"})),
        "only the assistant role",
    );
    bad_sample(
        &with_content(json!({"type": "tool_result", "toolUseId": "1", "content": []})),
        "do not match",
    );
    let mut tools = with_content(hello);
    tools["tools"] = json!([{"name": "no spaces"}]);
    bad_sample(&tools, "a name that models do not accept");
}

#[tokio::test]
async fn sampler_rejects_images_unless_model_supports_them() {
    let params = json!({
        "messages": [
            {"role": "user", "content": {"type": "image", "mimeType": "image/png", "data": "AAEC"}},
        ],
        "maxTokens": 5
    });
    assert_eq!(
        sample(&default_sampler(), "s", &params)
            .await
            .unwrap_err()
            .kind(),
        RefusalKind::Invalid
    );
    let mut capabilities = Capabilities::default();
    capabilities.images = true;
    let (model, requests) = model(ModelCard::new("test", "eye").with_capabilities(capabilities));
    assert!(
        sample(&ModelSampler::new(model), "s", &params)
            .await
            .is_ok()
    );
    assert_eq!(
        requests.lock().unwrap()[0].history.messages()[0]
            .parts
            .len(),
        1
    );
}

#[tokio::test]
async fn empty_reply_is_refused() {
    let model = FunctionModel::new(|_| Ok(Response::new(Message::new(Role::Assistant, []))));
    assert_refused(
        ModelSampler::new(Arc::new(model)).sample("s", ask()).await,
        RefusalKind::Failed,
        "no content",
    );
    let cut = SampleReply {
        finish: Finish::Length,
        ..SampleReply::text("m", "half a")
    };
    assert_eq!(sample_result(&cut)["stopReason"], "maxTokens");
    assert_refused(
        default_sampler()
            .sample("s", SampleRequest::new("x", 0))
            .await,
        RefusalKind::Invalid,
        "`maxTokens`",
    );
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "Ada", "minLength": 2, "maxLength": 5},
            "age": {"type": "integer", "default": 30, "minimum": 0, "maximum": 150},
            "score": {"type": "number", "default": 95.5},
            "ok": {"type": "boolean", "default": true},
            "status": {"type": "string", "enum": ["on", "off"], "default": "on"},
            "titled": {
                "type": "string",
                "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}],
            },
            "many": {
                "type": "array",
                "items": {"type": "string", "enum": ["x", "y"]},
                "maxItems": 2,
                "default": ["x"],
            },
            "titles": {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [{"const": "a", "title": "A"}]},
            },
            "mail": {"type": "string", "format": "email"},
            "link": {"type": "string", "format": "uri"},
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"}
        },
        "required": ["name", "age"]
    })
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else {
        panic!("{value}")
    };
    map
}

#[track_caller]
fn check_complete(content: Value, problems: &[&str]) {
    let form = ElicitForm::new("Who?", schema());
    let found = form.complete(object(content)).err().unwrap_or_default();
    assert_eq!(found, problems);
}

#[test]
fn complete_fills_missing_fields_with_defaults() {
    let form = ElicitForm::new("Who?", schema());
    let content = form.complete(object(json!({"age": 7}))).unwrap();
    let expected =
        json!({"age": 7, "name": "Ada", "score": 95.5, "ok": true, "status": "on", "many": ["x"]});
    assert_eq!(Value::Object(content), expected);
    let wrong = ElicitForm::new(
        "",
        json!({"properties": {"n": {"type": "integer", "default": "x"}}, "required": ["n"]}),
    );
    assert_eq!(
        wrong.complete(Map::new()),
        Err(vec!["`n` is missing".to_owned()])
    );
}

#[test]
fn complete_validates_fields() {
    check_complete(
        json!({
            "titled": "b",
            "titles": ["a"],
            "mail": "a@b.c",
            "link": "https://x",
            "day": "2026-01-31",
        }),
        &[],
    );
    check_complete(
        json!({"at": "2026-01-31T12:00:00Z", "age": 3.0, "score": 1}),
        &[],
    );
    check_complete(json!({"at": "2026-01-31T12:00:00.5+02:00"}), &[]);
    check_complete(json!({"name": "A"}), &["`name` is too short"]);
    check_complete(json!({"name": "Adabert"}), &["`name` is too long"]);
    check_complete(json!({"name": 5}), &["`name` must be a string"]);
    check_complete(json!({"age": 1.5}), &["`age` must be a whole number"]);
    check_complete(json!({"age": -1}), &["`age` is too small"]);
    check_complete(json!({"age": 151}), &["`age` is too large"]);
    check_complete(json!({"score": "high"}), &["`score` must be a number"]);
    check_complete(json!({"ok": "yes"}), &["`ok` must be true or false"]);
    check_complete(
        json!({"status": "maybe"}),
        &["`status` is not one of the choices"],
    );
    check_complete(
        json!({"titled": "A"}),
        &["`titled` is not one of the choices"],
    );
    check_complete(
        json!({"many": ["x", "y", "x"]}),
        &["`many` has too many choices"],
    );
    check_complete(
        json!({"many": ["z"]}),
        &["`many` is not one of the choices"],
    );
    check_complete(json!({"titles": []}), &["`titles` has too few choices"]);
    check_complete(
        json!({"titles": [1]}),
        &["`titles` must be a list of strings"],
    );
    check_complete(
        json!({"mail": "nobody"}),
        &["`mail` must be an e-mail address"],
    );
    check_complete(json!({"link": "x y"}), &["`link` must be a URI"]);
    check_complete(
        json!({"day": "2026-13-01"}),
        &["`day` must be a date such as 2026-01-31"],
    );
    check_complete(
        json!({"at": "noon"}),
        &["`at` must be a time such as 2026-01-31T12:00:00Z"],
    );
    check_complete(
        json!({"extra": 1, "age": null}),
        &[
            "the form has no field `extra`",
            "`age` must be a whole number",
        ],
    );
}

fn form_params() -> Value {
    json!({"message": "Who?", "requestedSchema": schema()})
}

#[tokio::test]
async fn builtin_elicitors_decline_or_accept_defaults() {
    let url =
        json!({"mode": "url", "message": "Log in", "url": "https://h/login", "elicitationId": "7"});
    for params in [form_params(), url.clone()] {
        assert_eq!(
            elicit(&Decline, "s", &params).await.unwrap(),
            json!({"action": "decline"})
        );
    }
    let accepted = elicit(&AcceptDefaults, "s", &form_params()).await.unwrap();
    assert_eq!(
        (&accepted["action"], &accepted["content"]["age"]),
        (&json!("accept"), &json!(30))
    );
    assert_eq!(
        elicit(&AcceptDefaults, "s", &url).await.unwrap(),
        json!({"action": "decline"})
    );
    let needy = json!({
        "message": "?",
        "requestedSchema": {"properties": {"x": {"type": "string"}}, "required": ["x"]},
    });
    assert_eq!(
        elicit(&AcceptDefaults, "s", &needy).await.unwrap(),
        json!({"action": "decline"})
    );
}

#[tokio::test]
async fn elicit_rejects_answer_that_does_not_match_form() {
    struct Fixed(ElicitReply, bool);

    #[async_trait]
    impl Elicitor for Fixed {
        async fn elicit(&self, server: &str, ask: ElicitRequest) -> ElicitReply {
            assert_eq!(server, "s");
            if let ElicitRequest::Form(form) = &ask {
                assert_eq!(form.message, "Who?");
            }
            self.0.clone()
        }

        fn supports_urls(&self) -> bool {
            self.1
        }
    }

    let wrong = Fixed(
        ElicitReply::Accept(object(json!({"name": "s3cret-and-long"}))),
        false,
    );
    let refusal = elicit(&wrong, "s", &form_params()).await.unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the answer does not match the form: `name` is too long"
    );
    let cancel = elicit(
        &Arc::new(Fixed(ElicitReply::Cancel, false)),
        "s",
        &form_params(),
    )
    .await
    .unwrap();
    assert_eq!(cancel, json!({"action": "cancel"}));
    let url = json!({"mode": "url", "message": "Log in", "url": "https://h", "elicitationId": "7"});
    for (able, action) in [(true, "accept"), (false, "decline")] {
        let yes = Fixed(ElicitReply::Accept(object(json!({"ignored": 1}))), able);
        assert_eq!(
            elicit(&yes, "s", &url).await.unwrap(),
            json!({"action": action})
        );
    }
}

#[test]
fn elicit_ask_rejects_invalid_or_large_requests() {
    let bad = |params: Value, expected: &str| {
        let refusal = elicit_ask(&params).unwrap_err();
        assert_eq!(refusal.kind(), RefusalKind::Invalid);
        assert!(refusal.to_string().contains(expected), "{refusal}");
    };
    bad(
        json!({"message": "x".repeat(70_000), "requestedSchema": {}}),
        "larger than 65536",
    );
    let fields: Map<String, Value> = (0..65)
        .map(|at| (at.to_string(), json!({"type": "string"})))
        .collect();
    bad(
        json!({"message": "", "requestedSchema": {"properties": fields}}),
        "more than 64 fields",
    );
    bad(json!({"message": ""}), "`requestedSchema`");
    bad(json!({"mode": "dance"}), "`form` or `url`");
    for url in [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://a b",
        "https://a\u{7}",
    ] {
        bad(
            json!({"mode": "url", "message": "", "url": url, "elicitationId": "1"}),
            "not a valid",
        );
    }
}
