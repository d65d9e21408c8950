//! What is worked on by the commander.

use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};

use levity_core::text::is_blank;
use levity_core::{Ending, Event, EventKind, RunId, Timestamp, Wanted};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::book::{Note, Stage, is_task_id};
use super::error::{Error, ErrorKind, Result};
use super::host::Inner;
use super::methods::Done;
use super::notice::Notice;
use super::{files, signal};
use crate::runs::{LiveRun, NewRun, RunOutcome, RunStatus, Runs};
use crate::shown::ShownArgs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dispatch {
    prompt: String,
    /// The signal file when there is an answer.
    done: Option<String>,
    /// The task's id, made by the client: to ask again with it begins nothing twice.
    task: Option<String>,
    /// Whether the client reads the task's events.
    events: Option<bool>,
}

pub(super) fn runs(host: &Inner) -> Result<&Runs> {
    host.runs.get().ok_or_else(|| {
        let words =
            "the host is still loading its agent; files can be worked with, tasks in a moment: try \
                again";
        Error::new(ErrorKind::NotReady, words)
    })
}

/// Begins a task, or finds the one that was begun with this id. It is in its journal when this
/// returns.
pub(super) async fn dispatch(host: &Arc<Inner>, client: u64, wanted: Dispatch) -> Result<Done> {
    runs(host)?;
    let follows = wanted.events.unwrap_or(true);
    // It goes on when the client leaves meanwhile.
    let (send, begun) = oneshot::channel();
    let begins = host.clone();
    host.spawn(async move {
        let _ = send.send(begin(&begins, client, wanted).await);
    });
    let (note, run, known) = begun
        .await
        .map_err(|_| Error::failed("the host is closing"))??;
    let signal =
        (!host.space.is_read_only()).then_some(json!({"done": note.done, "failed": note.failed}));
    let value = json!({"task": note.task, "known": known, "signal": signal});
    let follow = run
        .filter(|_| follows)
        .map(|run| (note.task, run.events(None)));
    Ok(Done { value, follow })
}

type Begun = (Note, Option<Arc<LiveRun>>, bool);

async fn begin(host: &Arc<Inner>, client: u64, wanted: Dispatch) -> Result<Begun> {
    let runs = runs(host)?;
    let most = host.limits.prompt;
    if wanted.prompt.len() > most {
        let words = format!(
            "the prompt has more than {most} bytes; write it to a file, and name that in the prompt"
        );
        return Err(Error::new(ErrorKind::TooLarge, words));
    }
    if is_blank(&wanted.prompt) {
        return Err(Error::invalid(
            "the prompt is empty; say what is to be done",
        ));
    }
    let booking = host.booking.lock().await;
    let task = task_id(runs, wanted.task)?;
    let id = RunId::new(task.as_str());
    if let Some(note) = host.book.get(&task)
        && let Some(run) = known(runs, &note, &id, &wanted.prompt).await?
    {
        drop(booking);
        if let Some(run) = &run {
            run.opened().await?;
        }
        return Ok((note, run, true));
    }
    runs.room()?;
    let note = book(host, runs, task, wanted.done, &wanted.prompt).await?;
    let started = runs.start(NewRun::new(wanted.prompt.as_str()).id(id));
    drop(booking);
    let run = match started {
        Ok(run) => run.opened().await.map(|()| run),
        Err(error) => Err(error),
    };
    let run = run.map_err(|error| {
        host.book.forget(&note.task);
        Error::from(error)
    })?;
    let prompt = wanted.prompt.chars().take(80).collect();
    host.tell(&Notice::Dispatched {
        client,
        task: note.task.clone(),
        prompt,
    });
    attend(host, note.clone(), run.clone());
    Ok((note, Some(run), false))
}

fn task_id(runs: &Runs, wished: Option<String>) -> Result<String> {
    let Some(task) = wished else {
        return Ok(format!("{:016x}", runs.runtime().world().random()));
    };
    match is_task_id(&task) {
        true => Ok(task),
        false => Err(Error::invalid(
            "`task` is an id of up to 64 letters, digits, `-` and `_`",
        )),
    }
}

