//! Points in time as the API writes them: `2026-11-30T08:00:00.000Z`.

const MS_A_DAY: u64 = 86_400_000;

/// `ms` since the Unix epoch, in UTC.
pub(super) fn text(ms: u64) -> String {
    let (days, of_day) = (ms / MS_A_DAY, ms % MS_A_DAY);
    let (year, month, day) = date(days);
    let (seconds, millis) = (of_day / 1_000, of_day % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970-01-01, in years that begin in March: a leap day is then the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    // Days between 0000-03-01 and the epoch; an era is 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_moment_is_written_as_everybody_writes_it() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_001, "2024-03-01T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_796_039_999_000, "2026-11-30T11:59:59.000Z"),
        ] {
            assert_eq!(text(ms), expected);
        }
    }
}
