use rmcp::RoleClient;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
pub(crate) fn lines<R: AsyncRead + Send + Unpin + 'static, W: AsyncWrite + Send + Unpin + 'static>(
    _: Arc<str>,
    r: R,
    w: W,
    _: usize,
) -> AsyncRwTransport<RoleClient, R, W> {
    AsyncRwTransport::new(r, w)
}
pub(crate) struct Process(std::sync::Mutex<tokio::process::Child>);
#[async_trait::async_trait]
impl super::Lifeline for Process {
    async fn death(&self) -> Option<crate::Death> {
        None
    }
    async fn end(&self, _: std::time::Duration) {
        let _ = self.0.lock().unwrap().start_kill();
    }
    fn kill(&self) {
        let _ = self.0.lock().unwrap().start_kill();
    }
}
pub(crate) fn open(
    config: &crate::ServerConfig,
    stdio: &crate::config::Stdio,
    _: &crate::event::Events,
    _: &Arc<dyn levity_core::World>,
) -> crate::Result<(
    AsyncRwTransport<RoleClient, tokio::process::ChildStdout, tokio::process::ChildStdin>,
    Arc<Process>,
)> {
    let mut child = tokio::process::Command::new(&stdio.command)
        .args(&stdio.args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(|e| crate::Error::new(crate::ErrorKind::Start, config.name.clone(), e.to_string()))?;
    let (r, w) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    Ok((AsyncRwTransport::new(r, w), Arc::new(Process(std::sync::Mutex::new(child)))))
}
