//! What a server may ask of us, and what we answer.
#![expect(deprecated, reason = "the newer protocol asks in the same words, in answers instead of requests")]

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorCode, ErrorData, ListRootsResult, Root,
};

/// What a server may ask of us.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    pub(crate) server: Arc<str>,
    pub(crate) roots: Arc<[String]>,
}

impl Asked {
    /// What we say that we can be asked.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::default()
    }

    pub(super) fn roots(&self) -> ListRootsResult {
        ListRootsResult::new(self.roots.iter().map(Root::new).collect())
    }

    pub(super) async fn sample(
        &self,
        _: CreateMessageRequestParams,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no model is offered to servers", None))
    }

    pub(super) async fn elicit(&self, _: ElicitRequestParams) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }
}
