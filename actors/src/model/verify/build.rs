//! From a `verify` block to a verifier, and everything that is refused about the block.
//!
//! A key that would have no effect is refused too: whoever wrote it expects a check that would not be made.

use super::credential::{BearerVerifier, MtlsVerifier, Peer, Tokens};
use super::descriptor::{
    Descriptor, HashFunction, Parse, SecretDecode, Timestamp, TimestampSource,
};
use super::presets::{Preset, Signer};
use super::public_key::{Algorithm, MAX_PUBLIC_KEYS, PublicKeys};
use super::secrets::{MAX_SECRETS, Secrets};
use super::spec::{ParseName, SecretSpec, VerifySpec, VerifySpecError, VerifyType};
use super::template::{Piece, Template, is_header_name};
use super::{CUSTOM_SCHEME, DEFAULT_TOLERANCE_SECONDS, Keys, SignatureVerifier, Verifier};

/// How many clients a source may list.
const MAX_PEERS: usize = 64;

/// The longest URL a provider is given, in bytes.
const MAX_URL_BYTES: usize = 2_048;

pub(in super::super) fn refuse<T>(
    key: impl Into<String>,
    sentence: impl Into<String>,
) -> Result<T, VerifySpecError> {
    Err(VerifySpecError { key: key.into(), sentence: sentence.into() })
}

impl VerifySpec {
    /// Builds the verifier and reads its secrets and keys.
    ///
    /// # Errors
    ///
    /// The first key that is missing, unusable or without effect.
    pub fn build(&self) -> Result<Verifier, VerifySpecError> {
        self.refuse_keys_of_others()?;
        if self.kind == VerifyType::None {
            Ok(Verifier::None)
        } else if self.kind == VerifyType::Bearer {
            self.bearer().map(Verifier::Bearer)
        } else if self.kind == VerifyType::Mtls {
            self.mtls().map(Verifier::Mtls)
        } else {
            self.signature()
        }
    }

    fn signature(&self) -> Result<Verifier, VerifySpecError> {
        let (scheme, preset) = match self.kind.preset() {
            Some(preset) => (self.kind.as_str(), preset),
            None => (CUSTOM_SCHEME, self.spelled_out()?),
        };
        let Preset { mut descriptor, signer } = preset;
        if let Some(body) = self.signed_body {
            descriptor.body = body;
        }
        let keys = match signer {
            Signer::Hmac(hash, decode) => Keys::Hmac(self.secrets(decode, hash)?),
            Signer::Key(algorithm) => Keys::Public(self.public_keys(algorithm)?),
        };
        Ok(Verifier::Signature(Box::new(SignatureVerifier {
            scheme: scheme.to_owned(),
            keys,
            url: self.url_of(&descriptor)?,
            descriptor,
            tolerance_seconds: self.tolerance_seconds.unwrap_or(DEFAULT_TOLERANCE_SECONDS),
        })))
    }

    /// Whether the block can say how a signature stands in a request.
    fn is_spelled_out(&self) -> bool {
        matches!(
            self.kind,
            VerifyType::Hmac | VerifyType::Ed25519 | VerifyType::EcdsaP256 | VerifyType::Rsa
        )
    }

    fn refuse_keys_of_others(&self) -> Result<(), VerifySpecError> {
        let kind = self.kind;
        let is_preset = kind.preset().is_some();
        let signs = is_preset || self.is_spelled_out();
        let uses_key = matches!(
            kind,
            VerifyType::Ed25519
                | VerifyType::EcdsaP256
                | VerifyType::Rsa
                | VerifyType::Discord
                | VerifyType::Sendgrid
        );
        let uses_secret = (signs && !uses_key) || kind == VerifyType::Bearer;
        if self.secret.is_some() && !uses_secret {
            return refuse("secret", format!("has no effect with type {}", kind.as_str()));
        }
        if self.public_key.is_some() && !uses_key {
            return refuse("public_key", format!("has no effect with type {}", kind.as_str()));
        }
        if self.signed_body.is_some() && !signs {
            return refuse("signed_body", format!("has no effect with type {}", kind.as_str()));
        }
        if self.url.is_some() && !signs {
            return refuse("url", format!("has no effect with type {}", kind.as_str()));
        }
        let spelled_out = "types hmac, ed25519, ecdsa_p256 and rsa";
        let (hmac, rsa) = (kind == VerifyType::Hmac, kind == VerifyType::Rsa);
        let generic = self.is_spelled_out();
        let keys = [
            ("signature_header", self.signature_header.is_some(), generic, spelled_out),
            ("signed", self.signed.is_some(), generic, spelled_out),
            ("parse", self.parse.is_some(), generic, spelled_out),
            ("sig_prefix", self.sig_prefix.is_some(), generic, spelled_out),
            ("sig_key", self.sig_key.is_some(), generic, spelled_out),
            ("separator", self.separator.is_some(), generic, spelled_out),
            ("version", self.version.is_some(), generic, spelled_out),
            ("hash", self.hash.is_some(), hmac, "type hmac"),
            ("encoding", self.encoding.is_some(), generic, spelled_out),
            ("secret_decode", self.secret_decode.is_some(), hmac, "type hmac"),
            ("padding", self.padding.is_some(), rsa, "type rsa"),
            ("timestamp_header", self.timestamp_header.is_some(), generic, spelled_out),
            ("timestamp_pair", self.timestamp_pair.is_some(), generic, spelled_out),
            ("timestamp_json", self.timestamp_json.is_some(), generic, spelled_out),
            ("timestamp_format", self.timestamp_format.is_some(), generic, spelled_out),
            (
                "token_header",
                self.token_header.is_some(),
                kind == VerifyType::Bearer,
                "type bearer",
            ),
            ("peers", self.peers.is_some(), kind == VerifyType::Mtls, "type mtls"),
        ];
        match keys.iter().find(|(_, is_given, is_ours, _)| *is_given && !is_ours) {
            Some((key, _, _, whose)) => {
                refuse(*key, format!("belongs to {whose}, not to {}", kind.as_str()))
            }
            None => Ok(()),
        }
    }

