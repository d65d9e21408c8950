//! Methods for the files of the workspace.
//!
//! File work runs on blocking threads, at most 16 at once. The workspace checks every path, so no
//! method here looks at paths itself. A read in lines uses the same tool as agents do, which also
//! handles other encodings. A write replaces the whole file, and other clients are notified.

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

/// Without `start_line` and `lines`, the whole file is read, up to the limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadParams {
    path: String,
    start_line: Option<u64>,
    lines: Option<u64>,
}

/// Reads a whole file, or some of its lines.
pub(super) async fn read(host: &Arc<Inner>, request: ReadParams) -> Result<Value> {
    let limit = host.limits.read;
    work(host, move |space| match request {
        ReadParams {
            path,
            start_line: None,
            lines: None,
        } => read_whole(space, &path, limit),
        ReadParams {
            path,
            start_line,
            lines,
        } => read_part(space, &path, start_line, lines, limit),
    })
    .await
}

/// The size is checked before the file is read, so that the error can name it.
fn read_whole(space: &Workspace, path: &str, limit: u64) -> Result<Value> {
    let file = space.open_file(path)?;
    let real = file.path().to_owned();
    let size = file.metadata().size();
    if size > limit {
        return Err(too_large(path, size, limit));
    }
    let bytes = space.read(path, limit)?;
    let size = bytes.len();
    match String::from_utf8(bytes) {
        Ok(content) if !content.contains('\0') => {
            Ok(json!({"path": real, "content": content, "bytes": size, "complete": true}))
        }
        // The file may be text in another encoding.
        _ => read_part(space, path, None, None, limit),
    }
}

fn too_large(path: &str, size: u64, limit: u64) -> Error {
    let message = format!(
        "`{path}` has {size} bytes, but at most {limit} are read at once; read a part with \
            `start_line` and `lines`, or start the host with a larger `--read-limit`"
    );
    Error::new(ErrorKind::TooLarge, message)
}

/// Reads some lines of a file, with the agents' tool.
fn read_part(
    space: &Workspace,
    path: &str,
    start: Option<u64>,
    lines: Option<u64>,
    limit: u64,
) -> Result<Value> {
    space.open_file(path)?;
    let tool = ReadFile::new(space.clone()).max_read(usize::try_from(limit).unwrap_or(usize::MAX));
    let mut args = json!({"path": path, "start_line": start.unwrap_or(1).max(1)});
    if let Some(lines) = lines {
        args["lines"] = lines.into();
    }
    let mut read = run(&tool, args)?;
    if read["binary"] == json!(true) {
        let message = format!(
            "`{path}` is not text, and only text can be read; use another tool for such \
                files"
        );
        return Err(Error::new(ErrorKind::Binary, message));
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
pub(super) struct WriteParams {
    path: String,
    content: String,
}

/// Writes a whole file, unless the request is cancelled before the write begins. The host's
/// operator and all other clients are notified.
pub(super) async fn write(
    host: &Arc<Inner>,
    client: u64,
    request: WriteParams,
    cancel: &CancelToken,
) -> Result<Value> {
    let (bytes, limit) = (request.content.len(), host.limits.write);
    if bytes > limit {
        let message = format!(
            "the content has {bytes} bytes, but the limit is {limit}; split it into several files"
        );
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let (inner, cancel) = (host.clone(), cancel.clone());
    work(host, move |space| {
        if cancel.is_cancelled() {
            return Err(Error::cancelled());
        }
        let options = WriteOptions::new().parents();
        let written = space.write_with(&request.path, request.content.as_bytes(), options)?;
        let (path, created) = (written.path, written.created);
        notify_change(
            &inner,
            Some(client),
            &path,
            "written",
            &json!({"client": client}),
        );
        let answer = json!({"path": path, "bytes": bytes, "created": created});
        inner.notify(&Notice::Wrote {
            client,
            path,
            bytes,
            created,
        });
        Ok(answer)
    })
    .await
}

/// Notifies clients of a change.
pub(super) fn notify_change(host: &Inner, from: Option<u64>, path: &str, kind: &str, by: &Value) {
    host.broadcast(
        from,
        "fs/changed",
        &json!({"path": path, "kind": kind, "by": by}),
    );
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
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

/// Lists files, without those that `.gitignore` names.
pub(super) async fn list(host: &Arc<Inner>, request: ListParams) -> Result<Value> {
    work(host, move |space| list_files(space, request)).await
}

/// A pattern implies a recursive list. At most 1,000 entries are returned unless the client sets
/// `max`.
fn list_files(space: &Workspace, request: ListParams) -> Result<Value> {
    let path = request.path.unwrap_or_else(|| ".".to_owned());
    space.dir(&path)?;
    let mut args = json!({
        "path": path, "recursive": request.recursive || request.pattern.is_some(),
        "hidden": request.hidden, "ignored": request.ignored,
        "max": request.max.unwrap_or(1000).max(1),
    });
    if let Some(pattern) = request.pattern {
        args["glob"] = pattern.into();
    }
    run(&ListFiles::new(space.clone()), args)
}

/// Calls a tool and returns its value. Blocking tools are ready at the first poll.
pub(super) fn run(tool: &dyn Tool, args: Value) -> Result<Value> {
    match tool.call(args, &ToolCx::detached()).now_or_never() {
        Some(Ok(output)) => Ok(output.value.unwrap_or_default()),
        Some(Err(error)) => Err(Error::invalid(error.to_string())),
        None => Err(Error::failed("the file operation did not finish")),
    }
}

/// Does file work on a blocking thread, within a limit.
pub(super) async fn work<T: Send + 'static>(
    host: &Arc<Inner>,
    work: impl FnOnce(&Workspace) -> Result<T> + Send + 'static,
) -> Result<T> {
    let closing = || Error::failed("the host is closing");
    let permit = host
        .files
        .clone()
        .acquire_owned()
        .await
        .map_err(|_| closing())?;
    let space = host.space.clone();
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&space)
    });
    done.await.map_err(|_| closing())?
}
