use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    Abilities, Approver, Ask, Decision, Finish, Message, Model, ModelCard, ModelError,
    ModelErrorKind, Money, Price, Request, Response, Role, Usage,
};
use levity_test::FunctionModel;
use serde_json::{Map, Value, json};

use super::wire::{elicit_ask, sample_ask, sample_result};
use super::*;

/// A model that says `ok`, takes 10 tokens in and 5 out, and remembers what it was asked.
fn model(card: ModelCard) -> (Arc<dyn Model>, Arc<Mutex<Vec<Request>>>) {
    let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
    let seen = asked.clone();
    let answer = move |request: &Request| {
        seen.lock().unwrap().push(request.clone());
        Ok(Response::new(Message::assistant("ok")).with_usage(Usage::new(10, 5)))
    };
    (Arc::new(FunctionModel::new(answer).with_card(card)), asked)
}

fn plain() -> ModelSampler {
    ModelSampler::new(model(ModelCard::new("test", "small")).0)
}

#[track_caller]
fn refused(result: Result<SampleReply, Refusal>, kind: RefusalKind, words: &str) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.kind(), kind, "{refusal}");
    assert!(refusal.to_string().contains(words), "{refusal}");
}

fn ask() -> SampleAsk {
    SampleAsk::new("Hello", 100)
}

#[tokio::test]
async fn a_model_replies_within_bounds() {
    let (model, asked) = model(ModelCard::new("test", "small").with_max_output(60));
    let sampler = ModelSampler::new(model).max_tokens(80);
    let mut long = SampleAsk::new("Hello", 1_000_000);
    long.system = Some("Be a pirate.".to_owned());
    long.temperature = Some(0.5);
    long.stop = vec!["END".to_owned()];
    let reply = sampler.sample("s", long).await.unwrap();
    assert_eq!(reply, SampleReply::text("small", "ok"));
    let request = asked.lock().unwrap().remove(0);
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
async fn policy_decides_who_is_served() {
    let sampler = plain().only(["friend"]);
    assert!(sampler.sample("friend", ask()).await.is_ok());
    refused(
        sampler.sample("stranger", ask()).await,
        RefusalKind::Denied,
        "lent to this server",
    );
}

#[tokio::test]
async fn each_server_has_so_many_requests() {
    let sampler = plain().max_requests(2);
    for _ in 0..2 {
        assert!(sampler.sample("a", ask()).await.is_ok());
    }
    refused(
        sampler.sample("a", ask()).await,
        RefusalKind::Limit,
        "all the requests",
    );
    assert!(sampler.sample("b", ask()).await.is_ok());
}

#[tokio::test]
async fn tokens_are_set_aside_before_and_counted_after() {
    let (model, asked) = model(ModelCard::new("test", "small"));
    // The request itself counts about 300 at most, and takes 15 in the end.
    let sampler = ModelSampler::new(model).max_total_tokens(400);
    assert!(sampler.sample("a", ask()).await.is_ok());
    let first = asked.lock().unwrap()[0].options.max_tokens;
    assert!(
        first.is_some_and(|tokens| (64..=100).contains(&tokens)),
        "{first:?}"
    );
    assert!(sampler.sample("a", ask()).await.is_ok());
    refused(
        sampler
            .sample("a", SampleAsk::new("x".repeat(400), 100))
            .await,
        RefusalKind::Limit,
        "more tokens",
    );
    assert_eq!(sampler.used("a").0, 30);
}

#[tokio::test]
async fn money_is_counted_by_the_price_of_the_card() {
    let card = || ModelCard::new("test", "dear").with_price(Price::new(1_000.0, 2_000.0));
    let sampler = ModelSampler::new(model(card()).0).max_money(Money::from_dollars(1.0));
    assert!(sampler.sample("a", ask()).await.is_ok());
    assert_eq!(sampler.used("a").1, Money::from_dollars(0.02));
    let poor = ModelSampler::new(model(card()).0).max_money(Money::from_dollars(0.1));
    refused(
        poor.sample("a", ask()).await,
        RefusalKind::Limit,
        "more tokens or money",
    );
    let unknown = plain().max_money(Money::from_dollars(1.0));
    refused(
        unknown.sample("a", ask()).await,
        RefusalKind::Limit,
        "nobody knows what the model costs",
    );
    let assumed = plain()
        .max_money(Money::from_dollars(1.0))
        .assumed_price(Price::new(1.0, 1.0));
    assert!(assumed.sample("a", ask()).await.is_ok());
    assert_eq!(assumed.used("a").1, Money::from_nanos(15_000));
}

#[tokio::test]
async fn what_failed_counts_if_it_may_cost() {
    let failing = |kind| {
        let model = FunctionModel::new(move |_| Err(ModelError::new(kind, "the key k3y is wrong")));
        ModelSampler::new(Arc::new(model))
    };
    let free = failing(ModelErrorKind::Auth);
    let refusal = free.sample("a", ask()).await.unwrap_err();
    assert_eq!(
        (refusal.kind(), refusal.to_string()),
        (RefusalKind::Failed, "the model gave no reply".to_owned())
    );
    assert_eq!(free.used("a").0, 0);
    let charged = failing(ModelErrorKind::Timeout);
    assert!(charged.sample("a", ask()).await.is_err());
    assert!(charged.used("a").0 > 100);
}

#[tokio::test]
async fn a_dropped_request_counts_in_full() {
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
        let mut asked = std::pin::pin!(sampler.sample("a", ask()));
        assert!(futures_util::poll!(asked.as_mut()).is_pending());
    }
    assert!(sampler.used("a").0 > 100);
}