    fn secrets(
        &self,
        decode: SecretDecode,
        hash: HashFunction,
    ) -> Result<Secrets, VerifySpecError> {
        let secret = self.secret_list()?;
        Secrets::new(secret.as_slice(), decode, hash)
            .or_else(|(index, why)| refuse(secret.key("secret", index), why.to_string()))
    }

    fn secret_list(&self) -> Result<&SecretSpec, VerifySpecError> {
        let Some(secret) = &self.secret else {
            return refuse("secret", format!("is required with type {}", self.kind.as_str()));
        };
        let count = secret.as_slice().len();
        if count == 0 || count > MAX_SECRETS {
            return refuse("secret", format!("must be 1 to {MAX_SECRETS} secrets, got {count}"));
        }
        Ok(secret)
    }

    fn public_keys(&self, algorithm: Algorithm) -> Result<PublicKeys, VerifySpecError> {
        let Some(keys) = &self.public_key else {
            return refuse("public_key", format!("is required with type {}", self.kind.as_str()));
        };
        let count = keys.as_slice().len();
        if count == 0 || count > MAX_PUBLIC_KEYS {
            let sentence = format!("must be 1 to {MAX_PUBLIC_KEYS} keys, got {count}");
            return refuse("public_key", sentence);
        }
        PublicKeys::new(keys.as_slice(), algorithm)
            .or_else(|(index, why)| refuse(keys.key("public_key", index), why.to_string()))
    }

    fn bearer(&self) -> Result<BearerVerifier, VerifySpecError> {
        if self.token_header.as_ref().is_some_and(|name| !is_header_name(name)) {
            return refuse("token_header", "must be the name of a header");
        }
        let secret = self.secret_list()?;
        let tokens = Tokens::new(secret.as_slice())
            .or_else(|(index, why)| refuse(secret.key("secret", index), why.to_string()))?;
        Ok(BearerVerifier { header: self.token_header.clone(), tokens })
    }

    fn mtls(&self) -> Result<MtlsVerifier, VerifySpecError> {
        let Some(peers) = &self.peers else {
            return refuse("peers", "is required with type mtls");
        };
        let count = peers.as_slice().len();
        if count == 0 || count > MAX_PEERS {
            return refuse("peers", format!("must be 1 to {MAX_PEERS} clients, got {count}"));
        }
        let parsed = peers.as_slice().iter().enumerate().map(|(index, text)| {
            Peer::parse(text).or_else(|why| refuse(peers.key("peers", index), why.to_string()))
        });
        Ok(MtlsVerifier { peers: parsed.collect::<Result<_, _>>()? })
    }

    /// The URL the provider was given, which is there if and only if it is signed.
    fn url_of(&self, descriptor: &Descriptor) -> Result<Option<String>, VerifySpecError> {
        match (&self.url, descriptor.signed.covers_url()) {
            (None, false) => Ok(None),
            (None, true) => refuse(
                "url",
                format!("is required with type {}: the URL is signed", self.kind.as_str()),
            ),
            (Some(_), false) => refuse("url", "has no effect: the URL is not signed"),
            (Some(url), true) if url.contains(['?', '#']) => {
                refuse("url", "must end before its query: that of each request is put behind it")
            }
            (Some(url), true) if is_url(url) => Ok(Some(url.clone())),
            (Some(_), true) => {
                refuse("url", "must be the URL the provider was given, as in https://host/path")
            }
        }
    }

