//! Files that are waited for.

use std::sync::Arc;
use std::time::Duration;

use levity_builtin_tools::ListFiles;
use levity_sandbox::{Kind, PathError, Workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{Error, ErrorKind, Result};
use super::files::{run, work};
use super::host::Inner;

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
        return Err(Error::invalid(format!(
            "`timeout` is in seconds, from 0 to {MAX_WAIT}"
        )));
    }
    let for_what = Arc::new(match (wanted.path, wanted.glob) {
        (Some(path), None) => Target::Path(path),
        (None, Some(glob)) => Target::Glob(glob),
        _ => return Err(Error::invalid("give either `path` or `glob`")),
    });
    let Ok(_place) = host.waits.try_acquire() else {
        let words =
            "as many wait for files as there may be; ask again when one of them has found its file";
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
    let every = if matches!(*target, Target::Path(_)) {
        LOOK
    } else {
        LOOK_ALL
    };
    let mut looks = tokio::time::interval(every);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            // What clients and tools change is known at once; to have missed some of it is a reason
            // to look, too.
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
    let _turn = host
        .looks
        .acquire()
        .await
        .map_err(|_| Error::failed("the host is closing"))?;
    work(host, move |space| match &*target {
        Target::Path(path) => match space.metadata(path) {
            Ok(meta) if meta.kind() == Kind::File => Ok(vec![path.clone()]),
            Ok(_) => Err(PathError::NotAFile(path.clone()).into()),
            Err(PathError::NotFound(_) | PathError::NotADirectory(_)) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        },
        Target::Glob(glob) => matching(space, glob),
    })
    .await
}

/// Files that match: all but ignored ones, and those of the workspace's own folder, and those that
/// are named in full, in any case, as signals often are ignored.
fn matching(space: &Workspace, glob: &str) -> Result<Vec<String>> {
    let listing = |recursive: bool| {
        let mut args =
            json!({"path": ".", "glob": glob, "recursive": recursive, "hidden": true, "max": 1000});
        args["ignored"] = (!recursive).into();
        run(&ListFiles::new(space.clone()), args)
    };
    let is_file = |path: &&str| {
        space
            .metadata(path)
            .is_ok_and(|meta| meta.kind() == Kind::File)
    };
    let mut found: Vec<String> = named(glob)
        .into_iter()
        .filter(|path| is_file(path))
        .map(str::to_owned)
        .collect();
    for listed in [listing(true)?, listing(false)?] {
        let entries = listed["entries"].as_array().cloned().unwrap_or_default();
        let files = entries.iter().filter(|entry| entry["kind"] == "file");
        found.extend(files.filter_map(|entry| entry["path"].as_str().map(str::to_owned)));
    }
    // Files that are about to get their name.
    found.retain(|path| {
        !path
            .rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with(".levity-"))
    });
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// What a glob such as `{signals/plan,FAILED_*}` names in full.
fn named(glob: &str) -> Vec<&str> {
    let within = glob
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let each = match within.filter(|within| !within.contains(['{', '}'])) {
        Some(within) => within.split(',').collect(),
        None => vec![glob],
    };
    let plain =
        |name: &&str| !name.is_empty() && !name.contains(['*', '?', '[', ']', '{', '}', '!', '\\']);
    each.into_iter().filter(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::BridgeHost;

    #[tokio::test]
    async fn waits_for_globs_leave_file_threads_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let host = BridgeHost::builder(Workspace::open(folder.path()).unwrap())
            .build()
            .unwrap();
        let threads = host.inner.files.available_permits();
        let looking = host.inner.looks.acquire_many(2).await.unwrap();
        let waits = (0..80).map(|_| {
            let wanted = Wait {
                path: None,
                glob: Some("*.txt".to_owned()),
                timeout: Some(60.0),
            };
            wait(&host.inner, wanted)
        });
        let mut waits = Box::pin(futures_util::future::join_all(waits));
        for _ in 0..100 {
            assert!(futures_util::poll!(&mut waits).is_pending());
            assert_eq!(host.inner.files.available_permits(), threads);
            tokio::task::yield_now().await;
        }
        std::fs::write(folder.path().join("a.txt"), "").unwrap();
        drop(looking);
        for found in waits.await {
            assert_eq!(found.unwrap()["found"], json!(["a.txt"]));
        }
    }
}
