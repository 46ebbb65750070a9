//! What the configuration says of a container, checked.

use std::fmt;

use http::HeaderValue;
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::dialect::Credentials;
use super::identity::{Environment, Identity};
use super::sas::Sas;
use crate::blob::options::{Sse, TransportOptions};
use crate::blob::spec_error::BlobSpecError;

/// A container of an Azure storage account.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AzureSpec {
    /// The storage account: 3 to 24 lower-case letters and digits. Needed unless there is an `endpoint`.
    pub account_name: String,
    /// The container: 3 to 63 lower-case letters, digits and single hyphens. It is not created.
    pub container: String,
    /// The account's URL, such as `http://127.0.0.1:10000/devstoreaccount1` for an emulator, which has the account in
    /// its path; `None` for `https://<account_name>.blob.core.windows.net`.
    pub endpoint: Option<String>,
    /// How the node proves who it is.
    pub auth: AzureAuth,
    /// The shared access signature of `auth: sas`, a secret, with or without its leading `?`. It needs to read, add,
    /// create, write, delete and list.
    #[serde(serialize_with = "hidden")]
    pub sas_token: Option<String>,
    /// The client id of a user-assigned identity, with `auth: managed_identity`; `None` for the only one there is.
    pub client_id: Option<String>,
    /// Server-side encryption: the `key_id` of `kms` names an encryption scope of the account. `aes256` changes nothing,
    /// as every object is encrypted anyway.
    pub sse: Option<Sse>,
    #[serde(flatten)]
    pub transport: TransportOptions,
}

/// How the node proves who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AzureAuth {
    /// By a shared access signature.
    #[default]
    Sas,
    /// By short-lived tokens of the identity the machine or app was given.
    ManagedIdentity,
    /// Not at all: for emulators.
    None,
}

/// Neither a log nor a shown configuration tells it.
fn hidden<S: Serializer>(secret: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(_) => serializer.serialize_some("[REDACTED]"),
        None => serializer.serialize_none(),
    }
}

impl fmt::Debug for AzureSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureSpec")
            .field("account_name", &self.account_name)
            .field("container", &self.container)
            .field("endpoint", &self.endpoint)
            .field("auth", &self.auth)
            .field("sas_token", &self.sas_token.as_ref().map(|_| "[REDACTED]"))
            .field("client_id", &self.client_id)
            .field("sse", &self.sse)
            .field("transport", &self.transport)
            .finish()
    }
}

