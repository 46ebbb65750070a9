#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn rate(per_second: f64) -> Rate {
    Rate::from_f64(per_second).unwrap()
}

#[test]
fn a_burst_passes_at_once_and_then_one_an_interval() {
    let limit = Gcra::of_ones(rate(10.0), 3).unwrap();
    let mut state = 0;
    let mut take = |now_ns| limit.take(state, now_ns, limit.one()).map(|after| state = after);
    let now = SECOND_NS;
    assert_eq!([take(now), take(now), take(now)], [Ok(()); 3]);
    assert_eq!(take(now), Err(100 * MS));
    assert_eq!(take(now + 99 * MS), Err(MS));
    assert_eq!(take(now + 100 * MS), Ok(()));
    assert_eq!(take(now + 100 * MS), Err(100 * MS));
    assert_eq!([take(now + SECOND_NS), take(now + SECOND_NS), take(now + SECOND_NS)], [Ok(()); 3]);
    assert_eq!(
        take(now + SECOND_NS),
        Err(100 * MS),
        "a burst and no more, however long it was idle"
    );
}

#[test]
fn a_rate_that_no_nanosecond_divides_still_lets_its_whole_burst_pass() {
    for (per_second, burst) in [(3.0, 3), (7.0, 1_000), (0.3, 9), (999_999.0, 12_345)] {
        let limit = Gcra::of_ones(rate(per_second), burst).unwrap();
        let all = (0..burst).try_fold(0, |state, _| limit.take(state, 5, limit.one()));
        assert!(all.is_ok(), "{per_second} {burst}");
        assert!(limit.take(all.unwrap(), 5, limit.one()).is_err(), "{per_second} {burst}");
    }
}

#[test]
fn bytes_are_taken_by_the_body_and_a_whole_burst_is_one() {
    let limit = Gcra::of_many(rate(1e9), 1_000).unwrap();
    assert_eq!(limit.take(0, 0, limit.many(1_000)), Ok(1_000));
    assert_eq!(limit.take(0, 0, limit.many(1_001)), Err(1));
    assert_eq!(limit.take(1_000, 400, limit.many(401)), Err(1));
    assert_eq!(limit.take(1_000, 400, limit.many(400)), Ok(1_400));
    assert_eq!(limit.take(1_000, 0, limit.many(0)), Ok(1_000), "an empty body costs nothing");
}

#[test]
fn limits_that_are_none_are_refused() {
    assert_eq!(Gcra::of_ones(rate(1.0), 0), None);
    assert_eq!(Gcra::of_many(rate(1.0), 0), None);
    assert!(Gcra::of_ones(rate(1.0), 366 * 86_400).is_some());
    assert_eq!(Gcra::of_ones(rate(1.0), 366 * 86_400 + 1), None);
    assert_eq!(Gcra::of_ones(rate(0.000_001), u64::MAX), None);
    for none in [0.0, -1.0, 4e-7, f64::NAN, f64::INFINITY, 1e10] {
        assert_eq!(Rate::from_f64(none), None, "{none}");
    }
}

#[test]
fn rates_come_back_as_the_number_they_were() {
    for (number, whole) in
        [(1.0, Some(1)), (0.5, None), (0.000_001, None), (1e9, Some(1_000_000_000))]
    {
        assert_eq!((rate(number).as_f64(), rate(number).as_whole()), (number, whole));
    }
    assert_eq!(Rate::whole(7), Some(rate(7.0)));
    assert_eq!((Rate::whole(0), Rate::whole(u64::MAX)), (None, None));
}

#[test]
fn a_wait_is_told_in_whole_seconds_and_never_as_nothing() {
    let told = [0, 1, SECOND_NS, SECOND_NS + 1, u64::MAX].map(retry_after_s);
    assert_eq!(told, [1, 1, 1, 2, u32::MAX]);
}

