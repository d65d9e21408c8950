//! The form of a login in the store.
//!
//! The record is JSON and is a promise to later versions: new fields need a default. It contains
//! everything that a renewal needs, so a renewal asks no metadata endpoint and works while the
//! server is down.

use levity_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// A stored login: the tokens, and everything that is needed to renew them without interaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The authorization server; a login is valid for no other.
    pub(crate) issuer: Option<String>,
    /// The server that the tokens are for.
    pub(crate) resource: String,
    pub(crate) token_endpoint: String,
    pub(crate) client: Client,
    pub(crate) grant: Grant,
    pub(crate) access: Secret,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) refresh: Option<Secret>,
    pub(crate) scopes: Vec<String>,
    /// The key that the tokens are bound to; `None` for bearer tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proof_key: Option<Secret>,
}

/// The identity of the client at an authorization server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) method: Method,
    /// The registration, if the client was registered for this login.
    pub(crate) registered: Option<Registration>,
}

/// A client that levity registered: the redirect URL that it is valid for, and its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) redirect: String,
    pub(crate) secret: Option<Secret>,
}

/// The method by which a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    None,
    Basic,
    Post,
    Key,
}

/// The grant that the tokens were issued for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Grant {
    Person,
    Client,
    Enterprise,
    Workload,
}

impl Record {
    /// Returns the value of the `Authorization` header.
    pub(crate) fn header(&self) -> String {
        let scheme = if self.proof_key.is_some() {
            "DPoP"
        } else {
            "Bearer"
        };
        format!("{scheme} {}", self.access.expose())
    }

    /// Returns all secrets of the record.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let registered = self
            .client
            .registered
            .as_ref()
            .and_then(|client| client.secret.as_ref());
        let all = [
            Some(&self.access),
            self.refresh.as_ref(),
            self.proof_key.as_ref(),
            registered,
        ];
        all.into_iter().flatten().map(Secret::expose)
    }

    /// Returns `true` if the token expires by `moment`.
    pub(crate) fn ends_by(&self, moment: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= moment)
    }

    /// Returns `true` if the token can be renewed without a person.
    pub(crate) fn is_renewable(&self) -> bool {
        self.refresh.is_some() || self.grant != Grant::Person
    }
}