impl AzureSpec {
    /// The container's URL.
    pub(super) fn container_url(&self) -> Result<Url, BlobSpecError> {
        if !is_container(&self.container) {
            let text = "3 to 63 lower-case letters, digits and single hyphens, and none of those at an end";
            return Err(BlobSpecError::new("container", text));
        }
        let account = if let Some(endpoint) = &self.endpoint {
            endpoint.clone()
        } else if is_account(&self.account_name) {
            format!("https://{}.blob.core.windows.net", self.account_name)
        } else {
            let text = "3 to 24 lower-case letters and digits, unless there is an 'endpoint'";
            return Err(BlobSpecError::new("account_name", text));
        };
        let wrong = |text: &str| BlobSpecError::new("endpoint", text);
        let mut url = Url::parse(account.trim_end_matches('/'))
            .map_err(|error| wrong(&format!("it is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("it begins with neither https:// nor http://"));
        }
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(wrong("it has more than a host, a port and a path"));
        }
        let path = format!("{}/{}", url.path().trim_end_matches('/'), self.container);
        url.set_path(&path);
        Ok(url)
    }

    pub(super) fn credentials(
        &self,
        environment: &Environment,
    ) -> Result<Credentials, BlobSpecError> {
        let of_another = |given: bool, key: &str, auth: &str| match given {
            true => Err(BlobSpecError::new(key, format!("it goes with 'auth: {auth}' alone"))),
            false => Ok(()),
        };
        let token = self.sas_token.as_deref().filter(|token| !token.is_empty());
        let client_id = self.client_id.as_deref().filter(|id| !id.is_empty());
        of_another(token.is_some() && self.auth != AzureAuth::Sas, "sas_token", "sas")?;
        let has_identity = self.auth == AzureAuth::ManagedIdentity;
        of_another(client_id.is_some() && !has_identity, "client_id", "managed_identity")?;
        match self.auth {
            AzureAuth::None => Ok(Credentials::None),
            AzureAuth::Sas => {
                let token = token.ok_or("'auth: sas' needs one");
                let sas = token.and_then(Sas::new);
                sas.map(Credentials::Sas).map_err(|text| BlobSpecError::new("sas_token", text))
            }
            AzureAuth::ManagedIdentity => {
                let identity = Identity::new(client_id, environment);
                identity
                    .map(Credentials::Identity)
                    .map_err(|text| BlobSpecError::new("auth", format!("managed_identity: {text}")))
            }
        }
    }

    /// The header that asks for a customer's key.
    pub(super) fn encryption_scope(&self) -> Result<Option<HeaderValue>, BlobSpecError> {
        let Some(Sse::Kms { key_id }) = &self.sse else { return Ok(None) };
        let is_scope = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !(3..=63).contains(&key_id.len()) || !key_id.bytes().all(is_scope) {
            let text = "the name of an encryption scope: 3 to 63 letters, digits and hyphens";
            return Err(BlobSpecError::new("sse.key_id", text));
        }
        let scope = HeaderValue::from_str(key_id);
        scope.map(Some).map_err(|_| BlobSpecError::new("sse.key_id", "it is no value of a header"))
    }
}

fn is_account(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (3..=24).contains(&name.len()) && name.bytes().all(is_part)
}

fn is_container(name: &str) -> bool {
    let is_word = |word: &str| {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !word.is_empty() && word.bytes().all(is_part)
    };
    (3..=63).contains(&name.len()) && name.split('-').all(is_word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    fn spec(change: impl FnOnce(&mut AzureSpec)) -> AzureSpec {
        let mut spec = AzureSpec {
            account_name: "myaccount".into(),
            container: "my-container".into(),
            sas_token: Some("?se=2026&sig=secret".into()),
            ..AzureSpec::default()
        };
        change(&mut spec);
        spec
    }

    fn wrong_key<T>(checked: Result<T, BlobSpecError>) -> String {
        checked.map(|_| ()).unwrap_err().key
    }

    #[test]
    fn a_containers_url_is_that_of_its_account_or_below_the_endpoint() {
        let url = |spec: &AzureSpec| spec.container_url().unwrap().to_string();
        let own = spec(|_| {});
        assert_eq!(url(&own), "https://myaccount.blob.core.windows.net/my-container");
        for (endpoint, expected) in [
            (
                "http://127.0.0.1:10000/devstoreaccount1",
                "http://127.0.0.1:10000/devstoreaccount1/my-container",
            ),
            (
                "http://127.0.0.1:10000/devstoreaccount1/",
                "http://127.0.0.1:10000/devstoreaccount1/my-container",
            ),
            (
                "https://a.blob.core.usgovcloudapi.net",
                "https://a.blob.core.usgovcloudapi.net/my-container",
            ),
        ] {
            let elsewhere = spec(|spec| {
                spec.account_name.clear();
                spec.endpoint = Some(endpoint.into());
            });
            assert_eq!(url(&elsewhere), expected);
        }
    }

    #[test]
    fn names_that_are_none_and_endpoints_that_say_more_are_refused() {
        for account in ["", "ab", "My", "a.example/", "a-b-c", &"a".repeat(25)] {
            let wrong = spec(|spec| spec.account_name = account.into());
            assert_eq!(wrong_key(wrong.container_url()), "account_name", "{account}");
        }
        for container in ["", "ab", "Abc", "a--b", "-ab", "ab-", "a/b", "a.b", &"a".repeat(64)] {
            let wrong = spec(|spec| spec.container = container.into());
            assert_eq!(wrong_key(wrong.container_url()), "container", "{container}");
        }
        for endpoint in
            ["", "host", "ftp://a", "https://u@a", "https://:p@a", "https://a?b", "https://a#b"]
        {
            let wrong = spec(|spec| spec.endpoint = Some(endpoint.into()));
            assert_eq!(wrong_key(wrong.container_url()), "endpoint", "{endpoint}");
        }
    }

    #[test]
    fn what_proves_who_asks_is_there_and_nothing_that_is_not_used() {
        let checked = |spec: AzureSpec| spec.credentials(&Environment::default());
        assert!(matches!(checked(spec(|_| {})), Ok(Credentials::Sas(_))));
        let none =
            spec(|spec| (spec.auth, spec.sas_token) = (AzureAuth::None, Some(String::new())));
        assert!(matches!(checked(none), Ok(Credentials::None)));
        for token in [None, Some(String::new()), Some("se=2026".into()), Some("sig=a b".into())] {
            assert_eq!(wrong_key(checked(spec(|spec| spec.sas_token = token))), "sas_token");
        }
        let unused = spec(|spec| spec.auth = AzureAuth::None);
        assert_eq!(wrong_key(checked(unused)), "sas_token");
        let unused = spec(|spec| spec.client_id = Some("c".into()));
        assert_eq!(wrong_key(checked(unused)), "client_id");
    }

    #[test]
    fn an_encryption_scope_is_a_name_and_only_a_customers_key_has_one() {
        let scope = |sse| spec(|spec| spec.sse = sse).encryption_scope();
        let named = |key_id: &str| scope(Some(Sse::Kms { key_id: key_id.into() }));
        assert_eq!((scope(None), scope(Some(Sse::Aes256 {}))), (Ok(None), Ok(None)));
        assert_eq!(named("my-Scope1"), Ok(Some(HeaderValue::from_static("my-Scope1"))));
        for wrong in ["", "ab", "a/b", "a b", "https://vault.example/keys/a", &"a".repeat(64)] {
            assert_eq!(wrong_key(named(wrong)), "sse.key_id", "{wrong}");
        }
    }

    #[test]
    fn a_section_is_read_and_shown_without_its_secret() {
        let text = r#"{"account_name":"myaccount","container":"my-container","sas_token":"?se=2026&sig=secret",
            "sse":{"type":"kms","key_id":"scope"},"timeout_ms":7}"#;
        let read: AzureSpec = serde_json::from_str(text).unwrap();
        let expected = spec(|spec| {
            spec.sse = Some(Sse::Kms { key_id: "scope".into() });
            spec.transport.timeout_ms = 7;
        });
        assert_eq!(read, expected);
        assert_eq!(read.transport.timeout(1), Duration::from_millis(7));
        let shown = serde_json::to_string(&read).unwrap() + &format!("{read:?}");
        assert!(!shown.contains("secret") && shown.contains("REDACTED"), "{shown}");
        for unknown in [
            r#"{"bucket":"a"}"#,
            r#"{"auth":"key"}"#,
            r#"{"sse":{"type":"aes"}}"#,
            r#"{"sse":{"type":"aes256","key_id":"k"}}"#,
        ] {
            assert!(serde_json::from_str::<AzureSpec>(unknown).is_err(), "{unknown}");
        }
    }
}
