//! The layer [`DebugLog`]: prompts and replies as text files, for people.
//!
//! A log must not change the run: a disk error is counted and otherwise ignored, and the reply of a
//! call whose prompt could not be written is not written either. Names start with a timestamp and a
//! number, so an alphabetical listing is chronological and the oldest files can be found by name.

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

/// Writes every prompt and every reply to a folder as readable text.
///
/// Each call has two files, `<time>_<number>_<name>_prompt.txt` and `.._response.txt`. Copies of
/// the newest are in `latest_prompt.txt` and `latest_response.txt`. The folder retains the files of
/// about 1,000 calls, each up to 1 MiB. A [`Scrub`] masks secrets. A disk error does not fail the
/// call; [`failures`](Self::failures) counts such errors.
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
///
/// The files contain whole conversations. They are private to their owner on Unix, but a scrubber
/// recognises only known forms of secrets, so do not share a folder unread.
pub struct DebugLog<M> {
    inner: Arc<M>,
    log: Arc<Log>,
}

/// The settings and counters. Setters copy it on write, so a clone of the layer in use is
/// unaffected; the counters are shared by all copies.
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
    /// The default number of calls whose files are retained: about 1,000.
    pub const DEFAULT_CALLS: usize = 1_000;
    /// The default maximum size of a file: 1 MiB.
    pub const DEFAULT_BYTES: usize = 1 << 20;

    /// Wraps a model; the folder is created when needed.
    ///
    /// No file is written before the first call.
    pub fn new(model: M, folder: impl Into<PathBuf>) -> Self {
        let log = Log {
            folder: folder.into(),
            name: file_name_part(&model.card().id),
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

    /// Sets the name that appears in file names, such as the agent's; the model's id by default.
    /// The [label](levity_core::Options::label) of a request replaces it; levity labels the calls
    /// of agents in teams and swarms with the agent and its step.
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let model = ScriptedModel::new().reply("yes").debug_log(folder.path()).name("the planner");
    /// model.complete(Request::new()).await?;
    /// let names: Vec<String> = std::fs::read_dir(folder.path())?
    ///     .map(|entry| entry.unwrap().file_name().into_string().unwrap())
    ///     .collect();
    /// assert!(names.iter().any(|name| name.ends_with("_the-planner_prompt.txt")), "{names:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Characters other than ASCII letters, digits, `-` and `.` become `-`, and the name is cut
    /// after 60.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with(|log| log.name = file_name_part(name))
    }

    /// Sets the number of calls whose files are retained.
    ///
    /// At least one call is retained. A sweep after every 16th call removes older files, so the
    /// folder may hold a few more for a while.
    #[must_use]
    pub fn calls(self, count: usize) -> Self {
        self.with(|log| log.calls = count.max(1))
    }

    /// Sets the maximum size of a file; a longer text loses its middle.
    ///
    /// The text keeps its first and last half of the limit, with a line about the omitted bytes
    /// between.
    #[must_use]
    pub fn bytes(self, bytes: usize) -> Self {
        self.with(|log| log.bytes = bytes)
    }

    /// Sets the scrubber that masks secrets.
    #[must_use]
    pub fn scrub(self, scrub: Scrub) -> Self {
        self.with(|log| log.scrub = scrub)
    }

    /// Sets the source of time; the system clock by default.
    #[must_use]
    pub fn with_world(self, world: Arc<dyn World>) -> Self {
        self.with(|log| log.world = world)
    }

    /// Returns the number of files that could not be written.
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = tempfile::NamedTempFile::new()?; // a file is not a folder
    /// let model = ScriptedModel::new().reply("yes").debug_log(file.path());
    /// model.complete(Request::new()).await?; // the call itself succeeds
    /// assert_eq!(model.failures(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn failures(&self) -> u64 {
        self.log.failed.load(Ordering::Relaxed)
    }

    fn with(mut self, change: impl FnOnce(&mut Log)) -> Self {
        change(Arc::make_mut(&mut self.log));
        self
    }
}

/// Returns a name that is safe within a file name.
///
/// The result has no separators and no underscores, which separate the parts of a file name.
fn file_name_part(name: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || "-.".contains(c) {
            c
        } else {
            '-'
        }
    };
    name.chars().map(keep).take(60).collect()
}

/// The number of calls between two removals of old files.
const SWEEP: u64 = 16;

impl Log {
    /// Writes a prompt and returns the name stem for the reply's file.
    async fn prompt(self: &Arc<Self>, card: &ModelCard, request: &Request) -> Option<String> {
        let text = text::prompt(card, request, &self.scrub);
        let label = request.options.label.as_deref();
        let name = label.map_or_else(|| self.name.clone(), file_name_part);
        let log = self.clone();
        self.count_failure(files::run_blocking(move || log.write_prompt(&name, &text)).await)
    }

    /// Writes the reply or the error of a call; skips it if the prompt was not written.
    async fn response(
        self: &Arc<Self>,
        stem: Option<String>,
        reply: Result<&Response, &ModelError>,
    ) {
        let Some(stem) = stem else { return };
        let text = text::response(reply, &self.scrub);
        let log = self.clone();
        self.count_failure(files::run_blocking(move || log.write_response(&stem, &text)).await);
    }

    fn count_failure<T>(&self, written: io::Result<T>) -> Option<T> {
        if written.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        written.ok()
    }

    /// Creates a new file and returns the stem of its name, such as
    /// `2026-07-28T101500.000Z_00012_gpt-5`.
    /// A name that another process has taken leads to the next number.
    fn write_prompt(&self, name: &str, text: &str) -> io::Result<String> {
        private::make_dir(&self.folder)?;
        let text = self.scrub_and_trim(text);
        let time = self.world.now().to_string().replace(':', "");
        let (stem, mut file) = loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            if next.is_multiple_of(SWEEP) {
                self.sweep()?;
            }
            let stem = format!("{time}_{next:05}_{name}");
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

    /// Writes the file of the reply, and its copy as the latest one.
    fn write_response(&self, stem: &str, text: &str) -> io::Result<()> {
        let text = self.scrub_and_trim(text);
        Replace::new(&self.folder.join(format!("{stem}_response.txt"))).write(text.as_bytes())?;
        Replace::new(&self.folder.join("latest_response.txt")).write(text.as_bytes())
    }

    /// Masks secrets and limits the length.
    fn scrub_and_trim(&self, text: &str) -> String {
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

    /// Prompts and replies are counted separately, so a call without a reply does not shift the
    /// others. The copies named `latest_..` do not begin with a digit and stay.
    fn sweep(&self) -> io::Result<()> {
        for kind in ["_prompt.txt", "_response.txt"] {
            let is_log_file =
                |name: &str| name.ends_with(kind) && name.starts_with(|c: char| c.is_ascii_digit());
            files::remove_oldest(&self.folder, self.calls, is_log_file)?;
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
