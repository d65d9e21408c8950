//! A server that requires a login, and its authorization server, both in this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use url::Url;

use super::http::{Reply, Request, serve};

/// The deviations of the two servers from normal behaviour.
#[derive(Clone)]
pub(crate) struct Quirks {
    /// The lifetime of tokens, in seconds.
    pub(crate) expires: Option<u64>,
    /// `true` if refresh tokens are issued.
    pub(crate) refreshes: bool,
    /// The issuer in the metadata of the authorization server.
    pub(crate) issuer: Option<String>,
    /// The resource in the metadata of the server.
    pub(crate) resource: Option<String>,
    /// The issuer in the redirect.
    pub(crate) iss: Option<String>,
    /// The state in the redirect.
    pub(crate) state: Option<String>,
    /// The scope that the tool `write` requires.
    pub(crate) write: &'static str,
    /// `true` if issued tokens never have that scope.
    pub(crate) withholds_scope: bool,
    /// The target of a redirect for every request to the server.
    pub(crate) redirect_to: Option<String>,
    /// The URL of the login page.
    pub(crate) page: Option<String>,
    /// The authorization server that the server names, in place of the real one.
    pub(crate) authority: Option<String>,
    /// `true` if only clients with secrets can log in.
    pub(crate) only_machines: bool,
    /// `true` if tokens are bound to keys.
    pub(crate) bound: bool,
    /// The nonce that both servers require in each proof of possession.
    pub(crate) nonce: Option<&'static str>,
    /// The method that the server rejects with all secrets of the request in its message, after
    /// this number of padding letters.
    pub(crate) echoes: Option<(&'static str, usize)>,
    /// `true` if the token endpoint uses the secret of the request as its error code.
    pub(crate) echoes_grant: bool,
}

impl Default for Quirks {
    fn default() -> Self {
        let (issuer, resource, iss, state, redirect_to, page) =
            (None, None, None, None, None, None);
        let (expires, refreshes, write, withholds_scope) = (Some(3600), true, "write", false);
        let (bound, nonce, echoes, echoes_grant) = (false, None, None, false);
        let (authority, only_machines) = (None, false);
        Self {
            expires,
            refreshes,
            issuer,
            resource,
            iss,
            state,
            write,
            withholds_scope,
            redirect_to,
            page,
            authority,
            only_machines,
            bound,
            nonce,
            echoes,
            echoes_grant,
        }
    }
}

/// The two servers, which end when this is dropped.
pub(crate) struct Authority {
    /// The URL of the server.
    pub(crate) url: String,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    server: String,
    issuer: String,
    quirks: Mutex<Quirks>,
    data: Mutex<Data>,
}

#[derive(Default)]
struct Data {
    count: u64,
    clients: Vec<String>,
    /// The codes with their challenges and scopes.
    codes: HashMap<String, (String, String)>,
    /// The valid access tokens with their scopes.
    tokens: BTreeMap<String, String>,
    /// The valid refresh tokens with their scopes.
    refresh: BTreeMap<String, String>,
    /// The requests to the token endpoint.
    grants: Vec<HashMap<String, String>>,
    /// The scopes of the login pages.
    pages: Vec<String>,
    /// The `Authorization` headers of requests to the server.
    logins: Vec<Option<String>>,
    /// The number of requests with an invalid token.
    rejected_count: usize,
    /// The ids of all proofs of possession.
    proofs: Vec<String>,
    /// The keys that tokens are bound to.
    keys: BTreeMap<String, Value>,
}

impl Authority {
    pub(crate) async fn start(quirks: Quirks) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            server: at(&server),
            issuer: at(&issuer),
            quirks: Mutex::new(quirks),
            data: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let (one, other) = (state.clone(), state.clone());
        tasks.spawn(serve(server, move |request| one.server(&request)));
        tasks.spawn(serve(issuer, move |request| other.issuer(&request)));
        Self {
            url: format!("{}/mcp", state.server),
            state,
            _tasks: tasks,
        }
    }

