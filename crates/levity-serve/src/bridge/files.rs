//! The files of the workspace, for clients.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use levity_core::{Tool, ToolCx};
use levity_sandbox::{Kind, Workspace, WriteOptions};
use levity_tools::{ListFiles, ReadFile};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{Error, ErrorKind, Result};
use super::host::Inner;
use super::notice::Notice;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    path: String,
    start_line: Option<u64>,
    lines: Option<u64>,
}

/// Reads a file whole, or some lines of it.
pub(super) async fn read(host: &Arc<Inner>, wanted: Read) -> Result<Value> {
    let most = host.limits.read;
    work(host, move |space| match wanted {
        Read { path, start_line: None, lines: None } => whole(space, &path, most),
        Read { path, start_line, lines } => part(space, &path, start_line, lines, most),
    })
    .await
}

fn whole(space: &Workspace, path: &str, most: u64) -> Result<Value> {
    let file = space.open_file(path)?;
    let real = file.path().to_owned();
    let size = file.metadata().size();
    if size > most {
        return Err(too_large(path, size, most));
    }
    let bytes = space.read(path, most)?;
    let size = bytes.len();
    match String::from_utf8(bytes) {
        Ok(content) if !content.contains('\0') => {
            Ok(json!({"path": real, "content": content, "bytes": size, "complete": true}))
        }
        // It may be text in another encoding.
        _ => part(space, path, None, None, most),
    }
}

fn too_large(path: &str, size: u64, most: u64) -> Error {
    let words = format!(
        "`{path}` has {size} bytes, and at most {most} are read at once; ask for a part of it by `start_line` and `lines`, or start the host with a larger `--read-limit`"
    );
    Error::new(ErrorKind::TooLarge, words)
}

