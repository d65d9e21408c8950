//! The stream of change notifications.
//!
//! The older protocol sends notifications on its own; levity only renews its subscriptions after a
//! restart. The newer one has a request, `subscriptions/listen`, that stays open and names what the
//! client wants to hear. levity opens it again when a caller subscribes, and after an interruption,
//! with a delay of 1 s to 60 s. Notifications during an interruption are lost, so the tools are
//! read again afterwards.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::time::Duration;

use levity_rpc::mcp::{
    ClientRequest, SubscriptionFilter, SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};

use super::{ServerInner, lock};
use crate::client::{Client, Era, RequestLimits};

/// The minimum and maximum delay before a closed stream of changes is opened again. The delay
/// doubles while the stream closes at once.
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// A timeout that never elapses in practice.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

impl ServerInner {
    /// Locks the set of URIs that callers subscribed to. It survives restarts of the server.
    pub(super) fn subscriptions(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.subscribed)
    }

    /// Receives changes until the connection ends. The older protocol sends them without a request.
    pub(super) async fn listen(&self, client: &Client) {
        if client.era() == Era::Legacy {
            self.resubscribe(client).await;
            return std::future::pending().await;
        }
        let mut pause = MIN_DELAY;
        loop {
            let Some(filter) = self.filter(client) else {
                self.subscriptions_changed.notified().await;
                continue;
            };
            let params = SubscriptionsListenRequestParams::new(filter);
            let request =
                ClientRequest::SubscriptionsListenRequest(SubscriptionsListenRequest::new(params));
            let started = self.world.now();
            let limits = RequestLimits::background(NO_TIMEOUT);
            tokio::select! {
                _ = client.request("subscriptions/listen", request, &limits) => {}
                () = self.subscriptions_changed.notified() => {
                    pause = MIN_DELAY;
                    continue;
                }
            }
            pause = if self.world.now().since(started) > MAX_DELAY {
                MIN_DELAY
            } else {
                (pause * 2).min(MAX_DELAY)
            };
            self.world.sleep(pause).await;
            // Changes during an interruption are not reported, so the tools are reloaded.
            self.tools_changed.notify_one();
        }
    }

    /// Returns the changes that the server can report and a caller subscribed to.
    fn filter(&self, client: &Client) -> Option<SubscriptionFilter> {
        let capabilities = &client.info().capabilities;
        let mut filter = SubscriptionFilter::new();
        let if_supported = |can: Option<bool>| can.filter(|can| *can);
        filter.tools_list_changed = if_supported(
            capabilities
                .tools
                .as_ref()
                .and_then(|tools| tools.list_changed),
        );
        filter.prompts_list_changed = if_supported(
            capabilities
                .prompts
                .as_ref()
                .and_then(|prompts| prompts.list_changed),
        );
        filter.resources_list_changed = if_supported(
            capabilities
                .resources
                .as_ref()
                .and_then(|resources| resources.list_changed),
        );
        let uris: Vec<String> = self.subscriptions().iter().cloned().collect();
        filter.resource_subscriptions = (!uris.is_empty()).then_some(uris);
        (filter != SubscriptionFilter::new()).then_some(filter)
    }
}
