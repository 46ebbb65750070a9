//! One certificate with everything in it, and what another reader of certificates says of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::peer_identity::PeerIdentity;
use super::*;

/// Made with OpenSSL, whose words of it are below.
const WHOLE: &str = "\
    MIIC7DCCApKgAwIBAgIBAjAKBggqhkjOPQQDAjCBtTEXMBUGCgmSJomT8ixkARkWB2V4YW1wbGUxFDASBgoJkiaJk/IsZAEZFgRh\
    Y21lMQswCQYDVQQGEwJERTEXMBUGA1UECgwOQWNtZSwgSW5jLiAieCIxGTAIBgNVBAsMAWEwDQYDVQQJDAYgT25lIDsxCzAJBgNV\
    BAUTAjE3MRQwEgYJKoZIhvcNAQkBFgVhQGIuYzERMA8GA1UEAwwIWm/DqyA8MT4xDTALBgNVBAMMBCNzcCAwIBcNMjUwMTAxMDAw\
    MDAwWhgPMjA2MDAyMjkyMzU5NThaMIG1MRcwFQYKCZImiZPyLGQBGRYHZXhhbXBsZTEUMBIGCgmSJomT8ixkARkWBGFjbWUxCzAJ\
    BgNVBAYTAkRFMRcwFQYDVQQKDA5BY21lLCBJbmMuICJ4IjEZMAgGA1UECwwBYTANBgNVBAkMBiBPbmUgOzELMAkGA1UEBRMCMTcx\
    FDASBgkqhkiG9w0BCQEWBWFAYi5jMREwDwYDVQQDDAhab8OrIDwxPjENMAsGA1UEAwwEI3NwIDBZMBMGByqGSM49AgEGCCqGSM49\
    AwEHA0IABAqEFVJpydgSTkEfftZlleRuZN3EhPiIb+9b2vMSmuu8GwNwo0c+41JcF1v3KxtkEE7PVYBFcZE5Crw7z+C5xNujgY4w\
    gYswDAYDVR0TAQH/BAIwADBcBgNVHREEVTBTgglhLmV4YW1wbGWCCyouYi5leGFtcGxlhhVzcGlmZmU6Ly9hY21lL2JpbGxpbmeB\
    BXhAeS56hwQKAAABhxAgAQ24AAAAAAAAAAAAAAABiAMqAwQwHQYDVR0OBBYEFAw7Drd+qV8tHkFa7Bgh0TfBjoN5MAoGCCqGSM49\
    BAMCA0gAMEUCIQDCCgdLuP/7TDwt+MQYquJAkJ/UThl0u3LAFcbwxvAnAQIgastHNVGIBpz45zbRAopr/tsxPXXRIM9D2igTPy8M\
    T9g=";

