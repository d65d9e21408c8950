//! Tests of `run_command` through a dispatcher.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_builtin_tools::RunCommand;
use levity_core::{
    CancelToken, Permit, Progress, Tool, ToolCall, ToolCx, ToolErrorKind, ToolResult,
};
use levity_sandbox::{CommandLine, CommandPolicy, Level, Sandbox, SandboxBuilder, Workspace};
use levity_test::ManualWorld;
use levity_tools::{CallCx, Dispatched, Dispatcher, Registry};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A workspace, and a dispatcher with the tool for it.
struct Fixture {
    folder: TempDir,
    dispatcher: Dispatcher,
    progress_text: Arc<Mutex<String>>,
}

fn tool(folder: &TempDir, settings: impl Fn(SandboxBuilder) -> SandboxBuilder) -> RunCommand {
    let builder =
        Sandbox::builder(Workspace::open(folder.path()).unwrap()).require_level(Level::Open);
    RunCommand::new(settings(builder).build().unwrap())
}

impl Fixture {
    fn new(settings: impl Fn(SandboxBuilder) -> SandboxBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::builder()
            .tool(tool(&folder, settings))
            .build()
            .unwrap();
        let dispatcher = Dispatcher::builder(registry)
            .world(Arc::new(ManualWorld::new()))
            .build()
            .unwrap();
        Self {
            folder,
            dispatcher,
            progress_text: Arc::default(),
        }
    }

    async fn dispatch(&self, args: Value, approved: bool) -> Dispatched {
        let progress_text = Arc::clone(&self.progress_text);
        let progress = Progress::new(move |text| progress_text.lock().unwrap().push_str(text));
        let cx = CallCx::new("r1".into(), "r1/1").with_progress(progress);
        self.dispatcher
            .dispatch(&ToolCall::new("c1", "run_command", args), approved, cx)
            .await
    }

    /// Returns the result of a call that a person approved.
    async fn run(&self, args: Value) -> ToolResult {
        match self.dispatch(args, true).await {
            Dispatched::Done(result) => result,
            other => panic!("{other:?}"),
        }
    }
}

/// Removes the elapsed time from a result.
fn without_time(text: &str) -> String {
    let (text, _) = text.rsplit_once(" after ").unwrap();
    text.to_owned()
}

#[tokio::test]
async fn command_output_and_exit_code_are_formatted() {
    let fixture = Fixture::new(|builder| builder);
    let check = async |args: Value, expected: &str| {
        let result = fixture.run(args).await;
        assert_eq!(result.error, None, "{result:?}");
        assert_eq!(without_time(&result.text()), expected);
    };
    check(
        json!({"command": "echo hello | tr a-z A-Z"}),
        "HELLO\n[exit code 0",
    )
    .await;
    check(json!({"command": "true"}), "[no output]\n[exit code 0").await;
    check(
        json!({"command": "echo bad >&2; exit 3"}),
        "[stderr]\nbad\n[exit code 3",
    )
    .await;
    check(
        json!({"command": "printf a; printf b >&2"}),
        "a\n[stderr]\nb\n[exit code 0",
    )
    .await;
    check(
        json!({"command": "kill -9 $$"}),
        "[no output]\n[ended by signal 9",
    )
    .await;
    check(
        json!({"command": "printf", "args": ["%s|", "a b", "$HOME", "`x`"]}),
        "a b|$HOME|`x`|\n[exit code 0",
    )
    .await;
    std::fs::create_dir(fixture.folder.path().join("sub")).unwrap();
    check(
        json!({"command": "basename $(pwd)", "dir": "sub"}),
        "sub\n[exit code 0",
    )
    .await;
}

