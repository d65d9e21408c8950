//! Tests that every error names the thing, the reason and the next step on one line.
//!
//! Each row of the tables runs a shell script with the real command in an empty folder. It compares
//! the last line of the standard error and the exit code. `docs/errors.md` lists the documented
//! rows.

mod calls;
mod files;
mod models;
mod parts;
mod runs;

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::{fs, thread};

use crate::output_within_minute;

/// A situation, and the error that the command reports in it.
///
/// In scripts and files, `{dir}` is the working directory, `{server}` is the address of the row's
/// server, and `{url}` is its URL. In the expected line, `{port}` is a port that the system chose.
struct Row {
    name: &'static str,
    run: &'static str,
    code: i32,
    line: &'static str,
    files: &'static [(&'static str, &'static str)],
    server: Option<Server>,
    notes: usize,
    documented: bool,
}

/// The behaviour of a server on the loopback interface.
#[derive(Clone, Copy)]
enum Server {
    /// Replies with a status line, a content type and a body.
    Reply(&'static str, &'static str, &'static str),
    /// Sends the start of a stream.
    Cut,
    /// Closes each connection after the request.
    Close,
}

const JSON: &str = "application/json";
const HELLO: (&str, &str) = ("hello.json", r#"[{"reply": "Hello."}]"#);

impl Row {
    const fn new(name: &'static str, run: &'static str, code: i32, line: &'static str) -> Self {
        Self {
            name,
            run,
            code,
            line,
            files: &[],
            server: None,
            notes: 0,
            documented: false,
        }
    }

    const fn files(mut self, files: &'static [(&'static str, &'static str)]) -> Self {
        self.files = files;
        self
    }

    const fn server(mut self, server: Server) -> Self {
        self.server = Some(server);
        self
    }

    /// Sets the number of notes before the error.
    const fn notes(mut self, notes: usize) -> Self {
        self.notes = notes;
        self
    }

    /// Requires a message in `docs/errors.md` that matches the line.
    const fn documented(mut self) -> Self {
        self.documented = true;
        self
    }

    /// Runs the script, and describes the difference to the expected result, if any.
    fn problem(&self) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_str().unwrap();
        let address = self.server.map(Server::start).map(|at| at.to_string());
        let server = address.as_deref().unwrap_or_default();
        let fill = |text: &str| {
            let text = text.replace("{url}", "http://{server}");
            text.replace("{dir}", dir).replace("{server}", server)
        };
        for (name, text) in self.files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, fill(text)).unwrap();
        }
        let programs = Path::new(env!("CARGO_BIN_EXE_levity")).parent().unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &fill(self.run)])
            .current_dir(folder.path())
            .env_clear()
            .env("HOME", folder.path().join("home"))
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        let output = output_within_minute(&mut command);
        let mut stderr = String::from_utf8_lossy(&output.stderr).replace(dir, "{dir}");
        if !server.is_empty() {
            stderr = stderr.replace(server, "{server}");
        }
        let lines: Vec<&str> = stderr.lines().collect();
        let last = lines.last().copied().unwrap_or_default();
        let last = without_port(last.strip_prefix("levity: ").unwrap_or(last));
        let expected = (self.line, Some(self.code), self.notes + 1);
        let found = (&*last, output.status.code(), lines.len());
        (expected != found).then(|| {
            format!(
                "{}:\n expected {expected:?}\n    found {found:?} in\n{stderr}",
                self.name
            )
        })
    }
}

/// Replaces the port after an address of this machine, if the system chose it.
fn without_port(line: &str) -> String {
    let mut line = line.to_owned();
    for host in ["127.0.0.1:", "0.0.0.0:"] {
        let Some(start) = line.find(host).map(|at| at + host.len()) else {
            continue;
        };
        let digits = line[start..].bytes().take_while(u8::is_ascii_digit).count();
        // Ports in examples have fewer digits.
        if digits == 5 {
            line.replace_range(start..start + digits, "{port}");
        }
    }
    line
}

impl Server {
    /// Serves connections until the test program ends.
    fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may close the connection early.
                let _ = self.answer(stream);
            }
        });
        address
    }

    fn answer(self, mut stream: TcpStream) -> io::Result<()> {
        let reply = match self {
            Self::Close => String::new(),
            Self::Cut => {
                let start = r#"data: {"choices": [{"delta": {"content": "Hel"}}]}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";
                format!("{head}\r\ncontent-length: 500\r\n\r\n{start}\n\n")
            }
            Self::Reply(status, kind, body) => format!(
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            ),
        };
        let mut reader = BufReader::new(stream.try_clone()?);
        // The first byte of a TLS connection.
        if reader.fill_buf()?.first() != Some(&0x16) {
            let (mut length, mut line) = (0, String::new());
            while reader.read_line(&mut line)? > 0 && !line.trim().is_empty() {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                line.clear();
            }
            io::copy(&mut reader.take(length), &mut io::sink())?;
        }
        stream.write_all(reply.as_bytes())
    }
}

