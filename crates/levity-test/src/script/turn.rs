//! One scripted reply and its stream of deltas.
//!
//! A turn is a list of items in the order in which the model produces them. It becomes deltas only
//! when it is played, because generated call ids continue over all turns of a script. The stream is
//! always ready: delays happen before it starts, on the clock of the model.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use levity_core::{CallId, Delta, Deltas, Finish, ModelError, ProviderState, Request, Usage};
use serde_json::Value;

/// One reply of a [`ScriptedModel`](crate::ScriptedModel), piece by piece.
///
/// ```
/// use levity_core::{Model, Request};
/// use levity_test::{ScriptedModel, Turn};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let turn = Turn::new().thinking("Two numbers.").text("Let me see.");
/// let turn = turn.call("add", json!({"a": 2, "b": 5}));
/// let model = ScriptedModel::new().turn(turn.usage(10, 3).pieces(4));
///
/// let reply = model.complete(Request::new()).await?;
/// assert_eq!(reply.message.thinking(), "Two numbers.");
/// assert_eq!(reply.usage.total(), 13);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Turn {
    items: Vec<Item>,
    pub(super) usage: Option<Usage>,
    pub(super) finish: Option<Finish>,
    pieces: usize,
    delay: Option<Duration>,
    expect: Option<Expect>,
    broken: Option<ModelError>,
}

type Expect = Arc<dyn Fn(&Request) -> Result<(), String> + Send + Sync>;

/// One piece of content, before it is cut into deltas.
#[derive(Clone)]
enum Item {
    Text(String),
    Thinking(String),
    /// The arguments are text, since they need not be JSON.
    Call {
        id: Option<CallId>,
        name: String,
        args: String,
    },
    Opaque(ProviderState),
}

