//! Credentials files, as Google's tools write them.
//!
//! Two kinds of files are supported: `authorized_user`, with a refresh token, and
//! `service_account`, with a private key that signs a request for a token. Other kinds, such as
//! workload identity, are rejected with the way out in the message.
//!
//! The file and the request contain long-lived secrets. Errors quote neither the file nor a reply
//! before the secrets are removed.
//!
//! A file of `gcloud auth application-default login` has these fields:
//!
//! ```json
//! {"type": "authorized_user", "client_id": "..", "client_secret": "..", "refresh_token": "..",
//!  "quota_project_id": "my-project"}
//! ```

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use levity_core::{ModelError, ModelErrorKind, Secrets};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AccessToken;
use crate::gemini::paths::percent;
use crate::http::{Failure, scrub_error};
use crate::{Endpoint, Secret};

const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The maximum size of the file and of a reply.
const MAX_BYTES: usize = 1 << 20;

/// The content of a credentials file.
///
/// The file is parsed at the start, so that a wrong file fails early, and again for each token.
#[derive(Clone)]
pub(super) struct Credentials {
    /// The path of the file.
    path: PathBuf,
    grant: Grant,
    url: String,
    /// True if the token URL does not come from the file.
    url_overridden: bool,
    /// The project that pays for requests of a user, sent as `x-goog-user-project`.
    quota_project: Option<String>,
}

/// The proof of identity that is exchanged for a token.
#[derive(Clone)]
enum Grant {
    User {
        client: String,
        secret: Secret,
        refresh: Secret,
    },
    Service {
        email: String,
        key: Arc<RsaKeyPair>,
        key_id: Option<String>,
    },
}

/// The fields of all kinds of files; each kind uses some of them.
#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "type")]
    kind: String,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
    quota_project_id: Option<String>,
}

