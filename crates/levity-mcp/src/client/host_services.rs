//! Requests that a server may send to its host, and their responses.
#![expect(
    deprecated,
    reason = "the newer protocol uses the same messages, in responses instead of requests"
)]

use std::sync::Arc;

use levity_rpc::mcp::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ErrorCode, ErrorData, ListRootsResult, Root,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::host::{Decline, Elicitor, Refusal, Sampler, elicit, sample};

/// The services that the host offers to a server.
#[derive(Clone, Default)]
pub(crate) struct HostServices {
    pub(crate) server: Arc<str>,
    pub(crate) roots: Arc<[String]>,
    pub(crate) sampler: Option<Arc<dyn Sampler>>,
    pub(crate) elicitor: Option<Arc<dyn Elicitor>>,
}

impl HostServices {
    /// Returns the capabilities that levity announces to the server.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = json!({});
        if !self.roots.is_empty() {
            capabilities["roots"] = json!({});
        }
        if let Some(sampler) = &self.sampler {
            capabilities["sampling"] = if sampler.supports_tools() {
                json!({"tools": {}})
            } else {
                json!({})
            };
        }
        if let Some(elicitor) = &self.elicitor {
            capabilities["elicitation"] = if elicitor.supports_urls() {
                json!({"form": {}, "url": {}})
            } else {
                json!({"form": {}})
            };
        }
        serde_json::from_value(capabilities).unwrap_or_default()
    }

    /// Returns the folders that servers may work in.
    pub(super) fn roots(&self) -> ListRootsResult {
        ListRootsResult::new(self.roots.iter().map(Root::new).collect())
    }

    /// Answers a sampling request, or refuses it as an unknown method without a sampler.
    pub(super) async fn sample(
        &self,
        params: CreateMessageRequestParams,
    ) -> Result<CreateMessageResult, ErrorData> {
        let Some(sampler) = &self.sampler else {
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                "sampling is not enabled on this host",
                None,
            ));
        };
        answer(sample(&**sampler, &self.server, &json(&params)?).await)
    }

    /// Answers an elicitation request; without an elicitor, every request is declined.
    pub(super) async fn elicit(
        &self,
        params: ElicitRequestParams,
    ) -> Result<ElicitResult, ErrorData> {
        let elicitor = self.elicitor.as_deref().unwrap_or(&Decline);
        answer(elicit(elicitor, &self.server, &json(&params)?).await)
    }
}

fn json(params: &impl Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(params).map_err(|_| {
        ErrorData::new(
            ErrorCode::INVALID_PARAMS,
            "the parameters are invalid",
            None,
        )
    })
}

/// Converts an answer to rmcp's type, or a refusal to an error with its code.
fn answer<T: DeserializeOwned>(result: Result<Value, Refusal>) -> Result<T, ErrorData> {
    match result {
        Ok(value) => serde_json::from_value(value).map_err(|_| {
            ErrorData::new(
                ErrorCode::INTERNAL_ERROR,
                "the response cannot be serialized",
                None,
            )
        }),
        Err(refusal) => Err(ErrorData::new(
            ErrorCode(refusal.code()),
            refusal.to_string(),
            None,
        )),
    }
}
