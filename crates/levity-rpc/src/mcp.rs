//! The items of rmcp that levity uses: the messages of MCP, the service that numbers and routes
//! them, and its HTTP sessions.
//!
//! No other file of levity imports rmcp, so this list is all that a new version of it can break.
//! levity relies on the behaviour of these items, so the workspace pins one exact version.

#[expect(
    deprecated,
    reason = "sampling, roots and logging are deprecated in the protocol, but peers use them"
)]
pub use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult, CompleteRequestParams,
    CompleteResult, CompletionInfo, ContentBlock, CreateMessageRequestParams, CreateMessageResult,
    CreateTaskResult, CustomRequest, CustomResult, DetailedTask, DiscoverRequest,
    DiscoverRequestParams, DiscoverResult, ElicitRequestParams, ElicitResult, ErrorCode, ErrorData,
    Extensions, GetExtensions, GetMeta, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    GetTaskParams, GetTaskResult, Icon, Implementation, InitializeRequest, InitializeRequestParams,
    InitializeResult, InitializedNotification, InputRequest, InputRequests, InputRequiredResult,
    InputResponses, JsonObject, JsonRpcMessage, JsonRpcRequest, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListRootsResult, ListToolsResult,
    LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam, NumberOrString,
    PaginatedRequestParams, PingRequest, ProgressNotification, ProgressNotificationParam,
    ProgressToken, PromptMessage, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Reference, Request, RequestId, RequestMetaObject, Resource,
    ResourceContents, ResourceUpdatedNotificationParam, Role, Root, ServerCapabilities,
    ServerConfig, ServerJsonRpcMessage, ServerNotification, ServerPeerInfo, ServerRequest,
    ServerResult, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams, TASKS_EXTENSION_ID, Task,
    TaskPayload, TaskStatus, Tool, ToolAnnotations, UnsubscribeRequestParams, UpdateTaskParams,
};
pub use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, QuitReason, RequestContext, RequestHandle,
    RunningService, RxJsonRpcMessage, Service, ServiceError, TxJsonRpcMessage, serve_directly,
};
pub use rmcp::transport::Transport;
pub use rmcp::{ClientHandler, RoleClient};

#[cfg(feature = "server")]
pub use rmcp::{
    RoleServer, ServerHandler,
    service::{OriginatingRequestId, SubscriptionContext, SubscriptionSink},
    transport::io::stdio_pipes,
};

/// The client side of streamable HTTP.
#[cfg(feature = "http-client")]
pub mod http_client {
    pub use rmcp::transport::StreamableHttpClientTransport;
    pub use rmcp::transport::common::client_side_sse::SseRetryPolicy;
    pub use rmcp::transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
        StreamableHttpPostResponse,
    };
}

/// The server side of streamable HTTP.
#[cfg(feature = "server")]
pub mod http_server {
    pub use rmcp::transport::streamable_http_server::session::{
        ServerSseMessage, SessionId, SessionManager,
    };
    pub use rmcp::transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
    };
}

/// The discovery and metadata of OAuth.
#[cfg(feature = "oauth")]
pub mod auth {
    pub use rmcp::transport::auth::{
        AuthError, AuthorizationManager, AuthorizationMetadata, InMemoryStateStore,
        OAuthClientConfig, OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture,
        OAuthHttpRequest, StateStore, StoredAuthorizationState, WWWAuthenticateParams,
    };
}

/// Returns the id of a request; `None` for any other message.
///
/// ```
/// use levity_rpc::mcp::{ClientJsonRpcMessage, RequestId, request_id};
/// use serde_json::json;
///
/// let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
/// let ping: ClientJsonRpcMessage = serde_json::from_value(ping).expect("it is valid");
/// assert_eq!(request_id(&ping), Some(&RequestId::Number(3)));
/// ```
pub fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

/// Returns the id of the request that a client's message cancels; `None` if it cancels nothing.
///
/// ```
/// use levity_rpc::mcp::{ClientJsonRpcMessage, RequestId, cancelled_id};
/// use serde_json::json;
///
/// let (method, params) = ("notifications/cancelled", json!({"requestId": 3}));
/// let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
/// let note: ClientJsonRpcMessage = serde_json::from_value(note).expect("it is valid");
/// assert_eq!(cancelled_id(&note), Some(&RequestId::Number(3)));
/// ```
pub fn cancelled_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(notice) => match &notice.notification {
            ClientNotification::CancelledNotification(cancelled) => {
                cancelled.params.request_id.as_ref()
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the id of the request that a server's message answers; `None` if it answers nothing.
///
/// ```
/// use levity_rpc::mcp::{RequestId, ServerJsonRpcMessage, answered_id};
/// use serde_json::json;
///
/// let error = json!({"code": -32601, "message": "no such method"});
/// let answer = json!({"jsonrpc": "2.0", "id": 3, "error": error});
/// let answer: ServerJsonRpcMessage = serde_json::from_value(answer).expect("it is valid");
/// assert_eq!(answered_id(&answer), Some(&RequestId::Number(3)));
/// ```
pub fn answered_id(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}
