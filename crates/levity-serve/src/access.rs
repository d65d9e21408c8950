use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};

mod tokens;

pub use tokens::{TokenInfo, Tokens};

/// What a token lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TokenScope {
    /// Read runs, conversations, resources and prompts, and call read-only tools.
    Read,
    /// Start and control runs and call tools. Includes [`Read`](Self::Read).
    Run,
    /// Decide what a run or a tool asks permission for. Includes [`Read`](Self::Read).
    Approve,
    /// Everything, for the runs and conversations of all tokens.
    Admin,
}

impl TokenScope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Approve, Self::Admin];

    /// The name of the scope, as token files and commands write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TokenScope {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == name)
            .ok_or_else(|| {
                Error::setting(
                    "scope",
                    format!("is `{name}`; use `read`, `run`, `approve` or `admin`"),
                )
            })
    }
}

/// The holder of a token, as the server sees it.
///
/// A caller with a name has a namespace of its own: the ids of its runs and conversations begin
/// with `NAME-`, and it reaches no others. Callers named `TENANT.USER` share the namespace
/// `TENANT`. A caller with [`TokenScope::Admin`] has no namespace and reaches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    name: Option<Arc<str>>,
    scopes: Arc<[TokenScope]>,
}

impl Caller {
    /// The owner of the server: no name, every scope. Clients of a server with one token, and of
    /// one on stdio, are the owner.
    pub fn owner() -> Self {
        Self {
            name: None,
            scopes: Arc::new([TokenScope::Admin]),
        }
    }

    pub(crate) fn named(name: Arc<str>, scopes: Arc<[TokenScope]>) -> Self {
        Self {
            name: Some(name),
            scopes,
        }
    }

    /// A client that showed no token where none is required; it may do nothing else.
    pub(crate) fn nobody() -> Self {
        Self {
            name: None,
            scopes: Arc::new([]),
        }
    }

    /// The name of the token; `None` for the owner.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns whether the caller has a scope, by itself or through one that includes it.
    pub fn may(&self, scope: TokenScope) -> bool {
        use TokenScope::{Admin, Read};
        self.scopes.contains(&Admin)
            || self.scopes.contains(&scope)
            || (scope == Read && !self.scopes.is_empty())
    }

    /// The name that separates this caller's runs and conversations from those of others; `None`
    /// when it reaches all of them.
    pub(crate) fn namespace(&self) -> Option<&str> {
        let name = self
            .name
            .as_deref()
            .filter(|_| !self.may(TokenScope::Admin))?;
        Some(name.split_once('.').map_or(name, |(tenant, _)| tenant))
    }

    /// The id that this caller means: one of its own namespace, whether or not the caller wrote the
    /// prefix.
    pub(crate) fn own(&self, id: &str) -> String {
        match self.namespace() {
            Some(name) if !self.owns(id) => format!("{name}-{id}"),
            _ => id.to_owned(),
        }
    }

    /// Returns whether an id is one that this caller reaches.
    pub(crate) fn owns(&self, id: &str) -> bool {
        match self.namespace() {
            Some(name) => id
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('-')),
            None => self.may(TokenScope::Read),
        }
    }

    /// Says which scope is missing.
    pub(crate) fn missing(&self, scope: TokenScope) -> String {
        let name = self
            .name()
            .map_or_else(|| "this token".to_owned(), |name| format!("token `{name}`"));
        format!(
            "{name} has no scope `{scope}`; use one that has it, or have it added by `levity serve \
                token`"
        )
    }
}

/// The tenant that an id of a run or conversation belongs to, if there is a tenant of that name;
/// `None` for what the owner named otherwise.
pub(crate) fn tenant_of(id: &str) -> Option<&str> {
    let (tenant, _) = id.split_once('-')?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (!tenant.is_empty() && tenant.bytes().all(fits)).then_some(tenant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str, scopes: &[TokenScope]) -> Caller {
        Caller::named(name.into(), scopes.into())
    }

    #[test]
    fn scopes_include_what_they_must_and_no_more() {
        use TokenScope::{Admin, Approve, Read, Run};
        for (has, may) in [
            (&[Read][..], &[Read][..]),
            (&[Run], &[Read, Run]),
            (&[Approve], &[Read, Approve]),
            (&[Run, Approve], &[Read, Run, Approve]),
            (&[Admin], &[Read, Run, Approve, Admin]),
            (&[], &[]),
        ] {
            for scope in TokenScope::ALL {
                assert_eq!(
                    caller("ci", has).may(scope),
                    may.contains(&scope),
                    "{has:?} {scope}"
                );
            }
        }
        for scope in TokenScope::ALL {
            assert!(Caller::owner().may(scope) && !Caller::nobody().may(scope));
            assert_eq!(scope.name().parse::<TokenScope>().unwrap(), scope);
        }
        assert!("root".parse::<TokenScope>().is_err());
    }

    #[test]
    fn ids_of_named_callers_stay_in_their_namespace() {
        let ci = caller("ci", &[TokenScope::Run]);
        for (given, own) in [
            ("monday", "ci-monday"),
            ("ci-monday", "ci-monday"),
            ("ci", "ci-ci"),
            ("cia-x", "ci-cia-x"),
            ("bob-x", "ci-bob-x"),
            ("CI-x", "ci-CI-x"),
            ("", "ci-"),
        ] {
            assert_eq!(ci.own(given), own);
            assert_eq!(ci.own(own), own);
            assert!(ci.owns(own), "{own}");
        }
        for other in ["bob-x", "cia-x", "ci", "monday", ""] {
            assert!(!ci.owns(other), "{other}");
        }
        let boss = caller("ci.boss", &[TokenScope::Approve]);
        assert_eq!(
            (boss.own("monday"), boss.own("ci-monday")),
            ("ci-monday".to_owned(), "ci-monday".to_owned())
        );
        assert!(boss.owns("ci-x") && !boss.owns("ci.boss-x") && !boss.owns("boss-x"));
        let admin = caller("root", &[TokenScope::Admin]);
        assert_eq!(
            (admin.own("bob-x"), admin.owns("bob-x")),
            ("bob-x".to_owned(), true)
        );
        assert!(Caller::owner().owns("anything") && !Caller::nobody().owns("anything"));
    }
}
