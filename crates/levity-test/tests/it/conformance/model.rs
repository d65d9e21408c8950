use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levity_core::{
    Delta, Deltas, Message, Model, ModelCard, ModelError, ModelErrorKind, Part, ProviderState,
    Request, Response, Role,
};
use levity_test::{FunctionModel, ScriptedModel, Turn, conformance};
use serde_json::json;

use crate::{block_on, refuses};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    NoName,
    CardChanges,
    NeverAnswers,
    CompleteDiffers,
    SpeaksAsUser,
    SendsUnpolled,
    PanicsWhenEmpty,
    PanicsAtMedia,
    PanicsAtCalls,
    PanicsAtResults,
    PanicsAtCutOffCalls,
    RetriesMedia,
    RepeatsPrompt,
    PanicsWhenDropped,
    StreamFailsAtCalls,
    StreamPanicsAtCalls,
    StreamDiffersAtCalls,
    CompleteFailsAtCalls,
}

struct Broken {
    flaw: Flaw,
    card: ModelCard,
    sent: AtomicUsize,
}

impl Broken {
    fn new(flaw: Flaw, made: usize) -> Self {
        let id = match flaw {
            Flaw::NoName => String::new(),
            Flaw::CardChanges => format!("broken {made}"),
            _ => "broken".into(),
        };
        Self {
            flaw,
            card: ModelCard::new("test", id),
            sent: AtomicUsize::new(0),
        }
    }

    fn answer(&self, request: &Request) -> Result<Deltas, ModelError> {
        let bad = |message: String| ModelError::new(ModelErrorKind::BadRequest, message);
        let has_media = contains(request, |part| matches!(part, Part::Media(_)));
        match self.flaw {
            // A model that rejects media must still receive calls.
            Flaw::PanicsAtCalls | Flaw::PanicsAtResults | Flaw::PanicsAtCutOffCalls
                if has_media =>
            {
                return Err(bad("no media".into()));
            }
            Flaw::NeverAnswers => return Err(bad("no".into())),
            Flaw::SendsUnpolled if self.sent.load(Ordering::SeqCst) > 1 => {
                return Err(bad("used up".into()));
            }
            Flaw::PanicsWhenEmpty => drop(request.history.messages()[0].clone()),
            Flaw::PanicsAtMedia => assert!(!has_media, "media"),
            Flaw::PanicsAtCalls => {
                assert!(!contains(request, |part| matches!(part, Part::ToolCall(_))));
            }
            Flaw::PanicsAtResults => {
                assert!(!contains(request, |part| matches!(
                    part,
                    Part::ToolResult(_)
                )));
            }
            Flaw::PanicsAtCutOffCalls => {
                let is_cut_off =
                    |part: &Part| matches!(part, Part::ToolCall(call) if call.raw.is_some());
                assert!(!contains(request, is_cut_off));
            }
            Flaw::RetriesMedia if has_media => {
                return Err(ModelError::new(ModelErrorKind::Server, "no images"));
            }
            Flaw::RepeatsPrompt if request.history.len() > 1 => {
                return Err(bad(format!("cannot send {:?}", request.history)));
            }
            Flaw::PanicsWhenDropped => return Ok(Deltas::new(Fragile(2))),
            _ => {}
        }
        Ok(Deltas::ready([Delta::Text("7".into())]))
    }

    /// Returns the reply to a streamed request. Some flaws affect only this way to send a request.
    fn answer_streamed(&self, request: &Request) -> Result<Deltas, ModelError> {
        let has_calls = contains(request, |part| matches!(part, Part::ToolCall(_)));
        match self.flaw {
            Flaw::StreamFailsAtCalls if has_calls => Err(ModelError::new(
                ModelErrorKind::BadRequest,
                "calls cannot be sent",
            )),
            Flaw::StreamPanicsAtCalls if has_calls => panic!("calls cannot be sent"),
            Flaw::StreamDiffersAtCalls if has_calls => Ok(Deltas::ready([Delta::Text("8".into())])),
            _ => self.answer(request),
        }
    }
}

/// Returns `true` if a message of the request has such a part.
fn contains(request: &Request, is_wanted: impl Fn(&Part) -> bool) -> bool {
    let messages = request.history.messages().iter();
    messages.flat_map(|message| &message.parts).any(is_wanted)
}

/// A stream that panics when it is dropped before its end.
struct Fragile(usize);

impl futures_core::Stream for Fragile {
    type Item = Result<Delta, ModelError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0 = self.0.saturating_sub(1);
        std::task::Poll::Ready((self.0 > 0).then(|| Ok(Delta::Text("7".into()))))
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(self.0 == 0 || std::thread::panicking(), "dropped too early");
    }
}

