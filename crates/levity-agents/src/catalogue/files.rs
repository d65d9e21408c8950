//! A folder with a config and prompts.
//!
//! The folder may come from a third party, so paths are checked twice: a prompt path must not
//! contain `..` or start at the root, and the resolved file must lie below the resolved folder.
//! Only regular files up to a fixed size are read. Writing never overwrites a file.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use levity_dag::__private::{near, short};

use super::error::{CatalogueError, ConfigLocation};
use super::node::{self, Node};

/// The possible names of a config.
const CONFIGS: [&str; 3] = ["agent_config.yaml", "agent_config.yml", "agent_config.json"];
/// The subfolder in which prompts are searched, next to the folder of the config.
const PROMPTS: &str = "prompts";

/// A folder of agents.
pub(super) struct Folder {
    /// The path as the caller passed it, for messages.
    pub(super) dir: PathBuf,
    /// The canonical path, to check that files are below it.
    real: PathBuf,
}

impl Folder {
    /// # Errors
    /// Returns [`CatalogueError::Read`] if the folder does not exist or is a file.
    pub(super) fn open(dir: &Path) -> Result<Self, CatalogueError> {
        let read = |source| CatalogueError::Read {
            path: dir.to_path_buf(),
            source,
        };
        let real = fs::canonicalize(dir).map_err(read)?;
        if !real.is_dir() {
            return Err(read(io::Error::new(
                io::ErrorKind::NotADirectory,
                "it is not a folder",
            )));
        }
        Ok(Self {
            dir: dir.to_path_buf(),
            real,
        })
    }

    /// Returns the configs that exist in the folder.
    fn configs(&self) -> Vec<PathBuf> {
        let paths = CONFIGS.iter().map(|name| self.dir.join(name));
        paths
            .filter(|path| path.symlink_metadata().is_ok())
            .collect()
    }

    /// Reads the config and returns its path as well.
    ///
    /// # Errors
    /// Returns [`CatalogueError::NoConfig`] without a config, and [`CatalogueError::Config`] if
    /// there are several or the text is invalid.
    pub(super) fn config(&self, max: u64) -> Result<(PathBuf, Node), CatalogueError> {
        let configs = self.configs();
        let Some(path) = configs.first() else {
            return Err(CatalogueError::NoConfig {
                dir: self.dir.clone(),
            });
        };
        let config = |line, problem| CatalogueError::Config {
            at: ConfigLocation::of(Some(path)).line(line),
            problem,
        };
        if let Some(other) = configs.get(1) {
            let name = other.file_name().unwrap_or_default().display();
            return Err(config(
                None,
                format!("there is also a `{name}`; remove one of them"),
            ));
        }
        let text = self.read(path, max).map_err(|problem| match problem {
            Problem::Io(source) => CatalogueError::Read {
                path: path.clone(),
                source,
            },
            Problem::Other(problem) => config(None, problem),
        })?;
        let is_json = path.extension() == Some(OsStr::new("json"));
        let root = if is_json {
            node::json(&text)
        } else {
            node::yaml(&text)
        };
        let root = root.map_err(|wrong| config(wrong.line, wrong.problem))?;
        Ok((path.clone(), root))
    }

    /// Reads a prompt. If the folders of its path do not exist, its file name is searched in the
    /// folder of the config and in `prompts` below it.
    ///
    /// The search by file name lets a config keep working when the prompts are moved into
    /// `prompts`. Errors are phrases; the caller adds the place.
    pub(super) fn prompt(&self, path: &str, max: u64) -> Result<String, String> {
        let named = Path::new(path);
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !named.components().all(inside) || path.contains(['\0', '\\']) {
            let problem = "leads out of the folder of the config; put the file into it and name it \
                by a path below it";
            return Err(format!("the prompt file `{}` {problem}", short(path)));
        }
        let file = self.find(named).ok_or_else(|| self.not_found(named))?;
        let text = self.read(&file, max).map_err(|problem| {
            let file = file.strip_prefix(&self.dir).unwrap_or(&file).display();
            match problem {
                Problem::Io(error) => format!("cannot read the prompt file `{file}`: {error}"),
                Problem::Other(problem) => format!("the prompt file `{file}`: {problem}"),
            }
        })?;
        match text.trim().is_empty() {
            true => Err(format!(
                "the prompt file `{}` is empty; write the prompt into it",
                short(path)
            )),
            false => Ok(text),
        }
    }