    /// The scheme spelled out by the generic types.
    fn spelled_out(&self) -> Result<Preset, VerifySpecError> {
        let kind = self.kind.as_str();
        let Some(signature_header) = &self.signature_header else {
            return refuse("signature_header", format!("is required with type {kind}"));
        };
        if !is_header_name(signature_header) {
            return refuse("signature_header", "must be the name of a header");
        }
        let signed = match Template::parse(self.signed.as_deref().unwrap_or("{body}")) {
            Ok(signed) if signed.covers_body() => signed,
            Ok(_) => {
                return refuse("signed", "must cover {body}: nothing else proves whose body it is");
            }
            Err(error) => return refuse("signed", error.to_string()),
        };
        let parse = self.parse()?;
        let descriptor = Descriptor {
            signature_header: signature_header.clone(),
            timestamp: self.timestamp(&signed, &parse)?,
            parse,
            signed,
            encoding: self.encoding.unwrap_or_default(),
            body: self.signed_body.unwrap_or_default(),
        };
        if !descriptor.is_consistent() {
            return refuse("signed", "uses {ts}, which needs a timestamp_header or timestamp_pair");
        }
        let signer = if self.kind == VerifyType::Ed25519 {
            Signer::Key(Algorithm::Ed25519)
        } else if self.kind == VerifyType::EcdsaP256 {
            Signer::Key(Algorithm::EcdsaP256)
        } else if self.kind == VerifyType::Rsa {
            Signer::Key(Algorithm::Rsa(self.padding.unwrap_or_default()))
        } else {
            Signer::Hmac(self.hash.unwrap_or_default(), self.secret_decode.unwrap_or_default())
        };
        Ok(Preset { descriptor, signer })
    }

    fn parse(&self) -> Result<Parse, VerifySpecError> {
        let parse = self.parse.unwrap_or_default();
        let given = [
            ("sig_prefix", &self.sig_prefix, ParseName::Whole, "whole"),
            ("sig_key", &self.sig_key, ParseName::CsvPairs, "csv_pairs"),
            ("timestamp_pair", &self.timestamp_pair, ParseName::CsvPairs, "csv_pairs"),
            ("version", &self.version, ParseName::SpaceVersions, "space_versions"),
        ];
        for (key, value, belongs_to, name) in given {
            if value.is_some() && belongs_to != parse {
                return refuse(key, format!("belongs to parse: {name}"));
            }
            if value.as_ref().is_some_and(String::is_empty) {
                return refuse(key, "must not be empty");
            }
        }
        if self.separator.is_some() && parse != ParseName::CsvPairs {
            return refuse("separator", "belongs to parse: csv_pairs");
        }
        match (parse, &self.sig_key) {
            (ParseName::Whole, _) => Ok(Parse::Whole { prefix: self.sig_prefix.clone() }),
            (ParseName::SpaceVersions, _) => {
                Ok(Parse::SpaceVersions { version: self.version.clone() })
            }
            (ParseName::CsvPairs, Some(key)) => {
                Ok(Parse::Pairs { key: key.clone(), separator: self.separator.unwrap_or_default() })
            }
            (ParseName::CsvPairs, None) => refuse("sig_key", "is required with parse: csv_pairs"),
        }
    }

    fn timestamp(
        &self,
        signed: &Template,
        parse: &Parse,
    ) -> Result<Option<Timestamp>, VerifySpecError> {
        let source = match (&self.timestamp_header, &self.timestamp_pair, &self.timestamp_json) {
            (None, None, None) if self.timestamp_format.is_some() => {
                return refuse("timestamp_format", "has no effect: nothing is dated");
            }
            (None, None, None) => return Ok(None),
            (Some(name), None, None) => self.timestamp_in_header(name, signed)?,
            (None, Some(key), None) => {
                // `parse` has refused it with any other.
                if !matches!(parse, Parse::Pairs { .. }) || !signed.covers_timestamp("") {
                    let sentence =
                        "must be covered by `signed`, as {ts}: else anyone can change it";
                    return refuse("timestamp_pair", sentence);
                }
                TimestampSource::Pair(key.clone())
            }
            (None, None, Some(key)) if key.is_empty() => {
                return refuse("timestamp_json", "must not be empty");
            }
            (None, None, Some(_)) if !signed.pieces.contains(&Piece::Body) => {
                return refuse("timestamp_json", "must be covered by `signed`, as {body}");
            }
            (None, None, Some(key)) => TimestampSource::Json(key.clone()),
            (_, _, Some(_)) => return refuse("timestamp_json", "must be the only timestamp"),
            (Some(_), Some(_), None) => {
                return refuse("timestamp_pair", "must be the only timestamp");
            }
        };
        Ok(Some(Timestamp { source, format: self.timestamp_format.unwrap_or_default() }))
    }

    fn timestamp_in_header(
        &self,
        name: &str,
        signed: &Template,
    ) -> Result<TimestampSource, VerifySpecError> {
        if !is_header_name(name) {
            return refuse("timestamp_header", "must be the name of a header");
        }
        if !signed.covers_timestamp(name) {
            return refuse(
                "timestamp_header",
                "must be covered by `signed`, as {ts}: else anyone can change it",
            );
        }
        Ok(TimestampSource::Header(name.to_owned()))
    }
}

/// As it goes into the signed text: nothing is added to it and nothing taken away.
fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty())
        && text.len() <= MAX_URL_BYTES
        && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}