impl Model for Broken {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn stream<'a, 'b>(
        &'a self,
        request: Request,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Deltas, ModelError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        // The request is counted when the call is made, not when it is polled: that is the flaw.
        self.sent.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { self.answer_streamed(&request) })
    }

    fn complete<'a, 'b>(
        &'a self,
        request: Request,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Response, ModelError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let flaw = self.flaw;
        let has_calls = contains(&request, |part| matches!(part, Part::ToolCall(_)));
        let whole = match flaw {
            Flaw::StreamFailsAtCalls | Flaw::StreamPanicsAtCalls | Flaw::StreamDiffersAtCalls => {
                Box::pin(async move { self.answer(&request) })
            }
            _ => self.stream(request),
        };
        Box::pin(async move {
            if flaw == Flaw::CompleteFailsAtCalls && has_calls {
                let message = "calls cannot be sent";
                return Err(ModelError::new(ModelErrorKind::BadRequest, message));
            }
            let mut response = whole.await?.fold().await?;
            match flaw {
                Flaw::CompleteDiffers => response.message = Arc::new(Message::assistant("8")),
                Flaw::SpeaksAsUser => response.message = Arc::new(Message::user("7")),
                _ => {}
            }
            Ok(response)
        })
    }
}

#[test]
fn model_suite_accepts_correct_model() {
    block_on(conformance::model(|| ScriptedModel::new().reply("7")));
    block_on(conformance::model(|| {
        ScriptedModel::looping(Turn::new().text("7").usage(1, 1))
    }));
    let rich = || {
        let turn = Turn::new()
            .thinking("hm")
            .opaque(ProviderState::new("test", json!("sig")))
            .text("Let me see.");
        ScriptedModel::new().turn(
            turn.call("add", json!({"a": 2}))
                .raw_call("add", "{")
                .pieces(3),
        )
    };
    block_on(conformance::model(rich));
    block_on(conformance::model(|| {
        FunctionModel::new(|_: &Request| Ok(Response::new(Message::new(Role::Assistant, []))))
    }));
    block_on(conformance::model(|| {
        Arc::new(ScriptedModel::new().reply("7")) as Arc<dyn Model>
    }));
}

/// Checks that the suite reports this promise as broken by a model with this flaw.
#[track_caller]
fn check(flaw: Flaw, promise: &str) {
    let made = AtomicUsize::new(0);
    refuses(
        conformance::model(|| Broken::new(flaw, made.fetch_add(1, Ordering::SeqCst))),
        promise,
    );
}

#[test]
fn model_suite_rejects_every_flaw() {
    check(Flaw::NoName, "model: the card names the model's id");
    check(Flaw::CardChanges, "model: the card is always the same");
    check(
        Flaw::NeverAnswers,
        "model: `make` returns a model that answers its first request",
    );
    check(
        Flaw::CompleteDiffers,
        "model: `complete` gives what folding `stream` gives",
    );
    check(
        Flaw::SpeaksAsUser,
        "model: `complete` gives what folding `stream` gives",
    );
    check(
        Flaw::SendsUnpolled,
        "model: nothing is sent before the future is polled",
    );
    check(
        Flaw::PanicsWhenDropped,
        "model: dropping a call is harmless; it panicked: dropped too early",
    );
    check(Flaw::PanicsWhenEmpty, "model: no request makes it panic");
    check(Flaw::PanicsAtMedia, "model: no request makes it panic");
    check(Flaw::PanicsAtCalls, "model: no request makes it panic");
    check(Flaw::PanicsAtResults, "model: no request makes it panic");
    check(
        Flaw::PanicsAtCutOffCalls,
        "model: no request makes it panic",
    );
    check(
        Flaw::RetriesMedia,
        "model: media that the card does not offer are answered or rejected with `BadRequest`",
    );
    check(
        Flaw::RepeatsPrompt,
        "model: an error does not repeat the request",
    );
}

#[test]
fn model_suite_sends_unusual_requests_with_stream_and_complete() {
    check(
        Flaw::StreamFailsAtCalls,
        "model: `stream` answers every request that `complete` answers; it failed: calls",
    );
    check(
        Flaw::StreamPanicsAtCalls,
        "model: no request makes it panic; it panicked: calls cannot be sent",
    );
    check(
        Flaw::StreamDiffersAtCalls,
        "model: `complete` gives what folding `stream` gives",
    );
    check(
        Flaw::CompleteFailsAtCalls,
        "model: `complete` answers every request that `stream` answers; it failed: calls",
    );
}
