use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use levity_sandbox::{CommandError, Level, Sandbox, SandboxError, Workspace};

use super::DISABLED;
use super::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn command_that_cannot_run_returns_reason() {
    for disabled in DISABLED {
        let fixture = Fixture::new(disabled, |builder| builder);
        let work = fixture.work();
        fs::write(work.join("plain"), "no program").unwrap();
        fs::write(work.join("text"), "no program").unwrap();
        fs::set_permissions(work.join("text"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(work.join("sub")).unwrap();
        symlink(fixture.outside(), work.join("away")).unwrap();
        let error = async |argv: &[&str]| {
            fixture
                .sandbox
                .command(argv.iter().copied())
                .run()
                .await
                .unwrap_err()
        };
        assert!(matches!(error(&[]).await, CommandError::Empty));
        assert!(matches!(error(&[""]).await, CommandError::Empty));
        assert!(matches!(
            error(&["no-such-program"]).await,
            CommandError::NotFound(name) if name == "no-such-program"
        ));
        assert!(matches!(
            error(&["./nothing"]).await,
            CommandError::NotFound(_)
        ));
        assert!(matches!(
            error(&["./plain"]).await,
            CommandError::NotExecutable(_)
        ));
        assert!(matches!(
            error(&["./text"]).await,
            CommandError::NotExecutable(_)
        ));
        assert!(matches!(
            error(&["./sub"]).await,
            CommandError::NotExecutable(_)
        ));
        assert!(matches!(
            error(&["echo", "a\0b"]).await,
            CommandError::NulByte(_)
        ));
        assert!(matches!(
            error(&["echo", &"x".repeat(1 << 20)]).await,
            CommandError::TooLong
        ));
        for dir in [
            "..",
            "/",
            "/etc",
            "sub/../..",
            "away",
            "away/folder",
            "nothing",
            "plain",
            "a\0b",
        ] {
            let error = fixture
                .sandbox
                .command(["pwd"])
                .dir(dir)
                .run()
                .await
                .unwrap_err();
            assert!(
                matches!(error, CommandError::Directory(_)),
                "{dir}: {error:?}"
            );
        }
        let error = fixture
            .sandbox
            .command(["env"])
            .env("A", "b\0c")
            .run()
            .await
            .unwrap_err();
        assert!(matches!(error, CommandError::NulByte(_)), "{error:?}");
        fixture.assert_empty();
    }
}

#[test]
fn level_below_required_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let weak = || {
        Sandbox::builder(&workspace)
            .disable("landlock")
            .disable("namespaces")
    };
    let error = weak().build().unwrap_err();
    let SandboxError::InsufficientLevel {
        wanted: Level::Guarded,
        missing,
        report,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert!(missing.contains("files not enforced"), "{missing}");
    assert!(report.level < Level::Guarded);
    assert!(
        error.to_string().contains("`.require_level(..)`"),
        "{error}"
    );
    assert!(
        weak()
            .require_level(Level::Isolated)
            .build()
            .unwrap_err()
            .to_string()
            .contains("hidden files")
    );
    weak().require_level(Level::Open).build().unwrap();
}

#[test]
fn invalid_sandbox_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let open = || Sandbox::builder(&workspace).require_level(Level::Open);
    assert!(matches!(
        open().time_limit(Duration::ZERO).build(),
        Err(SandboxError::Setting(_))
    ));
    assert!(matches!(
        open().memory_limit(0).build(),
        Err(SandboxError::Setting(_))
    ));
    assert!(matches!(
        open().max_processes(0).build(),
        Err(SandboxError::Setting(_))
    ));
    assert!(matches!(
        open().allow_read("/no/such/place").build(),
        Err(SandboxError::Place(..))
    ));
    assert!(matches!(
        open().allow_write("/no/such/place").build(),
        Err(SandboxError::Place(..))
    ));
}

#[test]
fn run_outside_runtime_returns_error() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let sandbox = Sandbox::builder(&workspace)
        .require_level(Level::Open)
        .build()
        .unwrap();
    let mut run = std::pin::pin!(sandbox.command(["true"]).run());
    let polled = run
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(matches!(
        polled,
        std::task::Poll::Ready(Err(CommandError::NoRuntime))
    ));
}
