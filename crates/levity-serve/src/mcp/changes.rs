use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::quota::Permit;

/// Tells clients that something has changed; they look again. Cheap to clone.
///
/// Changes that come faster than a client takes them are told once.
///
/// ```
/// use levity_serve::mcp::{Changes, McpServer};
///
/// # fn main() -> levity_serve::Result<()> {
/// // Made first, it can be handed to whoever knows of changes before there is a server.
/// let changes = Changes::new();
/// let server = McpServer::builder("files", "1.0").changes(changes.clone()).build()?;
/// changes.resource("file:///notes.md");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Changes(Arc<Hub>);

#[derive(Default)]
struct Hub {
    ears: Mutex<Vec<Weak<Ear>>>,
}

/// One who listens.
pub(super) struct Ear {
    heard: Mutex<Heard>,
    wake: Notify,
    _place: Permit,
}

/// What has changed since one last looked, and what they want to know of.
#[derive(Debug, Default)]
struct Heard {
    news: News,
    uris: BTreeSet<String>,
}

/// What has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    /// At most as many as were subscribed to.
    pub(super) updated: BTreeSet<String>,
}

impl Changes {
    /// Nobody listens yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// There are other tools.
    pub fn tools(&self) {
        self.tell(|heard| heard.news.tools = true);
    }

    /// There are other prompts.
    pub fn prompts(&self) {
        self.tell(|heard| heard.news.prompts = true);
    }

    /// There are other resources.
    pub fn resources(&self) {
        self.tell(|heard| heard.news.resources = true);
    }

    /// What stands at `uri` is another.
    pub fn resource(&self, uri: &str) {
        self.tell(|heard| {
            if heard.uris.contains(uri) {
                heard.news.updated.insert(uri.to_owned());
            }
        });
    }

    /// One more who listens, and keeps this place while it does.
    pub(super) fn listen(&self, place: Permit) -> Arc<Ear> {
        let mut ears = self.ears();
        ears.retain(|ear| ear.strong_count() > 0);
        let ear = Arc::new(Ear {
            heard: Mutex::default(),
            wake: Notify::new(),
            _place: place,
        });
        ears.push(Arc::downgrade(&ear));
        ear
    }

    fn tell(&self, change: impl Fn(&mut Heard)) {
        let ears: Vec<Arc<Ear>> = self.ears().iter().filter_map(Weak::upgrade).collect();
        for ear in ears {
            change(&mut ear.heard());
            ear.wake.notify_one();
        }
    }

    fn ears(&self) -> MutexGuard<'_, Vec<Weak<Ear>>> {
        self.0.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ear {
    /// Waits until something has changed, perhaps nothing that this one wants to know of.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// What has changed since the last look.
    pub(super) fn news(&self) -> News {
        std::mem::take(&mut self.heard().news)
    }

    /// Also tells of what stands at `uri`, unless that would be more than `most`.
    pub(super) fn subscribe(&self, uri: String, most: usize) -> bool {
        let mut heard = self.heard();
        let fits = heard.uris.contains(&uri) || heard.uris.len() < most;
        if fits {
            heard.uris.insert(uri);
        }
        fits
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        let mut heard = self.heard();
        heard.uris.remove(uri);
        heard.news.updated.remove(uri);
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes({})", self.ears().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Caller;
    use crate::quota::{Quota, TokenShare};

    #[test]
    fn one_hears_what_one_asked_for_once() {
        let changes = Changes::new();
        let places = Quota::new(2, TokenShare::DEFAULT);
        let place = || places.take(&Caller::owner());
        let ear = changes.listen(place().unwrap());
        let other = changes.listen(place().unwrap());
        assert!(place().is_err(), "no more than two");
        assert!(
            ear.subscribe("a".into(), 1)
                && ear.subscribe("a".into(), 1)
                && !ear.subscribe("b".into(), 1)
        );
        for _ in 0..1000 {
            changes.tools();
            changes.resource("a");
            changes.resource("b");
        }
        let news = ear.news();
        assert!(news.tools && !news.prompts && news.updated == BTreeSet::from(["a".to_owned()]));
        assert_eq!(ear.news(), News::default());
        assert!(other.news().updated.is_empty());
        drop(other);
        assert!(place().is_ok(), "who left makes room");
    }
}