#[tokio::test]
async fn failing_command_returns_result_with_value() {
    let fixture = Fixture::new(|builder| builder.max_output(100));
    let result = fixture
        .run(json!({"command": "echo out; echo err >&2; exit 2"}))
        .await;
    let value = result.value.unwrap();
    assert_eq!(
        (&value["exit_code"], &value["stdout"], &value["stderr"]),
        (&json!(2), &json!("out\n"), &json!("err\n"))
    );
    assert_eq!(value["truncated"], false);
    assert!(value["duration_ms"].is_u64());
    let result = fixture
        .run(json!({"command": "yes | head -c 10000; kill -9 $$"}))
        .await;
    let value = result.value.unwrap();
    assert_eq!(
        (&value["exit_code"], &value["truncated"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(value["ended_by"], "ended by signal 9");
    assert!(
        value["stdout"]
            .as_str()
            .unwrap()
            .contains("[.. 9900 bytes left out ..]"),
        "{value}"
    );
}

#[tokio::test]
async fn command_output_is_reported_as_progress() {
    let fixture = Fixture::new(|builder| builder);
    fixture
        .run(json!({"command": "echo one; echo two >&2"}))
        .await;
    let progress_text = fixture.progress_text.lock().unwrap();
    assert!(
        progress_text.contains("one\n") && progress_text.contains("two\n"),
        "{progress_text}"
    );
}

#[tokio::test]
async fn command_timeout_returns_error_with_output() {
    for args in [
        json!({"command": "echo begun; sleep 1000"}),
        json!({"command": "echo begun; sleep 1000", "timeout_seconds": 5000}),
    ] {
        let fixture = Fixture::new(|builder| builder.time_limit(Duration::from_millis(300)));
        let result = fixture.run(args).await;
        assert_eq!(result.error, Some(ToolErrorKind::Timeout), "{result:?}");
        assert!(result.text().contains("begun\n"), "{}", result.text());
    }
    let fixture = Fixture::new(|builder| builder);
    let result = fixture
        .run(json!({"command": "echo begun; sleep 1000", "timeout_seconds": 1}))
        .await;
    assert_eq!(result.error, Some(ToolErrorKind::Timeout), "{result:?}");
}

#[tokio::test]
async fn command_that_cannot_run_returns_error_with_reason() {
    let fixture = Fixture::new(|builder| builder);
    let check = async |args: Value, kind: ToolErrorKind, part: &str| {
        let result = fixture.run(args).await;
        assert_eq!(result.error, Some(kind), "{result:?}");
        assert!(result.text().contains(part), "{}", result.text());
    };
    check(
        json!({"command": "no-such-program", "args": []}),
        ToolErrorKind::Failed,
        "`no-such-program`",
    )
    .await;
    check(
        json!({"command": "pwd", "dir": ".."}),
        ToolErrorKind::InvalidArgs,
        "`..`",
    )
    .await;
    check(
        json!({"command": "pwd", "dir": "/etc"}),
        ToolErrorKind::InvalidArgs,
        "`/etc`",
    )
    .await;
    check(
        json!({"command": ""  , "args": []}),
        ToolErrorKind::InvalidArgs,
        "empty",
    )
    .await;
    check(
        json!({"command": "echo a\0b"}),
        ToolErrorKind::InvalidArgs,
        "NUL byte",
    )
    .await;
    check(
        json!({"command": "echo", "args": ["x".repeat(1 << 20)]}),
        ToolErrorKind::InvalidArgs,
        "too long",
    )
    .await;
    for args in [
        json!({}),
        json!({"command": 1}),
        json!({"command": "x", "args": "y"}),
        json!({"commands": "x"}),
    ] {
        check(args, ToolErrorKind::InvalidArgs, "schema").await;
    }
}

#[tokio::test]
async fn permit_follows_policy() {
    let fixture = Fixture::new(|builder| builder);
    let Dispatched::NeedsApproval { reason } = fixture
        .dispatch(json!({"command": "rm -rf data"}), false)
        .await
    else {
        panic!("it was not asked about");
    };
    assert!(!reason.is_empty());
    // The tool returns the policy's decision for a line and for a list.
    let folder = tempfile::tempdir().unwrap();
    let (tool, policy) = (tool(&folder, |builder| builder), CommandPolicy::default());
    let argv = ["git".to_owned(), "push".to_owned()];
    for (args, line) in [
        (
            json!({"command": "ls | rm -r x"}),
            CommandLine::Shell("ls | rm -r x"),
        ),
        (
            json!({"command": "git", "args": ["push"]}),
            CommandLine::Argv(&argv),
        ),
    ] {
        assert_eq!(tool.permit(&args), policy.judge(line));
    }
}

#[tokio::test]
async fn denied_command_does_not_run_after_approval() {
    let folder = tempfile::tempdir().unwrap();
    let policy = CommandPolicy::new().deny("touch", "nothing is made here");
    let tool = tool(&folder, |builder| builder).policy(policy);
    let registry = Registry::builder().tool(tool).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Arc::new(ManualWorld::new()))
        .build()
        .unwrap();
    for args in [
        json!({"command": "touch made"}),
        json!({"command": "touch", "args": ["made"]}),
        json!({"command": "true; sh -c 'touch made'"}),
        json!({"command": "echo $(touch made)"}),
    ] {
        let call = ToolCall::new("c1", "run_command", args.clone());
        let Dispatched::Done(result) = dispatcher
            .dispatch(&call, true, CallCx::new("r1".into(), "r1/1"))
            .await
        else {
            panic!("{args}");
        };
        assert_eq!(
            result.error,
            Some(ToolErrorKind::Denied),
            "{args}: {result:?}"
        );
        assert!(
            result.text().contains("nothing is made here"),
            "{}",
            result.text()
        );
        assert!(!folder.path().join("made").exists(), "{args}");
    }
}

/// Creates a repository with a commit, a change and a folder.
fn repository() -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("a.txt"), "one\n").unwrap();
    if !host_git(&folder, &["init", "-q", "-b", "main"])?.0 {
        return None;
    }
    for args in [
        &["config", "user.name", "a"][..],
        &["config", "user.email", "a@b.c"],
        &["add", "-A"],
        &["commit", "-qm", "first"],
    ] {
        assert!(host_git(&folder, args)?.0, "git {args:?}");
    }
    std::fs::write(folder.path().join("a.txt"), "two\n").unwrap();
    Some(folder)
}

