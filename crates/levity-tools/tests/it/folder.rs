//! Tools that are loaded from a folder.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Tool, ToolOutput, ToolSource as _};
use levity_test::{RecordingTool, conformance};
use levity_tools::{FileLoader, FolderTools, LoadedFile, Registry, ToolFile};

/// A loader that makes a tool of each line of a `.list` file.
struct Lists;

impl FileLoader for Lists {
    fn takes(&self, name: &str) -> bool {
        name.ends_with(".list")
    }

    fn load(&self, file: &ToolFile) -> LoadedFile {
        assert!(!file.text.contains("panic"), "a bug in the loader");
        if file.text.contains('?') {
            return LoadedFile::problem("line 1: a question is no tool");
        }
        let tool = |name: &str| -> Arc<dyn Tool> {
            Arc::new(RecordingTool::new(name, |_| Ok(ToolOutput::text("done"))))
        };
        LoadedFile::tools(file.text.lines().map(tool).collect())
    }
}

fn open(folder: &Path) -> FolderTools {
    FolderTools::builder(folder)
        .loader(Lists)
        .scan_interval(Duration::ZERO)
        .build()
        .unwrap()
}

fn names(tools: &FolderTools) -> Vec<String> {
    tools
        .tools()
        .iter()
        .map(|tool| tool.spec().name.clone())
        .collect()
}

#[tokio::test]
async fn files_become_tools_and_follow_changes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("b.list", "three");
    write("a.list", "one\ntwo");
    write("_private.list", "hidden");
    write(".private.list", "hidden");
    write("README.md", "Not a tool.");
    fs::create_dir(folder.path().join("sub.list")).unwrap();
    let tools = open(folder.path());
    assert_eq!(names(&tools), ["one", "two", "three"]);
    assert!(tools.problems().is_empty(), "{:?}", tools.problems());
    conformance::tool_source(&tools, async |_| write("b.list", "four")).await;
    assert_eq!(names(&tools), ["one", "two", "four"]);
    // It has the same length, within the same tick of a coarse clock.
    write("b.list", "five");
    assert_eq!(names(&tools), ["one", "two", "five"]);
    fs::remove_file(folder.path().join("a.list")).unwrap();
    assert_eq!(names(&tools), ["five"]);
    let registry = Registry::builder().source(tools).build().unwrap();
    write("c.list", "six");
    assert_eq!(
        registry
            .specs()
            .iter()
            .map(|spec| &*spec.name)
            .collect::<Vec<_>>(),
        ["five", "six"]
    );
}

#[test]
fn invalid_file_is_reported_and_others_work() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    write("a.list", b"one");
    write("broken.list", b"what?");
    write("bytes.list", b"\xff\xfe");
    write("large.list", &vec![b'a'; 2 << 20]);
    write("panics.list", b"panic");
    write("same.list", b"one");
    write("name.list", b"no name at all");
    let tools = open(folder.path());
    let registry = Registry::builder().source(tools).build().unwrap();
    assert_eq!(
        registry
            .specs()
            .iter()
            .map(|spec| &*spec.name)
            .collect::<Vec<_>>(),
        ["one"]
    );
    let problems: Vec<String> = registry
        .problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    for wanted in [
        "`broken.list`: line 1: a question is no tool",
        "`bytes.list`: it cannot be read",
        "`large.list`: it is larger than 1048576 bytes",
        "`panics.list`: its loader panicked",
        "`same.list`: the tool `one` is already in `a.list`",
        "`no name at all` is not a valid tool name",
    ] {
        assert!(
            problems.iter().any(|problem| problem.contains(wanted)),
            "{wanted}: {problems:#?}"
        );
    }
    write("broken.list", b"mended");
    assert_eq!(registry.specs().len(), 2);
    assert_eq!(registry.problems().len(), problems.len() - 1);
}

#[cfg(unix)]
#[test]
fn link_out_of_folder_is_reported() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(other.path().join("secret.list"), "secret").unwrap();
    fs::create_dir(folder.path().join("versions")).unwrap();
    fs::write(folder.path().join("versions/1.list"), "one").unwrap();
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
    };
    link(Path::new("versions/1.list"), "inside.list");
    link(&other.path().join("secret.list"), "outside.list");
    let tools = open(folder.path());
    assert_eq!(names(&tools), ["one"]);
    assert_eq!(
        tools.problems(),
        ["`outside.list`: it is a link to a file outside of the folder; copy the file instead"]
    );
}

#[test]
fn file_without_loader_is_reported_with_its_feature() {
    let folder = tempfile::tempdir().unwrap();
    for (name, feature) in [("a.py", "python"), ("b.tool.json", "commands")] {
        fs::write(folder.path().join(name), "").unwrap();
        let problems = FolderTools::open(folder.path()).unwrap().problems();
        let wanted =
            format!("`{name}`: there is no loader for such files; enable the feature `{feature}`");
        assert!(problems.contains(&wanted), "{problems:?}");
    }
}

#[test]
fn removed_folder_is_reported_and_recovers() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("tools");
    let missing = FolderTools::open(&folder).unwrap_err();
    assert!(
        missing.to_string().ends_with("cannot be loaded"),
        "{missing}"
    );
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.list"), "one").unwrap();
    let tools = open(&folder);
    fs::rename(&folder, root.path().join("away")).unwrap();
    let [problem] = &*tools.problems() else {
        panic!("one problem")
    };
    assert!(
        problem.starts_with("the folder cannot be read"),
        "{problem}"
    );
    // The earlier tools can still be called: an editor may be at work.
    assert_eq!(names(&tools), ["one"]);
    fs::rename(root.path().join("away"), &folder).unwrap();
    assert!(tools.problems().is_empty());
}

#[test]
fn tools_are_unchanged_until_next_scan() {
    let folder = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let tools = FolderTools::builder(folder.path())
        .loader(Lists)
        .scan_interval(hour)
        .build()
        .unwrap();
    fs::write(folder.path().join("a.list"), "one").unwrap();
    assert_eq!(names(&tools), [""; 0]);
    tools.reload();
    assert_eq!(names(&tools), ["one"]);
}
