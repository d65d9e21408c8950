use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use levity_sandbox::{CommandError, CommandOutput, Sandbox, SandboxBuilder, Workspace};
use tempfile::TempDir;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A workspace next to files that must not be touched, services that must not be reached, and a
/// mark that identifies the processes of its commands.
pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) sandbox: Sandbox,
    mark: String,
    before: BTreeMap<PathBuf, String>,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    datagrams: [UnixDatagram; 2],
}

impl Fixture {
    pub(crate) fn new(
        disabled: &[&'static str],
        settings: impl Fn(SandboxBuilder) -> SandboxBuilder,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (work, outside) = (folder.path().join("work"), folder.path().join("outside"));
        for path in [&work, &outside, &outside.join("folder")] {
            fs::create_dir(path).unwrap();
        }
        fs::write(outside.join("secret"), "the secret\n").unwrap();
        fs::set_permissions(outside.join("secret"), fs::Permissions::from_mode(0o644)).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(outside.join("socket")).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        let mark = format!(
            "levity-mark-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::SeqCst)
        );
        // One socket in the file system, and one with an abstract name.
        let abstract_name = SocketAddr::from_abstract_name(&mark).unwrap();
        let datagrams = [
            UnixDatagram::bind(outside.join("datagram")).unwrap(),
            UnixDatagram::bind_addr(&abstract_name).unwrap(),
        ];
        for socket in &datagrams {
            socket.set_nonblocking(true).unwrap();
        }
        let builder = Sandbox::builder(Workspace::open(&work).unwrap())
            .time_limit(Duration::from_secs(20))
            .env("MARK", &mark)
            .env("OUT", &outside)
            .env("WORK", &work)
            .env("HOST", std::process::id().to_string())
            .env("TCP", tcp.local_addr().unwrap().port().to_string())
            .env("UDP", udp.local_addr().unwrap().port().to_string());
        let sandbox = settings(super::disable(builder, disabled)).build().unwrap();
        let before = snapshot(&outside);
        Self {
            folder,
            sandbox,
            mark,
            before,
            tcp,
            udp,
            unix,
            datagrams,
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    pub(crate) async fn shell(&self, line: &str) -> Result<CommandOutput, CommandError> {
        self.sandbox.shell(line).run().await
    }

    /// Describes the damage after a command: a change outside, or a service that was reached.
    pub(crate) fn damage(&self) -> Option<String> {
        if snapshot(&self.outside()) != self.before {
            return Some("files outside were changed".to_owned());
        }
        if self.tcp.accept().is_ok()
            || self.unix.accept().is_ok()
            || self.udp.recv(&mut [0; 64]).is_ok()
        {
            return Some("a service of the host was reached".to_owned());
        }
        if self
            .datagrams
            .iter()
            .any(|socket| socket.recv(&mut [0; 64]).is_ok())
        {
            return Some("a socket of the host was reached".to_owned());
        }
        None
    }

    /// Returns the processes with the mark.
    pub(crate) fn left_running(&self) -> Vec<i32> {
        marked(&self.mark)
    }

    /// Waits until no process with the mark remains, since the end of a killed process is not
    /// signalled.
    pub(crate) fn assert_empty(&self) {
        assert_gone(&self.mark);
    }

    /// Returns the sandbox alone.
    pub(crate) fn into_sandbox(self) -> Sandbox {
        self.sandbox.clone()
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // If nothing is enforced, a process may remain, and no test may leave it running.
        for pid in self.left_running() {
            // SAFETY: the mark identifies a process of this fixture's commands.
            #[expect(unsafe_code, reason = "there is no safe kill")]
            unsafe {
                libc::kill(pid, libc::SIGKILL);
            }
        }
    }
}

pub(crate) fn assert_gone(mark: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if marked(mark).is_empty() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("processes remain: {:?}", marked(mark));
}

/// Returns processes with the mark in their environment or arguments. Ended processes have neither.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let has = |file: &str| {
            let mut bytes = Vec::new();
            let read = fs::File::open(entry.path().join(file))
                .and_then(|mut file| file.read_to_end(&mut bytes));
            read.is_ok()
                && bytes
                    .windows(mark.len())
                    .any(|window| window == mark.as_bytes())
        };
        if pid != std::process::id() as i32 && (has("environ") || has("cmdline")) {
            found.push(pid);
        }
    }
    found
}

/// Returns the metadata and contents of all files of a folder.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let data = path.symlink_metadata().unwrap();
        let content = if data.is_file() {
            fs::read_to_string(&path).unwrap()
        } else {
            String::new()
        };
        let about = (data.mode(), data.uid(), data.nlink(), data.mtime_nsec());
        if data.is_dir() {
            all.extend(snapshot(&path));
        }
        all.insert(path, format!("{about:?} {content}"));
    }
    all
}
