//! Reads and writes the rows of runs and their records.
//!
//! Every statement that changes a run names its owner and its fence, so a process that lost the run
//! changes nothing.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{JournalError, RunId};
use levity_system::{Owner, WithoutLocks};
use rusqlite::{OptionalExtension, params};

use super::super::log::{Rows, SnapshotRow};
use super::super::owner;
use super::super::readers::within;
use super::super::writer::Writer;
use super::JobRunner;

/// The owner of a run according to its row.
///
/// A run without an owner, or with an owner that no longer exists, is free.
struct Ownership {
    key: i64,
    owner: Option<i64>,
    fence: i64,
    /// The time at which the owner's lease expires; `None` if the owner no longer exists.
    expires: Option<i64>,
}

const SELECT_OWNERSHIP: &str = "SELECT key, owner, fence, (SELECT expires FROM owners WHERE \
    owners.id = \
    runs.owner), id \
                    FROM runs WHERE ";

fn ownership(row: &rusqlite::Row<'_>) -> rusqlite::Result<Ownership> {
    Ok(Ownership {
        key: row.get(0)?,
        owner: row.get(1)?,
        fence: row.get(2)?,
        expires: row.get(3)?,
    })
}

impl JobRunner {
    fn now(&self) -> i64 {
        i64::try_from(self.place.world.now().as_millis()).unwrap_or(i64::MAX)
    }

    /// Registers as an owner that others can see, and removes the owners that have ended.
    pub(super) fn register(&mut self, writer: &Arc<Writer>) -> Result<(), JournalError> {
        // On systems without locks, the lease decides.
        let owner = Owner::new(
            &self.owners,
            || self.place.world.random(),
            WithoutLocks::Alive,
        );
        let owner = owner.map_err(|error| self.place.failed_io("written", error))?;
        owner::note(owner.id(), writer);
        self.owner = Some(owner);
        let now = self.now();
        self.write(|connection| {
            let mut select = connection.prepare("SELECT id, expires FROM owners")?;
            let known = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
            for (id, expires) in known.collect::<rusqlite::Result<Vec<_>>>()? {
                if expires <= now || !Owner::is_alive(&self.owners, id) {
                    connection.execute("DELETE FROM owners WHERE id = ?1", [id])?;
                }
            }
            Ok(())
        })?;
        self.renew()
    }

    /// Returns `true` if the lease has to be renewed, even when the clock was set back.
    pub(super) fn is_due(&self) -> bool {
        let since = |renewed| {
            self.now()
                .checked_sub(renewed)
                .and_then(|since| u64::try_from(since).ok())
        };
        let fresh = self
            .renewed
            .and_then(since)
            .is_some_and(|since| Duration::from_millis(since) < self.place.lease / 4);
        self.owner.is_some() && !fresh
    }

    pub(super) fn renew(&mut self) -> Result<(), JournalError> {
        let Some(owner) = &self.owner else {
            return Ok(());
        };
        let now = self.now();
        let lease = i64::try_from(self.place.lease.as_millis()).unwrap_or(i64::MAX);
        let renew = "INSERT INTO owners (id, expires) VALUES (?1, ?2) \
                     ON CONFLICT (id) DO UPDATE SET expires = ?2";
        self.write(|connection| {
            connection
                .prepare_cached(renew)?
                .execute([owner.id(), now.saturating_add(lease)])
        })?;
        self.renewed = Some(now);
        Ok(())
    }

    /// Takes a run, or returns the owner that holds it.
    ///
    /// The fence increases with each opening, even by the same owner: a log that was replaced
    /// cannot write any more.
    pub(super) fn take(&mut self, run: &RunId) -> Result<Result<(i64, i64), i64>, JournalError> {
        let me = self.owner.as_ref().map(Owner::id);
        let found = self.write(|connection| {
            let mut select = connection.prepare_cached(&format!("{SELECT_OWNERSHIP} id = ?1"))?;
            select.query_row([run.as_str()], ownership).optional()
        })?;
        let (key, fence) = match found {
            None => self.write(|connection| {
                let mut insert =
                    connection.prepare_cached("INSERT INTO runs (id, owner) VALUES (?1, ?2)")?;
                Ok((insert.insert(params![run.as_str(), me])?, 1))
            })?,
            Some(found) => {
                if let Some(owner) = self.driver(&found)? {
                    return Ok(Err(owner));
                }
                // A new run has the fence 1, and openings alone never reach the largest number.
                let next = Some(found.fence).filter(|fence| *fence > 0);
                let fence = next.and_then(|fence| fence.checked_add(1)).ok_or_else(|| {
                    self.place.damaged(&format!(
                        "run `{run}`: its fence is {}, which no opening writes; restore the file \
                            from a copy, or remove the run",
                        found.fence
                    ))
                })?;
                self.write(|connection| {
                    let take = "UPDATE runs SET owner = ?2, fence = ?3 WHERE key = ?1";
                    connection
                        .prepare_cached(take)?
                        .execute(params![found.key, me, fence])
                })?;
                (found.key, fence)
            }
        };
        self.held.insert(key, fence);
        Ok(Ok((key, fence)))
    }