#[tokio::test]
async fn somebody_may_be_asked_first() {
    struct Desk(Decision, Mutex<Vec<Ask>>);

    #[async_trait]
    impl Approver for Desk {
        async fn decide(&self, ask: &Ask) -> Decision {
            self.1.lock().unwrap().push(ask.clone());
            self.0.clone()
        }
    }

    let desk = |decision| Arc::new(Desk(decision, Mutex::default()));
    let yes = desk(Decision::Allow);
    assert!(
        plain()
            .ask(yes.clone())
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
    let no = plain().ask(desk(Decision::deny("I do not trust it")));
    refused(
        no.sample("files", ask()).await,
        RefusalKind::Denied,
        "turned down",
    );
    assert_eq!(no.used("files").0, 0);
    let own = plain().ask(desk(Decision::answer("Say it is fine.")));
    assert_eq!(
        own.sample("files", ask()).await.unwrap(),
        SampleReply::text("person", "Say it is fine.")
    );
}

fn with_tools() -> Value {
    json!({
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Weather?"}},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [{"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "rain"}]}]}
        ],
        "maxTokens": 50,
        "systemPrompt": "Be brief.",
        "includeContext": "allServers",
        "tools": [{"name": "weather", "description": "Tells it.", "inputSchema": {"type": "object"}}],
        "toolChoice": {"mode": "none"},
        "modelPreferences": {"hints": [{"name": "small"}]}
    })
}

