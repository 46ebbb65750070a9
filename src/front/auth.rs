//! Bearer tokens and their scopes, for an admin port that is bound beyond loopback.

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use crate::config::TokenConfig;

/// Who may ask what. Without tokens everyone may: the port is then on loopback, or is a socket whose mode guards it.
#[derive(Clone, Debug, Default)]
pub struct Authorizer {
    tokens: Vec<Token>,
}

#[derive(Clone, Debug)]
struct Token {
    /// Compared by digest, so a comparison takes the same time wherever two tokens differ.
    digest: [u8; 32],
    scopes: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No token, or one nobody was given: 401.
    Unauthorized,
    /// A token without this scope: 403.
    Forbidden(&'static str),
}

impl Authorizer {
    pub fn new(tokens: &[TokenConfig]) -> Self {
        let token = |config: &TokenConfig| Token {
            digest: Sha256::digest(config.token.reveal().as_bytes()).into(),
            scopes: config.scopes.clone(),
        };
        Self { tokens: tokens.iter().map(token).collect() }
    }

    /// Whether a request with these headers may do what takes `scope`, e.g. `dlq:read`.
    ///
    /// # Errors
    /// What to answer instead.
    pub fn check(&self, headers: &HeaderMap, scope: &'static str) -> Result<(), Refused> {
        if self.tokens.is_empty() {
            return Ok(());
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        let digest: [u8; 32] =
            Sha256::digest(given.ok_or(Refused::Unauthorized)?.as_bytes()).into();
        let known = self.tokens.iter().find(|token| token.digest == digest);
        let scopes = &known.ok_or(Refused::Unauthorized)?.scopes;
        let covers = scopes.iter().any(|held| covers(held, scope));
        covers.then_some(()).ok_or(Refused::Forbidden(scope))
    }
}

/// `*`, `dlq:*` and `dlq:read` cover `dlq:read`.
fn covers(held: &str, wanted: &str) -> bool {
    held == "*" || held == wanted || {
        let resource = |scope: &str| scope.split_once(':').map(|(resource, _)| resource.to_owned());
        held.ends_with(":*") && resource(held) == resource(wanted)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn authorizer() -> Authorizer {
        let token = |name: &str, token: &str, scopes: &[&str]| TokenConfig {
            name: name.to_owned(),
            token: token.into(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        };
        Authorizer::new(&[
            token("reader", "reader-token-0123", &["dlq:read", "metrics:*"]),
            token("root", "root-token-012345", &["*"]),
        ])
    }

    fn asked(authorization: Option<&str>, scope: &'static str) -> Result<(), Refused> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        authorizer().check(&headers, scope)
    }

    #[test]
    fn a_token_may_do_what_its_scopes_cover() {
        assert_eq!(asked(Some("Bearer reader-token-0123"), "dlq:read"), Ok(()));
        assert_eq!(asked(Some("Bearer reader-token-0123"), "metrics:read"), Ok(()));
        assert_eq!(asked(Some("Bearer root-token-012345"), "node:write"), Ok(()));
        let forbidden = Err(Refused::Forbidden("node:write"));
        assert_eq!(asked(Some("Bearer reader-token-0123"), "node:write"), forbidden);
    }

    #[test]
    fn no_token_or_a_wrong_one_is_nobody() {
        for wrong in
            [None, Some("Bearer "), Some("Bearer reader-token-012"), Some("reader-token-0123")]
        {
            assert_eq!(asked(wrong, "dlq:read"), Err(Refused::Unauthorized), "{wrong:?}");
        }
    }

    #[test]
    fn without_tokens_everyone_may() {
        assert_eq!(Authorizer::default().check(&HeaderMap::new(), "node:write"), Ok(()));
    }
}
