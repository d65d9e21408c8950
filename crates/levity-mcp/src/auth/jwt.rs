//! JSON Web Tokens: assertions of a client's identity (RFC 7523), signed with its private key.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// The lifetime of a signed assertion, in seconds.
const LIFETIME_SECS: u64 = 300;

/// A private key that signs client assertions.
pub(crate) enum Key {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl Key {
    /// Parses a key. The error is one clause that names the problem.
    pub(crate) fn read(pem: &str) -> Result<Self, &'static str> {
        const INVALID_KEY: &str = "`client_key` is not a P-256 or RSA key in PKCS#8 PEM format";
        if pem.contains("BEGIN EC PRIVATE KEY") {
            return Err(
                "`client_key` is in SEC1 format; convert it to PKCS#8 with `openssl pkcs8 -topk8 \
                    -nocrypt`",
            );
        }
        let der = decode(pem).ok_or(INVALID_KEY)?;
        let random = SystemRandom::new();
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random) {
            return Ok(Self::Es256(key));
        }
        let rsa = RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der));
        rsa.map(Self::Rs256).map_err(|_| INVALID_KEY)
    }

    /// Creates an assertion of the identity `client` for `audience` alone. `now` is in seconds, and
    /// `id` must be unique.
    pub(crate) fn assert(
        &self,
        client: &str,
        audience: &str,
        now: u64,
        id: &str,
    ) -> Option<String> {
        let name = match self {
            Self::Es256(_) => "ES256",
            Self::Rs256(_) => "RS256",
        };
        let claims = json!({
            "iss": client, "sub": client, "aud": audience, "iat": now, "exp": now + LIFETIME_SECS,
            "jti": id,
        });
        let head = part(&json!({ "alg": name, "typ": "JWT" }));
        let text = format!("{head}.{}", part(&claims));
        let signature = self.sign(text.as_bytes())?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Signs the bytes; `None` only if the random generator of the system fails.
    fn sign(&self, text: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(key) => Some(key.sign(&random, text).ok()?.as_ref().to_vec()),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature)
                    .ok()?;
                Some(signature)
            }
        }
    }
}

/// Returns the claims of a JWT without verification, which is the receiver's task.
pub(crate) fn claims(jwt: &str) -> Option<Value> {
    let middle = jwt.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(middle).ok()?).ok()
}

/// Encodes a part of a token: JSON in base64 for URLs.
pub(super) fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Returns the bytes of the first block of a PEM text.
fn decode(pem: &str) -> Option<Vec<u8>> {
    let begin = pem.find("-----BEGIN ")?;
    let rest = pem[begin..]
        .split_once("-----\n")
        .or_else(|| pem[begin..].split_once("-----\r\n"))?
        .1;
    let body: String = rest
        .split("-----END")
        .next()?
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    STANDARD.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
        UnparsedPublicKey,
    };

    use super::*;

    fn pem(der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        let lines: Vec<_> = text
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            lines.join("\n")
        )
    }

    #[test]
    fn assertion_signature_can_be_verified() {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random)
                .unwrap();
        let key = Key::read(&pem(der.as_ref())).unwrap();
        let jwt = key
            .assert("me", "https://login.example", 1000, "once")
            .unwrap();
        let (text, signature) = jwt.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key());
        public.verify(text.as_bytes(), &signature).unwrap();
        let decoded = claims(&jwt).unwrap();
        let expected = json!({
            "iss": "me", "sub": "me", "aud": "https://login.example", "iat": 1000, "exp": 1300,
            "jti": "once",
        });
        assert_eq!(decoded, expected);
    }

    #[test]
    fn invalid_key_error_does_not_contain_key() {
        let check = |pem: &str, part: &str| {
            let text = Key::read(pem).err().unwrap();
            assert!(text.contains(part) && !text.contains("hush"), "{text}");
        };
        check("hush", "PKCS#8");
        check(
            "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----",
            "PKCS#8",
        );
        check(
            "-----BEGIN EC PRIVATE KEY-----\nhush\n-----END EC PRIVATE KEY-----",
            "openssl",
        );
    }
}