fn whole() -> Vec<u8> {
    STANDARD.decode(WHOLE).unwrap()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_certificate_is_read_as_openssl_reads_it() {
    let subject = r#"CN=\#sp\ ,CN=Zoë \<1\>,emailAddress=a@b.c,serialNumber=17,street=\ One \;+OU=a,O=Acme\, Inc. \"x\",C=DE,DC=acme,DC=example"#;
    let expected = Certificate {
        subject: subject.to_owned(),
        common_names: texts(&["Zoë <1>", "#sp "]),
        alt_names: AltNames {
            dns: texts(&["a.example", "*.b.example"]),
            uris: texts(&["spiffe://acme/billing"]),
            emails: texts(&["x@y.z"]),
            ips: vec!["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        },
        public_key_sha256: [
            0x92, 0x21, 0x6a, 0xa4, 0x4a, 0xc7, 0xe1, 0xdf, 0xad, 0x92, 0x5c, 0x74, 0x5a, 0xa2,
            0xb9, 0xb5, 0xca, 0xc6, 0x7a, 0xc4, 0x40, 0xb1, 0xf5, 0x5e, 0x91, 0xb4, 0x6e, 0x15,
            0xad, 0x51, 0xc5, 0xc6,
        ],
        not_before_s: 1_735_689_600,
        not_after_s: 2_845_324_798,
    };
    assert_eq!(Certificate::from_der(&whole()), Ok(expected.clone()));
    let identity = PeerIdentity {
        subject: expected.subject,
        common_names: expected.common_names,
        dns_names: expected.alt_names.dns,
        emails: expected.alt_names.emails,
        uris: expected.alt_names.uris,
        ips: expected.alt_names.ips,
        certificate_sha256: Sha256::digest(whole()).into(),
        public_key_sha256: expected.public_key_sha256,
    };
    assert_eq!(PeerIdentity::from_certificate(&whole()), Ok(identity));
}

#[test]
fn a_certificate_that_ends_early_or_goes_on_is_refused() {
    let whole = whole();
    for end in 0..whole.len() {
        assert!(Certificate::from_der(&whole[..end]).is_err(), "{end}");
    }
    let longer = [&whole[..], b"\0"].concat();
    assert_eq!(Certificate::from_der(&longer), Err(BadCertificate::Structure));
}

#[test]
fn dates_are_dates() {
    let read = |tag: u8, text: &str| {
        let bytes = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        time(&mut Der::new(&bytes))
    };
    for (tag, text, expected) in [
        (0x17, "700101000000Z", Ok(0)),
        (0x17, "491231235959Z", Ok(2_524_607_999)),
        (0x17, "500101000000Z", Ok(-631_152_000)),
        (0x18, "20000229000000Z", Ok(951_782_400)),
        (0x18, "20000301000001Z", Ok(951_868_801)),
        (0x18, "99991231235959Z", Ok(253_402_300_799)),
        (0x17, "7001010000Z", Err(BadCertificate::Date)),
        (0x17, "700101000000", Err(BadCertificate::Date)),
        (0x17, "701301000000Z", Err(BadCertificate::Date)),
        (0x17, "700001000000Z", Err(BadCertificate::Date)),
        (0x17, "700132000000Z", Err(BadCertificate::Date)),
        (0x17, "700101240000Z", Err(BadCertificate::Date)),
        (0x17, "7001010000 0Z", Err(BadCertificate::Date)),
        (0x17, "7001010000000Z", Err(BadCertificate::Date)),
        (0x0c, "700101000000Z", Err(BadCertificate::Date)),
    ] {
        assert_eq!(read(tag, text), expected, "{text}");
    }
}

#[test]
fn lengths_have_one_form_and_bounds() {
    let next = |bytes: &[u8]| Der::new(bytes).next().map(|element| element.content.len());
    assert_eq!(next(b"\x04\x01a"), Ok(1));
    assert_eq!(next(&[&b"\x04\x81\x80"[..], &[0; 128]].concat()), Ok(128));
    for bad in [
        &b"\x04\x80"[..],
        b"\x04\x81\x01a",
        b"\x04\x82\0\x80a",
        b"\x04\x85\x01\0\0\0\0",
        b"\x1f\x01\x01a",
    ] {
        assert_eq!(next(bad), Err(BadCertificate::Encoding), "{bad:?}");
    }
    for short in [&b""[..], b"\x04", b"\x04\x01", b"\x04\x84\xff\xff\xff\xffa"] {
        assert_eq!(next(short), Err(BadCertificate::Short), "{short:?}");
    }
}

/// A name of one attribute, with these content bytes of its identifier and this value element.
fn name_of(id: &[u8], value: &[u8]) -> Vec<u8> {
    let element =
        |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
    element(0x31, &element(0x30, &[element(0x06, id), value.to_vec()].concat()))
}

#[test]
fn names_are_texts_that_cannot_be_mistaken() {
    let cn = [0x55, 4, 3];
    for (id, value, expected) in [
        (&cn[..], &b"\x0c\x01a"[..], Ok("CN=a")),
        (&cn, b"\x0c\x03a\0b", Ok(r"CN=a\00b")),
        (&cn, b"\x0c\x02a ", Ok(r"CN=a\ ")),
        (&cn, b"\x0c\x03b=c", Ok("CN=b=c")),
        (&cn, b"\x0c\x01\xff", Ok("CN=#0C01FF")),
        (&cn, b"\x13\x02\xc3\xab", Ok("CN=#1302C3AB")),
        (&cn, b"\x14\x01a", Ok("CN=#140161")),
        (&[0x2a, 0x86, 0x48], b"\x0c\x01a", Ok("1.2.840=#0C0161")),
        (&[0x78, 0x00], b"\x0c\x01a", Ok("2.40.0=#0C0161")),
        (&[0x88, 0x37], b"\x0c\x01a", Ok("2.999=#0C0161")),
        (&[0x2a, 0x86], b"\x0c\x01a", Err(BadCertificate::Short)),
        (&[0x2a, 0x80, 0x01], b"\x0c\x01a", Err(BadCertificate::Encoding)),
        (
            &[0x2a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 127],
            b"\x0c\x01a",
            Err(BadCertificate::Encoding),
        ),
        (&[], b"\x0c\x01a", Err(BadCertificate::Encoding)),
    ] {
        let text = name::texts(&name_of(id, value)).map(|(text, _)| text);
        assert_eq!(text, expected.map(str::to_owned), "{id:?} {value:?}");
    }
}
