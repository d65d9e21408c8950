//! Tests of the file tools through a dispatcher.

mod artifact;
mod edit;
mod list;
mod read;
mod search;
mod write;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use levity_builtin_tools::FileTools;
use levity_core::{Progress, ToolCall, ToolErrorKind, ToolReport, ToolResult};
#[cfg(target_os = "linux")]
use levity_core::{Tool, ToolCx, ToolOutput};
use levity_sandbox::Workspace;
use levity_test::ManualWorld;
use levity_tools::{CallCx, Dispatched, Dispatcher, Registry};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder, and a dispatcher with the tools for it.
struct Fixture {
    temp: TempDir,
    dispatcher: Dispatcher,
    changed: Arc<Mutex<Vec<String>>>,
}

/// Calls a tool on a thread that has no more rights than an owner of files, even if root runs the
/// test.
#[cfg(target_os = "linux")]
fn call_without_privileges(tool: &dyn Tool, args: Value) -> ToolOutput {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective = CapabilitySet::empty();
            set_capabilities(None, sets).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime
                .unwrap()
                .block_on(tool.call(args, &ToolCx::detached()))
                .unwrap()
        });
        thread.join().unwrap()
    })
}

/// Sets the mode of a folder.
#[cfg(target_os = "linux")]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

impl Fixture {
    fn new() -> Self {
        Self::with(|tools| tools)
    }