impl Turn {
    /// Creates an empty reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds text to the reply.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.item(Item::Text(text.into()))
    }

    /// Adds text that arrives in exactly these pieces.
    ///
    /// Observers receive one delta for each piece.
    ///
    /// ```
    /// use levity_core::{Delta, Model, Request};
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::new().turn(Turn::new().in_pieces(["Good ", "morning"]));
    /// let mut deltas = model.stream(Request::new()).await?;
    /// assert!(matches!(deltas.next().await, Some(Ok(Delta::Text(text))) if text == "Good "));
    /// assert_eq!(deltas.fold().await?.message.text(), "morning");
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_pieces(self, pieces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        pieces.into_iter().fold(self, Self::text)
    }

    /// Adds thinking to the reply.
    pub fn thinking(self, text: impl Into<String>) -> Self {
        self.item(Item::Thinking(text.into()))
    }

    /// Adds a tool call with a generated id.
    ///
    /// Ids are `call_1`, `call_2` and so on, counted over all turns of the script.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "`json!` returns an owned value"
    )]
    pub fn call(self, name: impl Into<String>, args: Value) -> Self {
        self.item(Item::Call {
            id: None,
            name: name.into(),
            args: args.to_string(),
        })
    }

    /// Adds a tool call with this id, however strange.
    ///
    /// Use it to test calls with the same id, or with an empty one.
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_test::{ScriptedModel, Turn};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let turn = Turn::new().call_with_id("same", "a", json!({}));
    /// let turn = turn.call_with_id("same", "b", json!({}));
    /// let reply = ScriptedModel::new().turn(turn).complete(Request::new()).await?;
    /// let ids: Vec<_> = reply.message.calls().map(|call| call.id.as_str().to_owned()).collect();
    /// assert_eq!(ids, ["same", "same"]);
    /// # Ok(())
    /// # }
    /// ```
    #[expect(
        clippy::needless_pass_by_value,
        reason = "`json!` returns an owned value"
    )]
    pub fn call_with_id(self, id: impl Into<CallId>, name: impl Into<String>, args: Value) -> Self {
        self.item(Item::Call {
            id: Some(id.into()),
            name: name.into(),
            args: args.to_string(),
        })
    }

    /// Adds a tool call whose arguments are this text, JSON or not.
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::new().turn(Turn::new().raw_call("add", "{\"a\": 2"));
    /// let reply = model.complete(Request::new()).await?;
    /// let call = reply.message.calls().next().expect("one call");
    /// assert_eq!(call.raw.as_deref(), Some("{\"a\": 2"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn raw_call(self, name: impl Into<String>, args: impl Into<String>) -> Self {
        self.item(Item::Call {
            id: None,
            name: name.into(),
            args: args.into(),
        })
    }

    /// Attaches provider data to the last added part.
    pub fn opaque(self, opaque: ProviderState) -> Self {
        self.item(Item::Opaque(opaque))
    }

    /// Sets the token usage; unknown by default.
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some(Usage::new(input, output));
        self
    }

    /// Sets the finish reason; by default the one that fits the reply.
    ///
    /// ```
    /// use levity_core::{Finish, Model, Request};
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let cut = Turn::new().text("The first half of").finish(Finish::Length);
    /// let reply = ScriptedModel::new().turn(cut).complete(Request::new()).await?;
    /// assert_eq!(reply.finish, Finish::Length);
    /// # Ok(())
    /// # }
    /// ```
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Streams each text, thought and argument in `count` pieces of about the same length, cut
    /// between characters; in one by default.
    pub fn pieces(mut self, count: usize) -> Self {
        self.pieces = count;
        self
    }

    /// Waits before the first piece, on the clock of
    /// [`with_world`](crate::ScriptedModel::with_world).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use levity_core::{Model, Request, World};
    /// use levity_test::{ManualWorld, ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let world = ManualWorld::auto();
    /// let slow = Turn::new().text("At last.").delay(Duration::from_secs(30));
    /// let model = ScriptedModel::new().turn(slow).with_world(Arc::new(world.clone()));
    /// model.complete(Request::new()).await?;
    /// assert_eq!(world.now().since(ManualWorld::START), Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delay(mut self, time: Duration) -> Self {
        self.delay = Some(time);
        self
    }

    /// Checks the request first; an `Err` is returned to the caller as a
    /// [`BadRequest`](levity_core::ModelErrorKind::BadRequest).
    ///
    /// The step is used up in either case. The message names the step and repeats the text of the
    /// `Err`.
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let turn = Turn::new().text("Hi").expect(|request| match request.history.len() {
    ///     1 => Ok(()),
    ///     n => Err(format!("it has {n} messages")),
    /// });
    /// let error = ScriptedModel::new().turn(turn).complete(Request::new()).await.unwrap_err();
    /// assert!(error.to_string().contains("it has 0 messages"));
    /// # }
    /// ```
    pub fn expect(
        mut self,
        check: impl Fn(&Request) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.expect = Some(Arc::new(check));
        self
    }

    /// Ends the reply with an error after all its pieces.
    ///
    /// A set usage or finish reason is not sent then, as from a provider whose connection breaks.
    ///
    /// ```
    /// use levity_core::{Model, ModelError, ModelErrorKind, Request};
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let reset = ModelError::new(ModelErrorKind::Transport, "connection reset");
    /// let model = ScriptedModel::new().turn(Turn::new().text("Half an").break_off(reset));
    /// let mut deltas = model.stream(Request::new()).await?;
    /// assert!(deltas.next().await.is_some_and(|delta| delta.is_ok()));
    /// assert!(deltas.next().await.is_some_and(|delta| delta.is_err()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn break_off(mut self, error: ModelError) -> Self {
        self.broken = Some(error);
        self
    }

    fn item(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }

    pub(super) fn wait(&self) -> Option<Duration> {
        self.delay
    }

    pub(super) fn meets(&self, request: &Request) -> Result<(), String> {
        self.expect
            .as_ref()
            .map_or(Ok(()), |expect| expect(request))
    }

    /// Returns the reply as it is streamed; calls without an id are numbered from `named`.
    pub(super) fn pieces_named(self, named: &mut u64) -> Pieces {
        let mut deltas = Vec::new();
        let mut index = 0;
        for item in self.items {
            match item {
                Item::Text(text) => deltas.extend(cut(&text, self.pieces).map(Delta::Text)),
                Item::Thinking(text) => deltas.extend(cut(&text, self.pieces).map(Delta::Thinking)),
                Item::Opaque(opaque) => deltas.push(Delta::Opaque(opaque)),
                Item::Call { id, name, args } => {
                    let id = id.unwrap_or_else(|| {
                        *named += 1;
                        CallId::from(format!("call_{named}"))
                    });
                    deltas.push(Delta::CallStart { index, id, name });
                    deltas.extend(
                        cut(&args, self.pieces).map(|text| Delta::CallArgs { index, text }),
                    );
                    index += 1;
                }
            }
        }
        let broken = self.broken.map(Err);
        if broken.is_none() {
            deltas.extend(self.usage.map(Delta::Usage));
            deltas.extend(self.finish.map(Delta::Finish));
        }
        Pieces(
            deltas
                .into_iter()
                .map(Ok)
                .chain(broken)
                .collect::<Vec<_>>()
                .into_iter(),
        )
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({self})")
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, item) in self.items.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { ", " })?;
            match item {
                Item::Text(text) => write!(f, "says {text:?}")?,
                Item::Thinking(text) => write!(f, "thinks {text:?}")?,
                Item::Call { name, args, .. } => write!(f, "calls {name} {args}")?,
                Item::Opaque(opaque) => write!(f, "{opaque:?}")?,
            }
        }
        if self.items.is_empty() {
            f.write_str("says nothing")
        } else {
            Ok(())
        }
    }
}

/// Returns `text` in at most `count` pieces; none is empty unless the text is.
fn cut(text: &str, count: usize) -> impl Iterator<Item = String> + use<> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(count.max(1)).max(1);
    let mut pieces: Vec<String> = chars
        .chunks(size)
        .map(|piece| piece.iter().collect())
        .collect();
    if pieces.is_empty() {
        pieces.push(String::new());
    }
    pieces.into_iter()
}

/// The prepared deltas of one turn as a stream that is always ready.
pub(super) struct Pieces(std::vec::IntoIter<Result<Delta, ModelError>>);

impl Pieces {
    pub(super) fn into_deltas(self) -> Deltas {
        Deltas::new(self)
    }
}

impl Stream for Pieces {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next())
    }
}