/// Some lines of a file, as the tool of agents reads them.
fn part(space: &Workspace, path: &str, start: Option<u64>, lines: Option<u64>, most: u64) -> Result<Value> {
    space.open_file(path)?;
    let tool = ReadFile::new(space.clone()).max_read(usize::try_from(most).unwrap_or(usize::MAX));
    let mut args = json!({"path": path, "start_line": start.unwrap_or(1).max(1)});
    if let Some(lines) = lines {
        args["lines"] = lines.into();
    }
    let mut read = run(&tool, args)?;
    if read["binary"] == json!(true) {
        let words = format!("`{path}` is not text, and only text is read; use what is made for such files");
        return Err(Error::new(ErrorKind::Binary, words));
    }
    let field = |name: &str, read: &mut Value| read.get_mut(name).map(Value::take).unwrap_or_default();
    Ok(json!({
        "path": field("path", &mut read), "content": field("content", &mut read),
        "bytes": field("bytes", &mut read), "complete": field("complete", &mut read),
        "first_line": field("first_line", &mut read), "last_line": field("last_line", &mut read),
        "total_lines": field("total_lines", &mut read),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    path: String,
    content: String,
}

/// Writes a file whole. Whoever sits at the host, and all other clients, are told.
pub(super) async fn write(host: &Arc<Inner>, client: u64, wanted: Write) -> Result<Value> {
    let (bytes, most) = (wanted.content.len(), host.limits.write);
    if bytes > most {
        let words = format!(
            "the content has {bytes} bytes, and at most {most} are written; write it in several files"
        );
        return Err(Error::new(ErrorKind::TooLarge, words));
    }
    let told = host.clone();
    work(host, move |space| {
        let options = WriteOptions::new().parents();
        let written = space.write_with(&wanted.path, wanted.content.as_bytes(), options)?;
        let (path, created) = (written.path, written.created);
        changed(&told, Some(client), &path, "written", &json!({"client": client}));
        let answer = json!({"path": path, "bytes": bytes, "created": created});
        told.tell(&Notice::Wrote { client, path, bytes, created });
        Ok(answer)
    })
    .await
}

/// Tells clients of a change.
pub(super) fn changed(host: &Inner, from: Option<u64>, path: &str, kind: &str, by: &Value) {
    host.spread(from, "fs/changed", &json!({"path": path, "kind": kind, "by": by}));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    path: Option<String>,
    #[serde(default)]
    recursive: bool,
    pattern: Option<String>,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    ignored: bool,
    max: Option<u64>,
}

/// Lists files but those that `.gitignore` names.
pub(super) async fn list(host: &Arc<Inner>, wanted: List) -> Result<Value> {
    work(host, move |space| listed(space, wanted)).await
}

fn listed(space: &Workspace, wanted: List) -> Result<Value> {
    let path = wanted.path.unwrap_or_else(|| ".".to_owned());
    space.dir(&path)?;
    let mut args = json!({
        "path": path, "recursive": wanted.recursive || wanted.pattern.is_some(),
        "hidden": wanted.hidden, "ignored": wanted.ignored, "max": wanted.max.unwrap_or(1000).max(1),
    });
    if let Some(pattern) = wanted.pattern {
        args["glob"] = pattern.into();
    }
    run(&ListFiles::new(space.clone()), args)
}

/// What a tool of agents gives as a value. Tools that block are ready when they are first asked.
fn run(tool: &dyn Tool, args: Value) -> Result<Value> {
    match tool.call(args, &ToolCx::detached()).now_or_never() {
        Some(Ok(output)) => Ok(output.value.unwrap_or_default()),
        Some(Err(error)) => Err(Error::invalid(error.to_string())),
        None => Err(Error::failed("the files could not be worked with")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    path: Option<String>,
    glob: Option<String>,
    /// In seconds.
    timeout: Option<f64>,
}

/// How long a wait is unless told otherwise, and at most, in seconds.
const DEFAULT_WAIT: f64 = 45.0;
const MAX_WAIT: f64 = 3600.0;
/// How often the files are looked at: others than clients change them, too.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_ALL: Duration = Duration::from_millis(1000);

/// Waits for a file that is there, or comes to be.
pub(super) async fn wait(host: &Arc<Inner>, wanted: Wait) -> Result<Value> {
    let seconds = wanted.timeout.unwrap_or(DEFAULT_WAIT);
    if !(0.0..=MAX_WAIT).contains(&seconds) {
        return Err(Error::invalid(format!("`timeout` is in seconds, from 0 to {MAX_WAIT}")));
    }
    let for_what = Arc::new(match (wanted.path, wanted.glob) {
        (Some(path), None) => Target::Path(path),
        (None, Some(glob)) => Target::Glob(glob),
        _ => return Err(Error::invalid("give either `path` or `glob`")),
    });
    let Ok(_place) = host.waits.try_acquire() else {
        let words = "as many wait for files as there may be; ask again when one of them has found its file";
        return Err(Error::new(ErrorKind::Full, words));
    };
    let found = watch(host, for_what.clone());
    match tokio::time::timeout(Duration::from_secs_f64(seconds), found).await {
        Ok(found) => Ok(json!({"found": found?, "timed_out": false})),
        // It may have come between the last look and the end.
        Err(_) => {
            let found = look(host, for_what).await?;
            Ok(json!({"timed_out": found.is_empty(), "found": found}))
        }
    }
}

enum Target {
    Path(String),
    Glob(String),
}

async fn watch(host: &Arc<Inner>, target: Arc<Target>) -> Result<Vec<String>> {
    let mut news = host.news.subscribe();
    let every = if matches!(*target, Target::Path(_)) { LOOK } else { LOOK_ALL };
    let mut looks = tokio::time::interval(every);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            // What clients and tools change is known at once; to have missed some of it is a reason to look, too.
            _ = news.recv() => {}
        }
        // One look is enough for all that was told by now.
        news = news.resubscribe();
        let found = look(host, target.clone()).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
}

async fn look(host: &Arc<Inner>, target: Arc<Target>) -> Result<Vec<String>> {
    work(host, move |space| match &*target {
        Target::Path(path) => match space.metadata(path) {
            Ok(meta) if meta.kind() == Kind::File => Ok(vec![path.clone()]),
            Ok(_) => Err(levity_sandbox::PathError::NotAFile(path.clone()).into()),
            Err(levity_sandbox::PathError::NotFound(_) | levity_sandbox::PathError::NotADirectory(_)) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        },
        Target::Glob(glob) => matching(space, glob),
    })
    .await
}

/// Files that match: all but ignored ones, and those of the workspace's own folder, and those that are named in full, in any case,
/// as signals often are ignored.
fn matching(space: &Workspace, glob: &str) -> Result<Vec<String>> {
    let listing = |recursive: bool| {
        let mut args =
            json!({"path": ".", "glob": glob, "recursive": recursive, "hidden": true, "max": 1000});
        args["ignored"] = (!recursive).into();
        run(&ListFiles::new(space.clone()), args)
    };
    let is_file = |path: &&str| space.metadata(path).is_ok_and(|meta| meta.kind() == Kind::File);
    let mut found: Vec<String> =
        named(glob).into_iter().filter(|path| is_file(path)).map(str::to_owned).collect();
    for listed in [listing(true)?, listing(false)?] {
        let entries = listed["entries"].as_array().cloned().unwrap_or_default();
        let files = entries.iter().filter(|entry| entry["kind"] == "file");
        found.extend(files.filter_map(|entry| entry["path"].as_str().map(str::to_owned)));
    }
    // Files that are about to get their name.
    found.retain(|path| !path.rsplit('/').next().is_some_and(|name| name.starts_with(".levity-")));
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// What a glob such as `{signals/plan,FAILED_*}` names in full.
fn named(glob: &str) -> Vec<&str> {
    let within = glob.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let each = match within.filter(|within| !within.contains(['{', '}'])) {
        Some(within) => within.split(',').collect(),
        None => vec![glob],
    };
    let plain = |name: &&str| !name.is_empty() && !name.contains(['*', '?', '[', ']', '{', '}', '!', '\\']);
    each.into_iter().filter(plain).collect()
}

/// Works with files on a thread of its own, a few at a time.
pub(super) async fn work<T: Send + 'static>(
    host: &Arc<Inner>,
    work: impl FnOnce(&Workspace) -> Result<T> + Send + 'static,
) -> Result<T> {
    let gone = || Error::failed("the host is closing");
    let place = host.files.clone().acquire_owned().await.map_err(|_| gone())?;
    let space = host.space.clone();
    let worked = tokio::task::spawn_blocking(move || {
        let _place = place;
        work(&space)
    });
    worked.await.map_err(|_| gone())?
}
