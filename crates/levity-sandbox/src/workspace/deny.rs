//! Rules that decide which paths are denied.
//!
//! A rule is a glob with a decision. Name globs (`*.key`) are matched with each name of a path, and
//! path globs (`data/**`) with the path from the workspace. Both are matched with folded spellings:
//! see `fold`. A folder that is denied denies everything below it, so the first denied prefix
//! decides.
//!
//! Matching is on the way of every open, so the common case is cheap: one compiled set of globs
//! and, without path rules, no assembled paths.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use super::PathError;
use super::fold::{Spellings, fold_glob};

/// The maximum number of spellings of a path that are matched with rules. A path with more
/// spellings is denied.
const MAX_SPELLINGS: usize = 64;

/// Globs that are denied by default, in groups: settings with secrets, keys and their stores,
/// logins, version control data (also by the short names that FAT gives it), and folders in which
/// file systems (ZFS, Ceph, NFS servers) show old versions of all files.
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
    ".zfs",
    ".snap",
    ".snapshot",
];

/// Exceptions to [`DEFAULT`]: these files are templates and contain no secret.
const EXAMPLES: &[&str] = &[".env.example", ".env.sample", ".env.template", ".env.dist"];

/// Rules in order; the last that matches a path decides on it and everything below it.
///
/// The rules are kept as text until [`compile`](Self::compile), so a builder can be cloned and
/// setters cannot fail.
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
        self.0.push(Rule {
            glob: glob.to_owned(),
            denies,
        });
    }

    /// Compiles all globs into two sets, one for names and one for paths.
    ///
    /// # Errors
    /// Returns [`PathError::Glob`] with a glob that does not parse.
    pub(super) fn compile(&self) -> Result<Deny, PathError> {
        let (names, paths): (Vec<&Rule>, Vec<&Rule>) =
            self.0.iter().partition(|rule| is_name(&rule.glob));
        Ok(Deny {
            names: Set::new(&names)?,
            paths: Set::new(&paths)?,
        })
    }
}

/// Returns `true` if a glob matches a name at any depth, and not a path.
fn is_name(glob: &str) -> bool {
    !glob.trim_end_matches('/').contains('/')
}

/// The compiled rules. A path rule takes precedence over a name rule.
#[derive(Debug)]
pub(super) struct Deny {
    names: Set,
    paths: Set,
}

impl Deny {
    /// Returns `true` if the path, or a folder on the way to it, is denied.
    ///
    /// The empty path is the workspace itself, and never denied.
    pub(super) fn denies(&self, path: &str) -> bool {
        if path.is_empty() {
            return false;
        }
        let mut prefix = SpelledPath::default();
        path.split('/')
            .any(|name| self.denies_next(&mut prefix, name))
    }

    /// Returns `true` if the last name of a path is denied. The caller has checked the folders
    /// above it.
    ///
    /// Only path rules need the folders above, so without them `path` is not read.
    pub(super) fn denies_step(&self, path: &str, name: &str) -> bool {
        let mut prefix = SpelledPath::default();
        if self.has_path_rules() {
            let above = path.rsplit_once('/').map(|(above, _)| above);
            above
                .into_iter()
                .flat_map(|above| above.split('/'))
                .for_each(|name| _ = prefix.push(name));
        }
        self.denies_next(&mut prefix, name)
    }

    /// Appends an entry to the path, and returns `true` if any spelling of the path is denied.
    fn denies_next(&self, prefix: &mut SpelledPath, name: &str) -> bool {
        if !self.has_path_rules() {
            return Spellings::of(name)
                .iter()
                .any(|name| self.names.last(name) == Some(true));
        }
        let name = prefix.push(name);
        prefix.is_truncated
            || prefix
                .with_names(&name)
                .any(|(path, name)| self.last(path, name) == Some(true))
    }

    /// Returns the decision of the last matching rule; a path rule takes precedence.
    fn last(&self, path: &str, name: &str) -> Option<bool> {
        let by_path = if self.paths.is_empty() {
            None
        } else {
            self.paths.last(path)
        };
        by_path.or_else(|| self.names.last(name))
    }

    /// Returns `true` if the entry `name` of the folder `dir` is denied.
    pub(super) fn denies_entry(&self, dir: &str, name: &str) -> bool {
        match self.paths.is_empty() {
            true => self.denies_next(&mut SpelledPath::default(), name),
            false => self.denies_step(&super::path::child(dir, name), name),
        }
    }

