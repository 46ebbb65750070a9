//! Signing what is sent, as Standard Webhooks asks: `webhook-signature` over `id.timestamp.body`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A secret that begins so is base64 after it; any other is its own bytes.
const ENCODED_PREFIX: &str = "whsec_";

/// Characters of one entry: `v1,` and 32 bytes in base64.
const ENTRY_CHARS: usize = 3 + 44;

/// Why one of the secrets cannot sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    #[error("must not be empty")]
    Empty,
    #[error("must be base64 after whsec_, with its padding")]
    NotBase64,
}

/// The keys of one sink, each with the state of an HMAC that has taken it and nothing else: a signature costs the body.
#[derive(Clone)]
pub struct Signer {
    keyed: Vec<Hmac<Sha256>>,
}

impl Signer {
    /// Takes the secrets in the order their signatures will be sent.
    ///
    /// # Errors
    ///
    /// The index of the first secret that cannot sign, and why.
    pub fn new<S: AsRef<str>>(secrets: &[S]) -> Result<Self, (usize, BadSecret)> {
        let key = |(index, secret): (usize, &S)| key(secret.as_ref()).map_err(|why| (index, why));
        Ok(Self { keyed: secrets.iter().enumerate().map(key).collect::<Result<_, _>>()? })
    }

    /// The value of `webhook-signature`: one `v1,` entry a secret, a space between them.
    pub fn sign(&self, id: &str, unix_s: u64, body: &[u8]) -> String {
        let timestamp = unix_s.to_string();
        let mut signature = String::with_capacity(self.keyed.len() * (ENTRY_CHARS + 1));
        for keyed in &self.keyed {
            let mut mac = keyed.clone();
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            if !signature.is_empty() {
                signature.push(' ');
            }
            signature.push_str("v1,");
            STANDARD.encode_string(mac.finalize().into_bytes(), &mut signature);
        }
        signature
    }
}

fn key(secret: &str) -> Result<Hmac<Sha256>, BadSecret> {
    if secret.trim().is_empty() {
        return Err(BadSecret::Empty);
    }
    let decoded;
    let bytes = match secret.strip_prefix(ENCODED_PREFIX) {
        Some(encoded) => {
            decoded = STANDARD.decode(encoded).map_err(|_| BadSecret::NotBase64)?;
            decoded.as_slice()
        }
        None => secret.as_bytes(),
    };
    if bytes.is_empty() {
        return Err(BadSecret::Empty);
    }
    // An HMAC takes a key of any length: this error has no way to happen.
    Hmac::new_from_slice(bytes).map_err(|_| BadSecret::Empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_signs_in_its_turn() {
        let signer =
            Signer::new(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a raw shared secret"])
                .ok()
                .unwrap();
        let signature =
            signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(
            signature,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,RygtTnLIGTWu8Cyl+ruiz7FHMf3vABxz89IvBzGpYW4="
        );
    }

    #[test]
    fn a_secret_that_cannot_sign_is_named_by_its_place() {
        let refused = |secrets: &[&str]| Signer::new(secrets).err();
        assert_eq!(refused(&["raw", ""]), Some((1, BadSecret::Empty)));
        assert_eq!(refused(&[" \t"]), Some((0, BadSecret::Empty)));
        assert_eq!(refused(&["whsec_"]), Some((0, BadSecret::Empty)));
        assert_eq!(refused(&["raw", "whsec_AAEC", "whsec_!!!"]), Some((2, BadSecret::NotBase64)));
        assert_eq!(refused(&["whsec_AAE"]), Some((0, BadSecret::NotBase64)));
        assert_eq!(refused(&["whsec_AAECAw=="]), None);
        assert_eq!(refused(&[]), None);
    }
}
