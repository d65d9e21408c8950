use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use levity_core::{CostBound, Deltas, Model, ModelCard, ModelError, Request, Response, World};

use super::{Scrub, files, flow};
use levity_system::{Replace, SystemWorld, files as private};

mod text;

/// Writes every prompt and every reply to a folder, as text to read.
///
/// Each call has two files, `<time>_<number>_<name>_prompt.txt` and `.._response.txt`; the newest
/// are also in `latest_prompt.txt` and `latest_response.txt`. The files of about 1,000 calls are
/// kept, each of up to 1 MiB. Secrets are masked by a [`Scrub`]. A disk that fails does not fail
/// the call; [`failures`](Self::failures) counts.
///
/// ```
/// use levity_core::{Message, Model, Request};
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("levity-debug-{}", std::process::id()));
/// let model = ScriptedModel::new().reply("Good morning!").debug_log(&folder);
/// model.complete(Request::new().with_message(Message::user("Hello"))).await?;
/// assert!(std::fs::read_to_string(folder.join("latest_prompt.txt"))?.contains("Hello"));
/// assert!(std::fs::read_to_string(folder.join("latest_response.txt"))?.contains("Good morning!"));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
pub struct DebugLog<M> {
    inner: Arc<M>,
    log: Arc<Log>,
}

#[derive(Clone)]
struct Log {
    folder: PathBuf,
    name: String,
    calls: usize,
    bytes: usize,
    scrub: Scrub,
    world: Arc<dyn World>,
    next: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl<M: Model + 'static> DebugLog<M> {
    /// How many calls' files are kept: about 1,000.
    pub const DEFAULT_CALLS: usize = 1_000;
    /// How long a file may be: 1 MiB.
    pub const DEFAULT_BYTES: usize = 1 << 20;

    /// Wraps a model; the folder is made when needed.
    pub fn new(model: M, folder: impl Into<PathBuf>) -> Self {
        let log = Log {
            folder: folder.into(),
            name: plain(&model.card().id),
            calls: Self::DEFAULT_CALLS,
            bytes: Self::DEFAULT_BYTES,
            scrub: Scrub::new(),
            world: Arc::new(SystemWorld),
            next: Arc::default(),
            failed: Arc::default(),
        };
        Self {
            inner: Arc::new(model),
            log: Arc::new(log),
        }
    }

    /// Sets the name in the files' names, such as the agent's; the model's id by default.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with(|log| log.name = plain(name))
    }

    /// Sets how many calls' files are kept.
    #[must_use]
    pub fn calls(self, count: usize) -> Self {
        self.with(|log| log.calls = count.max(1))
    }

    /// Sets how long a file may be; the middle of a longer one is left out.
    #[must_use]
    pub fn bytes(self, bytes: usize) -> Self {
        self.with(|log| log.bytes = bytes)
    }

    /// Sets what is masked.
    #[must_use]
    pub fn scrub(self, scrub: Scrub) -> Self {
        self.with(|log| log.scrub = scrub)
    }

    /// Sets where time comes from; from the system by default.
    #[must_use]
    pub fn with_world(self, world: Arc<dyn World>) -> Self {
        self.with(|log| log.world = world)
    }

    /// How many files could not be written.
    pub fn failures(&self) -> u64 {
        self.log.failed.load(Ordering::Relaxed)
    }

    fn with(mut self, change: impl FnOnce(&mut Log)) -> Self {
        change(Arc::make_mut(&mut self.log));
        self
    }
}

/// A name that is fit for a file's.
fn plain(name: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || "-.".contains(c) {
            c
        } else {
            '-'
        }
    };
    name.chars().map(keep).take(60).collect()
}

/// How many calls there are between two looks at what is too old.
const SWEEP: u64 = 16;

impl Log {
    /// Writes a prompt; returns what the reply's file is called.
    async fn prompt(self: &Arc<Self>, card: &ModelCard, request: &Request) -> Option<String> {
        let text = text::prompt(card, request, &self.scrub);
        let log = self.clone();
        self.note(files::aside(move || log.write_prompt(&text)).await)
    }

    async fn response(
        self: &Arc<Self>,
        stem: Option<String>,
        reply: Result<&Response, &ModelError>,
    ) {
        let Some(stem) = stem else { return };
        let text = text::response(reply, &self.scrub);
        let log = self.clone();
        self.note(files::aside(move || log.write_response(&stem, &text)).await);
    }

    fn note<T>(&self, written: io::Result<T>) -> Option<T> {
        if written.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        written.ok()
    }

    fn write_prompt(&self, text: &str) -> io::Result<String> {
        private::make_dir(&self.folder)?;
        let text = self.clean(text);
        let time = self.world.now().to_string().replace(':', "");
        let (stem, mut file) = loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            if next.is_multiple_of(SWEEP) {
                self.sweep()?;
            }
            let stem = format!("{time}_{next:05}_{}", self.name);
            match private::options()
                .write(true)
                .create_new(true)
                .open(self.folder.join(format!("{stem}_prompt.txt")))
            {
                Ok(file) => break (stem, file),
                // Another process writes to the same folder.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        file.write_all(text.as_bytes())?;
        Replace::new(&self.folder.join("latest_prompt.txt")).write(text.as_bytes())?;
        Ok(stem)
    }

    fn write_response(&self, stem: &str, text: &str) -> io::Result<()> {
        let text = self.clean(text);
        Replace::new(&self.folder.join(format!("{stem}_response.txt"))).write(text.as_bytes())?;
        Replace::new(&self.folder.join("latest_response.txt")).write(text.as_bytes())
    }

    /// Without secrets, and not too long.
    fn clean(&self, text: &str) -> String {
        let text = self.scrub.text(text);
        if text.len() <= self.bytes {
            return text.into_owned();
        }
        let cut = |from: usize| {
            (from..text.len())
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(text.len())
        };
        let (head, tail) = (cut(self.bytes / 2), cut(text.len() - self.bytes / 2));
        format!(
            "{}\n[.. {} bytes left out ..]\n{}",
            &text[..head],
            tail - head,
            &text[tail..]
        )
    }

    fn sweep(&self) -> io::Result<()> {
        for kind in ["_prompt.txt", "_response.txt"] {
            let ours =
                |name: &str| name.ends_with(kind) && name.starts_with(|c: char| c.is_ascii_digit());
            files::thin_out(&self.folder, self.calls, ours)?;
        }
        Ok(())
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for DebugLog<M> {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let (model, log) = (self.inner.clone(), self.log.clone());
        Ok(flow::deltas(move |out| async move {
            let stem = log.prompt(model.card(), &request).await;
            let reply = flow::forward(&*model, request, &out).await;
            log.response(stem, reply.as_ref()).await;
            reply.map(drop)
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let stem = self.log.prompt(self.inner.card(), &request).await;
        let reply = self.inner.complete(request).await;
        self.log.response(stem, reply.as_ref()).await;
        reply
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner.cost_bound(request)
    }
}

impl<M: Model> fmt::Debug for DebugLog<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = &self.log.folder;
        f.debug_struct("DebugLog")
            .field("model", &self.inner.card().id)
            .field("folder", folder)
            .finish_non_exhaustive()
    }
}
