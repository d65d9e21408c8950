//! Word of changes.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::time::Duration;

use levity_rpc::mcp::{
    ClientRequest, SubscriptionFilter, SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};

use super::{Shared, lock};
use crate::client::{Client, Era, Patience};

/// A stream of changes that ends is opened again after this time, and longer each time when it ends
/// at once.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// As good as for ever.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

impl Shared {
    pub(super) fn subscriptions(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.subscribed)
    }

    /// Listens for changes as long as the connection lives. The older protocol sends them unasked.
    pub(super) async fn listen(&self, client: &Client) {
        if client.era() == Era::Legacy {
            self.resubscribe(client).await;
            return std::future::pending().await;
        }
        let mut pause = AGAIN;
        loop {
            let Some(filter) = self.filter(client) else {
                self.relisten.notified().await;
                continue;
            };
            let params = SubscriptionsListenRequestParams::new(filter);
            let request =
                ClientRequest::SubscriptionsListenRequest(SubscriptionsListenRequest::new(params));
            let started = self.world.now();
            let patience = Patience::aside(LONG);
            tokio::select! {
                _ = client.request("subscriptions/listen", request, &patience) => {}
                () = self.relisten.notified() => {
                    pause = AGAIN;
                    continue;
                }
            }
            pause = if self.world.now().since(started) > LONGEST {
                AGAIN
            } else {
                (pause * 2).min(LONGEST)
            };
            self.world.sleep(pause).await;
            // What changed while nobody listened is not told.
            self.tools_changed.notify_one();
        }
    }

    /// What the server can tell of and somebody here wants to hear.
    fn filter(&self, client: &Client) -> Option<SubscriptionFilter> {
        let has = &client.info().capabilities;
        let mut filter = SubscriptionFilter::new();
        let yes = |can: Option<bool>| can.filter(|can| *can);
        filter.tools_list_changed = yes(has.tools.as_ref().and_then(|tools| tools.list_changed));
        filter.prompts_list_changed = yes(has
            .prompts
            .as_ref()
            .and_then(|prompts| prompts.list_changed));
        filter.resources_list_changed = yes(has
            .resources
            .as_ref()
            .and_then(|resources| resources.list_changed));
        let uris: Vec<String> = self.subscriptions().iter().cloned().collect();
        filter.resource_subscriptions = (!uris.is_empty()).then_some(uris);
        (filter != SubscriptionFilter::new()).then_some(filter)
    }
}
