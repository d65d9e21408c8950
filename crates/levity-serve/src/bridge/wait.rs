//! Waiting until files exist, by path or by glob.
//!
//! A wait ends when a file exists, at the latest after an hour. Changes by clients and tools are
//! noticed at once through broadcasts; changes by other programs are found by searching every 200
//! ms for a path, and every second for a glob. At most two searches run at once, so that waiting
//! clients do not block those that read files.

use std::sync::Arc;
use std::time::Duration;

use levity_builtin_tools::ListFiles;
use levity_sandbox::{EntryKind, PathError, Workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{Error, ErrorKind, Result};
use super::files::{run, work};
use super::host::Inner;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    path: Option<String>,
    glob: Option<String>,
    /// The timeout in seconds.
    timeout: Option<f64>,
}

/// The default and maximum timeout in seconds.
const DEFAULT_WAIT: f64 = 45.0;
const MAX_WAIT: f64 = 3600.0;
/// The interval of searches, because not only clients change files.
const SEARCH_INTERVAL: Duration = Duration::from_millis(200);
const GLOB_SEARCH_INTERVAL: Duration = Duration::from_millis(1000);

/// Waits for a file that exists or is created later.
pub(super) async fn wait(host: &Arc<Inner>, wanted: WaitParams) -> Result<Value> {
    let seconds = wanted.timeout.unwrap_or(DEFAULT_WAIT);
    if !(0.0..=MAX_WAIT).contains(&seconds) {
        return Err(Error::invalid(format!(
            "`timeout` must be 0 to {MAX_WAIT} seconds"
        )));
    }
    let target = Arc::new(match (wanted.path, wanted.glob) {
        (Some(path), None) => Target::Path(path),
        (None, Some(glob)) => Target::Glob(glob),
        _ => return Err(Error::invalid("pass either `path` or `glob`")),
    });
    let Ok(_slot) = host.waits.try_acquire() else {
        let message = "the maximum number of requests is waiting for files; try again when one of \
            them has ended";
        return Err(Error::new(ErrorKind::Full, message));
    };
    let found = watch(host, target.clone());
    match tokio::time::timeout(Duration::from_secs_f64(seconds), found).await {
        Ok(found) => Ok(json!({"found": found?, "timed_out": false})),
        // The file may have been created between the last search and the timeout.
        Err(_) => {
            let found = search(host, target).await?;
            Ok(json!({"timed_out": found.is_empty(), "found": found}))
        }
    }
}

/// The awaited file, or the glob of the awaited files.
enum Target {
    Path(String),
    Glob(String),
}

async fn watch(host: &Arc<Inner>, target: Arc<Target>) -> Result<Vec<String>> {
    let mut broadcasts = host.broadcasts.subscribe();
    let every = if matches!(*target, Target::Path(_)) {
        SEARCH_INTERVAL
    } else {
        GLOB_SEARCH_INTERVAL
    };
    let mut searches = tokio::time::interval(every);
    searches.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = searches.tick() => {}
            // Changes by clients and tools are known at once; missed notifications are a reason to
            // search as well.
            _ = broadcasts.recv() => {}
        }
        // One search covers all notifications up to now.
        broadcasts = broadcasts.resubscribe();
        let found = search(host, target.clone()).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
}

/// Returns the files that exist now; an empty list if there are none. A folder in place of the file
/// is an error, because waiting longer would not help.
async fn search(host: &Arc<Inner>, target: Arc<Target>) -> Result<Vec<String>> {
    let _permit = host
        .searches
        .acquire()
        .await
        .map_err(|_| Error::failed("the host is closing"))?;
    work(host, move |space| match &*target {
        Target::Path(path) => match space.metadata(path) {
            Ok(meta) if meta.kind() == EntryKind::File => Ok(vec![path.clone()]),
            Ok(_) => Err(PathError::NotAFile(path.clone()).into()),
            Err(PathError::NotFound(_) | PathError::NotADirectory(_)) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        },
        Target::Glob(glob) => matching(space, glob),
    })
    .await
}

/// Returns the files that match: those that are not ignored, all in the root folder, and all that
/// the glob names in full. Signal files are often ignored, hence the exceptions.
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
            .is_ok_and(|meta| meta.kind() == EntryKind::File)
    };
    let mut found: Vec<String> = exact_names(glob)
        .into_iter()
        .filter(|path| is_file(path))
        .map(str::to_owned)
        .collect();
    for listed in [listing(true)?, listing(false)?] {
        let entries = listed["entries"].as_array().cloned().unwrap_or_default();
        let files = entries.iter().filter(|entry| entry["kind"] == "file");
        found.extend(files.filter_map(|entry| entry["path"].as_str().map(str::to_owned)));
    }
    // Skips temporary signal files that are not renamed yet.
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

/// Returns the files that a glob such as `{signals/plan,FAILED_*}` names in full.
fn exact_names(glob: &str) -> Vec<&str> {
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
    async fn waits_for_globs_leave_file_threads_free() {
        let folder = tempfile::tempdir().unwrap();
        let host = BridgeHost::builder(Workspace::open(folder.path()).unwrap())
            .build()
            .unwrap();
        let threads = host.inner.files.available_permits();
        let searching = host.inner.searches.acquire_many(2).await.unwrap();
        let waits = (0..80).map(|_| {
            let wanted = WaitParams {
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
        drop(searching);
        for found in waits.await {
            assert_eq!(found.unwrap()["found"], json!(["a.txt"]));
        }
    }
}
