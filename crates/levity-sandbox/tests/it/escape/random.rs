//! Random trees of links and random paths, against a model that has no file system.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::Path;

use levity_sandbox::Workspace;
use proptest::prelude::*;

use super::kind;

#[derive(Clone, Debug)]
enum Node {
    File,
    Dir(BTreeMap<String, Node>),
    Link(String),
}

/// The result of a path: the real path of a file or a folder, or the error variant.
type Found = Result<String, &'static str>;

fn lexical(path: &str) -> Result<Vec<&str>, &'static str> {
    if path.is_empty() {
        return Err("Invalid");
    }
    if path.starts_with('/') {
        return Err("Outside");
    }
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop().ok_or("Outside")?),
            name => names.push(name),
        }
    }
    match names.contains(&".env") {
        true => Err("Denied"),
        false => Ok(names),
    }
}

fn node<'a>(root: &'a Node, path: &[String]) -> Option<&'a Node> {
    path.iter().try_fold(root, |node, name| match node {
        Node::Dir(entries) => entries.get(name),
        _ => None,
    })
}

/// Collects the real paths of the targets of denied names, relative to the workspace.
fn targets(root: &Path, at: &Path, node: &Node, is_denied: bool, found: &mut BTreeSet<String>) {
    match node {
        Node::Dir(entries) => {
            for (name, node) in entries {
                targets(
                    root,
                    &at.join(name),
                    node,
                    is_denied || name == ".env",
                    found,
                );
            }
        }
        Node::Link(_) if is_denied => {
            let real = at.canonicalize().ok();
            let inside = real.as_ref().and_then(|real| real.strip_prefix(root).ok());
            found.extend(
                inside
                    .map(|path| path.to_str().unwrap().to_owned())
                    .filter(|path| !path.is_empty()),
            );
        }
        _ => {}
    }
}

fn model(root: &Node, targets: &BTreeSet<String>, path: &str) -> Found {
    let names = lexical(path)?;
    if (1..=names.len()).any(|end| targets.contains(&names[..end].join("/"))) {
        return Err("Denied");
    }
    let mut todo: Vec<String> = names.into_iter().rev().map(str::to_owned).collect();
    let (mut at, mut links) = (Vec::<String>::new(), 0);
    while let Some(name) = todo.pop() {
        if name == ".." {
            at.pop().ok_or("Outside")?;
            continue;
        }
        if name == ".env" {
            return Err("Denied");
        }
        at.push(name);
        if targets.contains(&at.join("/")) {
            return Err("Denied");
        }
        match node(root, &at) {
            None => return Err("NotFound"),
            Some(Node::File) if todo.is_empty() => {}
            Some(Node::File) => return Err("NotADirectory"),
            Some(Node::Dir(_)) => {}
            Some(Node::Link(target)) => {
                links += 1;
                if links > 40 {
                    return Err("Invalid");
                }
                if target.starts_with('/') {
                    return Err("Outside");
                }
                at.pop();
                todo.extend(
                    target
                        .rsplit('/')
                        .filter(|name| !matches!(*name, "" | "."))
                        .map(str::to_owned),
                );
            }
        }
    }
    Ok(at.join("/"))
}

fn build(at: &Path, node: &Node) {
    match node {
        Node::File => std::fs::write(at, "inside").unwrap(),
        Node::Link(target) => symlink(target, at).unwrap(),
        Node::Dir(entries) => {
            std::fs::create_dir_all(at).unwrap();
            entries
                .iter()
                .for_each(|(name, node)| build(&at.join(name), node));
        }
    }
}

/// Returns the results of the workspace: by reading, by listing and by metadata.
fn real(space: &Workspace, path: &str) -> [Result<String, String>; 3] {
    [
        space
            .open_file(path)
            .map(|file| file.path().to_owned())
            .map_err(|error| kind(&error)),
        space
            .dir(path)
            .map(|dir| dir.path().to_owned())
            .map_err(|error| kind(&error)),
        space
            .metadata(path)
            .map(|meta| meta.kind().to_string())
            .map_err(|error| kind(&error)),
    ]
}

/// Returns the same results from the model.
fn expected(root: &Node, targets: &BTreeSet<String>, path: &str) -> [Result<String, String>; 3] {
    let found = model(root, targets, path);
    let is_file = found.as_ref().is_ok_and(|path| {
        let names: Vec<_> = path
            .split('/')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        matches!(node(root, &names), Some(Node::File))
    });
    let found = found.map_err(str::to_owned);
    // A file cannot be below another: for a read, it does not exist.
    let read = found.clone().map_err(|kind| {
        if kind == "NotADirectory" {
            "NotFound".into()
        } else {
            kind
        }
    });
    let read = read.and_then(|path| {
        if is_file {
            Ok(path)
        } else {
            Err("NotAFile".to_owned())
        }
    });
    let list = found.clone().and_then(|path| {
        if is_file {
            Err("NotADirectory".to_owned())
        } else {
            Ok(path)
        }
    });
    let look = found.map(|_| {
        if is_file {
            "file".to_owned()
        } else {
            "folder".to_owned()
        }
    });
    [read, list, look]
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", ".env"]).prop_map(str::to_owned)
}

fn path() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        6 => name(),
        2 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
    ];
    prop::collection::vec(step, 1..7).prop_map(|steps| steps.join("/"))
}

fn tree() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        2 => Just(Node::File),
        3 => path().prop_map(|target| match target.is_empty() {
            true => Node::Link(".".to_owned()),
            false => Node::Link(target),
        }),
    ];
    let inner = leaf.prop_recursive(4, 32, 4, |node| {
        prop::collection::btree_map(name(), node, 0..5).prop_map(Node::Dir)
    });
    prop::collection::btree_map(name(), inner, 0..5).prop_map(Node::Dir)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_paths_resolve_as_model_predicts(
        tree in tree(),
        paths in prop::collection::vec(path(), 1..12),
    ) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("ws");
        build(&root, &tree);
        let mut known = BTreeSet::new();
        let real_root = root.canonicalize().unwrap();
        targets(&real_root, &real_root, &tree, false, &mut known);
        let builder = Workspace::builder(&root);
        let spaces = [builder.clone().build().unwrap(), builder.walk_only().build().unwrap()];
        for path in &paths {
            for space in &spaces {
                prop_assert_eq!(real(space, path), expected(&tree, &known, path), "{:?}", path);
            }
        }
    }

    #[test]
    fn random_text_neither_panics_nor_leaves_workspace(path in "\\PC*|[./a\\x00~]{0,40}") {
        let temp = tempfile::tempdir().unwrap();
        let space = Workspace::open(temp.path()).unwrap();
        prop_assert!(space.open_file(&path).is_err());
        if let Ok(dir) = space.dir(&path) {
            prop_assert_eq!(dir.path(), "");
        }
        let _ = space.denies(&path);
    }
}
