use ::http::{Request, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::dpop;
use super::http::Http;
use super::jwt::Key;
use super::record::Method;
use crate::redact::Redactor;

/// The header with a proof of possession, and the one with the nonce for the next.
pub(crate) const PROOF: &str = "dpop";
pub(crate) const NONCE: &str = "dpop-nonce";

/// A token endpoint, and who we are there.
pub(crate) struct Endpoint<'a> {
    pub(crate) http: &'a Http,
    pub(crate) url: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) proof: Proof<'a>,
    /// Proves that we have the key that the token is to be bound to.
    pub(crate) possession: Option<String>,
    /// Masks what the endpoint may repeat, and is told what it gives.
    pub(crate) secrets: &'a Redactor,
}

/// How we show that we are this client.
pub(crate) enum Proof<'a> {
    None,
    Basic(&'a str),
    Post(&'a str),
    /// An assertion that was signed for this request.
    Signed(String),
}

/// What a token endpoint gave.
pub(crate) struct Granted {
    pub(crate) access: String,
    pub(crate) kind: String,
    pub(crate) seconds: Option<u64>,
    pub(crate) refresh: Option<String>,
    pub(crate) scopes: Option<Vec<String>>,
    /// The nonce for the next proof of possession.
    pub(crate) nonce: Option<String>,
}

/// Why a token endpoint gave nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It could not be reached, or has a problem of its own: later it may work.
    Later(String),
    /// It said no, by this error code.
    No(String),
    /// It wants the same request with this nonce in the proof of possession.
    Nonce(String),
}

impl Refusal {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Later(text) => text.clone(),
            Self::No(code) => format!("its authorization server refused to give a token: `{code}`"),
            Self::Nonce(_) => "its authorization server wants one nonce after another".to_owned(),
        }
    }
}

impl Endpoint<'_> {
    /// Asks for a token by the parameters of a grant.
    pub(crate) async fn ask(&self, grant: &[(&str, &str)]) -> Result<Granted, Refusal> {
        let request = self.request(grant).map_err(|_| unreachable())?;
        let answer = self.http.send(request).await.map_err(|_| unreachable())?;
        let nonce = answer
            .headers()
            .get(NONCE)
            .and_then(|value| dpop::nonce(value.to_str().ok()?));
        match (
            read(answer.status().as_u16(), answer.body(), self.secrets),
            nonce,
        ) {
            (Err(Refusal::No(code)), Some(nonce)) if code == "use_dpop_nonce" => {
                Err(Refusal::Nonce(nonce.to_owned()))
            }
            (outcome, nonce) => outcome.map(|granted| Granted {
                nonce: nonce.map(str::to_owned),
                ..granted
            }),
        }
    }

    fn request(&self, grant: &[(&str, &str)]) -> Result<Request<Vec<u8>>, ::http::Error> {
        let mut form = Serializer::new(String::new());
        form.extend_pairs(grant.iter().filter(|(_, value)| !value.is_empty()));
        let mut request = Request::post(self.url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        if let Some(possession) = &self.possession {
            request = request.header(PROOF, possession);
        }
        match &self.proof {
            // A workload may be known by its assertion alone.
            Proof::None if self.client_id.is_empty() => {}
            Proof::None => drop(form.append_pair("client_id", self.client_id)),
            Proof::Basic(secret) => {
                request = request.header(header::AUTHORIZATION, basic(self.client_id, secret));
            }
            Proof::Post(secret) => {
                form.append_pair("client_id", self.client_id)
                    .append_pair("client_secret", secret);
            }
            Proof::Signed(assertion) => {
                form.append_pair(
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                );
                form.append_pair("client_assertion", assertion);
            }
        }
        request.body(form.finish().into_bytes())
    }
}

