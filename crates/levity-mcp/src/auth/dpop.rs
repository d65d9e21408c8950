//! Proofs of possession (DPoP, RFC 9449).
//!
//! A stolen token that is bound to a key is useless without the key. Each request has a proof that
//! is signed for that request alone.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use url::Url;

use super::jwt::part;
use super::secret::Secret;

/// The signature algorithm of the proofs, as authorization servers name it.
pub(crate) const ALGORITHM: &str = "ES256";
/// The maximum length of a stored nonce; servers use some dozens of bytes.
const MAX_NONCE: usize = 1024;

/// A key that tokens are bound to.
pub(crate) struct ProofKey(EcdsaKeyPair);

/// The request that a proof is for.
pub(crate) struct ProofRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a Url,
    /// The access token of the request; `None` at a token endpoint.
    pub(crate) token: Option<&'a str>,
    /// The nonce that the receiver sent last.
    pub(crate) nonce: Option<&'a str>,
    /// The current time in seconds.
    pub(crate) now: u64,
    /// A value that occurs in no other proof.
    pub(crate) id: &'a str,
}

impl ProofKey {
    /// Generates a key in the form that a login stores.
    pub(crate) fn generate() -> Option<Secret> {
        let key =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .ok()?;
        Some(Secret::new(STANDARD.encode(key)))
    }

    /// Parses a key from [`generate`](Self::generate).
    pub(crate) fn read(stored: &Secret) -> Option<Self> {
        let der = STANDARD.decode(stored.expose()).ok()?;
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new())
            .ok()
            .map(Self)
    }

    /// Signs a proof for one request.
    pub(crate) fn prove(&self, request: &ProofRequest<'_>) -> Option<String> {
        let head = json!({ "typ": "dpop+jwt", "alg": ALGORITHM, "jwk": self.public()? });
        let mut url = request.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        let mut claims = json!({
            "jti": request.id,
            "htm": request.method,
            "htu": url.as_str(),
            "iat": request.now,
        });
        if let Some(token) = request.token {
            claims["ath"] = URL_SAFE_NO_PAD
                .encode(digest(&SHA256, token.as_bytes()))
                .into();
        }
        if let Some(nonce) = request.nonce {
            claims["nonce"] = nonce.into();
        }
        let text = format!("{}.{}", part(&head), part(&claims));
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).ok()?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the public key as a JWK, which each proof contains.
    fn public(&self) -> Option<Value> {
        // An uncompressed point: the byte 4, then both coordinates.
        let point = self.0.public_key().as_ref().strip_prefix(&[4])?;
        let (x, y) = point.split_at_checked(32)?;
        Some(json!({
            "kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode(x),
            "y": URL_SAFE_NO_PAD.encode(y),
        }))
    }
}

/// Returns the nonce of a `DPoP-Nonce` header, if it can be sent back.
pub(crate) fn nonce(value: &str) -> Option<&str> {
    let fits = |byte: u8| byte.is_ascii_graphic();
    let value = value.trim();
    (!value.is_empty() && value.len() <= MAX_NONCE && value.bytes().all(fits)).then_some(value)
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::super::jwt::claims;
    use super::*;

    fn proof_request<'a>(
        url: &'a Url,
        token: Option<&'a str>,
        nonce: Option<&'a str>,
    ) -> ProofRequest<'a> {
        ProofRequest {
            method: "POST",
            url,
            token,
            nonce,
            now: 1000,
            id: "once",
        }
    }

    #[test]
    fn proof_is_signed_by_key_in_its_header() {
        let key = ProofKey::read(&ProofKey::generate().unwrap()).unwrap();
        let url = Url::parse("https://h.example/mcp?key=hush#x").unwrap();
        let proof = key
            .prove(&proof_request(&url, Some("token"), Some("n1")))
            .unwrap();
        let head = URL_SAFE_NO_PAD
            .decode(proof.split('.').next().unwrap())
            .unwrap();
        let head: Value = serde_json::from_slice(&head).unwrap();
        assert_eq!(
            (head["typ"].as_str(), head["alg"].as_str()),
            (Some("dpop+jwt"), Some("ES256"))
        );
        let coordinate = |name: &str| {
            URL_SAFE_NO_PAD
                .decode(head["jwk"][name].as_str().unwrap())
                .unwrap()
        };
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let (text, signature) = proof.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(text.as_bytes(), &signature)
            .unwrap();
        let claims = claims(&proof).unwrap();
        let hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, b"token"));
        assert_eq!(claims["ath"], hash);
        assert_eq!(
            (claims["htu"].as_str(), claims["nonce"].as_str()),
            (Some("https://h.example/mcp"), Some("n1"))
        );
    }

    #[test]
    fn proof_for_token_endpoint_has_neither_token_nor_nonce() {
        let key = ProofKey::read(&ProofKey::generate().unwrap()).unwrap();
        let url = Url::parse("https://h.example/token").unwrap();
        let claims = claims(&key.prove(&proof_request(&url, None, None)).unwrap()).unwrap();
        let expected =
            json!({ "jti": "once", "htm": "POST", "htu": "https://h.example/token", "iat": 1000 });
        assert_eq!(claims, expected);
    }

    #[test]
    fn nonce_that_cannot_be_sent_back_is_ignored() {
        assert_eq!(nonce(" abc-._~ "), Some("abc-._~"));
        for bad in ["", " ", "a b", "a\u{e9}", &"x".repeat(1025)] {
            assert_eq!(nonce(bad), None, "{bad}");
        }
    }
}
