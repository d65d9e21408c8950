//! Stores and delivers the posts of others for runs.
//!
//! A post is stored before it is confirmed and deleted by the append that records its effect.
//! Between the two, each new driver of the run receives it again. Posts of other processes are
//! found by polling every 150 ms: `PRAGMA data_version` is cheap and changes whenever another
//! connection commits.

use std::sync::Arc;

use levity_core::{JournalError, JournalErrorKind, RunId, RunRequest};
use rusqlite::OptionalExtension;

use super::super::mailbox::Mailbox;
use super::super::writer::Reply;
use super::{Answer, JobRunner, WatchedRun};

/// The maximum number of undelivered posts of a run.
const MAX_POSTS: i64 = 1_000;

impl JobRunner {
    /// Stores a post for a run; returns the run's key.
    pub(super) fn post(&self, run: &RunId, post: &str) -> Result<i64, JournalError> {
        let refused = |what: &str| {
            JournalError::new(JournalErrorKind::Refused, format!("run `{run}` {what}"))
        };
        let found = self.write(|connection| {
            let select = "SELECT key, (SELECT count(*) FROM inbox WHERE run = key), status IS NOT \
                NULL \
                          FROM runs WHERE id = ?1 AND records > 0";
            let mut select = connection.prepare_cached(select)?;
            select
                .query_row([run.as_str()], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .optional()
        })?;
        let (key, waiting, ended): (i64, i64, bool) =
            found.ok_or_else(|| refused("is not in this journal"))?;
        if ended {
            return Err(refused("has ended and accepts no posts"));
        }
        if waiting >= MAX_POSTS {
            return Err(refused(&format!(
                "has {MAX_POSTS} undelivered posts; resume it, and post again"
            )));
        }
        self.write(|connection| {
            let insert = "INSERT INTO inbox (run, post) VALUES (?1, ?2)";
            connection
                .prepare_cached(insert)?
                .execute(rusqlite::params![key, post])
        })?;
        Ok(key)
    }

    /// Delivers the posts of a run if it is driven here, and confirms the post.
    pub(super) fn posted(&mut self, key: i64, reply: Reply<()>, failed: Option<&JournalError>) {
        if failed.is_none() {
            self.deliver(key);
        }
        // The receiver may be gone.
        let _ = reply.send(failed.map_or(Ok(()), |error| Err(error.clone())));
    }

    /// Delivers the posts of a run from now on, unless a newer log of it exists.
    pub(super) fn watch(
        &mut self,
        run: &RunId,
        (key, fence): (i64, i64),
        mailbox: Arc<Mailbox>,
    ) -> Answer {
        if self.held.get(&key) != Some(&fence) {
            mailbox.put([Err(JournalError::fenced(run))]);
            return Box::new(|_, _| {});
        }
        self.watched.insert(
            key,
            WatchedRun {
                fence,
                mailbox,
                last: 0,
            },
        );
        Box::new(move |job_runner, _| job_runner.deliver(key))
    }

    /// Delivers the posts that other connections have stored since the last check.
    pub(super) fn poll_posts(&mut self) {
        let version = self.write(|connection| {
            connection
                .prepare_cached("PRAGMA data_version")?
                .query_row([], |row| row.get(0))
        });
        // A file that cannot be read now is checked again later.
        let Ok(version) = version else { return };
        if self.version == Some(version) {
            return;
        }
        let runs = self.write(|connection| {
            let mut select = connection.prepare_cached("SELECT DISTINCT run FROM inbox")?;
            select
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<i64>>>()
        });
        let Ok(runs) = runs else { return };
        self.version = Some(version);
        runs.into_iter().for_each(|key| self.deliver(key));
    }

    /// Delivers the posts of a run, if it watches for them.
    fn deliver(&mut self, key: i64) {
        let Some(watched) = self.watched.get(&key) else {
            return;
        };
        let last = watched.last;
        let posts = self.write(|connection| {
            let select = "SELECT id, post FROM inbox WHERE run = ?1 AND id > ?2 ORDER BY id";
            let mut select = connection.prepare_cached(select)?;
            let rows = select.query_map([key, last], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(i64, String)>>>()
        });
        let Ok(posts) = posts else {
            self.version = None;
            return;
        };
        let Some((newest, _)) = posts.last() else {
            return;
        };
        // The reason may contain a part of the post.
        let damaged = |id| self.place.damaged(&format!("post {id} is not valid"));
        let read = |(id, post): &(i64, String)| match serde_json::from_str::<RunRequest>(post) {
            Ok(post) => Ok((*id, post)),
            Err(_) => Err(damaged(*id)),
        };
        watched.mailbox.put(posts.iter().map(read));
        let newest = *newest;
        if let Some(watched) = self.watched.get_mut(&key) {
            watched.last = newest;
        }
    }
}
