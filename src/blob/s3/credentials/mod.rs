//! Who asks: the keys of the configuration, of the environment, of a web identity or of the instance, in this order.

mod environment;
mod instance;
mod web_identity;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::model::verify::rfc3339_unix_s;
use ankusa_actors::ports::{BlobError, Clock};
use tokio::time::Instant;

pub use environment::Environment;
use instance::Instance;
pub use instance::{parse_instance_keys, parse_role};
use web_identity::WebIdentity;
pub use web_identity::parse_sts_keys;

use super::signing::Keys;
use super::spec::S3Spec;
use crate::blob::cached::{Cached, Fetched};
use crate::blob::side::SideChannel;
use crate::blob::spec_error::BlobSpecError;

/// Temporary keys are fetched anew from so long before their end on. Instances have new ones five minutes before it.
const EARLY: Duration = Duration::from_secs(240);

/// Where the keys of one store come from. Which it is does not change while the node runs.
pub(super) enum Chain {
    Fixed(Arc<Keys>),
    Fetched(Box<Fetcher>),
    /// There are none, and nobody may be asked.
    Nowhere,
}

/// Keys that end.
pub(super) struct Fetcher {
    source: Source,
    side: SideChannel,
    kept: Cached<Arc<Keys>>,
    clock: Arc<dyn Clock>,
}

enum Source {
    WebIdentity(WebIdentity),
    Instance(Instance),
}