    pub(crate) fn quirks(&self) -> MutexGuard<'_, Quirks> {
        self.state.quirks.lock().unwrap()
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.state.data.lock().unwrap()
    }

    /// Returns the issuer of the authorization server.
    pub(crate) fn issuer(&self) -> &str {
        &self.state.issuer
    }

    /// Returns the token requests with this grant.
    pub(crate) fn grants(&self, grant: &str) -> Vec<HashMap<String, String>> {
        self.data()
            .grants
            .iter()
            .filter(|form| form["grant_type"] == grant)
            .cloned()
            .collect()
    }

    /// Returns the scopes of each login page that was opened.
    pub(crate) fn pages(&self) -> Vec<String> {
        self.data().pages.clone()
    }

    pub(crate) fn clients(&self) -> usize {
        self.data().clients.len()
    }

    /// Returns the `Authorization` header of each request to the server.
    pub(crate) fn logins(&self) -> Vec<Option<String>> {
        self.data().logins.clone()
    }

    /// Returns the number of requests with an invalid token.
    pub(crate) fn rejected_count(&self) -> usize {
        self.data().rejected_count
    }

    /// Returns the ids of the valid proofs of possession.
    pub(crate) fn proofs(&self) -> Vec<String> {
        self.data().proofs.clone()
    }

    /// Invalidates all access tokens, like a server that loses its sessions.
    pub(crate) fn revoke(&self) {
        self.data().tokens.clear();
    }

    /// Invalidates all refresh tokens.
    pub(crate) fn revoke_refresh(&self) {
        self.data().refresh.clear();
    }
}

impl State {
    fn issuer(&self, request: &Request) -> Reply {
        match request.path.as_str() {
            "/.well-known/oauth-authorization-server" => self.metadata(),
            "/register" => self.register(&request.json()),
            "/authorize" => self.page(request),
            "/token" => self.token(request),
            _ => Reply::status(404),
        }
    }