fn read(status: u16, body: &[u8], secrets: &Redactor) -> Result<Granted, Refusal> {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let field = |name: &str| Some(value.as_ref()?.get(name)?.as_str()?.to_owned());
    let error = field("error").map(|code| clean(&secrets.text(&code)));
    let passing = matches!(
        error.as_deref(),
        Some("server_error" | "temporarily_unavailable")
    );
    if passing || status >= 500 || status == 429 || status == 408 {
        let text = format!("its authorization server answered {status} to a request for a token");
        return Err(Refusal::Later(text));
    }
    if let Some(code) = error {
        return Err(Refusal::No(code));
    }
    let access = field("access_token").filter(|_| (200..300).contains(&status));
    let access = access.ok_or_else(|| Refusal::No(format!("status {status} and no token")))?;
    let seconds = value
        .as_ref()
        .and_then(|value| value.get("expires_in"))
        .and_then(|value| match value {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        });
    secrets.add([&*access]);
    secrets.add(field("refresh_token").as_deref());
    Ok(Granted {
        access,
        kind: field("token_type").unwrap_or_else(|| "bearer".to_owned()),
        seconds,
        refresh: field("refresh_token"),
        scopes: field("scope").map(|scopes| split(&scopes)),
        nonce: None,
    })
}

pub(crate) fn split(scopes: &str) -> Vec<String> {
    scopes.split_whitespace().map(str::to_owned).collect()
}

/// An error code as it may be shown: those of OAuth are short words.
pub(crate) fn clean(code: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    code.chars().filter(fits).take(60).collect()
}

fn basic(id: &str, secret: &str) -> String {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    format!(
        "Basic {}",
        STANDARD.encode(format!("{}:{}", encode(id), encode(secret)))
    )
}

fn unreachable() -> Refusal {
    Refusal::Later("its authorization server could not be reached".to_owned())
}

/// How to show who we are, given what we have: none when a secret or key that is needed is missing.
pub(crate) fn proof<'a>(
    method: Method,
    secret: Option<&'a str>,
    sign: impl FnOnce() -> Option<String>,
) -> Option<Proof<'a>> {
    match method {
        Method::None => Some(Proof::None),
        Method::Basic => secret.map(Proof::Basic),
        Method::Post => secret.map(Proof::Post),
        Method::Key => sign().map(Proof::Signed),
    }
}

pub(crate) fn read_key(pem: Option<&str>) -> Result<Option<Key>, &'static str> {
    pem.map(Key::read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let granted = read(
            200,
            br#"{"access_token": "a", "expires_in": "60", "scope": "x  y"}"#,
            &Redactor::default(),
        )
        .ok()
        .unwrap();
        assert_eq!(
            (granted.access.as_str(), granted.kind.as_str()),
            ("a", "bearer")
        );
        assert_eq!((granted.seconds, granted.refresh), (Some(60), None));
        assert_eq!(granted.scopes.unwrap(), ["x", "y"]);
    }

    #[test]
    fn refusals_say_whether_later_helps() {
        let check = |status, body: &str, later, part: &str| {
            let refusal = read(status, body.as_bytes(), &Redactor::default())
                .err()
                .unwrap();
            assert_eq!(matches!(refusal, Refusal::Later(_)), later, "{refusal:?}");
            assert!(
                refusal.text().contains(part) && !refusal.text().contains("hush"),
                "{refusal:?}"
            );
        };
        check(
            400,
            r#"{"error": "invalid_grant", "error_description": "hush"}"#,
            false,
            "`invalid_grant`",
        );
        check(200, r#"{"error": "<a no>\n"}"#, false, "`ano`");
        check(503, "hush", true, "503");
        check(404, "hush", false, "404");
        check(200, r#"{"access_token": 7}"#, false, "no token");
        check(500, r#"{"error": "invalid_grant"}"#, true, "500");
        check(400, r#"{"error": "temporarily_unavailable"}"#, true, "400");
    }

    #[test]
    fn ids_and_secrets_are_encoded() {
        assert_eq!(
            basic("a:b", "c d"),
            format!("Basic {}", STANDARD.encode("a%3Ab:c+d"))
        );
    }
}
