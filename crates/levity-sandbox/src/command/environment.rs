//! The variables that commands get, and the programs that they find by name.
//!
//! An environment is built up from nothing, since any variable of the host may contain a key. The
//! order of entries in `PATH` decides which program a name means. So a name that a policy trusts
//! must be looked up outside of places that commands can write to.

use std::collections::BTreeMap;
#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The environment of commands. It contains only named variables, and nothing else of the host's.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    set: BTreeMap<OsString, OsString>,
}

/// The value of `PATH` if the host has none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that always fails.
#[cfg(target_os = "linux")]
const FAILING: &str = "/bin/false";

/// Programs that are scripts on some systems, and the programs that these search for in `PATH`.
#[cfg(target_os = "linux")]
const SCRIPTS: &[(&str, &[&str])] = &[("egrep", &["grep"]), ("fgrep", &["grep"]), ("which", &[])];

impl Environment {
    /// Creates the default environment: the search path, the language, and a terminal without
    /// features.
    pub(super) fn new() -> Self {
        let mut environment = Self::default();
        environment.set("PATH", PATH);
        environment.set("TERM", "dumb");
        for (name, value) in std::env::vars_os() {
            let harmless =
                name == "PATH" || name == "LANG" || name.as_encoded_bytes().starts_with(b"LC_");
            if harmless && !value.is_empty() {
                environment.set(name, value);
            }
        }
        environment
    }

    /// A variable that exists is replaced.
    pub(super) fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.set.insert(name.into(), value.into());
    }

    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        self.set.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Isolates programs that only read from settings in the workspace, and from programs in it.
    /// The kernel already prevents harm; these settings avoid failing attempts.
    #[cfg(target_os = "linux")]
    pub(super) fn restrict_to_reading(&mut self, workspace: &Path, home: &Path, temp: &Path) {
        self.set("HOME", home);
        self.set("TMPDIR", temp);
        // A settings file can name a program that `rg` runs for each file.
        self.set("RIPGREP_CONFIG_PATH", "");
        self.remove_from_path(&[workspace]);
    }

    /// Removes folders from `PATH` that are in these places, or are not absolute.
    ///
    /// A folder that does not exist is removed as well: a command could create it later.
    pub(super) fn remove_from_path(&mut self, places: &[&Path]) {
        let path = self.path();
        let outside = std::env::split_paths(&path).filter(|folder| is_outside(folder, places));
        if let Ok(path) = std::env::join_paths(outside) {
            self.set("PATH", path);
        }
    }

    /// Fills a folder with links to programs that are in none of these places, and puts it first in
    /// `PATH`. The programs that these run in turn are in none of these places either. If one of
    /// them is an unknown script, no program is found in these places any more.
    ///
    /// A program that exists in none of the other folders becomes a link to `/bin/false`. The name
    /// then fails, and does not find a file of the workspace.
    ///
    /// # Errors
    /// Returns the error of a link that cannot be created, or of a path that contains a `:`.
    #[cfg(target_os = "linux")]
    pub(super) fn link_programs(
        &mut self,
        names: &[String],
        places: &[&Path],
        folder: &Path,
    ) -> std::io::Result<()> {
        let path = self.path();
        let folders: Vec<_> = std::env::split_paths(&path)
            .filter(|folder| is_outside(folder, places))
            .collect();
        let known = |name: &str| {
            SCRIPTS
                .iter()
                .find(|(script, _)| *script == name)
                .map(|(_, runs)| *runs)
        };
        let mut all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        all.extend(names.iter().filter_map(|name| known(name)).flatten());
        let mut runs_others = false;
        for name in all {
            let programs = folders.iter().map(|folder| folder.join(name));
            let programs: Vec<_> = programs
                .filter(|file| is_program(file) && is_outside(file, places))
                .collect();
            // A line may name any of them by its folder.
            runs_others |= known(name).is_none() && programs.iter().any(|file| is_script(file));
            // Without a link, a program in these places would be found.
            let program = programs
                .into_iter()
                .next()
                .unwrap_or_else(|| FAILING.into());
            std::os::unix::fs::symlink(program, folder.join(name))?;
        }
        let others = if runs_others {
            folders
        } else {
            std::env::split_paths(&path).collect()
        };
        let path = std::env::join_paths(std::iter::once(folder.to_owned()).chain(others));
        self.set("PATH", path.map_err(std::io::Error::other)?);
        Ok(())
    }

    fn path(&self) -> OsString {
        self.get("PATH").unwrap_or(OsStr::new(PATH)).to_owned()
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.set.iter()
    }

    /// Returns `NAME=value` lines, sorted by name.
    #[cfg(target_os = "linux")]
    pub(super) fn lines(&self) -> impl Iterator<Item = OsString> + '_ {
        self.set.iter().map(|(name, value)| {
            let mut line = name.clone();
            line.push("=");
            line.push(value);
            line
        })
    }
}

