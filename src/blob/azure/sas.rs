//! A shared access signature: a text that whoever has it may do with what it says.
//!
//! It goes into the query of every request as it was given, and nowhere else.

use std::fmt;

use url::Url;

use super::percent::decoded;

/// One that was given, without its `?`.
pub struct Sas {
    query: String,
    /// Its `sig`, as it stands there and as it is meant: no text that holds one of them is repeated.
    secrets: Vec<String>,
    starts: Option<Moment>,
    ends: Option<Moment>,
}

struct Moment {
    text: String,
    /// Seconds since the Unix epoch.
    at_s: i64,
}

impl fmt::Debug for Sas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sas")
    }
}

impl Sas {
    /// Reads one.
    ///
    /// # Errors
    /// Why the text is none; the text is not in it.
    pub fn new(token: &str) -> Result<Self, &'static str> {
        let query = token.strip_prefix('?').unwrap_or(token);
        // Nothing that a URL would change.
        let is_query = |byte: u8| {
            byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'\'' | b'<' | b'>')
        };
        if !query.bytes().all(is_query) {
            return Err("it holds what must be percent-encoded in a query");
        }
        let value = |name: &str| {
            let mut fields = query.split('&').filter_map(|field| field.split_once('='));
            fields.find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let signature = value("sig").filter(|signature| !signature.is_empty());
        let signature = signature.ok_or("it has no 'sig': it is no shared access signature")?;
        let secrets = [Some(signature.to_owned()), decoded(signature)];
        let moment = |name| {
            let text = decoded(value(name)?)?;
            seconds(&text).map(|at_s| Moment { text, at_s })
        };
        Ok(Self {
            secrets: secrets.into_iter().flatten().collect(),
            starts: moment("st"),
            ends: moment("se"),
            query: query.to_owned(),
        })
    }

    /// Puts it behind the query of a URL.
    pub fn append(&self, url: &mut Url) {
        let query = match url.query() {
            Some(query) if !query.is_empty() => format!("{query}&{}", self.query),
            Some(_) | None => self.query.clone(),
        };
        url.set_query(Some(&query));
    }

    /// Whether a text gives it away.
    pub fn is_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| text.contains(secret))
    }

    /// What makes it worthless at that second since the Unix epoch, if anything does.
    pub fn lapse(&self, now_s: i64) -> Option<String> {
        if let Some(ends) = self.ends.as_ref().filter(|ends| ends.at_s <= now_s) {
            return Some(format!("the SAS token expired at {}", ends.text));
        }
        let starts = self.starts.as_ref().filter(|starts| starts.at_s > now_s)?;
        Some(format!("the SAS token is not valid before {}", starts.text))
    }
}

/// Of `2026-11-30`, `2026-11-30T10:00Z` or `2026-11-30T10:00:00Z`; a fraction of a second counts for nothing.
fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00Z"));
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.strip_suffix('Z')?.splitn(3, ':');
    let (hour, minute) = (number(time.next()?)?, number(time.next()?)?);
    let second = time.next().map(|second| second.split_once('.').map_or(second, |(s, _)| s));
    let second = second.map_or(Some(0), number)?;
    let is_valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    // Years begin in March, so that the day a leap year has more is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468;
    is_valid.then_some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Of at most four digits.
fn number(digits: &str) -> Option<i64> {
    let is_number = (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TOKEN: &str =
        "sv=2024-11-04&st=2026-11-30&se=2026-12-01T10%3A00%3A30Z&sr=c&sp=rwdl&sig=a%2Bb%2Fc%3D";

    #[test]
    fn it_goes_into_the_query_as_it_was_given() {
        for given in [TOKEN.to_owned(), format!("?{TOKEN}")] {
            let sas = Sas::new(&given).unwrap();
            let mut url = Url::parse("https://a.example/c/b").unwrap();
            sas.append(&mut url);
            assert_eq!(url.as_str(), format!("https://a.example/c/b?{TOKEN}"));
            url.set_query(Some("comp=list"));
            sas.append(&mut url);
            assert_eq!(url.as_str(), format!("https://a.example/c/b?comp=list&{TOKEN}"));
        }
        let odd = "sig=a+/~!$()*,:;@[]{}|^`\\%zz&a?b&=";
        let mut url = Url::parse("https://a.example/").unwrap();
        Sas::new(odd).unwrap().append(&mut url);
        assert_eq!(url.as_str(), format!("https://a.example/?{odd}"));
    }

    #[test]
    fn a_text_that_is_none_is_not_told() {
        for wrong in ["", "?", "se=2026-12-01", "sig=", "sig=a b", "sig=a#b", "sig=a'", "sig=ä"] {
            let why = Sas::new(wrong).unwrap_err();
            assert!(wrong.len() < 4 || !why.contains(wrong), "{why}");
        }
        let sas = Sas::new(TOKEN).unwrap();
        assert_eq!(format!("{sas:?}"), "Sas");
        assert!(sas.is_in("the url ...&sig=a%2Bb%2Fc%3D was wrong") && sas.is_in("(a+b/c=)"));
        assert!(!sas.is_in("sig sp=rwdl"));
    }

    #[test]
    fn it_is_worthless_from_its_end_on_and_before_its_start() {
        let sas = Sas::new(TOKEN).unwrap();
        let (start, end) = (1_795_996_800, 1_796_119_230);
        let early = "the SAS token is not valid before 2026-11-30";
        assert_eq!(sas.lapse(start - 1).as_deref(), Some(early));
        assert_eq!((sas.lapse(start), sas.lapse(end - 1)), (None, None));
        let over = "the SAS token expired at 2026-12-01T10:00:30Z";
        assert_eq!(sas.lapse(end).as_deref(), Some(over));
        // Those of a stored policy, and what no date is, say nothing.
        for unsaid in ["si=policy&sig=a", "se=soon&sig=a", "se=2026-13-01&sig=a"] {
            assert_eq!(Sas::new(unsaid).unwrap().lapse(i64::MAX), None);
        }
    }

    #[test]
    fn all_documented_forms_of_a_date_are_understood() {
        let forms = [
            ("1970-01-01", Some(0)),
            ("2000-03-01T00:00Z", Some(951_868_800)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199)),
            ("2024-02-29T23:59:59.9999999Z", Some(1_709_251_199)),
            ("2024-02-29T24:00Z", None),
            ("2024-02-29T10:00:00", None),
            ("2024-02-29T10Z", None),
            ("99999-01-01", None),
            ("2024-1", None),
        ];
        for (text, expected) in forms {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
