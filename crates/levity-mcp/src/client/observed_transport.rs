//! A transport that reports its end.
//!
//! rmcp's service ends silently when its transport does. The supervisor and waiting calls must know
//! at once, so this wrapper sets a flag when a read finds the end, after a close, and when it is
//! dropped.

use std::borrow::Cow;

use levity_rpc::mcp::{RoleClient, RxJsonRpcMessage, Transport, TxJsonRpcMessage};
use tokio::sync::watch;

/// A transport that signals its end, which rmcp's service does not expose.
pub(super) struct ObservedTransport<T> {
    inner: T,
    ended: watch::Sender<bool>,
}

impl<T> ObservedTransport<T> {
    pub(super) fn new(inner: T, ended: watch::Sender<bool>) -> Self {
        Self { inner, ended }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ObservedTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await;
        if message.is_none() {
            self.ended.send_replace(true);
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        let closed = self.inner.close().await;
        self.ended.send_replace(true);
        closed
    }
}

impl<T> Drop for ObservedTransport<T> {
    fn drop(&mut self) {
        self.ended.send_replace(true);
    }
}