/// Runs git outside the sandbox and returns its success and output; `None` without git.
fn host_git(folder: &TempDir, args: &[&str]) -> Option<(bool, String)> {
    let mut git = std::process::Command::new("git");
    let done = git
        .args(args)
        .current_dir(folder.path())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .ok()?;
    Some((
        done.status.success(),
        String::from_utf8_lossy(&done.stdout).into_owned(),
    ))
}

/// Git commands, each with a part of its output.
const GIT: [(&str, &str, &str); 10] = [
    ("git status --short", ".", " M a.txt"),
    ("git status", "sub", "modified:   ../a.txt"),
    ("cd sub && git diff", ".", "-one\n+two"),
    ("git log --oneline | head -3", ".", "first"),
    ("git show HEAD:a.txt", ".", "one"),
    ("git branch --list", ".", "* main"),
    (
        "git add -A && git commit -qm second && git log -1 --format=%s",
        ".",
        "second",
    ),
    (
        "git checkout -qb new && git branch --show-current",
        ".",
        "new",
    ),
    (
        "git stash list && git gc -q && git fsck",
        ".",
        "[exit code 0",
    ),
    ("git show --stat", ".", "a.txt | 2 +-"),
];

#[tokio::test]
async fn git_runs_after_approval_or_by_rule() {
    for without in [
        &[][..],
        &["namespaces"],
        &["landlock"],
        &["namespaces", "landlock", "seccomp"],
    ] {
        for has_rule in [false, true] {
            let Some(folder) = repository() else { return };
            let tool = tool(&folder, |builder| {
                without
                    .iter()
                    .fold(builder, |builder, means| builder.disable(means))
            });
            let tool = if has_rule {
                tool.policy(CommandPolicy::new().allow("git"))
            } else {
                tool
            };
            for (line, dir, part) in GIT {
                let args = json!({"command": line, "dir": dir});
                let ruling = tool.permit(&args);
                assert_eq!(ruling == Permit::Allow, has_rule, "{line}: {ruling:?}");
                let output = tool.call(args, &ToolCx::detached()).await.unwrap();
                let text = output.as_text();
                let succeeded = text.contains(part) && text.contains("[exit code 0");
                assert!(
                    succeeded,
                    "without {without:?}, rule {has_rule}, `{line}`: {text}"
                );
            }
            let (_, log) = host_git(&folder, &["log", "--format=%s", "new"]).unwrap();
            assert_eq!(log, "second\nfirst\n", "without {without:?}");
            assert_eq!(
                host_git(&folder, &["status", "--short"]).unwrap(),
                (true, String::new())
            );
        }
    }
}