    /// Returns `true` if a rule allows exactly this path.
    ///
    /// A file that a denied link points to is denied as well, unless the user allowed it by its own
    /// name. All spellings must agree for that.
    #[cfg_attr(not(unix), expect(dead_code, reason = "workspaces need Unix"))]
    pub(super) fn allows(&self, path: &str) -> bool {
        let mut prefix = SpelledPath::default();
        let (above, name) = path
            .rsplit_once('/')
            .map_or((None, path), |(above, name)| (Some(above), name));
        above
            .into_iter()
            .flat_map(|above| above.split('/'))
            .for_each(|name| _ = prefix.push(name));
        let name = prefix.push(name);
        let decisions: Vec<_> = prefix
            .with_names(&name)
            .map(|(path, name)| self.last(path, name))
            .collect();
        !prefix.is_truncated && decisions.contains(&Some(false)) && !decisions.contains(&Some(true))
    }

    /// Returns `true` if there are no rules.
    #[cfg_attr(not(unix), expect(dead_code, reason = "workspaces need Unix"))]
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// Returns `true` if a rule matches more than one name of a path, so that moving a folder could
    /// bypass it.
    pub(super) fn has_path_rules(&self) -> bool {
        !self.paths.is_empty()
    }
}

/// A path in all spellings of its names.
///
/// A name with two spellings doubles the number of paths. Beyond 64 the path is treated as denied:
/// only an attack has that many unusual names.
struct SpelledPath {
    /// Paths with the folded spelling of the last name are first.
    paths: Vec<String>,
    depth: usize,
    /// `true` if there are more spellings than are matched.
    is_truncated: bool,
}

impl Default for SpelledPath {
    fn default() -> Self {
        Self {
            paths: vec![String::new()],
            depth: 0,
            is_truncated: false,
        }
    }
}

impl SpelledPath {
    /// Appends the name of an entry to the path.
    fn push<'a>(&mut self, name: &'a str) -> Spellings<'a> {
        let name = Spellings::of(name);
        if self.depth > 0 {
            self.paths.iter_mut().for_each(|path| path.push('/'));
        }
        self.depth += 1;
        self.is_truncated |= name.whole.is_some() && self.paths.len() * 2 > MAX_SPELLINGS;
        let whole = name.whole.as_ref().filter(|_| !self.is_truncated);
        let more: Vec<String> = whole
            .into_iter()
            .flat_map(|whole| self.paths.iter().map(move |path| format!("{path}{whole}")))
            .collect();
        self.paths
            .iter_mut()
            .for_each(|path| path.push_str(&name.folded));
        self.paths.extend(more);
        name
    }

    /// Returns the spellings, each with its last name in the same spelling.
    fn with_names<'a>(
        &'a self,
        name: &'a Spellings<'_>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let folded = if name.whole.is_some() {
            self.paths.len() / 2
        } else {
            self.paths.len()
        };
        let whole = name.whole.as_deref().unwrap_or(&name.folded);
        let names = std::iter::repeat_n(&*name.folded, folded).chain(std::iter::repeat(whole));
        self.paths.iter().map(String::as_str).zip(names)
    }
}

/// Compiled globs and the decision of each.
#[derive(Debug)]
struct Set {
    globs: GlobSet,
    denies: Vec<bool>,
}

impl Set {
    fn new(rules: &[&Rule]) -> Result<Self, PathError> {
        let broken = |glob: &str, source| PathError::Glob {
            glob: glob.to_owned(),
            source,
        };
        let mut set = GlobSetBuilder::new();
        for rule in rules {
            let folded = fold_glob(rule.glob.trim_matches('/'));
            let glob = GlobBuilder::new(&folded)
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            set.add(glob.map_err(|error| broken(&rule.glob, error))?);
        }
        let globs = set.build().map_err(|error| broken("", error))?;
        Ok(Self {
            globs,
            denies: rules.iter().map(|rule| rule.denies).collect(),
        })
    }

    fn is_empty(&self) -> bool {
        self.denies.is_empty()
    }