    fn with(set: impl Fn(FileTools) -> FileTools) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let space = Workspace::open(temp.path()).unwrap();
        let registry = Registry::builder()
            .tools(set(FileTools::new(space)))
            .build()
            .unwrap();
        let dispatcher = Dispatcher::builder(registry)
            .world(Arc::new(ManualWorld::new()))
            .build()
            .unwrap();
        Self {
            temp,
            dispatcher,
            changed: Arc::default(),
        }
    }

    /// Creates a fixture with these files.
    fn with_files(files: &[(&str, &str)]) -> Self {
        let fixture = Self::new();
        files
            .iter()
            .for_each(|(path, text)| fixture.put(path, text));
        fixture
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.temp.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn path(&self) -> &Path {
        self.temp.path()
    }

    fn get(&self, path: &str) -> Vec<u8> {
        fs::read(self.temp.path().join(path)).unwrap()
    }

    async fn call(&self, tool: &str, args: Value) -> ToolResult {
        let changed = self.changed.clone();
        let progress = Progress::listen(move |report| {
            if let ToolReport::File(change) = report {
                changed
                    .lock()
                    .unwrap()
                    .push(format!("{} {}", change.path, change.kind));
            }
        });
        let cx = CallCx::new("run".into(), "run/1").with_progress(progress);
        match self
            .dispatcher
            .dispatch(&ToolCall::new("c", tool, args), false, cx)
            .await
        {
            Dispatched::Done(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the text of a call that succeeds.
    async fn text(&self, tool: &str, args: Value) -> String {
        let result = self.call(tool, args).await;
        assert_eq!(result.error, None, "{}", result.text());
        result.text().into_owned()
    }

    /// Returns the value of a call that succeeds.
    async fn value(&self, tool: &str, args: Value) -> Value {
        let result = self.call(tool, args).await;
        assert_eq!(result.error, None, "{}", result.text());
        result.value.unwrap()
    }

    /// Returns the kind and message of a call that fails.
    async fn error(&self, tool: &str, args: Value) -> (ToolErrorKind, String) {
        let result = self.call(tool, args).await;
        (
            result
                .error
                .unwrap_or_else(|| panic!("it succeeded: {}", result.text())),
            result.text().into_owned(),
        )
    }
}

#[tokio::test]
async fn file_tools_reject_outside_and_denied_paths() {
    let fixture = Fixture::with_files(&[
        ("a.txt", "text"),
        (".env", "SECRET"),
        (".git/config", "SECRET"),
    ]);
    std::os::unix::fs::symlink("/etc", fixture.path().join("etc")).unwrap();
    std::os::unix::fs::symlink(".env", fixture.path().join("notes")).unwrap();
    for path in [
        "../x",
        "/etc/passwd",
        "etc/passwd",
        ".env",
        "notes",
        ".git/config",
    ] {
        for (tool, args) in [
            ("read_file", json!({"path": path})),
            ("write_file", json!({"path": path, "content": "x"})),
            (
                "edit_file",
                json!({"path": path, "old": "SECRET", "new": "x"}),
            ),
            ("list_files", json!({"path": path})),
            ("search_files", json!({"path": path, "pattern": "SECRET"})),
        ] {
            let (kind, text) = fixture.error(tool, args).await;
            assert_eq!(kind, ToolErrorKind::Denied, "{tool} {path}: {text}");
            assert!(!text.contains("SECRET"), "{tool} {path}: {text}");
        }
    }
    let args = json!({"pattern": "SECRET", "hidden": true, "ignored": true});
    assert!(
        fixture
            .text("search_files", args)
            .await
            .starts_with("[no match in 1 file;")
    );
    let list = fixture
        .text(
            "list_files",
            json!({"recursive": true, "hidden": true, "ignored": true}),
        )
        .await;
    assert_eq!(list, "a.txt (4)\netc (link)\nnotes (link)\n");
    assert_eq!(fixture.get(".env"), b"SECRET");
}

#[tokio::test]
async fn read_only_workspace_has_no_writing_tools() {
    let temp = tempfile::tempdir().unwrap();
    let space = Workspace::builder(temp.path()).read_only().build().unwrap();
    let registry = Registry::builder()
        .tools(FileTools::new(space))
        .build()
        .unwrap();
    let names: Vec<_> = registry
        .specs()
        .iter()
        .map(|spec| spec.name.clone())
        .collect();
    assert_eq!(names, ["read_file", "list_files", "search_files"]);
}

#[tokio::test]
async fn file_tools_pass_tool_conformance() {
    use levity_builtin_tools::{
        EditFile, ListFiles, ReadFile, SearchFiles, WriteArtifact, WriteFile,
    };
    use levity_test::conformance::tool;

    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("a.txt"), "a b").unwrap();
    let space = Workspace::open(temp.path()).unwrap();
    tool(|| ReadFile::new(space.clone()), json!({"path": "a.txt"})).await;
    tool(|| ListFiles::new(space.clone()), json!({})).await;
    tool(|| SearchFiles::new(space.clone()), json!({"pattern": "a"})).await;
    tool(
        || WriteFile::new(space.clone()),
        json!({"path": "b.txt", "content": "x"}),
    )
    .await;
    tool(
        || WriteArtifact::new(space.clone()),
        json!({"path": "c.txt", "content": "x"}),
    )
    .await;
    // Each call adds one more `a`, so that the next call finds its text again.
    tool(
        || EditFile::new(space.clone()),
        json!({"path": "a.txt", "old": "a b", "new": "x a b"}),
    )
    .await;
}

#[test]
fn changed_files_have_hashes_up_to_limits_smallest_first() {
    use levity_core::{CancelToken, ChangeRecorder, Toolbox as _};

    let temp = tempfile::tempdir().unwrap();
    let space = Workspace::open(temp.path()).unwrap();
    let source = FileTools::new(space).workspace().unwrap();
    let cancel = CancelToken::new();
    let before = source.snapshot(&cancel).unwrap();
    let create = |name: &str, size: u64| {
        let file = fs::File::create(temp.path().join(name)).unwrap();
        file.set_len(size).unwrap();
    };
    // Together with `z`, four of these are too much. `e` alone is too large.
    for name in ["a", "b", "c", "d"] {
        create(name, 8 << 20);
    }
    create("e", (8 << 20) + 1);
    create("z", 1);
    let changes = source.changes_since(&before, &cancel);
    let hashed = changes.iter().filter(|change| change.sha256.is_some());
    let hashed: Vec<_> = hashed.map(|change| &*change.path).collect();
    assert_eq!(hashed, ["a", "b", "c", "z"]);
    assert!(changes.iter().all(|change| change.size.is_some()));

    (0..1_100).for_each(|at| create(&format!("f{at}"), 1));
    let changes = source.changes_since(&before, &cancel);
    assert_eq!(changes.len(), ChangeRecorder::MAX_CHANGES);

    cancel.cancel();
    assert!(source.snapshot(&cancel).is_none());
    assert!(source.changes_since(&before, &cancel).is_empty());
}

#[test]
fn file_tools_list_workspace_for_context_value() {
    use levity_core::Toolbox as _;
    let temp = tempfile::tempdir().unwrap();
    let view = |max: usize| {
        let space = Workspace::open(temp.path()).unwrap();
        let view = FileTools::new(space.clone())
            .workspace()
            .unwrap()
            .view_now();
        assert_eq!(Path::new(&view.root), space.root());
        assert!(view.files.len() <= max, "{:?}", view.files.len());
        view.files
    };
    assert_eq!(view(0), [""; 0]);
    for (name, text) in [
        ("b.txt", ""),
        (".env", "KEY=1"),
        (".gitignore", "*.log\n"),
        ("x.log", ""),
        ("src/deep/a.rs", ""),
        ("src/z.rs", ""),
    ] {
        let path = temp.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    assert_eq!(
        view(3),
        ["b.txt", "src/deep/a.rs", "src/z.rs"],
        "nothing that is hidden, ignored or denied"
    );
    // Files near the root are listed, whatever is below them.
    let many = temp.path().join("a");
    fs::create_dir_all(&many).unwrap();
    (0..1_100).for_each(|at| fs::write(many.join(format!("{at}.txt")), "").unwrap());
    assert!(view(1_000).contains(&"b.txt".to_owned()));
}
