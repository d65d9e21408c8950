//! The files of the workspace, for clients.

use std::sync::Arc;

use futures_util::FutureExt as _;
use levity_builtin_tools::{ListFiles, ReadFile};
use levity_core::{CancelToken, Tool, ToolCx};
use levity_sandbox::{Workspace, WriteOptions};
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
        Read {
            path,
            start_line: None,
            lines: None,
        } => whole(space, &path, most),
        Read {
            path,
            start_line,
            lines,
        } => part(space, &path, start_line, lines, most),
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
        "`{path}` has {size} bytes, and at most {most} are read at once; ask for a part of it by \
            `start_line` and `lines`, or start the host with a larger `--read-limit`"
    );
    Error::new(ErrorKind::TooLarge, words)
}

/// Some lines of a file, as the tool of agents reads them.
fn part(
    space: &Workspace,
    path: &str,
    start: Option<u64>,
    lines: Option<u64>,
    most: u64,
) -> Result<Value> {
    space.open_file(path)?;
    let tool = ReadFile::new(space.clone()).max_read(usize::try_from(most).unwrap_or(usize::MAX));
    let mut args = json!({"path": path, "start_line": start.unwrap_or(1).max(1)});
    if let Some(lines) = lines {
        args["lines"] = lines.into();
    }
    let mut read = run(&tool, args)?;
    if read["binary"] == json!(true) {
        let words =
            format!("`{path}` is not text, and only text is read; use what is made for such files");
        return Err(Error::new(ErrorKind::Binary, words));
    }
    let field =
        |name: &str, read: &mut Value| read.get_mut(name).map(Value::take).unwrap_or_default();
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

/// Writes a file whole, unless that is taken back before it begins. Whoever sits at the host, and
/// all other clients, are told.
pub(super) async fn write(
    host: &Arc<Inner>,
    client: u64,
    wanted: Write,
    cancel: &CancelToken,
) -> Result<Value> {
    let (bytes, most) = (wanted.content.len(), host.limits.write);
    if bytes > most {
        let words = format!(
            "the content has {bytes} bytes, and at most {most} are written; write it in several \
                files"
        );
        return Err(Error::new(ErrorKind::TooLarge, words));
    }
    let (told, cancel) = (host.clone(), cancel.clone());
    work(host, move |space| {
        if cancel.is_cancelled() {
            return Err(Error::taken_back());
        }
        let options = WriteOptions::new().parents();
        let written = space.write_with(&wanted.path, wanted.content.as_bytes(), options)?;
        let (path, created) = (written.path, written.created);
        changed(
            &told,
            Some(client),
            &path,
            "written",
            &json!({"client": client}),
        );
        let answer = json!({"path": path, "bytes": bytes, "created": created});
        told.tell(&Notice::Wrote {
            client,
            path,
            bytes,
            created,
        });
        Ok(answer)
    })
    .await
}

/// Tells clients of a change.
pub(super) fn changed(host: &Inner, from: Option<u64>, path: &str, kind: &str, by: &Value) {
    host.spread(
        from,
        "fs/changed",
        &json!({"path": path, "kind": kind, "by": by}),
    );
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
pub(super) fn run(tool: &dyn Tool, args: Value) -> Result<Value> {
    match tool.call(args, &ToolCx::detached()).now_or_never() {
        Some(Ok(output)) => Ok(output.value.unwrap_or_default()),
        Some(Err(error)) => Err(Error::invalid(error.to_string())),
        None => Err(Error::failed("the files could not be worked with")),
    }
}

/// Works with files on a thread of its own, a few at a time.
pub(super) async fn work<T: Send + 'static>(
    host: &Arc<Inner>,
    work: impl FnOnce(&Workspace) -> Result<T> + Send + 'static,
) -> Result<T> {
    let gone = || Error::failed("the host is closing");
    let place = host
        .files
        .clone()
        .acquire_owned()
        .await
        .map_err(|_| gone())?;
    let space = host.space.clone();
    let worked = tokio::task::spawn_blocking(move || {
        let _place = place;
        work(&space)
    });
    worked.await.map_err(|_| gone())?
}
