//! What a worker's answer means for the delivery ("HTTP sink": status map).

/// What becomes of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    /// The same request can never succeed.
    Permanent,
    /// The worker named its time: not before this many milliseconds from now, > 0.
    RetryAfter {
        ms: u64,
    },
    Retry,
}

impl Verdict {
    /// Judges a status and the first `Retry-After` that came with it. A redirect is never followed, so it is a failure
    /// like any other; so is every status nobody has thought of.
    pub fn new(status: u16, retry_after: Option<&[u8]>, now_ms: u64) -> Self {
        match status {
            200..=299 => Self::Delivered,
            400 | 401 | 403 | 404 | 410 | 413 | 422 => Self::Permanent,
            408 | 429 | 500..=599 => {
                match retry_after.and_then(|value| retry_after_ms(value, now_ms)) {
                    Some(ms) => Self::RetryAfter { ms },
                    None => Self::Retry,
                }
            }
            _other => Self::Retry,
        }
    }
}

/// A `Retry-After` in milliseconds from now: a positive number of seconds, or an IMF-date that is still to come.
/// Anything else says nothing.
pub fn retry_after_ms(value: &[u8], now_ms: u64) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let ms = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large for a u64 is "never": the policy caps it.
        text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000)
    } else {
        imf_date_s(text)?.saturating_mul(1_000).saturating_sub(now_ms)
    };
    (ms > 0).then_some(ms)
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Sun, 06 Nov 1994 08:49:37 GMT` in Unix seconds, from 1970 on. The day of the week is read, not checked.
fn imf_date_s(text: &str) -> Option<u64> {
    let (day_name, rest) = text.split_once(", ")?;
    if !DAYS.contains(&day_name) || rest.len() != "06 Nov 1994 08:49:37 GMT".len() {
        return None;
    }
    let mut parts = rest.split(' ');
    let day = number(parts.next()?, 2)?;
    let month_name = parts.next()?;
    let month = u64::try_from(MONTHS.iter().position(|name| *name == month_name)?).ok()?;
    let year = number(parts.next()?, 4)?;
    let mut time = parts.next()?.split(':').map(|part| number(part, 2));
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    // 60 is a leap second.
    let in_range =
        (1..=days_in(year, month)).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if time.next().is_some()
        || parts.next() != Some("GMT")
        || parts.next().is_some()
        || year < 1970
        || !in_range
    {
        return None;
    }
    let days = days_before_year(year) + (0..month).map(|m| days_in(year, m)).sum::<u64>() + day - 1;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Exactly that many digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Days of a month, January being 0.
fn days_in(year: u64, month: u64) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _longest => 31,
    }
}

/// Days from 1970-01-01 to the first of January of `year`, which is 1970 or later.
fn days_before_year(year: u64) -> u64 {
    let leaps_until = |year: u64| year / 4 - year / 100 + year / 400;
    let last = year - 1;
    (year - 1970) * 365 + leaps_until(last) - leaps_until(1969)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOVEMBER_MS: u64 = 784_111_777_000;

    #[test]
    fn every_status_has_its_verdict() {
        let all =
            |verdict| (100..=599).filter(move |status| Verdict::new(*status, None, 0) == verdict);
        assert_eq!(all(Verdict::Delivered).collect::<Vec<_>>(), (200..=299).collect::<Vec<_>>());
        assert_eq!(
            all(Verdict::Permanent).collect::<Vec<_>>(),
            [400, 401, 403, 404, 410, 413, 422]
        );
        assert_eq!(all(Verdict::Retry).count(), 500 - 100 - 7);
    }

    #[test]
    fn retry_after_counts_for_408_429_and_5xx_alone() {
        let waits = |status: &u16| {
            Verdict::new(*status, Some(b"7"), 0) == Verdict::RetryAfter { ms: 7_000 }
        };
        let expected: Vec<u16> = [408, 429].into_iter().chain(500..=599).collect();
        assert_eq!((100..=599).filter(waits).collect::<Vec<_>>(), expected);
        assert_eq!(Verdict::new(503, Some(b"soon"), 0), Verdict::Retry);
        assert_eq!(Verdict::new(404, Some(b"7"), 0), Verdict::Permanent);
    }

    #[test]
    fn seconds_are_positive_decimal_digits() {
        assert_eq!(retry_after_ms(b"1", 0), Some(1_000));
        assert_eq!(retry_after_ms(b" 0120 ", 0), Some(120_000));
        assert_eq!(retry_after_ms(b"99999999999999999999999", 0), Some(u64::MAX));
        for nothing in [&b"0"[..], b"", b"-1", b"+1", b"1.5", b"1s", b"1 2", b"0x10", b"\xff"] {
            assert_eq!(retry_after_ms(nothing, 0), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_date_counts_while_it_is_still_to_come() {
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(retry_after_ms(date, 0), Some(NOVEMBER_MS));
        assert_eq!(retry_after_ms(date, NOVEMBER_MS - 1), Some(1));
        assert_eq!(retry_after_ms(date, NOVEMBER_MS), None);
        assert_eq!(retry_after_ms(date, NOVEMBER_MS + 1), None);
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (date, unix_s) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Thu, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
            ("Wed, 31 Dec 2025 23:59:60 GMT", 1_767_225_600),
            ("Tue, 01 Jul 2025 12:00:00 GMT", 1_751_371_200),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ] {
            assert_eq!(imf_date_s(date), Some(unix_s), "{date}");
        }
    }

    #[test]
    fn what_is_no_imf_date_says_nothing() {
        for wrong in [
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:4937: GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Wed, 29 Feb 2100 00:00:00 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sxx, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 +8:49:37 GMT",
            "Sun,\u{a0}06 Nov 1994 08:49:37 GM",
        ] {
            assert_eq!(imf_date_s(wrong), None, "{wrong}");
        }
    }
}
