//! Files of levity's own that the command line names. A tool that could write a journal could approve its own calls, and one that
//! could read a file of tokens could call as anybody.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use clap::ArgMatches;
use levity::sandbox::WorkspaceBuilder;

/// Options whose files only levity itself reads and writes: they hold what was said, or secrets, or say which programs levity starts.
const OPTIONS: [&str; 14] = [
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
];

/// Endings of files that stand beside those.
const BESIDE: [&str; 7] = ["", "-wal", "-shm", "-journal", "-owners", ".tasks", ".1"];

static NAMED: OnceLock<Vec<(&'static str, PathBuf)>> = OnceLock::new();

/// Takes in the files that the command line names.
pub(crate) fn take_in(mut matches: &ArgMatches) {
    let mut named = Vec::new();
    loop {
        for option in OPTIONS {
            let path = matches.try_get_one::<PathBuf>(option).ok().flatten();
            named.extend(path.map(|path| (option, path.clone())));
        }
        match matches.subcommand() {
            Some((_, inner)) => matches = inner,
            None => break,
        }
    }
    let _ = NAMED.set(named);
}

/// Keeps all tools of a workspace from levity's own files in it.
///
/// # Errors
/// When the workspace lies within one of them.
pub(crate) fn deny(folder: &Path, builder: WorkspaceBuilder) -> Result<WorkspaceBuilder, String> {
    // A folder that cannot be found is told when it is opened.
    let Ok(root) = folder.canonicalize() else { return Ok(builder) };
    // Keys, tokens and marks of this user.
    let state = crate::state::folder().ok().into_iter().flat_map(|folder| places(&folder));
    let state = state.filter_map(|place| Some(place.strip_prefix(&root).ok()?.to_str()?.to_owned()));
    let builder = state
        .filter(|below| !below.is_empty())
        .fold(builder, |builder, below| builder.deny(format!("/{}", literal(&below))));
    let named = NAMED.get().map(Vec::as_slice).unwrap_or_default();
    named.iter().try_fold(builder, |builder, (option, path)| {
        places(path).into_iter().try_fold(builder, |builder, place| {
            if root.starts_with(&place) {
                let option = option.replace('_', "-");
                return Err(format!(
                    "`--{option} {}` holds the workspace `{}`, whose tools could then change it; name another place",
                    path.display(),
                    folder.display()
                ));
            }
            let Ok(below) = place.strip_prefix(&root) else { return Ok(builder) };
            let below = below.to_str().ok_or_else(|| format!("`{}` is not UTF-8", path.display()))?;
            Ok(BESIDE.iter().fold(builder, |builder, ending| builder.deny(format!("/{}{ending}", literal(below)))))
        })
    })
}

/// The places that a path may mean: as it is written, and where links on the way lead.
fn places(path: &Path) -> Vec<PathBuf> {
    let Ok(absolute) = std::path::absolute(path) else { return Vec::new() };
    // `nowhere/../x` is found out once somebody makes `nowhere`.
    let mut normal = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    let mut places = vec![absolute.clone(), normal];
    let found = absolute.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    if let Some((above, real)) = found
        && let Ok(rest) = absolute.strip_prefix(above)
    {
        places.push(real.join(rest));
    }
    if let (Some(folder), Some(name)) =
        (absolute.parent().and_then(|folder| folder.canonicalize().ok()), absolute.file_name())
    {
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