    /// Returns the owner that drives a run, if there is one: it lives, and its lease has not
    /// expired.
    fn driver(&self, found: &Ownership) -> Result<Option<i64>, JournalError> {
        let Some(owner) = found.owner else {
            return Ok(None);
        };
        if self.owner.as_ref().is_some_and(|me| me.id() == owner) {
            return Ok((self.held.get(&found.key) == Some(&found.fence)).then_some(owner));
        }
        if found.expires.is_none_or(|expires| expires <= self.now()) {
            return Ok(None);
        }
        if Owner::is_alive(&self.owners, owner) {
            return Ok(Some(owner));
        }
        self.write(|connection| {
            connection
                .prepare_cached("DELETE FROM owners WHERE id = ?1")?
                .execute([owner])
        })?;
        Ok(None)
    }

    /// Adds records, if the run is still held under this number.
    pub(super) fn append(
        &self,
        run: &RunId,
        (key, fence): (i64, i64),
        rows: &Rows,
        given: Option<i64>,
    ) -> Result<(), JournalError> {
        let me = self.owner.as_ref().map(Owner::id);
        let mine = self.write(|connection| {
            let update =
                "UPDATE runs SET updated = ?4, records = ?5 WHERE key = ?1 AND fence = ?2 AND \
                    owner = ?3";
            let values = params![key, fence, me, rows.updated, rows.count];
            connection.prepare_cached(update)?.execute(values)
        })?;
        if mine != 1 {
            return Err(JournalError::fenced(run));
        }
        self.write(|connection| {
            if let Some(shape) = &rows.shape {
                let update = "UPDATE runs SET opened = ?2, state = ?3, child = ?4, paused = ?5, \
                    wakes = ?6, \
                              waiting = ?7, status = ?8 WHERE key = ?1";
                connection.prepare_cached(update)?.execute(params![
                    key,
                    shape.opened,
                    shape.state,
                    shape.child,
                    shape.paused,
                    shape.wakes,
                    shape.waiting,
                    shape.status
                ])?;
            }
            let insert = "INSERT INTO records (run, seq, at, entry, crc) VALUES (?1, ?2, ?3, ?4, \
                ?5)";
            let mut insert = connection.prepare_cached(insert)?;
            for row in &rows.rows {
                insert.execute(params![key, row.seq, row.at, row.entry, row.crc])?;
            }
            if let Some(given) = given {
                let forget = "DELETE FROM inbox WHERE run = ?1 AND id <= ?2";
                connection.prepare_cached(forget)?.execute([key, given])?;
            }
            Ok(())
        })
    }

    /// Stores the last snapshot of a run, if the run is still held under this number.
    pub(super) fn keep_snapshot(
        &self,
        run: &RunId,
        (key, fence): (i64, i64),
        row: &SnapshotRow,
    ) -> Result<(), JournalError> {
        let me = self.owner.as_ref().map(Owner::id);
        let changed = self.write(|connection| {
            let keep = "INSERT OR REPLACE INTO snapshots (run, seq, state, crc) SELECT key, ?4, \
                ?5, ?6 FROM runs \
                        WHERE key = ?1 AND fence = ?2 AND owner = ?3";
            let values = params![key, fence, me, row.seq, row.state, row.crc];
            connection.prepare_cached(keep)?.execute(values)
        })?;
        if changed == 1 {
            Ok(())
        } else {
            Err(JournalError::fenced(run))
        }
    }

    /// Removes a log of the run from the living ones.
    pub(super) fn forget(&mut self, key: i64, fence: i64) {
        if self.held.get(&key) == Some(&fence) {
            self.held.remove(&key);
        }
        if self
            .watched
            .get(&key)
            .is_some_and(|watched| watched.fence == fence)
        {
            self.watched.remove(&key);
        }
    }

    /// Releases a run, if it is still held under this number. A run without records is deleted.
    pub(super) fn release(&self, key: i64, fence: i64) -> Result<(), JournalError> {
        let me = self.owner.as_ref().map(Owner::id);
        self.write(|connection| {
            let free = "UPDATE runs SET owner = NULL WHERE key = ?1 AND fence = ?2 AND owner = ?3";
            connection
                .prepare_cached(free)?
                .execute(params![key, fence, me])?;
            let clear =
                "DELETE FROM runs WHERE key = ?1 AND fence = ?2 AND owner IS NULL AND records = 0";
            connection
                .prepare_cached(clear)?
                .execute([key, fence])
                .map(drop)
        })
    }

    /// Removes a run and its children, or returns the owner that drives one of them.
    pub(super) fn remove(&self, run: &RunId) -> Result<Result<bool, (i64, RunId)>, JournalError> {
        let found = self.write(|connection| {
            let select = format!("{SELECT_OWNERSHIP} id = ?1 OR (id >= ?2 AND id < ?3)");
            let mut select = connection.prepare_cached(&select)?;
            let rows = select.query_map(within(run), |row| {
                Ok((ownership(row)?, row.get::<_, String>(4)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        for (found, id) in &found {
            if let Some(owner) = self.driver(found)? {
                return Ok(Err((owner, RunId::new(id.as_str()))));
            }
        }
        self.write(|connection| {
            let mut records = 0;
            let drop = |what: &str, key| connection.prepare_cached(what)?.execute([key]);
            for (Ownership { key, .. }, _) in &found {
                records += drop("DELETE FROM records WHERE run = ?1", *key)?;
                drop("DELETE FROM inbox WHERE run = ?1", *key)?;
                drop("DELETE FROM snapshots WHERE run = ?1", *key)?;
                drop("DELETE FROM runs WHERE key = ?1", *key)?;
            }
            Ok(Ok(records > 0))
        })
    }
}
