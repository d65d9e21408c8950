use levity_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// A login as it is kept: what to send, and all that is needed to get the next one without asking
/// anybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The authorization server; a login is good for no other.
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
    /// The key that the tokens are bound to; none where whoever has them may use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proof_key: Option<Secret>,
}

/// Who we are to an authorization server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) method: Method,
    /// Where the client was registered for this login: what it was registered with.
    pub(crate) registered: Option<Registered>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Registered {
    pub(crate) redirect: String,
    pub(crate) secret: Option<Secret>,
}

/// How a client shows the token endpoint that it is itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    None,
    Basic,
    Post,
    Key,
}

/// What the tokens were given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Grant {
    Person,
    Client,
    Enterprise,
    Workload,
}

impl Record {
    pub(crate) fn header(&self) -> String {
        let scheme = if self.proof_key.is_some() {
            "DPoP"
        } else {
            "Bearer"
        };
        format!("{scheme} {}", self.access.expose())
    }

    /// All of it that must not be shown.
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

    /// Whether the token will have ended at `moment`.
    pub(crate) fn ends_by(&self, moment: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= moment)
    }

    /// Whether another token can be got without a person.
    pub(crate) fn is_renewable(&self) -> bool {
        self.refresh.is_some() || self.grant != Grant::Person
    }
}