/// Checks the rows, a few at a time.
#[track_caller]
fn check_rows(rows: &[Row]) {
    let (queue, problems) = (Mutex::new(rows.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some(row) = next else { return };
                    problems.lock().unwrap().extend(row.problem());
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn invalid_calls_report_next_step_on_one_line() {
    check_rows(calls::ROWS);
}

#[test]
fn model_errors_report_next_step_on_one_line() {
    check_rows(models::ROWS);
}

#[test]
fn invalid_files_report_next_step_on_one_line() {
    check_rows(files::ROWS);
}

#[test]
fn errors_of_stored_runs_report_next_step_on_one_line() {
    check_rows(runs::ROWS);
}

#[test]
fn errors_of_tools_and_servers_report_next_step_on_one_line() {
    check_rows(parts::ROWS);
}

fn all_rows() -> impl Iterator<Item = &'static Row> {
    let tables = [
        calls::ROWS,
        models::ROWS,
        files::ROWS,
        runs::ROWS,
        parts::ROWS,
    ];
    tables.into_iter().flatten()
}

#[test]
fn situations_have_unique_names_and_lines_name_a_next_step() {
    let names: BTreeSet<&str> = all_rows().map(|row| row.name).collect();
    assert_eq!(names.len(), all_rows().count());
    assert!(names.len() >= 70, "{}", names.len());
    for row in all_rows() {
        // A position, a range, a form or a choice in the message is a next step as well.
        let steps = [
            "; ", " use ", " column ", ": line ", " must ", " give ", " one of ",
        ];
        assert!(
            steps.iter().any(|step| row.line.contains(step)),
            "{}: {}",
            row.name,
            row.line
        );
        assert!(
            !row.line.contains("(os error") && !row.line.contains('\n'),
            "{}: {}",
            row.name,
            row.line
        );
    }
}

#[test]
fn documented_errors_are_listed_in_page_about_errors() {
    let page = include_str!("../fixtures/errors.md");
    let messages: Vec<&str> = page.lines().filter_map(message).collect();
    assert!(messages.len() > 40, "{}", messages.len());
    for row in all_rows().filter(|row| row.documented) {
        assert!(
            messages.iter().any(|message| matches(message, row.line)),
            "docs/errors.md lacks the error of `{}`: {}",
            row.name,
            row.line
        );
    }
}

/// Returns the message in the first cell of a table row.
fn message(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| `")?.split(" | ").next()?;
    let (message, _) = cell.rsplit_once('`')?;
    Some(message.trim_matches('`').trim()).filter(|message| !message.is_empty())
}

/// Returns `true` if a message of the page matches a line. `…` and words in capitals match any
/// text.
fn matches(message: &str, line: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_placeholder = |word: &str| {
        word == "…" || (!word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase()))
    };
    let (mut parts, mut rest) = (vec![String::new()], message);
    while let Some(first) = rest.chars().next() {
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        match is_placeholder(word) {
            true => parts.push(String::new()),
            false => parts.last_mut().unwrap().push_str(word),
        }
        rest = after;
    }
    let (last, parts) = parts.split_last().unwrap();
    let Some((first, middle)) = parts.split_first() else {
        return last == line;
    };
    let Some(rest) = line.strip_prefix(first.as_str()) else {
        return false;
    };
    let Some(mut rest) = rest.strip_suffix(last.as_str()) else {
        return false;
    };
    for part in middle {
        let Some(at) = rest.find(part.as_str()) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

#[test]
fn message_with_placeholders_matches_line() {
    for (message, line, expected) in [
        ("run `ID` is gone", "run `a` is gone", true),
        ("run `ID` is gone", "run `a` is here", false),
        ("run `ID` is gone", "a run `a` is gone", false),
        ("cannot read `FILE`: …", "cannot read `a`: b; c", true),
        ("a; b", "a; b", true),
        ("a; b", "a; b; c", false),
        ("…: use N", "x: y: use 7", true),
        (
            "there is no `NAME`; did you mean `…`?",
            "there is no `a`",
            false,
        ),
    ] {
        assert_eq!(matches(message, line), expected, "{message}");
    }
    assert_eq!(message("| ``run `ID` `` | cause | fix |"), Some("run `ID`"));
}