/// Returns `true` if a path exists and its real path is in none of these places.
fn is_outside(path: &Path, places: &[&Path]) -> bool {
    let is_elsewhere =
        |real: std::path::PathBuf| !places.iter().any(|place| real.starts_with(place));
    path.is_absolute() && path.canonicalize().is_ok_and(is_elsewhere)
}

/// Returns `true` if a program is a script for another program, or cannot be read.
#[cfg(target_os = "linux")]
fn is_script(file: &Path) -> bool {
    use std::io::Read as _;

    let mut start = [0; 4];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    // A shell runs a file with an unknown beginning as a script.
    read.is_err() || start != *b"\x7fELF"
}

#[cfg(target_os = "linux")]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns the folders of `PATH` and the links that are created for programs of these names.
    fn link(names: &[&str]) -> (Vec<String>, Vec<String>) {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let [work, system, links] = ["work", "system", "links"].map(|name| root.join(name));
        for folder in [&work, &system, &links] {
            fs::create_dir_all(folder).unwrap();
        }
        for (name, text) in [
            ("work/grep", "#!/bin/sh"),
            ("work/own", "#!/bin/sh"),
            ("system/grep", "\x7fELF"),
            ("system/tail", "\x7fELF"),
            ("system/egrep", "#!/bin/sh"),
            ("system/which", "#! /bin/sh"),
            ("system/date", "#!/usr/bin/env python3"),
            ("system/seq", "exec other-seq"),
        ] {
            fs::write(root.join(name), text).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut environment = Environment::default();
        environment.set("PATH", std::env::join_paths([&work, &system]).unwrap());
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        environment.link_programs(&names, &[&work], &links).unwrap();
        let path = environment.path();
        let short = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let folders = std::env::split_paths(&path)
            .map(|folder| short(&folder))
            .collect();
        let mut made: Vec<_> = fs::read_dir(&links)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap().path();
                let target = fs::read_link(&entry).unwrap();
                format!(
                    "{} {}",
                    short(&entry),
                    target.strip_prefix(&root).unwrap_or(&target).display()
                )
            })
            .collect();
        made.sort();
        (folders, made)
    }

    #[test]
    fn link_programs_links_programs_that_scripts_run() {
        let everywhere = ["links", "work", "system"];
        for (names, folders, links) in [
            (&["tail"][..], &everywhere[..], &["tail system/tail"][..]),
            (
                &["egrep"],
                &everywhere,
                &["egrep system/egrep", "grep system/grep"],
            ),
            (
                &["egrep", "grep"],
                &everywhere,
                &["egrep system/egrep", "grep system/grep"],
            ),
            (
                &["fgrep"],
                &everywhere,
                &["fgrep /bin/false", "grep system/grep"],
            ),
            (&["which"], &everywhere, &["which system/which"]),
            (&["own"], &everywhere, &["own /bin/false"]),
            // The programs that these run are unknown.
            (
                &["date", "tail"],
                &["links", "system"],
                &["date system/date", "tail system/tail"],
            ),
            (&["seq"], &["links", "system"], &["seq system/seq"]),
        ] {
            let (found, made) = link(names);
            assert_eq!(found, folders, "{names:?}");
            assert_eq!(made, links, "{names:?}");
        }
    }
}