    /// Returns the decision of the last rule that matches.
    ///
    /// Later rules override earlier ones, so the highest index among the matches decides; `None` if
    /// nothing matches.
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
    fn ordinary_files_are_not_denied() {
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
    fn last_rule_decides_and_path_rule_takes_precedence() {
        let mut rules = Rules::standard();
        rules.add(".env", false);
        rules.add("private/", true);
        rules.add("docs/*.txt", true);
        rules.add("docs/open.TXT", false);
        rules.add("/certs/test.pem", false);
        let deny = rules.compile().unwrap();
        for path in [
            "private",
            "a/private/x",
            "docs/a.txt",
            "Docs/A.TXT",
            "other.pem",
            "a/certs/test.pem",
        ] {
            assert!(deny.denies(path), "{path:?}");
        }
        for path in [
            ".env",
            "a/.env",
            "docs",
            "docs/open.txt",
            "docs/sub/a.txt",
            "a/docs/a.txt",
            "certs/test.pem",
        ] {
            assert!(!deny.denies(path), "{path:?}");
        }
    }

    /// Returns a glob that matches only this name.
    fn literal(name: &str) -> String {
        let escaped = |c: char| {
            "*?[]{}\\!,"
                .contains(c)
                .then_some('\\')
                .into_iter()
                .chain([c])
        };
        name.chars().flat_map(escaped).collect()
    }

    fn denying(glob: &str) -> Deny {
        let mut rules = Rules::default();
        rules.add(glob, true);
        rules.compile().unwrap()
    }

    #[track_caller]
    fn check_own_name(name: &str) {
        let by_name = denying(&literal(name));
        for path in [
            name.to_owned(),
            format!("d/{name}"),
            format!("{name}/below"),
            format!("D:/{name}"),
        ] {
            assert!(by_name.denies(&path), "{path:?}");
        }
        assert!(by_name.denies_step(name, name), "{name:?}");
        assert!(
            by_name.denies_entry("", name) && by_name.denies_entry("d", name),
            "{name:?}"
        );
        assert!(!by_name.allows(name), "{name:?}");
        for dir in ["d", "d:x", "d. ", "\u{200b}d", name] {
            let path = format!("{dir}/{name}");
            let by_path = denying(&format!("/{}", literal(&path)));
            assert!(
                by_path.denies(&path) && by_path.denies(&format!("{path}/below")),
                "{path:?}"
            );
            assert!(
                by_path.denies_step(&path, name) && by_path.denies_entry(dir, name),
                "{path:?}"
            );
            assert!(!by_path.allows(&path), "{path:?}");
        }
    }

    #[test]
    fn rule_for_literal_name_denies_it() {
        for name in [
            "mcp:x.json",
            "a:",
            ":a",
            "a.",
            "a ",
            "a. .",
            "...",
            "a\u{200b}b",
            "\u{feff}a",
            "\u{200b}",
            "é",
            "ß.pem",
            "ﬁle",
            "İ",
            "Ａ：ｂ",
            "［ab］",
            "a［",
            "＊",
            "＼a",
            "x／y",
            "a*b",
            "a[0]",
            "{a,b}",
            "a\\b",
            "!a",
            "a\nb",
        ] {
            check_own_name(name);
        }
    }

    #[test]
    fn name_is_denied_in_each_spelling() {
        let deny = standard();
        for path in [
            "a:b.pem",
            "a:.key",
            "x／y.pem",
            "d/a:b.pem/c",
            ".env.a:b",
            "id_rsa:x",
            "id_rsa. ",
        ] {
            assert!(deny.denies(path), "{path:?}");
        }
        for path in ["a:b.pem.txt", "a:b", "a.", "notes: today.md", "x／y"] {
            assert!(!deny.denies(path), "{path:?}");
        }
        let mut rules = Rules::standard();
        rules.add("/a:b/.hidden", true);
        rules.add("/certs/a:b.pem", false);
        let deny = rules.compile().unwrap();
        for path in [
            "a:b/.hidden",
            "A:B/.HIDDEN. ",
            "a:b/.hidden::$DATA",
            "a:b/.hi\u{200b}dden/x",
        ] {
            assert!(deny.denies(path), "{path:?}");
        }
        assert!(!deny.denies("a/.hidden") && !deny.denies("a:c/.hidden"));
        assert!(!deny.denies("certs/a:b.pem") && deny.allows("certs/a:b.pem"));
        // No real path has this many names with two spellings.
        assert!(!deny.denies(&["a:b"; 6].join("/")) && deny.denies(&["a:b"; 7].join("/")));
        assert!(
            deny.denies_step(&["a:b"; 9].join("/"), "a:b")
                && !standard().denies(&["a:b"; 9].join("/"))
        );
    }

    proptest::proptest! {
        #[test]
        fn rule_for_random_literal_name_denies_it(
            name in "[^/\0]{1,12}|[a-zA-Z:. \u{200b}\u{ad}＊［：．\\[\\]{}*?!,\\\\-]{1,8}",
        ) {
            proptest::prop_assume!(name != "." && name != "..");
            check_own_name(&name);
        }
    }

    #[test]
    fn invalid_glob_is_named_in_error() {
        let mut rules = Rules::default();
        rules.add("a[", true);
        let error = rules.compile().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the glob `a[` of the workspace does not parse"),
            "{error}"
        );
    }
}
