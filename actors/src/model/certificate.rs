//! What this node reads of an X.509 certificate: whom it names, for how long, and with which key.
//!
//! Whether it can be trusted is decided elsewhere, before anything here is believed. This reads the few fields that are
//! compared and shown, from DER alone, and refuses what is not a certificate.

mod der;
mod name;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};

use der::{Der, Element, Tag};

/// The object identifier of subjectAltName, 2.5.29.17, as its content bytes.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// The most names one certificate may have; one with more is refused.
const MAX_NAMES: usize = 1_000;

/// Bytes that are no certificate, or one that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    #[error("the certificate ends early")]
    Short,
    #[error("the certificate is not in the distinguished encoding")]
    Encoding,
    #[error("the certificate has another structure than X.509")]
    Structure,
    #[error("the certificate has a date that is none")]
    Date,
    #[error("the certificate has more than {MAX_NAMES} names")]
    Names,
}

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The distinguished name as text, the most specific part first: `CN=billing,O=Acme`.
    pub subject: String,
    /// The common names of the subject, in their order.
    pub common_names: Vec<String>,
    /// The names of the extension subjectAltName, in their order.
    pub alt_names: AltNames,
    /// SHA-256 of the SubjectPublicKeyInfo: the same for every certificate of one key.
    pub public_key_sha256: [u8; 32],
    /// The first moment it counts, in Unix seconds.
    pub not_before_s: i64,
    /// The last, in Unix seconds.
    pub not_after_s: i64,
}

/// The names of the extension subjectAltName. Of other kinds than these there may be more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AltNames {
    pub dns: Vec<String>,
    pub uris: Vec<String>,
    pub emails: Vec<String>,
    pub ips: Vec<IpAddr>,
}

impl Certificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn from_der(bytes: &[u8]) -> Result<Self, BadCertificate> {
        let mut outer = Der::new(bytes);
        let certificate = outer.expect(Tag::SEQUENCE)?;
        outer.end()?;
        let mut fields = Der::new(certificate.content);
        let mut to_be_signed = Der::new(fields.expect(Tag::SEQUENCE)?.content);
        fields.expect(Tag::SEQUENCE)?;
        fields.expect(Tag::BIT_STRING)?;
        fields.end()?;
        Self::from_fields(&mut to_be_signed)
    }

    fn from_fields(fields: &mut Der<'_>) -> Result<Self, BadCertificate> {
        fields.optional(Tag::context_constructed(0))?;
        fields.expect(Tag::INTEGER)?;
        let _algorithm = fields.expect(Tag::SEQUENCE)?;
        let _issuer = fields.expect(Tag::SEQUENCE)?;
        let mut validity = Der::new(fields.expect(Tag::SEQUENCE)?.content);
        let (not_before_s, not_after_s) = (time(&mut validity)?, time(&mut validity)?);
        validity.end()?;
        let subject = fields.expect(Tag::SEQUENCE)?;
        let spki = fields.expect(Tag::SEQUENCE)?;
        fields.optional(Tag::context(1))?;
        fields.optional(Tag::context(2))?;
        let extensions = fields.optional(Tag::context_constructed(3))?;
        fields.end()?;
        let (subject, common_names) = name::texts(subject.content)?;
        Ok(Self {
            subject,
            common_names,
            alt_names: extensions.map(alt_names).transpose()?.unwrap_or_default(),
            public_key_sha256: Sha256::digest(spki.whole).into(),
            not_before_s,
            not_after_s,
        })
    }
}

/// Of the wrapped list of extensions.
fn alt_names(extensions: Element<'_>) -> Result<AltNames, BadCertificate> {
    let mut wrapped = Der::new(extensions.content);
    let mut list = Der::new(wrapped.expect(Tag::SEQUENCE)?.content);
    wrapped.end()?;
    let mut names = AltNames::default();
    while !list.is_empty() {
        let mut extension = Der::new(list.expect(Tag::SEQUENCE)?.content);
        let id = extension.expect(Tag::OBJECT_IDENTIFIER)?;
        extension.optional(Tag::BOOLEAN)?;
        let value = extension.expect(Tag::OCTET_STRING)?;
        extension.end()?;
        if id.content == SUBJECT_ALT_NAME {
            names.add(value.content)?;
        }
    }
    Ok(names)
}

impl AltNames {
    /// How many there are, of all kinds.
    pub fn len(&self) -> usize {
        self.dns.len() + self.uris.len() + self.emails.len() + self.ips.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add(&mut self, value: &[u8]) -> Result<(), BadCertificate> {
        let mut wrapped = Der::new(value);
        let mut list = Der::new(wrapped.expect(Tag::SEQUENCE)?.content);
        wrapped.end()?;
        while !list.is_empty() {
            let Element { tag, content, whole: _ } = list.next()?;
            if tag == Tag::context(1) {
                self.emails.push(ia5(content)?);
            } else if tag == Tag::context(2) {
                self.dns.push(ia5(content)?);
            } else if tag == Tag::context(6) {
                self.uris.push(ia5(content)?);
            } else if tag == Tag::context(7) {
                self.ips.push(ip(content)?);
            }
            if self.len() > MAX_NAMES {
                return Err(BadCertificate::Names);
            }
        }
        Ok(())
    }
}

/// ASCII, and nothing that could not be printed.
fn ia5(content: &[u8]) -> Result<String, BadCertificate> {
    let printable = content.iter().all(|byte| (0x20..=0x7e).contains(byte));
    let text = std::str::from_utf8(content).ok().filter(|_| printable);
    text.map(str::to_owned).ok_or(BadCertificate::Encoding)
}

fn ip(content: &[u8]) -> Result<IpAddr, BadCertificate> {
    if let Ok(four) = <[u8; 4]>::try_from(content) {
        return Ok(IpAddr::V4(Ipv4Addr::from(four)));
    }
    let sixteen = <[u8; 16]>::try_from(content).map_err(|_| BadCertificate::Encoding)?;
    Ok(IpAddr::V6(Ipv6Addr::from(sixteen)))
}

/// `YYMMDDHHMMSSZ`, or with four digits of year.
fn time(fields: &mut Der<'_>) -> Result<i64, BadCertificate> {
    let Element { tag, content, whole: _ } = fields.next()?;
    let digits = content.strip_suffix(b"Z").ok_or(BadCertificate::Date)?;
    let (year, rest) = if tag == Tag::UTC_TIME {
        let (year, rest) = number(digits, 2)?;
        // What two digits can say ends with 2049.
        (if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
    } else if tag == Tag::GENERALIZED_TIME {
        number(digits, 4)?
    } else {
        return Err(BadCertificate::Date);
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let fits = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (hour < 24 && minute < 60 && second < 60)
        && rest.is_empty();
    if !fits {
        return Err(BadCertificate::Date);
    }
    Ok(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn number(digits: &[u8], count: usize) -> Result<(i64, &[u8]), BadCertificate> {
    let (own, rest) = digits.split_at_checked(count).ok_or(BadCertificate::Date)?;
    let all = own.iter().all(u8::is_ascii_digit);
    let value = own.iter().fold(0, |value, digit| value * 10 + i64::from(digit.wrapping_sub(b'0')));
    all.then_some((value, rest)).ok_or(BadCertificate::Date)
}

/// Days from 1970-01-01 in the Gregorian calendar. Years are counted from March, so that the odd day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests;
