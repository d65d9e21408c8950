//! Tests of a bridge host and its clients.

use std::future::Future;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use levity_builtin_tools::FileTools;
use levity_loop::Agent;
use levity_sandbox::Workspace;
use levity_serve::bridge::{BridgeClient, BridgeHost, HostLimits};
use levity_serve::{AccessControl, Listener, Runs, Token};
use levity_test::ScriptedModel;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

mod files;
mod hostile;
mod many_clients;
mod outcomes;
mod tasks;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A running host in its own temporary folder.
pub struct TestHost {
    pub folder: TempDir,
    pub host: BridgeHost,
    pub address: String,
    pub notices: watch::Sender<Vec<String>>,
    _served: JoinSet<()>,
}

impl TestHost {
    /// Starts a host with these limits and without a commander.
    pub async fn loading(limits: HostLimits) -> Self {
        Self::build(tempfile::tempdir().unwrap(), limits, |listener| listener).await
    }

    pub async fn build(
        folder: TempDir,
        limits: HostLimits,
        listen: impl FnOnce(Listener) -> Listener,
    ) -> Self {
        let notices = watch::Sender::new(Vec::new());
        let was_notified = notices.clone();
        let host = BridgeHost::builder(Workspace::open(folder.path()).unwrap())
            .limits(limits)
            .on_notice(move |notice| {
                was_notified.send_modify(|was_notified| was_notified.push(notice.to_string()));
            })
            .build()
            .unwrap();
        let access = AccessControl::new(Token::new(TOKEN).unwrap());
        let listener = listen(Listener::bind("127.0.0.1:0", access).await.unwrap());
        let address = listener.address().to_string();
        let (mut served, serving) = (JoinSet::new(), host.clone());
        served.spawn(async move { serving.serve(listener).await.unwrap() });
        Self {
            folder,
            host,
            address,
            notices,
            _served: served,
        }
    }

    /// Starts a host with a commander that follows a script.
    pub async fn scripted(model: ScriptedModel) -> Self {
        let stage = Self::loading(HostLimits::new()).await;
        stage.host.commander(stage.runs(model)).await.unwrap();
        stage
    }

    pub fn runs(&self, model: ScriptedModel) -> Runs {
        let tools = FileTools::new(Workspace::open(self.folder.path()).unwrap());
        let runtime =
            levity_runtime::Runtime::new().with_journal(levity_runtime::MemoryJournal::new());
        Runs::new(
            Agent::builder(model)
                .tools(tools)
                .runtime(runtime)
                .build()
                .unwrap(),
        )
    }

    pub fn client(&self) -> BridgeClient {
        BridgeClient::new(
            &format!("ws://{}", self.address),
            Token::new(TOKEN).unwrap(),
        )
        .unwrap()
    }

    pub async fn raw(&self) -> RawClient {
        RawClient::connect(&self.address, Some(TOKEN))
            .await
            .unwrap()
    }

    pub fn was_notified(&self, part: &str) -> bool {
        self.notices
            .borrow()
            .iter()
            .any(|notice| notice.contains(part))
    }

    /// Waits until the operator gets this notice.
    pub async fn wait_for_notice(&self, part: &str) {
        let mut was_notified = self.notices.subscribe();
        let is_told = |notices: &Vec<String>| notices.iter().any(|notice| notice.contains(part));
        within(was_notified.wait_for(is_told)).await.unwrap();
    }
}

/// A client that sends arbitrary messages.
pub struct RawClient {
    pub socket: WebSocketStream<TcpStream>,
    /// The notifications that arrived while it waited for a response.
    pub was_notified: Vec<Value>,
    next: u64,
}

impl RawClient {
    pub async fn connect(address: &str, token: Option<&str>) -> Result<Self, u16> {
        let headers = token.map(|token| ("authorization", format!("Bearer {token}")));
        Self::with(address, headers.as_slice()).await
    }

    pub async fn with(address: &str, headers: &[(&'static str, String)]) -> Result<Self, u16> {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Self {
                socket,
                was_notified: Vec::new(),
                next: 0,
            }),
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn send(&mut self, text: impl Into<String>) {
        self.socket
            .send(Message::Text(text.into().into()))
            .await
            .unwrap();
    }

    /// Returns the next message of the host; `Err` is the close code.
    pub async fn next(&mut self) -> Result<Value, u16> {
        within(self.message()).await
    }

    async fn message(&mut self) -> Result<Value, u16> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    return Err(frame.map_or(1005, |frame| frame.code.into()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(1006),
            }
        }
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next += 1;
        let id = self.next;
        self.send(
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await;
        loop {
            let mut answer = self.next().await.unwrap();
            if answer["id"] == json!(id) {
                return match answer.get_mut("error") {
                    Some(error) => Err(error.take()),
                    None => Ok(answer["result"].take()),
                };
            }
            self.was_notified.push(answer);
        }
    }

    /// Returns the error kind of a request.
    pub async fn refusal(&mut self, method: &str, params: Value) -> String {
        let error = self.request(method, params).await.unwrap_err();
        error["data"]["kind"].as_str().unwrap().to_owned()
    }
}

/// Fails the test if a step hangs: nothing here takes long.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("it hangs")
}
