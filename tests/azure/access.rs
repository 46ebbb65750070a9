//! Shared access signatures and tokens, as Azurite takes them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The account every emulator has, and its key, which is no secret.
pub const ACCOUNT: &str = "devstoreaccount1";
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const VERSION: &str = "2024-11-04";

/// When nothing here ends.
pub const FAR_OFF: &str = "2099-01-01T00:00:00Z";

fn signature(text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(KEY).unwrap()).unwrap();
    mac.update(text.as_bytes());
    encoded(&STANDARD.encode(mac.finalize().into_bytes()))
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Of the whole account, for setting the scene.
pub fn account_sas() -> String {
    let signed = format!("{ACCOUNT}\nracwdl\nb\nsco\n\n{FAR_OFF}\n\n\n{VERSION}\n\n");
    let (end, sig) = (encoded(FAR_OFF), signature(&signed));
    format!("sv={VERSION}&ss=b&srt=sco&sp=racwdl&se={end}&sig={sig}")
}

/// Of one container, as an operator makes one.
pub fn container_sas(container: &str, permissions: &str, end: &str) -> String {
    let resource = format!("/blob/{ACCOUNT}/{container}");
    // Between these: start, identifier, addresses, protocols; snapshot, encryption scope, five headers of answers.
    let signed = format!("{permissions}\n\n{end}\n{resource}\n\n\n\n{VERSION}\nc\n\n\n\n\n\n\n");
    let (end, sig) = (encoded(end), signature(&signed));
    format!("sv={VERSION}&se={end}&sr=c&sp={permissions}&sig={sig}")
}

/// A token that says what it must; nobody looks who signed it.
pub fn token(audience: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
    let issuer = "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/";
    let claims = format!(
        r#"{{"aud":"{audience}","iss":"{issuer}","iat":1500000000,"nbf":1500000000,"exp":4070908800}}"#
    );
    format!("{header}.{}.{}", URL_SAFE_NO_PAD.encode(claims), URL_SAFE_NO_PAD.encode("nobody"))
}