#[tokio::test]
async fn git_runs_on_other_files_if_tracked_file_is_denied() {
    for without in [&[][..], &["namespaces"]] {
        let Some(folder) = repository() else { return };
        std::fs::write(folder.path().join(".env"), "hush\n").unwrap();
        for args in [&["add", "-f", ".env"][..], &["commit", "-qm", "denied"]] {
            assert!(host_git(&folder, args).unwrap().0, "git {args:?}");
        }
        let tool = tool(&folder, |builder| {
            without
                .iter()
                .fold(builder, |builder, means| builder.disable(means))
        });
        for (line, part) in [
            ("git status --short", " M a.txt"),
            ("git diff -- a.txt", "-one\n+two"),
            (
                "git add a.txt && git commit -qm second && git log -1 --format=%s",
                "second",
            ),
        ] {
            let output = tool
                .call(json!({"command": line}), &ToolCx::detached())
                .await
                .unwrap();
            let text = output.as_text();
            assert!(text.contains(part), "without {without:?}, `{line}`: {text}");
        }
        assert_eq!(
            host_git(&folder, &["show", "HEAD:.env"]).unwrap().1,
            "hush\n"
        );
        assert_eq!(host_git(&folder, &["status", "--short"]).unwrap().1, "");
    }
}

/// Returns `true` if commands can run read-only here; otherwise prints that the test is skipped.
fn enforces_read_only(folder: &TempDir, without: &[&'static str]) -> bool {
    let builder =
        Sandbox::builder(Workspace::open(folder.path()).unwrap()).require_level(Level::Open);
    let builder = without
        .iter()
        .fold(builder, |builder, means| builder.disable(means));
    builder.build().unwrap().report().read_only.is_enforced
}

#[tokio::test]
async fn command_reading_denied_file_needs_approval_or_fails() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(".env"), "TOKEN=hush").unwrap();
    std::fs::write(folder.path().join("notes.txt"), "one").unwrap();
    std::os::unix::fs::symlink(".env", folder.path().join("link")).unwrap();
    for without in [&[][..], &["namespaces"]] {
        if !enforces_read_only(&folder, without) {
            continue;
        }
        let with = |policy: CommandPolicy| {
            let tool = tool(&folder, |builder| {
                without
                    .iter()
                    .fold(builder, |builder, means| builder.disable(means))
            });
            tool.policy(policy)
        };
        for tool in [
            with(CommandPolicy::new()),
            with(CommandPolicy::new().allow("ls")),
        ] {
            let call =
                async |args: &Value| tool.call(args.clone(), &ToolCx::detached()).await.unwrap();
            let notes = json!({"command": "cat notes.txt"});
            assert_eq!(tool.permit(&notes), Permit::Allow);
            assert!(call(&notes).await.as_text().contains("one"));
            for args in [
                json!({"command": "cat .env"}),
                json!({"command": "cat", "args": [".env"]}),
                json!({"command": "cat < .env"}),
                json!({"command": "sh -c 'head .env'"}),
                json!({"command": "ls; cat link; echo > made"}),
            ] {
                assert!(matches!(tool.permit(&args), Permit::Ask { .. }), "{args}");
            }
            for args in [
                json!({"command": "grep -r TOKEN ."}),
                json!({"command": "cat link"}),
                json!({"command": "cat", "args": ["link"]}),
                json!({"command": "sh -c 'cat *'"}),
            ] {
                assert_eq!(tool.permit(&args), Permit::Allow, "{args}");
                assert!(!call(&args).await.as_text().contains("hush"), "{args}");
            }
        }
        // A command that a rule allows has all rights, so any file reader next to it needs
        // approval.
        let tool = with(CommandPolicy::new().allow("touch"));
        assert_eq!(
            tool.permit(&json!({"command": "touch made | head -3"})),
            Permit::Allow
        );
        assert!(matches!(
            tool.permit(&json!({"command": "touch made; cat link"})),
            Permit::Ask { .. }
        ));
        tool.call(json!({"command": "touch made"}), &ToolCx::detached())
            .await
            .unwrap();
        std::fs::remove_file(folder.path().join("made")).unwrap();
    }
}