#[test]
fn what_is_given_back_in_time_was_never_taken_and_later_it_has_come_back_by_itself() {
    let limit = Gcra::of_ones(rate(10.0), 2).unwrap();
    let taken = limit.take(0, 0, limit.one()).unwrap();
    let more = limit.take(taken, 0, limit.one()).unwrap();
    assert_eq!(give_back(more, taken, 50 * MS, limit.one()), 100 * MS);
    let idle = limit.take(taken, 500 * MS, limit.one()).unwrap();
    assert_eq!(give_back(idle, taken, 500 * MS, limit.one()), idle);
}

#[test]
fn promises_count_until_they_come_to_nothing() {
    let limit = Gcra::of_ones(rate(1.0), 2).unwrap();
    let mut bucket = Bucket::default();
    assert_eq!([bucket.promise(&limit, 0), bucket.promise(&limit, 0)], [Ok(()); 2]);
    assert_eq!(bucket.promise(&limit, 0), Err(SECOND_NS));
    bucket.release();
    assert_eq!(bucket.promise(&limit, 0), Ok(()));
    bucket.keep(&limit, 0);
    bucket.keep(&limit, 0);
    assert_eq!(bucket.promise(&limit, 0), Err(SECOND_NS));
    assert!(!bucket.is_idle(2 * SECOND_NS - 1) && bucket.is_idle(2 * SECOND_NS));
    assert_eq!(bucket.promise(&limit, SECOND_NS), Ok(()));
    assert!(!bucket.is_idle(u64::MAX), "something is promised");
    bucket.release();
    assert_eq!(bucket, Bucket { state: 2 * SECOND_NS, promised: 0 }, "as if it had never been");
}

/// Of those that passed at these readings of the clock, at most so many between any two.
fn assert_bounded(passed: &[(u64, u64)], per_second: f64, burst: u64) -> Result<(), TestCaseError> {
    for (ix, (from, _)) in passed.iter().enumerate() {
        let mut sum = 0;
        for (until, units) in &passed[ix..] {
            sum += units;
            let seconds = (*until as f64 - *from as f64) / 1e9;
            let bound = burst as f64 + per_second * seconds;
            prop_assert!(sum as f64 <= bound + 1e-6, "{sum} in {seconds} s: {bound}");
        }
    }
    Ok(())
}

fn rates() -> impl Strategy<Value = f64> {
    prop_oneof![0.001..10.0_f64, 1.0..1e4_f64, Just(1e6), Just(3.0)]
        .prop_map(|number| rate(number).as_f64())
}