#[tokio::test]
async fn tools_are_served_only_when_allowed() {
    let refusal = sample(&plain(), "s", &with_tools()).await.unwrap_err();
    assert_eq!(refusal.kind(), RefusalKind::Denied);
    let (model, asked) = model(ModelCard::new("test", "small"));
    let sampler = ModelSampler::new(model).allow_tools();
    assert!(sampler.takes_tools() && !plain().takes_tools());
    let result = sample(&sampler, "s", &with_tools()).await.unwrap();
    assert_eq!(
        result,
        json!({"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "small", "stopReason": "endTurn"})
    );
    let request = asked.lock().unwrap().remove(0);
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
async fn calls_go_back_only_to_who_has_tools() {
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
    let bare = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "maxTokens": 5});
    assert_eq!(
        sample(&sampler, "s", &bare).await.unwrap()["content"]["text"],
        "let me see"
    );
}

#[track_caller]
fn bad_sample(params: &Value, words: &str) {
    let refusal = sample_ask(params).unwrap_err();
    assert_eq!((refusal.kind(), refusal.code()), (RefusalKind::Bad, -32602));
    assert!(refusal.to_string().contains(words), "{refusal}");
}

#[test]
fn what_servers_ask_is_bounded() {
    let said = |content: Value| json!({"messages": [{"role": "user", "content": content}], "maxTokens": 5});
    let hello = json!({"type": "text", "text": "hello"});
    assert!(sample_ask(&said(hello.clone())).is_ok());
    bad_sample(&json!({"messages": [], "maxTokens": 5}), "no `messages`");
    bad_sample(
        &json!({"messages": vec![json!({"role": "user", "content": hello.clone()}); 257], "maxTokens": 5}),
        "more than 256",
    );
    bad_sample(
        &said(json!({"type": "text", "text": "x".repeat(1 << 20)})),
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
    bad_sample(&said(json!({"type": "video"})), "unknown type");
    bad_sample(
        &said(json!({"type": "image", "mimeType": "image/png", "data": "?"})),
        "base64",
    );
    bad_sample(
        &said(json!({"type": "tool_use", "id": "1", "name": "x"})),
        "only the model calls tools",
    );
    bad_sample(
        &said(json!({"type": "tool_result", "toolUseId": "1", "content": []})),
        "do not match",
    );
    let mut tools = said(hello);
    tools["tools"] = json!([{"name": "no spaces"}]);
    bad_sample(&tools, "a name that models do not take");
}

#[tokio::test]
async fn images_go_to_models_that_see() {
    let params = json!({
        "messages": [{"role": "user", "content": {"type": "image", "mimeType": "image/png", "data": "AAEC"}}],
        "maxTokens": 5
    });
    assert_eq!(
        sample(&plain(), "s", &params).await.unwrap_err().kind(),
        RefusalKind::Bad
    );
    let mut abilities = Abilities::default();
    abilities.images = true;
    let (model, asked) = model(ModelCard::new("test", "eye").with_abilities(abilities));
    assert!(
        sample(&ModelSampler::new(model), "s", &params)
            .await
            .is_ok()
    );
    assert_eq!(
        asked.lock().unwrap()[0].history.messages()[0].parts.len(),
        1
    );
}

#[tokio::test]
async fn a_reply_without_words_is_none() {
    let model = FunctionModel::new(|_| Ok(Response::new(Message::new(Role::Assistant, []))));
    refused(
        ModelSampler::new(Arc::new(model)).sample("s", ask()).await,
        RefusalKind::Failed,
        "nothing to say",
    );
    let cut = SampleReply {
        finish: Finish::Length,
        ..SampleReply::text("m", "half a")
    };
    assert_eq!(sample_result(&cut)["stopReason"], "maxTokens");
    refused(
        plain().sample("s", SampleAsk::new("x", 0)).await,
        RefusalKind::Bad,
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
            "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
            "many": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "maxItems": 2, "default": ["x"]},
            "titles": {"type": "array", "minItems": 1, "items": {"anyOf": [{"const": "a", "title": "A"}]}},
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
fn filled(content: Value, problems: &[&str]) {
    let form = ElicitForm::new("Who?", schema());
    let found = form.complete(object(content)).err().unwrap_or_default();
    assert_eq!(found, problems);
}

#[test]
fn defaults_fill_what_is_missing() {
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
fn what_is_filled_in_is_checked() {
    filled(
        json!({"titled": "b", "titles": ["a"], "mail": "a@b.c", "link": "https://x", "day": "2026-01-31"}),
        &[],
    );
    filled(
        json!({"at": "2026-01-31T12:00:00Z", "age": 3.0, "score": 1}),
        &[],
    );
    filled(json!({"at": "2026-01-31T12:00:00.5+02:00"}), &[]);
    filled(json!({"name": "A"}), &["`name` is too short"]);
    filled(json!({"name": "Adabert"}), &["`name` is too long"]);
    filled(json!({"name": 5}), &["`name` must be a string"]);
    filled(json!({"age": 1.5}), &["`age` must be a whole number"]);
    filled(json!({"age": -1}), &["`age` is too small"]);
    filled(json!({"age": 151}), &["`age` is too large"]);
    filled(json!({"score": "high"}), &["`score` must be a number"]);
    filled(json!({"ok": "yes"}), &["`ok` must be true or false"]);
    filled(
        json!({"status": "maybe"}),
        &["`status` is none of the choices"],
    );
    filled(json!({"titled": "A"}), &["`titled` is none of the choices"]);
    filled(
        json!({"many": ["x", "y", "x"]}),
        &["`many` has too many choices"],
    );
    filled(json!({"many": ["z"]}), &["`many` is none of the choices"]);
    filled(json!({"titles": []}), &["`titles` has too few choices"]);
    filled(
        json!({"titles": [1]}),
        &["`titles` must be a list of strings"],
    );
    filled(
        json!({"mail": "nobody"}),
        &["`mail` must be an e-mail address"],
    );
    filled(json!({"link": "x y"}), &["`link` must be a URI"]);
    filled(
        json!({"day": "2026-13-01"}),
        &["`day` must be a date such as 2026-01-31"],
    );
    filled(
        json!({"at": "noon"}),
        &["`at` must be a time such as 2026-01-31T12:00:00Z"],
    );
    filled(
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
async fn ready_elicitors_answer() {
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
    let needy = json!({"message": "?", "requestedSchema": {"properties": {"x": {"type": "string"}}, "required": ["x"]}});
    assert_eq!(
        elicit(&AcceptDefaults, "s", &needy).await.unwrap(),
        json!({"action": "decline"})
    );
}

#[tokio::test]
async fn no_answer_leaves_that_does_not_fit() {
    struct Fixed(ElicitReply, bool);

    #[async_trait]
    impl Elicitor for Fixed {
        async fn elicit(&self, server: &str, ask: ElicitAsk) -> ElicitReply {
            assert_eq!(server, "s");
            if let ElicitAsk::Form(form) = &ask {
                assert_eq!(form.message, "Who?");
            }
            self.0.clone()
        }

        fn takes_urls(&self) -> bool {
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
        "the answer does not fit the form: `name` is too long"
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
fn what_servers_want_of_people_is_bounded() {
    let bad = |params: Value, words: &str| {
        let refusal = elicit_ask(&params).unwrap_err();
        assert_eq!(refusal.kind(), RefusalKind::Bad);
        assert!(refusal.to_string().contains(words), "{refusal}");
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
    bad(json!({"mode": "dance"}), "`form` and `url`");
    for url in [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://a b",
        "https://a\u{7}",
    ] {
        bad(
            json!({"mode": "url", "message": "", "url": url, "elicitationId": "1"}),
            "no address",
        );
    }
}
