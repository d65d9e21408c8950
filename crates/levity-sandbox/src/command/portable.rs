//! Commands on systems that have neither Landlock nor namespaces: a process group, a time limit and
//! bounded output.

use std::io::{self, Read as _, Write as _};
use std::path::Component;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::builder::Setup;
use super::captured::{CapturedOutput, Decoder, HeadTailBuffer, Stream};
use super::error::{CommandError, SandboxError};
use super::finished::{CommandLimit, CommandOutput, Exit};
use super::private::PrivateFolder;
use super::report::{Level, Mechanism, Protection, SandboxReport};
use super::run::{CommandSpec, Control};
use crate::Workspace;

/// The state that all commands of a sandbox share.
#[derive(Debug)]
pub(super) struct System {
    workspace: Workspace,
}

/// A message from a thread that serves a command.
enum Message {
    Text(Stream, Vec<u8>),
    /// The caller no longer waits for the command.
    Dropped,
}

impl System {
    pub(super) fn new(
        setup: Setup,
        _: &PrivateFolder,
    ) -> Result<(Self, SandboxReport), SandboxError> {
        let nothing = || Protection::not_enforced([], "this system is not supported");
        let report = SandboxReport {
            level: Level::Open,
            files: nothing(),
            hidden_files: nothing(),
            network: nothing(),
            processes: Protection::not_enforced(
                [Mechanism::ProcessGroup],
                "a process that leaves its group survives",
            ),
            other_processes: nothing(),
            memory: nothing(),
            process_count: nothing(),
            cpu_time: nothing(),
            file_size: nothing(),
            read_only: nothing(),
        };
        Ok((
            Self {
                workspace: setup.workspace,
            },
            report,
        ))
    }

    pub(super) fn run(
        &self,
        spec: &CommandSpec,
        control: &Control,
    ) -> Result<CommandOutput, CommandError> {
        if spec.read_only {
            return Err(CommandError::ReadOnly("this system is not supported"));
        }
        let control = control.try_clone().map_err(|source| CommandError::Setup {
            step: "a pipe",
            source,
        })?;
        let start = now();
        let end = start.checked_add(spec.limits.time);
        let mut child = self.start(spec)?;
        let (sender, messages) = mpsc::channel();
        watch(&mut child, spec.stdin.clone(), control, &sender);
        drop(sender);
        let mut output = OutputCapture::new(spec);
        let exit = loop {
            if let Ok(Some(status)) = child.try_wait() {
                break exit_of(status);
            }
            if end.is_some_and(|end| now() >= end) {
                break Exit::Limit(CommandLimit::Time);
            }
            match messages.recv_timeout(Duration::from_millis(10)) {
                Ok(Message::Dropped) => break Exit::Limit(CommandLimit::Time),
                Ok(Message::Text(stream, bytes)) => output.take(stream, &bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        };
        kill(&mut child);
        while let Ok(Message::Text(stream, bytes)) =
            messages.recv_timeout(Duration::from_millis(50))
        {
            output.take(stream, &bytes);
        }
        let [stdout, stderr] = output.finish();
        Ok(CommandOutput {
            exit,
            stdout,
            stderr,
            time: start.elapsed(),
            replaced_files: Vec::new(),
        })
    }

    fn start(&self, spec: &CommandSpec) -> Result<Child, CommandError> {
        let name = spec
            .argv
            .first()
            .filter(|name| !name.is_empty())
            .ok_or(CommandError::Empty)?;
        let program = name.to_string_lossy().into_owned();
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        let dir = self.workspace.root().join(&spec.dir);
        let real = dir
            .canonicalize()
            .ok()
            .filter(|dir| dir.starts_with(self.workspace.root()));
        let outside = || CommandError::Directory(spec.dir.to_string_lossy().into_owned());
        let dir = real
            .filter(|_| spec.dir.components().all(inside))
            .ok_or_else(outside)?;
        let mut command = std::process::Command::new(name);
        command.args(&spec.argv[1..]).current_dir(dir).env_clear();
        let mut environment = spec.environment.clone();
        if !spec.from_system.is_empty() {
            environment.remove_from_path(&[self.workspace.root()]);
        }
        command.envs(environment.pairs());
        let input = if spec.stdin.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        };
        command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => CommandError::NotFound(program),
            io::ErrorKind::PermissionDenied => CommandError::NotExecutable(program),
            io::ErrorKind::ArgumentListTooLong => CommandError::TooLong,
            io::ErrorKind::InvalidInput => CommandError::NulByte("an argument"),
            _ => CommandError::Setup {
                step: "a process",
                source,
            },
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "only a real clock measures the duration of a process"
)]
fn now() -> Instant {
    Instant::now()
}

/// Starts threads that read and write; each ends when its pipe does.
fn watch(child: &mut Child, input: Vec<u8>, mut control: Control, sender: &mpsc::Sender<Message>) {
    if let Some(mut stdin) = child.stdin.take() {
        thread::spawn(move || stdin.write_all(&input));
    }
    if let Some(out) = child.stdout.take() {
        read(out, Stream::Stdout, sender.clone());
    }
    if let Some(err) = child.stderr.take() {
        read(err, Stream::Stderr, sender.clone());
    }
    let sender = sender.clone();
    thread::spawn(move || {
        let _ = control.read(&mut [0]);
        let _ = sender.send(Message::Dropped);
    });
}

fn read(mut from: impl io::Read + Send + 'static, stream: Stream, sender: mpsc::Sender<Message>) {
    thread::spawn(move || {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender
                .send(Message::Text(stream, buffer[..length].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
}

/// The output that was captured.
struct OutputCapture<'a> {
    spec: &'a CommandSpec,
    streams: [(Decoder, HeadTailBuffer, usize); 2],
}

impl<'a> OutputCapture<'a> {
    fn new(spec: &'a CommandSpec) -> Self {
        let room = spec.limits.output;
        let stream = || (Decoder::default(), HeadTailBuffer::new(room), room);
        Self {
            spec,
            streams: [stream(), stream()],
        }
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let (decoder, keep, room) = &mut self.streams[usize::from(stream == Stream::Stderr)];
        let text = decoder.decode(bytes);
        keep.push(&text);
        if let Some(listener) = &self.spec.listener
            && *room >= text.len()
        {
            *room -= text.len();
            listener(stream, &text);
        }
    }

    fn finish(self) -> [CapturedOutput; 2] {
        self.streams.map(|(mut decoder, mut keep, _)| {
            keep.push(&decoder.finish());
            keep.finish()
        })
    }
}

fn kill(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn exit_of(status: std::process::ExitStatus) -> Exit {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Exit::Signal(signal);
    }
    Exit::Code(status.code().unwrap_or(-1))
}
