//! Scopes of tokens, and the callers that present them.
//!
//! A [`Caller`] is attached to each admitted request. All checks of ownership go through
//! [`Caller::own`] and [`Caller::owns`], so that the prefix rule is written down once. The prefix
//! ends at the first `-`, and token names contain no `-`; therefore `ann` never owns an id of
//! `anna`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};

mod tokens;

pub use tokens::{TokenInfo, Tokens};

/// A permission that a token grants to its holder.
///
/// ```
/// use levity_serve::TokenScope;
/// let scope: TokenScope = "approve".parse()?;
/// assert_eq!(scope, TokenScope::Approve);
/// assert_eq!(scope.to_string(), "approve");
/// assert!("root".parse::<TokenScope>().is_err());
/// # Ok::<(), levity_serve::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TokenScope {
    /// Read runs, conversations, resources and prompts, and call read-only tools.
    Read,
    /// Start and control runs and call tools. Includes [`Read`](Self::Read).
    Run,
    /// Decide the approval requests of runs and tools. Includes [`Read`](Self::Read).
    Approve,
    /// Everything, including the runs and conversations of all tokens.
    Admin,
}

impl TokenScope {
    /// All scopes, from least to most privileged.
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Approve, Self::Admin];

    /// Returns the name of the scope, as token files and commands write it.
    ///
    /// ```
    /// use levity_serve::TokenScope;
    /// let names = TokenScope::ALL.map(TokenScope::name);
    /// assert_eq!(names, ["read", "run", "approve", "admin"]);
    /// ```
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

/// Accepts exactly the names that [`TokenScope::name`] returns, in lower case.
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

/// The authenticated client of a request: the name and scopes of its token.
///
/// A named caller has its own namespace: the ids of its runs and conversations begin with `NAME-`,
/// and it cannot reach any others. Callers named `TENANT.USER` share the namespace `TENANT`. A
/// caller with [`TokenScope::Admin`] has no namespace and reaches everything.
///
/// ```
/// use levity_serve::{Caller, TokenScope, Tokens};
///
/// let mut tokens = Tokens::new();
/// let token = tokens.add("watch", [TokenScope::Read])?;
/// let watch = tokens.find(token.reveal()).unwrap();
/// assert_eq!(watch.name(), Some("watch"));
/// assert!(!watch.has_scope(TokenScope::Run));
/// assert!(Caller::owner().has_scope(TokenScope::Run));
/// # Ok::<(), levity_serve::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    name: Option<Arc<str>>,
    scopes: Arc<[TokenScope]>,
}

impl Caller {
    /// Returns the owner of the server: no name, every scope. Clients of a server with a single
    /// token, and of a server on stdio, are the owner.
    ///
    /// ```
    /// use levity_serve::{Caller, TokenScope};
    /// let owner = Caller::owner();
    /// assert_eq!(owner.name(), None);
    /// assert!(TokenScope::ALL.iter().all(|scope| owner.has_scope(*scope)));
    /// ```
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

    /// Returns a client that presented no token on a path that requires none. It has no scopes.
    pub(crate) fn anonymous() -> Self {
        Self {
            name: None,
            scopes: Arc::new([]),
        }
    }

    /// Returns the name of the token; `None` for the owner.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns `true` if the caller has a scope, directly or through one that includes it.
    ///
    /// `Admin` includes everything, and every other scope includes `Read`. `Run` and `Approve` do
    /// not include each other, so a program that starts runs cannot approve its own calls.
    ///
    /// ```
    /// use levity_serve::{TokenScope, Tokens};
    /// let mut tokens = Tokens::new();
    /// let token = tokens.add("desk", [TokenScope::Approve])?;
    /// let desk = tokens.find(token.reveal()).unwrap();
    /// assert!(desk.has_scope(TokenScope::Read));
    /// assert!(!desk.has_scope(TokenScope::Run));
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    pub fn has_scope(&self, scope: TokenScope) -> bool {
        use TokenScope::{Admin, Read};
        self.scopes.contains(&Admin)
            || self.scopes.contains(&scope)
            || (scope == Read && !self.scopes.is_empty())
    }

    /// Returns the namespace of this caller's runs and conversations; `None` if it reaches those of
    /// all callers.
    pub(crate) fn namespace(&self) -> Option<&str> {
        let name = self
            .name
            .as_deref()
            .filter(|_| !self.has_scope(TokenScope::Admin))?;
        Some(name.split_once('.').map_or(name, |(tenant, _)| tenant))
    }

    /// Returns the id in this caller's namespace, adding the prefix if the caller omitted it.
    ///
    /// For the caller `ann.laptop`, `r1` becomes `ann-r1`, and `ann-r1` stays as it is. A caller
    /// without a namespace gets the id unchanged.
    pub(crate) fn own(&self, id: &str) -> String {
        match self.namespace() {
            Some(name) if !self.owns(id) => format!("{name}-{id}"),
            _ => id.to_owned(),
        }
    }

    /// Returns `true` if this caller may reach an id.
    ///
    /// A caller without scopes owns nothing.
    pub(crate) fn owns(&self, id: &str) -> bool {
        match self.namespace() {
            Some(name) => id
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('-')),
            None => self.has_scope(TokenScope::Read),
        }
    }

    /// Returns an error message that names the missing scope.
    pub(crate) fn missing(&self, scope: TokenScope) -> String {
        let name = self
            .name()
            .map_or_else(|| "this token".to_owned(), |name| format!("token `{name}`"));
        format!(
            "{name} lacks the scope `{scope}`; use a token that has it, or add it with `levity \
                serve token`"
        )
    }
}

/// Returns the tenant that an id of a run or conversation belongs to; `None` if the id has no valid
/// tenant prefix, such as ids that the owner chose.
///
/// `ann-r1` belongs to `ann`. `Ann-r1` and `-r1` belong to nobody, because no token has such a
/// name.
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
    fn scope_grants_exactly_the_scopes_it_includes() {
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
                    caller("ci", has).has_scope(scope),
                    may.contains(&scope),
                    "{has:?} {scope}"
                );
            }
        }
        for scope in TokenScope::ALL {
            assert!(Caller::owner().has_scope(scope) && !Caller::anonymous().has_scope(scope));
            assert_eq!(scope.name().parse::<TokenScope>().unwrap(), scope);
        }
        assert!("root".parse::<TokenScope>().is_err());
    }

    #[test]
    fn named_caller_ids_stay_in_their_namespace() {
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
        assert!(Caller::owner().owns("anything") && !Caller::anonymous().owns("anything"));
    }
}