#[tokio::test]
async fn reading_command_needs_approval_without_enforcement() {
    let folder = tempfile::tempdir().unwrap();
    let make = || tool(&folder, |builder| builder.disable("landlock"));
    assert!(!enforces_read_only(&folder, &["landlock"]));
    for line in ["cat notes.txt", "ls", "git status", "grep x a | head"] {
        assert!(
            matches!(make().permit(&json!({"command": line})), Permit::Ask { .. }),
            "{line}"
        );
        let allowed = make().policy(CommandPolicy::allow_all());
        assert_eq!(
            allowed.permit(&json!({"command": line})),
            Permit::Allow,
            "{line}"
        );
    }
    for line in ["pwd", "echo one | tr a-z A-Z", "true"] {
        assert_eq!(
            make().permit(&json!({"command": line})),
            Permit::Allow,
            "{line}"
        );
        make()
            .call(json!({"command": line}), &ToolCx::detached())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn substituted_program_before_redirection_needs_approval() {
    let folder = tempfile::tempdir().unwrap();
    for without in [
        &[][..],
        &["namespaces"],
        &["namespaces", "landlock", "seccomp"],
    ] {
        let tool = tool(&folder, |builder| {
            without.iter().fold(builder, |it, means| it.disable(means))
        })
        .policy(CommandPolicy::new().allow("touch").deny("rm", "no"));
        for line in [
            "`echo \"sh run.sh \"`1>&1",
            "touch made; `echo \"sh run.sh \"`1>&1",
            "git status; $(echo sh run.sh)1>&2",
            "touch made; echo 1$x>&2",
            "touch made; cat 12>&1",
        ] {
            let asked = tool.permit(&json!({"command": line}));
            assert!(
                matches!(asked, Permit::Ask { .. }),
                "without {without:?}, `{line}`: {asked:?}"
            );
        }
        let denied = tool
            .call(json!({"command": "`rm a`1>&1"}), &ToolCx::detached())
            .await
            .unwrap_err();
        assert_eq!(denied.kind(), ToolErrorKind::Denied);
    }
}

/// Creates programs of the workspace in a folder that is first in `PATH`.
fn create_programs(folder: &TempDir, names: &[&str]) -> String {
    use std::os::unix::fs::PermissionsExt;

    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in names {
        std::fs::write(bin.join(name), "#!/bin/sh\necho PLANTED\n").unwrap();
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    format!("{}:bin:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[tokio::test]
async fn reading_program_is_not_run_from_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "date", "id", "seq", "tail", "timeout", "env", "sh", "cd", "git", "grep", "own",
    ];
    let path = create_programs(&folder, &names);
    for without in [
        &[][..],
        &["namespaces"],
        &["landlock"],
        &["namespaces", "landlock", "seccomp"],
    ] {
        let make = || {
            tool(&folder, |builder| {
                without
                    .iter()
                    .fold(builder, |builder, means| builder.disable(means))
                    .env("PATH", &path)
            })
        };
        let run = async |tool: &RunCommand, is_allowed: bool, args: Value| {
            assert_eq!(
                tool.permit(&args) == Permit::Allow,
                is_allowed,
                "without {without:?}: {args}"
            );
            // A person may approve the command.
            tool.call(args, &ToolCx::detached())
                .await
                .unwrap()
                .as_text()
                .to_string()
        };
        let rules = || CommandPolicy::new().allow("touch").allow("cp").allow("own");
        let holds = enforces_read_only(&folder, without);
        for (line, is_plain) in [
            ("date", true),
            ("id", true),
            ("seq 3", true),
            ("echo x | tail -1", true),
            ("git --version", false),
            // The command may be a script that runs `grep`.
            ("echo x | egrep x", true),
            // If the kernel cannot restrict them, programs that run others need approval.
            ("timeout 5 date", false),
            ("env date", false),
            ("sh -c date", false),
            ("env cd", false),
            ("echo x | timeout 5 fgrep x", false),
        ] {
            let text = run(&make(), is_plain || holds, json!({"command": line})).await;
            assert!(
                !text.contains("PLANTED"),
                "without {without:?}, `{line}`: {text}"
            );
            let beside = format!("touch made; cp bin/own bin/nproc; nproc; {line}");
            let text = run(
                &make().policy(rules()),
                is_plain,
                json!({"command": beside}),
            )
            .await;
            assert!(
                !text.contains("PLANTED"),
                "without {without:?}, `{beside}`: {text}"
            );
        }
        let argv: Vec<_> = "5 env date".split(' ').collect();
        let text = run(&make(), holds, json!({"command": "timeout", "args": argv})).await;
        assert!(!text.contains("PLANTED"), "without {without:?}: {text}");
        // A program that a rule names is found through `PATH`.
        for (line, is_plain) in [
            ("own | tail -1", true),
            ("timeout 5 own", false),
            ("touch made && own", true),
            ("sh -c own", false),
        ] {
            let text = run(&make().policy(rules()), is_plain, json!({"command": line})).await;
            assert!(
                text.contains("PLANTED"),
                "without {without:?}, `{line}`: {text}"
            );
        }
    }
}

#[tokio::test]
async fn only_reading_commands_run_read_only() {
    let fixture = Fixture::new(|builder| builder);
    if !enforces_read_only(&fixture.folder, &[]) {
        return;
    }
    let Dispatched::Done(result) = fixture.dispatch(json!({"command": "env"}), false).await else {
        panic!()
    };
    assert!(
        result.text().contains("RIPGREP_CONFIG_PATH"),
        "{}",
        result.text()
    );
    let result = fixture
        .run(json!({"command": "env > made; cat made"}))
        .await;
    assert!(
        !result.text().contains("RIPGREP_CONFIG_PATH"),
        "{}",
        result.text()
    );
}

#[tokio::test]
async fn command_in_planted_repository_needs_approval() {
    let fixture = Fixture::new(|builder| builder);
    let space = Workspace::open(fixture.folder.path()).unwrap();
    let mark = fixture.folder.path().join("mark");
    let config = format!(
        "[core]\nbare = false\nworktree = .\nfsmonitor = \"touch {};:\"\n",
        mark.display()
    );
    for (name, text) in [
        ("evil/HEAD", "ref: refs/heads/main\n"),
        ("evil/objects/x", ""),
        ("evil/refs/x", ""),
        ("evil/config", &config),
    ] {
        space.create_dir(name.rsplit_once('/').unwrap().0).unwrap();
        space.write(name, text.as_bytes()).unwrap();
    }
    let asked = fixture
        .dispatch(json!({"command": "git -C evil status"}), false)
        .await;
    assert!(
        matches!(asked, Dispatched::NeedsApproval { .. }),
        "{asked:?}"
    );
    let asked = fixture
        .dispatch(json!({"command": "git status", "dir": "evil"}), false)
        .await;
    assert!(
        matches!(asked, Dispatched::NeedsApproval { .. }),
        "{asked:?}"
    );
    assert!(!mark.exists());
}

#[tokio::test]
async fn cancelled_call_stops_command() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(&folder, |builder| builder);
    let mut cx = ToolCx::detached();
    let cancel = CancelToken::new();
    cx.cancel = cancel.clone();
    cx.progress = Progress::new(move |_| cancel.cancel());
    let error = tool
        .call(json!({"command": "echo begun; sleep 1000"}), &cx)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Cancelled);
}

#[tokio::test]
async fn run_command_passes_tool_conformance() {
    let folder = tempfile::tempdir().unwrap();
    let make = || tool(&folder, |builder| builder);
    levity_test::conformance::tool(make, json!({"command": "echo hello"})).await;
    let hints = make().spec().hints.clone();
    assert!(!hints.class.may_repeat() && hints.timeout > Some(Duration::from_secs(120)));
}