/// The run of a task that was begun before; nothing when it never was in the journal.
async fn known(
    runs: &Runs,
    note: &Note,
    id: &RunId,
    prompt: &str,
) -> Result<Option<Option<Arc<LiveRun>>>> {
    if note.prompt != digest(prompt) {
        let words = format!("task `{}` is another one; choose another id", note.task);
        return Err(Error::new(ErrorKind::Exists, words));
    }
    if let Some(run) = runs.get(id) {
        return Ok(Some(Some(run)));
    }
    match runs.ending(id).await {
        Ok(_) => Ok(Some(None)),
        Err(crate::Error::NoRun(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Notes the task before it begins, so that its signal file is known whenever the process is
/// killed.
async fn book(
    host: &Arc<Inner>,
    runs: &Runs,
    task: String,
    done: Option<String>,
    prompt: &str,
) -> Result<Note> {
    let (made, prompt) = (runs.runtime().world().now(), digest(prompt));
    let (own, failed) = (
        signal::own_name(&task, true),
        signal::own_name(&task, false),
    );
    let noting = host.clone();
    files::work(host, move |space| {
        let done = match done {
            Some(done) => signal::checked(space, &done)?,
            None => own.clone(),
        };
        signal::free(space, &own)?;
        signal::free(space, &failed)?;
        // Whoever waits for this task must not take the file of another one for its own, or a
        // failure for the end.
        if done == failed || noting.book.promises(&task, &[&done, &own, &failed]) {
            let words = format!(
                "`{done}` is what another signal file is to be called; name another `done`"
            );
            return Err(Error::new(ErrorKind::Exists, words));
        }
        let note = Note {
            task,
            prompt,
            made,
            done,
            failed,
            stage: Stage::Open,
        };
        let failed = |error| Error::failed(format!("the task cannot be noted: {error}"));
        noting.book.keep(&note).map_err(failed)?;
        Ok(note)
    })
    .await
}

fn digest(prompt: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, prompt.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Makes the end of a run seen when it comes.
fn attend(host: &Arc<Inner>, note: Note, run: Arc<LiveRun>) {
    let weak = Arc::downgrade(host);
    host.spawn(async move {
        let outcome = run.outcome().await;
        let Some(host) = weak.upgrade() else { return };
        match outcome {
            RunOutcome::Ended(ending) => end(&host, note, ending, run.standing().updated).await,
            RunOutcome::Stopped(cause) => host.tell(&Notice::Problem(format!(
                "task {} stopped and goes on when the host is started again: {cause}",
                note.task
            ))),
        }
        go_on(&host).await;
    });
}

/// Goes on with tasks for which there was no room before, as far as there is some now.
pub(super) async fn go_on(host: &Arc<Inner>) {
    // While they are still being looked through, whoever does that comes here at the end.
    let Some(runs) = host.runs.get() else { return };
    let left = || host.left.lock().unwrap_or_else(PoisonError::into_inner);
    let most = left().len();
    for _ in 0..most {
        let next = if runs.room().is_ok() {
            left().pop_front()
        } else {
            None
        };
        let Some(note) = next else { return };
        recover(host, runs, note).await;
    }
}

/// Makes the end of a task seen.
async fn end(host: &Arc<Inner>, note: Note, ending: Arc<Ending>, at: Option<Timestamp>) {
    let (noting, ended, task) = (host.clone(), ending.clone(), note.task.clone());
    let at = at.unwrap_or_default();
    let signalled = files::work(host, move |space| {
        signal::signal(space, &noting.book, note, &ended, at)
    })
    .await;
    told(host, task, ending.status.to_string(), signalled);
}

fn told(host: &Inner, task: String, status: String, signalled: Result<Note>) {
    match signalled {
        Ok(Note {
            stage: Stage::Signalled { path, .. },
            ..
        }) => {
            if let Some(path) = &path {
                files::changed(host, None, path, "written", &json!({"task": task}));
            }
            host.tell(&Notice::Ended {
                task,
                status,
                signal: path,
            });
        }
        Ok(_) => {}
        Err(error) => host.tell(&Notice::Problem(format!(
            "the signal file of task {task} could not be written, and is when the host is started \
                again: {error}"
        ))),
    }
}

/// Goes on with a task that an earlier process left, or makes its end seen.
pub(super) async fn recover(host: &Arc<Inner>, runs: &Runs, note: Note) {
    let (id, task) = (RunId::new(note.task.as_str()), note.task.clone());
    if let Stage::Signalling { good, .. } = note.stage {
        let noting = host.clone();
        let named = files::work(host, move |space| signal::name(space, &noting.book, note)).await;
        return told(
            host,
            task,
            (if good { "complete" } else { "failed" }).to_owned(),
            named,
        );
    }
    let problem = match runs.standing(&id).await {
        Ok(RunStatus {
            ending: Some(ending),
            updated,
            ..
        }) => return end(host, note, ending, updated).await,
        Ok(_) => match runs.resume(&id).await {
            Ok(run) => {
                host.tell(&Notice::Resumed { task });
                return attend(host, note, run);
            }
            Err(crate::Error::Full { .. }) => {
                return host
                    .left
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_back(note);
            }
            Err(error) => error,
        },
        // It was never begun, and nobody was told that it was.
        Err(crate::Error::NoRun(_)) => return host.book.forget(&task),
        Err(error) => error,
    };
    host.tell(&Notice::Problem(format!(
        "task {task} cannot be gone on with: {}",
        Error::from(problem)
    )));
}

/// Passes on what clients, and whoever sits at the host, should know of what happens in a run.
pub(super) fn heard(host: &Inner, event: &Event) {
    let run = event.run.as_str();
    let task = run.split_once('.').map_or(run, |(task, _)| task);
    match &event.kind {
        EventKind::FileChanged { change, .. } => {
            files::changed(
                host,
                None,
                &change.path,
                &change.kind.to_string(),
                &json!({"task": task}),
            );
        }
        EventKind::Asked(ask) => {
            let question = match ask.wanted {
                Wanted::Answer => format!("`{}`: {}", ask.call.name, ask.reason),
                _ => format!(
                    "`{}` {}: {}",
                    ask.call.name,
                    ShownArgs::new(&ask.call.args).text,
                    ask.reason
                ),
            };
            host.tell(&Notice::Asks {
                task: task.to_owned(),
                question,
            });
        }
        _ => {}
    }
}
