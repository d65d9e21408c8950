//! Files that the command line or the environment names for levity itself. A tool that could write
//! a journal could approve its own calls, one that could read a file of tokens could call as
//! anybody, and one that could write a file of settings could say what the next start does.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use clap::ArgMatches;
use levity::sandbox::WorkspaceBuilder;

/// Options whose files only levity itself reads and writes: they hold what was said, or secrets, or
/// say what levity does and which programs it starts.
const OPTIONS: [&str; 20] = [
    "journal",
    "memory",
    "sessions",
    "logs",
    "cache",
    "facts",
    "bus",
    "out",
    "junit",
    "token_file",
    "named_tokens",
    "tls_key",
    "access_log",
    "mcp",
    "tools",
    "agents",
    "prompts",
    "script",
    "plan",
    "tls_cert",
];

/// Variables that name such files by their absolute paths.
const VARIABLES: [&str; 3] = ["LEVITY_MCP_SERVERS", "MCP_SERVERS_CONFIG", "LEVITY_MODELS"];

/// Globs before and behind the name of such a file, for the names of files beside it: those of
/// databases, tasks of a journal, an older log, and files that are written before they take the
/// place of another, or hold its locks.
const BESIDE: [(&str, &str); 10] = [
    ("", ""),
    ("", "-wal"),
    ("", "-shm"),
    ("", "-journal"),
    ("", "-owners"),
    ("", ".tasks"),
    ("", ".1"),
    ("", ".*.part"),
    (".", ".new"),
    (".", ".levity"),
];

/// Files with the words that named them.
static NAMED: OnceLock<Vec<(String, PathBuf)>> = OnceLock::new();

/// Takes in the files that the command line and the environment name.
pub(crate) fn take_in(mut matches: &ArgMatches) {
    let in_environment = |name: &&str| {
        let path = PathBuf::from(std::env::var(name).ok()?.trim());
        path.is_absolute()
            .then(|| (format!("{name}={}", path.display()), path))
    };
    let mut named: Vec<_> = VARIABLES.iter().filter_map(in_environment).collect();
    loop {
        for option in OPTIONS {
            let paths = matches
                .try_get_many::<PathBuf>(option)
                .ok()
                .flatten()
                .into_iter()
                .flatten();
            let words =
                |path: &PathBuf| format!("--{} {}", option.replace('_', "-"), path.display());
            named.extend(paths.map(|path| (words(path), path.clone())));
        }
        match matches.subcommand() {
            Some((_, inner)) => matches = inner,
            None => break,
        }
    }
    let _ = NAMED.set(named);
}

/// Keeps all tools of a workspace from the files in it that are levity's own.
///
/// # Errors
/// When the workspace lies within one of them.
pub(crate) fn deny(folder: &Path, builder: WorkspaceBuilder) -> Result<WorkspaceBuilder, String> {
    // A folder that cannot be found is told when it is opened.
    let Ok(root) = folder.canonicalize() else {
        return Ok(builder);
    };
    // Keys, tokens and marks of this user.
    let state = crate::state::folder()
        .ok()
        .into_iter()
        .flat_map(|folder| places(&folder));
    let state =
        state.filter_map(|place| Some(place.strip_prefix(&root).ok()?.to_str()?.to_owned()));
    let builder = state
        .filter(|below| !below.is_empty())
        .fold(builder, |builder, below| {
            builder.deny(format!("/{}", literal(&below)))
        });
    let named = NAMED.get().map(Vec::as_slice).unwrap_or_default();
    named.iter().try_fold(builder, |builder, (words, path)| {
        places(path).into_iter().try_fold(builder, |builder, place| {
            if root.starts_with(&place) {
                return Err(format!(
                    "`{words}` holds the workspace `{}`, whose tools could then change it; name \
                        another place",
                    folder.display()
                ));
            }
            let Ok(below) = place.strip_prefix(&root) else { return Ok(builder) };
            let below = below.to_str().ok_or_else(|| format!("`{}` is not UTF-8", path.display()))?;
            let (folder, name) = below.rsplit_once('/').map_or(("", below), |(folder, name)| (folder, name));
            let folder = if folder.is_empty() { String::new() } else { format!("/{}", literal(folder)) };
            let name = literal(name);
            Ok(BESIDE.iter().fold(builder, |builder, (before, behind)| {
                builder.deny(format!("{folder}/{before}{name}{behind}"))
            }))
        })
    })
}

/// The places that a path may mean: as it is written, and where links on the way lead.
fn places(path: &Path) -> Vec<PathBuf> {
    let Ok(absolute) = std::path::absolute(path) else {
        return Vec::new();
    };
    // `nowhere/../x` is found out once somebody makes `nowhere`.
    let mut normal = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    let mut places = vec![absolute.clone(), normal];
    let found = absolute
        .ancestors()
        .find_map(|above| Some((above, above.canonicalize().ok()?)));
    if let Some((above, real)) = found
        && let Ok(rest) = absolute.strip_prefix(above)
    {
        places.push(real.join(rest));
    }
    if let (Some(folder), Some(name)) = (
        absolute
            .parent()
            .and_then(|folder| folder.canonicalize().ok()),
        absolute.file_name(),
    ) {
        places.push(folder.join(name));
    }
    places.dedup();
    places
}

/// A glob that matches a path alone.
fn literal(path: &str) -> String {
    let mut glob = String::new();
    for char in path.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!' | ',') {
            glob.push('\\');
        }
        glob.push(char);
    }
    glob
}
