//! The layer [`Record`]: writes each call to a file for [`Replay`](super::Replay).
//!
//! A line looks like `{"digest": "..", "model": {..}, "request": {..}, "reply": {"response":
//! {..}}}`. The request is stored in its canonical form next to its digest, so that a replay can
//! explain a mismatch. Lines are appended whole, under a lock, so concurrent calls do not mix.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{
    CostBound, Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request, Response,
};
use levity_system::Replace;
use levity_system::files::make_dir;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Scrub, canonical, files, flow};

/// Records each request and its reply to a file that a [`Replay`](super::Replay) answers from.
///
/// The file has one line of JSON per call: the request, its SHA-256, and the reply or the error. A
/// [`Scrub`] masks secrets before the layer hashes or writes anything. A call fails if its line
/// cannot be written, because a gap in the recording would otherwise surface only later.
///
/// ```
/// use levity_core::{Model, Request};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::Replay;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = std::env::temp_dir().join(format!("levity-record-{}.jsonl", std::process::id()));
/// let model = ScriptedModel::new().reply("yes").record(&path)?;
/// model.complete(Request::new()).await?;
///
/// let replay = Replay::open(&path)?;
/// assert_eq!(replay.complete(Request::new()).await?.message.text(), "yes");
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
pub struct Record<M> {
    inner: Arc<M>,
    recorder: Recorder,
}

/// The part of the layer that a stream takes along: the open file, its path for errors, and the
/// scrubber.
#[derive(Clone)]
struct Recorder {
    file: Arc<Mutex<File>>,
    path: Arc<PathBuf>,
    scrub: Arc<Scrub>,
}

/// One recorded call, as it appears in the file.
#[derive(Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) digest: String,
    pub(super) model: ModelCard,
    pub(super) request: Value,
    pub(super) reply: Reply,
}

/// The recorded end of a call. Errors are recorded too, so that a test can replay a failure.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Response(Response),
    Error(ModelError),
}

impl<M: Model + 'static> Record<M> {
    /// Wraps a model and starts a new file, replacing an existing one. A missing folder is created.
    ///
    /// The file is private to its owner, even if the file that it replaces was not. Later, a call
    /// whose line cannot be written fails with [`BadRequest`](ModelErrorKind::BadRequest). That
    /// error counts as charged, because the model was already called, and its source is the I/O
    /// error.
    ///
    /// # Errors
    /// Returns an error with the path if the file cannot be created.
    pub fn new(model: M, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = create(path).map_err(|error| {
            let message = format!("cannot record calls in `{}`: {error}", path.display());
            io::Error::new(error.kind(), message)
        })?;
        let recorder = Recorder {
            file: Arc::new(Mutex::new(file)),
            path: Arc::new(path.into()),
            scrub: Arc::default(),
        };
        Ok(Self {
            inner: Arc::new(model),
            recorder,
        })
    }

    /// Sets the scrubber that masks secrets; give a [`Replay`](super::Replay) of the file the same.
    ///
    /// ```
    /// use levity_core::{Message, Model, Request};
    /// use levity_llm::ModelExt;
    /// use levity_llm::layers::{Replay, Scrub};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("calls.jsonl");
    /// let scrub = Scrub::new().secret("hunter2");
    /// let request = || Request::new().with_message(Message::user("The word is hunter2."));
    ///
    /// let model = ScriptedModel::new().reply("I see.").record(&path)?.scrub(scrub.clone());
    /// model.complete(request()).await?;
    /// assert!(!std::fs::read_to_string(&path)?.contains("hunter2"));
    ///
    /// let replay = Replay::open(&path)?.scrub(scrub);
    /// assert_eq!(replay.complete(request()).await?.message.text(), "I see.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scrub(mut self, scrub: Scrub) -> Self {
        self.recorder.scrub = Arc::new(scrub);
        self
    }
}

/// Replaces the file at this path with an empty one, and opens it to append lines.
fn create(path: &Path) -> io::Result<File> {
    // The parent of a bare file name is an empty path.
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        make_dir(folder)?;
    }
    // The new file is private even if the old one was not.
    Replace::new(path).write(b"")?;
    File::options().append(true).open(path)
}

impl Recorder {
    /// Returns the key and the JSON of a request for its line.
    ///
    /// The request is masked before it is hashed. A test that lacks the real secret, or has another
    /// one, finds the same digest.
    fn begin(&self, card: &ModelCard, request: &Request) -> (String, Value) {
        let request = self.scrub.value(canonical::canonical(request));
        (canonical::key(card, &request), request)
    }

    /// Appends the line of one call; see [`Record::new`] for its error.
    async fn write(
        &self,
        card: &ModelCard,
        call: (String, Value),
        reply: Reply,
    ) -> Result<(), ModelError> {
        let (digest, request) = call;
        let line = Line {
            digest,
            model: card.clone(),
            request,
            reply,
        };
        let recorder = self.clone();
        let written = files::run_blocking(move || recorder.append(&line)).await;
        written.map_err(|error| {
            let message = format!("cannot record the call in `{}`", self.path.display());
            ModelError::new(ModelErrorKind::BadRequest, message)
                .with_charge()
                .with_source(error)
        })
    }

    /// Masks the reply as JSON, where the names of keys show which values are secret, and writes
    /// one line with a single call.
    fn append(&self, line: &Line) -> io::Result<()> {
        let scrubbed = self.scrub.value(serde_json::to_value(&line.reply)?);
        let mut value = serde_json::to_value(line)?;
        value["reply"] = scrubbed;
        let text = format!("{value}\n");
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(text.as_bytes())
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for Record<M> {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let (model, recorder) = (self.inner.clone(), self.recorder.clone());
        Ok(flow::deltas(move |out| async move {
            let call = recorder.begin(model.card(), &request);
            let reply = flow::forward(&*model, request, &out).await;
            recorder
                .write(model.card(), call, Reply::from(&reply))
                .await?;
            reply.map(drop)
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let call = self.recorder.begin(self.inner.card(), &request);
        let reply = self.inner.complete(request).await;
        self.recorder
            .write(self.inner.card(), call, Reply::from(&reply))
            .await?;
        reply
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner.cost_bound(request)
    }
}

impl From<&Result<Response, ModelError>> for Reply {
    fn from(reply: &Result<Response, ModelError>) -> Self {
        match reply {
            Ok(response) => Self::Response(response.clone()),
            Err(error) => Self::Error(error.clone()),
        }
    }
}

impl<M: Model> fmt::Debug for Record<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.inner.card().id;
        f.debug_struct("Record")
            .field("model", model)
            .field("path", &self.recorder.path)
            .finish_non_exhaustive()
    }
}