proptest! {
    /// However the clock goes back and forth: a window that ends before it began holds less than a burst.
    #[test]
    fn never_more_than_a_burst_and_the_rate_in_any_window(
        per_second in rates(), burst in 1_u64..50,
        steps in vec((0_u64..3_000_000_000, 0_u64..2_000_000_000), 1..80),
    ) {
        let limit = Gcra::of_ones(rate(per_second), burst).unwrap();
        let (mut state, mut real, mut passed) = (0, 0, Vec::new());
        for (forward, back) in steps {
            real += forward / 20;
            let read = real.saturating_sub(if back % 3 == 0 { back } else { 0 });
            match limit.take(state, read, limit.one()) {
                Ok(after) => { state = after; passed.push((read, 1)); }
                Err(wait) => prop_assert!(wait > 0),
            }
        }
        assert_bounded(&passed, per_second, burst)?;
    }

    #[test]
    fn never_more_bytes_than_a_burst_and_the_rate_in_any_window(
        per_second in 1_u64..1_000_000_000, burst in 1_u64..1_000_000,
        steps in vec((0_u64..1_000_000_000, 0_u64..1_500_000), 1..80),
    ) {
        let Some(limit) = Gcra::of_many(Rate::whole(per_second).unwrap(), burst) else { return Ok(()) };
        let (mut state, mut real, mut passed) = (0, 0, Vec::new());
        for (forward, bytes) in steps {
            real += forward;
            if let Ok(after) = limit.take(state, real, limit.many(bytes)) {
                state = after;
                passed.push((real, bytes));
            }
        }
        // A burst is rounded up to a nanosecond.
        assert_bounded(&passed, per_second as f64, burst + 1)?;
    }

    /// Whoever is told to wait and does so passes, if nobody else came; and not a nanosecond sooner.
    #[test]
    fn the_wait_that_is_told_is_exact(per_second in rates(), burst in 1_u64..50, now in 0_u64..1 << 50) {
        let limit = Gcra::of_ones(rate(per_second), burst).unwrap();
        let state = (0..burst).try_fold(0, |state, _| limit.take(state, now, limit.one())).unwrap();
        let wait = limit.take(state, now, limit.one()).unwrap_err();
        prop_assert!(limit.take(state, now + wait, limit.one()).is_ok());
        prop_assert_eq!(limit.take(state, now + wait - 1, limit.one()), Err(1));
    }

    /// A clock that was set back neither gives nor takes: once it is where it was, all is as if it had not been.
    #[test]
    fn a_clock_that_goes_back_changes_nothing(
        per_second in rates(), burst in 1_u64..50, taken in 0_u64..50, back in 0_u64..1 << 40,
    ) {
        let limit = Gcra::of_ones(rate(per_second), burst).unwrap();
        let now = 1 << 45;
        let state = (0..taken).fold(0, |state, _| limit.take(state, now, limit.one()).unwrap_or(state));
        let after = limit.take(state, now - back, limit.one());
        prop_assert!(after.is_err() || after == limit.take(state, now, limit.one()) || state < now);
        if let Ok(after) = after {
            prop_assert!(after >= state, "nothing comes back");
        }
    }

    /// Promises kept, however late and in whatever order, are bounded as if each had been taken when it was kept.
    #[test]
    fn promises_kept_are_never_more_than_a_burst_and_the_rate(
        per_second in rates(), burst in 1_u64..20,
        steps in vec((0_u8..4, 0_u64..300_000_000), 1..120),
    ) {
        let limit = Gcra::of_ones(rate(per_second), burst).unwrap();
        let (mut bucket, mut now, mut promised, mut kept) = (Bucket::default(), 0, 0, Vec::new());
        for (what, forward) in steps {
            now += forward;
            match what {
                0 | 1 => promised += usize::from(bucket.promise(&limit, now).is_ok()),
                2 if promised > 0 => {
                    promised -= 1;
                    bucket.keep(&limit, now);
                    kept.push((now, 1));
                }
                3 if promised > 0 => {
                    promised -= 1;
                    bucket.release();
                }
                _nothing_promised => {}
            }
        }
        assert_bounded(&kept, per_second, burst)?;
    }

    /// Taken and given back while nobody looked: as if it had never been.
    #[test]
    fn what_is_given_back_at_once_leaves_no_trace(
        per_second in rates(), burst in 2_u64..50, before in 0_u64..10, between in 0_u64..10, late in 0_u64..1_000_000,
    ) {
        let limit = Gcra::of_ones(rate(per_second), burst).unwrap();
        let (now, one) = (1 << 40, limit.one());
        let take = |state, now| limit.take(state, now, one).unwrap_or(state);
        let start = (0..before).fold(0, |state, _| take(state, now));
        let Ok(taken) = limit.take(start, now, one) else { return Ok(()) };
        let with = (0..between).fold(taken, |state, _| take(state, now));
        let later = now + late;
        let back = give_back(with, taken, later, one);
        // Never more than without, and exactly that while it has not come back by itself.
        let passed_between = (with - taken) / one;
        let without = (0..passed_between).fold(start, |state, _| take(state, now));
        prop_assert!(back.max(later) >= without.max(later));
        if later <= taken {
            prop_assert_eq!(back.max(now), without.max(now));
        }
    }
}