impl Chain {
    /// # Errors
    /// What is configured, or in the environment, is half of something.
    pub(super) fn new(
        spec: &S3Spec,
        environment: &Environment,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, BlobSpecError> {
        if let (Some(id), Some(secret)) = (&spec.access_key_id, &spec.secret_access_key) {
            return Ok(fixed(id, secret, spec.session_token.clone()));
        }
        let wrong = |text: &str| Err(BlobSpecError::new("access_key_id", text));
        match (environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => {
                return Ok(fixed(&id, &secret, environment.get("AWS_SESSION_TOKEN")));
            }
            (Some(_), None) => {
                return wrong("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not");
            }
            (None, Some(_)) => {
                return wrong("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not");
            }
            (None, None) => {}
        }
        let source = if let Some(identity) = WebIdentity::of(environment, &spec.region)? {
            Source::WebIdentity(identity)
        } else if let Some(instance) = Instance::of(environment)? {
            Source::Instance(instance)
        } else {
            return Ok(Self::Nowhere);
        };
        let side = SideChannel::new().map_err(|text| BlobSpecError::new("access_key_id", text))?;
        let (kept, clock) = (Cached::new(EARLY), Arc::clone(clock));
        Ok(Self::Fetched(Box::new(Fetcher { source, side, kept, clock })))
    }

    /// The keys to sign with now.
    ///
    /// # Errors
    /// There are none; `transport` if there may be some in a moment.
    pub(super) async fn get(&self, deadline: Instant) -> Result<Arc<Keys>, BlobError> {
        match self {
            Self::Fixed(keys) => Ok(Arc::clone(keys)),
            Self::Fetched(fetcher) => fetcher.get(deadline).await,
            Self::Nowhere => Err(BlobError::Forbidden(
                "no credentials: not in the configuration, not in the environment, and no instance is to be asked"
                    .to_owned(),
            )),
        }
    }

    /// Drops keys that can be fetched anew. Answers whether there were such.
    pub(super) async fn forget(&self) -> bool {
        match self {
            Self::Fixed(_) | Self::Nowhere => false,
            Self::Fetched(fetcher) => fetcher.kept.forget().await,
        }
    }
}

impl Fetcher {
    async fn get(&self, deadline: Instant) -> Result<Arc<Keys>, BlobError> {
        let fetch = async {
            let Fetched { value, expires_at_ms } = match &self.source {
                Source::WebIdentity(identity) => identity.fetch(&self.side, deadline).await?,
                Source::Instance(instance) => instance.fetch(&self.side, deadline).await?,
            };
            Ok(Fetched { value: Arc::new(value), expires_at_ms })
        };
        self.kept.get(&*self.clock, fetch).await
    }
}

fn fixed(id: &str, secret: &str, session_token: Option<String>) -> Chain {
    Chain::Fixed(Arc::new(Keys {
        access_key_id: id.to_owned(),
        secret_access_key: secret.to_owned(),
        session_token,
    }))
}

/// What STS and the instance answer.
#[derive(Default)]
struct Told {
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl Told {
    /// The keys, if they are whole.
    fn keys(self) -> Option<Fetched<Keys>> {
        let expires_at_s = rfc3339_unix_s(self.expiration?.trim().as_bytes())?;
        let value = Keys {
            access_key_id: self.access_key_id.filter(|id| !id.is_empty())?,
            secret_access_key: self.secret_access_key.filter(|secret| !secret.is_empty())?,
            session_token: Some(self.session_token.filter(|token| !token.is_empty())?),
        };
        let expires_at_ms = u64::try_from(expires_at_s).ok()?.saturating_mul(1_000);
        Some(Fetched { value, expires_at_ms: Some(expires_at_ms) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    struct Epoch;

    impl Clock for Epoch {
        fn now_ms(&self) -> u64 {
            0
        }
    }

    fn chain(spec: &S3Spec, environment: &[(&str, &str)]) -> Result<String, String> {
        let clock: Arc<dyn Clock> = Arc::new(Epoch);
        let chain = Chain::new(spec, &Environment::of(environment), &clock)
            .map_err(|error| error.to_string())?;
        Ok(match chain {
            Chain::Fixed(keys) => format!("{} {:?}", keys.access_key_id, keys.session_token),
            Chain::Fetched(fetcher) => match fetcher.source {
                Source::WebIdentity(_) => "web identity".to_owned(),
                Source::Instance(_) => "instance".to_owned(),
            },
            Chain::Nowhere => "nowhere".to_owned(),
        })
    }

    #[test]
    fn keys_are_looked_for_in_order() {
        let configured = S3Spec {
            access_key_id: Some("spec".into()),
            secret_access_key: Some("s".into()),
            ..S3Spec::default()
        };
        let bare = S3Spec::default();
        let identity =
            [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")];
        let keys = [
            ("AWS_ACCESS_KEY_ID", "env"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("AWS_SESSION_TOKEN", "t"),
        ];
        let all = [keys.as_slice(), &identity].concat();
        let off = [("AWS_EC2_METADATA_DISABLED", "true")];
        for (spec, environment, found) in [
            (&configured, all.as_slice(), "spec None"),
            (&bare, &all, "env Some(\"t\")"),
            (&bare, &keys[..2], "env None"),
            (&bare, &identity, "web identity"),
            (&bare, &identity[1..], "instance"),
            (&bare, &[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")], "instance"),
            (&bare, &off, "nowhere"),
        ] {
            assert_eq!(chain(spec, environment), Ok(found.to_owned()), "{environment:?}");
        }
        for (environment, why) in [
            (&keys[..1], "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"),
            (&keys[1..], "AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not"),
            (&identity[..1], "AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not"),
        ] {
            assert_eq!(chain(&bare, environment), Err(format!("access_key_id: {why}")));
        }
    }

    #[test]
    fn keys_that_are_not_whole_are_none() {
        let told = |without: &str| {
            let of = |name: &str, value: &str| Some(value.to_owned()).filter(|_| name != without);
            Told {
                access_key_id: of("id", "a"),
                secret_access_key: of("secret", "s"),
                session_token: of("token", "t"),
                expiration: of("end", "1970-01-01T00:01:00Z"),
            }
        };
        let value = Keys {
            access_key_id: "a".into(),
            secret_access_key: "s".into(),
            session_token: Some("t".into()),
        };
        assert_eq!(told("").keys(), Some(Fetched { value, expires_at_ms: Some(60_000) }));
        for lacking in ["id", "secret", "token", "end"] {
            assert_eq!(told(lacking).keys(), None, "{lacking}");
        }
        assert_eq!(Told { expiration: Some("soon".into()), ..told("") }.keys(), None);
    }
}