/// Returns the path of the application-default credentials.
///
/// `var` reads a variable, so that tests need no environment. Empty variables count as unset.
/// Returns `None` if the home directory is unknown.
pub(super) fn default_path(
    var: impl Fn(&str) -> Option<OsString>,
    windows: bool,
) -> Option<PathBuf> {
    let var = |name: &str| {
        var(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(file) = var("GOOGLE_APPLICATION_CREDENTIALS") {
        return Some(file);
    }
    let folder = var("CLOUDSDK_CONFIG").or_else(|| match windows {
        true => var("APPDATA").map(|folder| folder.join("gcloud")),
        false => var("HOME").map(|home| home.join(".config").join("gcloud")),
    });
    folder.map(|folder| folder.join("application_default_credentials.json"))
}

impl Credentials {
    /// Reads a file of at most 1 MiB.
    ///
    /// # Errors
    /// Returns `Auth` if the file cannot be read, is not JSON, lacks a field or is of another kind.
    pub(super) fn read(path: &Path) -> Result<Self, ModelError> {
        let mut text = String::new();
        let read = check_regular_file(path)
            .and_then(|()| std::fs::File::open(path))
            .and_then(|file| file.take(MAX_BYTES as u64).read_to_string(&mut text));
        read.map_err(|error| {
            let message = format!(
                "the credentials in `{}` cannot be read; run `gcloud auth application-default \
                    login`, or name \
                 another file",
                path.display()
            );
            ModelError::new(ModelErrorKind::Auth, message).with_source(error)
        })?;
        // The error does not quote the content of the file.
        let file: File = serde_json::from_str(&text).map_err(|_| {
            auth_error(&format!(
                "`{}` is not a JSON credentials \
                file",
                path.display()
            ))
        })?;
        Self::of(file, path)
    }

    /// Converts the fields of a file. The private key is parsed here, so that an invalid key fails
    /// at the start.
    fn of(file: File, path: &Path) -> Result<Self, ModelError> {
        let need = |field: Option<String>, name: &str| {
            field
                .filter(|value| !value.is_empty())
                .ok_or_else(|| auth_error(&format!("the credentials lack `{name}`")))
        };
        let grant = match &*file.kind {
            "authorized_user" => Grant::User {
                client: need(file.client_id, "client_id")?,
                secret: need(file.client_secret, "client_secret")?.into(),
                refresh: need(file.refresh_token, "refresh_token")?.into(),
            },
            "service_account" => Grant::Service {
                email: need(file.client_email, "client_email")?,
                key: Arc::new(key(&need(file.private_key, "private_key")?)?),
                key_id: file.private_key_id,
            },
            kind => {
                let remedy = "log in with `gcloud auth application-default login`, use a service \
                    account's key, or provide tokens with `AccessTokens::from_fn`";
                return Err(auth_error(&format!(
                    "credentials of type `{kind}` are not supported; {remedy}"
                )));
            }
        };
        let url = file
            .token_uri
            .filter(|url| !url.is_empty())
            .unwrap_or_else(|| TOKEN_URL.to_owned());
        Ok(Self {
            path: path.to_owned(),
            grant,
            url,
            url_overridden: false,
            quota_project: file.quota_project_id,
        })
    }

    /// Replaces the address of the token server, also after the file is read again.
    pub(super) fn with_url(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self.url_overridden = true;
        self
    }

    /// Reads the file again, so that a new login or key does not require a restart. If the file
    /// cannot be read, the previous content is used.
    fn reloaded(&self) -> Self {
        match Self::read(&self.path) {
            Ok(reloaded) if self.url_overridden => reloaded.with_url(&self.url),
            Ok(reloaded) => reloaded,
            Err(_) => self.clone(),
        }
    }

    pub(super) fn quota_project(&self) -> Option<&str> {
        self.quota_project.as_deref()
    }

    /// Requests a token from Google.
    pub(super) async fn fetch(&self) -> Result<AccessToken, ModelError> {
        self.reloaded().fetch_with_current().await
    }

    /// Exchanges the credentials for a token, which lives an hour unless the reply states
    /// otherwise.
    ///
    /// # Errors
    /// Returns `Auth` for the statuses 400 to 403, `Malformed` for a reply without a token, and the
    /// error of any other status. The message contains no secret of the request.
    async fn fetch_with_current(&self) -> Result<AccessToken, ModelError> {
        let form = Secret::from("application/x-www-form-urlencoded");
        let fields = self.fields()?;
        let secrets = secrets_of(&fields);
        let body = form_of(&fields).into_bytes();
        let endpoint = Endpoint::new(&self.url);
        let mut reply = endpoint.send("", &[("content-type", form)], body).await?;
        let body = reply.rest(MAX_BYTES).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let token = answer
            .get("access_token")
            .and_then(Value::as_str)
            .filter(|token| !token.is_empty());
        match (reply.status(), token) {
            (200..300, Some(token)) => {
                let life = answer
                    .get("expires_in")
                    .and_then(Value::as_u64)
                    .unwrap_or(3_600);
                Ok(AccessToken::new(token).with_lifetime(Duration::from_secs(life)))
            }
            (200..300, None) => Err(ModelError::new(
                ModelErrorKind::Malformed,
                "the token server's reply contains no access token",
            )),
            (400..404, _) => Err(scrub_error(
                rejection_error(&answer, &secrets).with_status(reply.status()),
                &endpoint,
                &[],
            )),
            (status, _) => {
                let error = Failure::read(&body).into_http_error(status, reply.headers());
                Err(scrub_error(
                    without_secrets(error, &secrets),
                    &endpoint,
                    &[],
                ))
            }
        }
    }

    /// Returns the form fields, which contain the secret.
    fn fields(&self) -> Result<Vec<(&'static str, String)>, ModelError> {
        Ok(match &self.grant {
            Grant::User {
                client,
                secret,
                refresh,
            } => vec![
                ("grant_type", "refresh_token".to_owned()),
                ("client_id", client.clone()),
                ("client_secret", secret.expose().to_owned()),
                ("refresh_token", refresh.expose().to_owned()),
            ],
            Grant::Service { email, key, key_id } => vec![
                (
                    "grant_type",
                    "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned(),
                ),
                (
                    "assertion",
                    assertion(email, key, key_id.as_deref(), &self.url, seconds())?,
                ),
            ],
        })
    }
}

/// Writes the fields as a form.
fn form_of(fields: &[(&'static str, String)]) -> String {
    let field = |(name, value): &(&str, String)| format!("{name}={}", percent(value));
    fields.iter().map(field).collect::<Vec<_>>().join("&")
}

/// Returns the secrets of the request that must not be shown, both plain and form-encoded.
fn secrets_of(fields: &[(&'static str, String)]) -> Secrets {
    let secret = |name: &str| matches!(name, "client_secret" | "refresh_token" | "assertion");
    let values = fields
        .iter()
        .filter(|(name, _)| secret(name))
        .map(|(_, value)| value);
    values.fold(Secrets::new().known_only(), |known, value| {
        known.known(value).known(percent(value))
    })
}

/// Returns the error for Google's rejection, with its reason and the next step.
fn rejection_error(answer: &Value, secrets: &Secrets) -> ModelError {
    let word = |name: &str, limit: usize| -> String {
        let reason = answer.get(name).and_then(Value::as_str).unwrap_or_default();
        secrets
            .replace(reason, |_| "***")
            .chars()
            .take(limit)
            .collect()
    };
    let (what, about) = (word("error", 60), word("error_description", 200));
    let about = if about.is_empty() {
        about
    } else {
        format!(": {about}")
    };
    let remedy = "log in again with `gcloud auth application-default login`, or use another key";
    auth_error(&format!(
        "Google rejected the credentials (`{what}`{about}); {remedy}"
    ))
}

/// Removes secrets from an error, because the server may have repeated the request.
fn without_secrets(error: ModelError, secrets: &Secrets) -> ModelError {
    let clean = |text: &str| secrets.replace(text, |_| "***").into_owned();
    let message = clean(error.message());
    let error = match error.request_id().map(clean) {
        Some(id) => error.with_request_id(id),
        None => error,
    };
    error.with_message(message)
}

/// Rejects files that are not regular: a pipe or a device may never end.
fn check_regular_file(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::other("not a regular file")),
    }
}

/// Returns a signed assertion of a service account's identity, valid for one hour.
///
/// It is a JSON Web Token signed with RS256. The audience is the token server, so that the
/// assertion is useless elsewhere.
fn assertion(
    email: &str,
    key: &RsaKeyPair,
    key_id: Option<&str>,
    url: &str,
    now: u64,
) -> Result<String, ModelError> {
    let mut head = json!({"alg": "RS256", "typ": "JWT"});
    if let Some(id) = key_id {
        head["kid"] = id.into();
    }
    let claims = json!({
        "iss": email,
        "scope": SCOPE,
        "aud": url,
        "iat": now,
        "exp": now.saturating_add(3_600),
    });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encode(&head), encode(&claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        text.as_bytes(),
        &mut signature,
    )
    .map_err(|_| auth_error("the service account's key cannot sign"))?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Parses a private key in PEM format.
///
/// # Errors
/// Returns `Auth` if the text is not an RSA key in PKCS#8.
fn key(pem: &str) -> Result<RsaKeyPair, ModelError> {
    let lines = pem
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("-----"));
    let der = STANDARD.decode(lines.collect::<String>()).ok();
    let key = der.and_then(|der| RsaKeyPair::from_pkcs8(&der).ok());
    key.ok_or_else(|| {
        auth_error("the credentials' `private_key` is not an RSA key in PKCS#8; create a new key")
    })
}

/// Creates an error that no retry fixes.
fn auth_error(message: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Auth, message)
}

/// Returns the seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the validity of an assertion depends on the real clock"
)]
fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