    /// Returns the first of the three possible places that exists, without following links.
    fn find(&self, named: &Path) -> Option<PathBuf> {
        let name = named.file_name()?;
        let places = [
            self.dir.join(named),
            self.dir.join(name),
            self.dir.join(PROMPTS).join(name),
        ];
        places
            .into_iter()
            .find(|path| path.symlink_metadata().is_ok())
    }

    /// The suggestion comes from at most 1,000 files in the folder and in `prompts`.
    fn not_found(&self, named: &Path) -> String {
        let stems = |path: &Path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let listed = [self.dir.clone(), self.dir.join(PROMPTS)];
        let files = listed
            .iter()
            .filter_map(|dir| fs::read_dir(dir).ok())
            .flatten()
            .take(1_000);
        let names: Vec<String> = files.filter_map(|file| stems(&file.ok()?.path())).collect();
        let expected_stem = stems(named).unwrap_or_default();
        let near = near(&expected_stem, names.iter().map(String::as_str));
        let near = near.first().map_or_else(
            || "; add it".to_owned(),
            |near| format!("; did you mean `{near}`?"),
        );
        let path = short(&named.to_string_lossy()).into_owned();
        format!(
            "no prompt file `{path}` in `{}` or its `{PROMPTS}`{near}",
            self.dir.display()
        )
    }

    /// Reads a file that must be in the folder after resolving links.
    ///
    /// One byte more than the limit is read, which distinguishes a file at the limit from a larger
    /// one. A byte order mark is removed.
    fn read(&self, path: &Path, max: u64) -> Result<String, Problem> {
        let real = fs::canonicalize(path)?;
        if !real.starts_with(&self.real) {
            return Err(Problem::of(
                "it is a link out of the folder; replace it with a copy of the file",
            ));
        }
        // Reading a pipe would block.
        if !fs::metadata(&real)?.is_file() {
            return Err(Problem::of("it is not a regular file; use the path of one"));
        }
        let mut bytes = Vec::new();
        File::open(&real)?
            .take(max.saturating_add(1))
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max {
            return Err(Problem::of(format!(
                "it has more than {} KiB; shorten it",
                max >> 10
            )));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..valid]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            Problem::of(format!("it is not UTF-8 on line {line}; save it as UTF-8"))
        })?;
        Ok(text
            .strip_prefix('\u{feff}')
            .map_or(text.clone(), str::to_owned))
    }
}

/// The reason why a file was not read.
enum Problem {
    Io(io::Error),
    Other(String),
}

impl Problem {
    fn of(problem: impl Into<String>) -> Self {
        Self::Other(problem.into())
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes files into a folder and returns the written paths; existing files are not changed.
pub(super) fn write(
    dir: &Path,
    config: &str,
    prompts: &[(&str, &str)],
) -> Result<Vec<PathBuf>, CatalogueError> {
    let failed = |path: &Path, source| CatalogueError::Write {
        path: path.to_path_buf(),
        source,
    };
    let below = dir.join(PROMPTS);
    fs::create_dir_all(&below).map_err(|source| failed(&below, source))?;
    let mut files: Vec<(PathBuf, &str)> = Vec::new();
    for (name, text) in prompts {
        files.push((below.join(name), text));
    }
    let folder = Folder {
        dir: dir.to_path_buf(),
        real: dir.to_path_buf(),
    };
    if folder.configs().is_empty() {
        files.push((dir.join(CONFIGS[0]), config));
    }
    let mut written = Vec::new();
    for (path, text) in files {
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => file
                .write_all(text.as_bytes())
                .map_err(|source| failed(&path, source))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(source) => return Err(failed(&path, source)),
        }
        written.push(path);
    }
    Ok(written)
}