    fn metadata(&self) -> Reply {
        let (issuer, quirks) = (&self.issuer, self.quirks.lock().unwrap().clone());
        let mut metadata = json!({
            "issuer": quirks.issuer.unwrap_or_else(|| issuer.clone()),
            "authorization_endpoint": quirks.page.unwrap_or_else(|| format!("{issuer}/authorize")),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": true,
        });
        if quirks.only_machines {
            metadata["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
            metadata["grant_types_supported"] = json!(["client_credentials"]);
        }
        if quirks.bound {
            metadata["dpop_signing_alg_values_supported"] = json!(["RS256", "ES256"]);
        }
        Reply::json(&metadata)
    }

    fn register(&self, registration: &Value) -> Reply {
        let mut data = self.data.lock().unwrap();
        let id = format!("client-{}", data.clients.len());
        data.clients.push(id.clone());
        Reply::json(&json!({ "client_id": id, "redirect_uris": registration["redirect_uris"] }))
    }

    fn page(&self, request: &Request) -> Reply {
        let (query, quirks) = (request.query(), self.quirks.lock().unwrap().clone());
        let mut data = self.data.lock().unwrap();
        assert!(
            data.clients.contains(&query["client_id"]),
            "the client is not registered"
        );
        assert_eq!(query["code_challenge_method"], "S256");
        assert_eq!(query["resource"], format!("{}/mcp", self.server));
        let scopes = query.get("scope").cloned().unwrap_or_default();
        data.pages.push(scopes.clone());
        data.count += 1;
        let code = format!("code-{}", data.count);
        data.codes
            .insert(code.clone(), (query["code_challenge"].clone(), scopes));
        let mut redirect = Url::parse(&query["redirect_uri"]).unwrap();
        redirect
            .query_pairs_mut()
            .append_pair("code", &code)
            .append_pair("state", quirks.state.as_deref().unwrap_or(&query["state"]))
            .append_pair("iss", quirks.iss.as_deref().unwrap_or(&self.issuer));
        Reply::status(302).header("Location", redirect.as_str())
    }

    fn token(&self, request: &Request) -> Reply {
        let error_reply = |code: &str| Reply::json(&json!({ "error": code })).with_status(400);
        let (form, quirks) = (&request.form(), self.quirks.lock().unwrap().clone());
        let mut data = self.data.lock().unwrap();
        data.grants.push(form.clone());
        let secret = ["assertion", "refresh_token", "code"]
            .into_iter()
            .find_map(|name| form.get(name));
        if let Some(secret) = secret.filter(|_| quirks.echoes_grant) {
            return error_reply(secret);
        }
        let key = match possession(request, &format!("{}/token", self.issuer), None, &quirks) {
            Ok((key, id)) => {
                data.proofs.push(id);
                Some(key)
            }
            Err("use_dpop_nonce") => {
                return error_reply("use_dpop_nonce").header("DPoP-Nonce", quirks.nonce.unwrap());
            }
            Err(_) if quirks.bound => return error_reply("invalid_dpop_proof"),
            Err(_) => None,
        };
        let scopes = match form["grant_type"].as_str() {
            "authorization_code" => match data.codes.remove(&form["code"]) {
                Some((challenge, scopes)) if challenge == digest(&form["code_verifier"]) => scopes,
                _ => return error_reply("invalid_grant"),
            },
            "refresh_token" => match data.refresh.remove(&form["refresh_token"]) {
                Some(scopes) => scopes,
                None => return error_reply("invalid_grant"),
            },
            "client_credentials" if quirks.only_machines => {
                form.get("scope").cloned().unwrap_or_default()
            }
            "urn:ietf:params:oauth:grant-type:jwt-bearer" => {
                form.get("scope").cloned().unwrap_or_default()
            }
            _ => return error_reply("unsupported_grant_type"),
        };
        data.count += 1;
        let (access, refresh) = (
            format!("access-{}", data.count),
            format!("refresh-{}", data.count),
        );
        let kind = if quirks.bound { "DPoP" } else { "Bearer" };
        let mut reply = json!({ "access_token": access, "token_type": kind, "scope": scopes });
        data.keys.extend(key.map(|key| (access.clone(), key)));
        if let Some(expires) = quirks.expires {
            reply["expires_in"] = expires.into();
        }
        if quirks.refreshes {
            reply["refresh_token"] = refresh.clone().into();
            data.refresh.insert(refresh, scopes.clone());
        }
        data.tokens.insert(access, scopes);
        Reply::json(&reply)
    }

    fn server(&self, request: &Request) -> Reply {
        let quirks = self.quirks.lock().unwrap().clone();
        if request.path == "/.well-known/oauth-protected-resource/mcp" {
            let resource = quirks
                .resource
                .unwrap_or_else(|| format!("{}/mcp", self.server));
            let authority = quirks.authority.as_ref().unwrap_or(&self.issuer);
            return Reply::json(
                &json!({ "resource": resource, "authorization_servers": [authority] }),
            );
        }
        if request.path != "/mcp" {
            return Reply::status(404);
        }
        let login = request.headers.get("authorization").cloned();
        self.data.lock().unwrap().logins.push(login.clone());
        if let Some(redirect_to) = quirks.redirect_to {
            return Reply::status(307).header("Location", &redirect_to);
        }
        let scheme = if quirks.bound { "DPoP " } else { "Bearer " };
        let token = login
            .as_deref()
            .and_then(|login| login.strip_prefix(scheme))
            .unwrap_or_default();
        if quirks.bound && !token.is_empty() {
            match possession(
                request,
                &format!("{}/mcp", self.server),
                Some(token),
                &quirks,
            ) {
                Ok((key, id)) => {
                    let mut data = self.data.lock().unwrap();
                    assert_eq!(
                        data.keys.get(token),
                        Some(&key),
                        "the proof has another key"
                    );
                    data.proofs.push(id);
                }
                Err("use_dpop_nonce") => {
                    let challenge = r#"DPoP error="use_dpop_nonce""#;
                    let reply = Reply::status(401).header("WWW-Authenticate", challenge);
                    return reply.header("DPoP-Nonce", quirks.nonce.unwrap());
                }
                Err(problem) => panic!("{problem}"),
            }
        }
        let scopes = self.data.lock().unwrap().tokens.get(token).cloned();
        let Some(scopes) = scopes else {
            self.data.lock().unwrap().rejected_count += usize::from(!token.is_empty());
            return Reply::status(401)
                .header("WWW-Authenticate", &self.challenge(r#"scope="read""#));
        };
        if request.method != "POST" {
            return Reply::status(405);
        }
        let message = request.json();
        let needs_scope = message["params"]["name"] == "write" && message["method"] == "tools/call";
        let has_scope =
            scopes.split(' ').any(|scope| scope == quirks.write) && !quirks.withholds_scope;
        if needs_scope && !has_scope {
            let parameters = format!(r#"error="insufficient_scope", scope="{}""#, quirks.write);
            return Reply::status(403).header("WWW-Authenticate", &self.challenge(&parameters));
        }
        if let Some((method, before)) = quirks
            .echoes
            .filter(|(method, _)| message["method"] == **method)
        {
            let refresh: Vec<_> = self.data.lock().unwrap().refresh.keys().cloned().collect();
            let proof = request.headers.get("dpop").cloned().unwrap_or_default();
            let text = format!(
                "{}{token} {proof} {} {method}",
                "x".repeat(before),
                refresh.join(" ")
            );
            let mut reply = json!({ "jsonrpc": "2.0", "id": message["id"] });
            match message["params"]["name"] == "write" {
                true => {
                    reply["result"] =
                        json!({ "isError": true, "content": [{ "type": "text", "text": text }] });
                }
                false => reply["error"] = json!({ "code": -32000, "message": text }),
            }
            return Reply::json(&reply);
        }
        answer(&message)
    }

    fn challenge(&self, parameters: &str) -> String {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.server);
        format!(r#"Bearer resource_metadata="{metadata}", {parameters}"#)
    }
}

/// Returns the key and the id of the proof of possession in a request, or the problem with it.
fn possession(
    request: &Request,
    url: &str,
    token: Option<&str>,
    quirks: &Quirks,
) -> Result<(Value, String), &'static str> {
    let proof = request
        .headers
        .get("dpop")
        .ok_or("there is no proof of possession")?;
    let parts: Vec<_> = proof
        .split('.')
        .map(|part| URL_SAFE_NO_PAD.decode(part).unwrap())
        .collect();
    let [head, claims, signature] = parts.try_into().map_err(|_| "the proof is not a JWT")?;
    let (head, claims): (Value, Value) = (
        serde_json::from_slice(&head).unwrap(),
        serde_json::from_slice(&claims).unwrap(),
    );
    let coordinate = |name: &str| {
        URL_SAFE_NO_PAD
            .decode(head["jwk"][name].as_str().unwrap())
            .unwrap()
    };
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let text = &proof[..proof.rfind('.').unwrap()];
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    key.verify(text.as_bytes(), &signature)
        .map_err(|_| "the proof is signed by another key")?;
    let expected = json!([url, request.method, token.map(digest)]);
    if json!([claims["htu"], claims["htm"], claims["ath"]]) != expected {
        return Err("the proof is for another request");
    }
    match quirks.nonce {
        Some(nonce) if claims["nonce"] != nonce => Err("use_dpop_nonce"),
        _ => Ok((
            head["jwk"].clone(),
            claims["jti"].as_str().unwrap().to_owned(),
        )),
    }
}

/// Returns the response of a minimal MCP server.
fn answer(message: &Value) -> Reply {
    let Some(id) = message.get("id") else {
        return Reply::status(202);
    };
    let schema = json!({ "type": "object" });
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "guarded", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [
            { "name": "read", "inputSchema": schema }, { "name": "write", "inputSchema": schema },
        ] }),
        "tools/call" => {
            json!({ "content": [{ "type": "text", "text": message["params"]["name"] }] })
        }
        "ping" => json!({}),
        _ => {
            let error = json!({ "code": -32601, "message": "unknown method" });
            return Reply::json(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Reply::json(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn digest(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(ring::digest::digest(
        &ring::digest::SHA256,
        verifier.as_bytes(),
    ))
}
