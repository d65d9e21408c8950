//! Which paths nobody may touch.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use super::PathError;
use super::fold::{fold, fold_case};

/// Denied unless a builder says otherwise, in groups: settings with secrets, keys and their stores, logins, the
/// insides of version control (also by the short names that FAT gives them).
const DEFAULT: &[&str] = &[
    ".env",
    ".env.*",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.p8",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.kdb",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".gcloud",
    ".kube",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".dockercfg",
    ".vault-token",
    ".git-credentials",
    ".terraformrc",
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".bzr",
    "git~[0-9]",
];

/// Allowed although [`DEFAULT`] matches: they show what belongs into a file, and hold no secret.
const EXAMPLES: &[&str] = &[".env.example", ".env.sample", ".env.template", ".env.dist"];

/// Rules in order; the last that matches a path decides on it and all that is below it.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    glob: String,
    denies: bool,
}

impl Rules {
    pub(super) fn standard() -> Self {
        let mut rules = Self::default();
        DEFAULT.iter().for_each(|glob| rules.add(glob, true));
        EXAMPLES.iter().for_each(|glob| rules.add(glob, false));
        rules
    }

    pub(super) fn add(&mut self, glob: &str, denies: bool) {
        self.0.push(Rule { glob: glob.to_owned(), denies });
    }

    pub(super) fn compile(&self) -> Result<Deny, PathError> {
        let (names, paths): (Vec<&Rule>, Vec<&Rule>) = self.0.iter().partition(|rule| is_name(&rule.glob));
        Ok(Deny { names: Set::new(&names)?, paths: Set::new(&paths)? })
    }
}

/// Whether a glob speaks of a name at any depth, and not of a path.
fn is_name(glob: &str) -> bool {
    !glob.trim_end_matches('/').contains('/')
}

/// The rules, ready to use. A rule of a path weighs more than a rule of a name.
#[derive(Debug)]
pub(super) struct Deny {
    names: Set,
    paths: Set,
}

impl Deny {
    /// Whether the path, or a folder on the way to it, is denied.
    pub(super) fn denies(&self, path: &str) -> bool {
        if path.is_empty() {
            return false;
        }
        let (mut so_far, by_path) = (String::new(), !self.paths.is_empty());
        path.split('/').enumerate().any(|(depth, name)| {
            let name = fold(name);
            if by_path {
                so_far.push_str(if depth == 0 { "" } else { "/" });
                so_far.push_str(&name);
            }
            self.denies_folded(&so_far, &name)
        })
    }

    /// Whether the last name of a path is denied, when the folders above it are known not to be.
    pub(super) fn denies_step(&self, path: &str, name: &str) -> bool {
        let path = if self.paths.is_empty() { String::new() } else { fold_path(path) };
        self.denies_folded(&path, &fold(name))
    }

    fn denies_folded(&self, path: &str, name: &str) -> bool {
        let by_path = if self.paths.is_empty() { None } else { self.paths.last(path) };
        by_path.or_else(|| self.names.last(name)).unwrap_or(false)
    }

    /// The same for the entry `name` of the folder `dir`.
    pub(super) fn denies_entry(&self, dir: &str, name: &str) -> bool {
        match self.paths.is_empty() {
            true => self.names.last(&fold(name)).unwrap_or(false),
            false => self.denies_step(&super::path::child(dir, name), name),
        }
    }

    /// Returns whether a rule allows this path by itself.
    pub(super) fn allows(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let by_path = if self.paths.is_empty() { None } else { self.paths.last(&fold_path(path)) };
        by_path.or_else(|| self.names.last(&fold(name))) == Some(false)
    }

    /// Whether there is no rule.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// Whether a rule looks at more than one name of a path, so that moving a folder could lead past it.
    pub(super) fn looks_at_paths(&self) -> bool {
        !self.paths.is_empty()
    }
}

fn fold_path(path: &str) -> String {
    let names: Vec<_> = path.split('/').map(fold).collect();
    names.join("/")
}

/// Globs, and what each of them says.
#[derive(Debug)]
struct Set {
    globs: GlobSet,
    denies: Vec<bool>,
}

impl Set {
    fn new(rules: &[&Rule]) -> Result<Self, PathError> {
        let broken = |glob: &str, source| PathError::Glob { glob: glob.to_owned(), source };
        let mut set = GlobSetBuilder::new();
        for rule in rules {
            let folded = fold_case(rule.glob.trim_matches('/'));
            let glob = GlobBuilder::new(&folded).literal_separator(true).backslash_escape(true).build();
            set.add(glob.map_err(|error| broken(&rule.glob, error))?);
        }
        let globs = set.build().map_err(|error| broken("", error))?;
        Ok(Self { globs, denies: rules.iter().map(|rule| rule.denies).collect() })
    }

    fn is_empty(&self) -> bool {
        self.denies.is_empty()
    }

    /// What the last rule that matches says.
    fn last(&self, text: &str) -> Option<bool> {
        let candidate = Candidate::new(text);
        if !self.globs.is_match_candidate(&candidate) {
            return None;
        }
        let last = self.globs.matches_candidate(&candidate).into_iter().max()?;
        self.denies.get(last).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard() -> Deny {
        Rules::standard().compile().unwrap()
    }

    #[test]
    fn secrets_are_denied_at_any_depth() {
        let deny = standard();
        for path in [
            ".env",
            "a/b/.env",
            ".env.production",
            ".ENV",
            ".env.",
            "config/.Env.Local",
            "server.pem",
            "a/tls.KEY",
            "id_rsa",
            ".ssh",
            ".ssh/config",
            ".git",
            ".git/config",
            "sub/.git/hooks/pre-commit",
            ".GIT/config",
            ".g\u{200c}it/config",
            ".git./config",
            "GIT~1/config",
            ".aws/credentials",
            ".netrc",
            ".npmrc",
            ".ssh/.env.example",
            ".env/inside",
            ".env.example.bak",
        ] {
            assert!(deny.denies(path), "{path:?}");
        }
    }

    #[test]
    fn other_files_are_not() {
        let deny = standard();
        for path in [
            "",
            "a",
            "src/main.rs",
            ".env.example",
            "a/.env.sample",
            ".ENV.Template",
            ".gitignore",
            ".github/x.yml",
            "id_rsa.pub",
            "environment",
            "env",
            "key",
            "pem",
            "monkey",
            ".gitmodules",
            "git",
            "a.git",
            ".environment",
        ] {
            assert!(!deny.denies(path), "{path:?}");
        }
    }

    #[test]
    fn the_last_rule_decides_and_a_path_weighs_more() {
        let mut rules = Rules::standard();
        rules.add(".env", false);
        rules.add("private/", true);
        rules.add("docs/*.txt", true);
        rules.add("docs/open.TXT", false);
        rules.add("/certs/test.pem", false);
        let deny = rules.compile().unwrap();
        for path in ["private", "a/private/x", "docs/a.txt", "Docs/A.TXT", "other.pem", "a/certs/test.pem"] {
            assert!(deny.denies(path), "{path:?}");
        }
        for path in
            [".env", "a/.env", "docs", "docs/open.txt", "docs/sub/a.txt", "a/docs/a.txt", "certs/test.pem"]
        {
            assert!(!deny.denies(path), "{path:?}");
        }
    }

    #[test]
    fn a_broken_glob_is_named() {
        let mut rules = Rules::default();
        rules.add("a[", true);
        let error = rules.compile().unwrap_err();
        assert!(error.to_string().starts_with("the glob `a[` of the workspace does not parse"), "{error}");
    }
}
