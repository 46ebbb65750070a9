//! The generic cell rate algorithm: a rate and a burst as one number that only time takes down.
//!
//! The number is the time at which the bucket is full again. What is taken moves it on by its cost; it may be ahead of
//! now by the cost of a whole burst and no more. So a bucket nobody uses is a number in the past, which is the same as no
//! bucket at all, and nothing ever has to be refilled. Times are those of a clock that nobody sets; one that is read a
//! little late by one of two threads gives nothing away, as every bound holds between the readings themselves.

use std::num::NonZeroU64;

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// How long a burst may take to be there again: what is longer is a quota, and a number of nanoseconds too large to add.
pub const MAX_FILL_NS: u64 = 366 * 86_400 * SECOND_NS;

/// A rate of at least a millionth a second, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    const PARTS: u64 = 1_000_000;

    /// One millionth a second.
    pub const MIN: Self = Self(NonZeroU64::MIN);

    pub fn from_millionths(millionths: u64) -> Option<Self> {
        NonZeroU64::new(millionths).map(Self)
    }

    /// `None` for what is not at least one millionth, or larger than a `u64` of them.
    pub fn from_f64(per_second: f64) -> Option<Self> {
        /// Past this, millionths have no exact `f64`: no rate anybody means.
        const MAX: f64 = 9e9;
        if !per_second.is_finite() || !(0.0..=MAX).contains(&per_second) {
            return None;
        }
        // Of a number between 0 and 9e15 without a fraction the text is exact, and the cast nobody may write.
        format!("{:.0}", per_second * 1e6).parse().ok().and_then(Self::from_millionths)
    }

    pub fn whole(per_second: u64) -> Option<Self> {
        per_second.checked_mul(Self::PARTS).and_then(Self::from_millionths)
    }

    /// The same number a second, if it has no fraction.
    pub fn as_whole(self) -> Option<u64> {
        (self.0.get().is_multiple_of(Self::PARTS)).then(|| self.0.get() / Self::PARTS)
    }

    /// Exact below nine thousand million a second.
    pub fn as_f64(self) -> f64 {
        // Six digits behind the point are always read back as the same millionths.
        let (whole, parts) = (self.0.get() / Self::PARTS, self.0.get() % Self::PARTS);
        format!("{whole}.{parts:06}").parse().unwrap_or(f64::MAX)
    }

    /// How long `units` of it take, in nanoseconds, rounded up; as much as there is where it is more.
    fn time_ns(self, units: u64) -> u64 {
        let parts = u128::from(units) * u128::from(Self::PARTS) * u128::from(SECOND_NS);
        u64::try_from(parts.div_ceil(u128::from(self.0.get()))).unwrap_or(u64::MAX)
    }
}

/// One limit. The state it works on is the caller's: a `u64`, 0 to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    rate: Rate,
    /// The cost of a single unit.
    unit_ns: u64,
    burst_ns: u64,
}

impl Gcra {
    /// Lets nothing pass.
    pub const CLOSED: Self = Self { rate: Rate::MIN, unit_ns: 1, burst_ns: 0 };

    /// `burst` units at once, each of which comes back at `rate`; for units that come one by one, such as hooks.
    /// `None` where a burst is nothing, or takes longer than [`MAX_FILL_NS`] to be there again.
    pub fn of_ones(rate: Rate, burst: u64) -> Option<Self> {
        let unit_ns = rate.time_ns(1);
        let burst_ns =
            unit_ns.checked_mul(burst).filter(|fill| (1..=MAX_FILL_NS).contains(fill))?;
        Some(Self { rate, unit_ns, burst_ns })
    }

    /// The same for units of which many come at once, such as bytes: what is taken is rounded up to a whole nanosecond
    /// and not each unit of it.
    pub fn of_many(rate: Rate, burst: u64) -> Option<Self> {
        let (unit_ns, burst_ns) = (rate.time_ns(1), rate.time_ns(burst));
        (1..=MAX_FILL_NS).contains(&burst_ns).then_some(Self { rate, unit_ns, burst_ns })
    }

    /// What one unit costs.
    pub const fn one(&self) -> u64 {
        self.unit_ns
    }

    /// What `units` cost that come at once.
    pub fn many(&self, units: u64) -> u64 {
        self.rate.time_ns(units)
    }

    /// Takes `cost` at `now`: what the state is then.
    ///
    /// # Errors
    /// There is not as much: how long it takes until there is. The state stays as it is.
    pub fn take(&self, state: u64, now_ns: u64, cost_ns: u64) -> Result<u64, u64> {
        let after = state.max(now_ns).saturating_add(cost_ns);
        let latest = now_ns.saturating_add(self.burst_ns);
        if after <= latest { Ok(after) } else { Err(after - latest) }
    }
}

/// Gives back what was taken in vain. `taken` is what [`Gcra::take`] answered; others may have taken more since.
///
/// While `now` is before that, nothing taken since can have been taken from a bucket that was full, so that the cost is
/// simply too much in it. Afterwards time has given it back already.
pub fn give_back(state: u64, taken: u64, now_ns: u64, cost_ns: u64) -> u64 {
    if now_ns <= taken { state.saturating_sub(cost_ns) } else { state }
}

/// What may be told to wait, in whole seconds, rounded up and at least one.
pub fn retry_after_s(wait_ns: u64) -> u32 {
    u32::try_from(wait_ns.div_ceil(SECOND_NS)).unwrap_or(u32::MAX).max(1)
}

/// A bucket of single units that are promised first and taken later, or not at all: what is promised counts as taken, and
/// what comes to nothing has never been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    state: u64,
    promised: u64,
}

impl Bucket {
    /// # Errors
    /// There is none left: how long it takes until there is, unless a promise comes to nothing.
    pub fn promise(&mut self, limit: &Gcra, now_ns: u64) -> Result<(), u64> {
        let cost = limit.unit_ns.saturating_mul(self.promised.saturating_add(1));
        limit.take(self.state, now_ns, cost)?;
        self.promised += 1;
        Ok(())
    }

    /// A promise is kept.
    pub fn keep(&mut self, limit: &Gcra, now_ns: u64) {
        self.release();
        self.state = self.state.max(now_ns).saturating_add(limit.unit_ns);
    }

    /// A promise came to nothing.
    pub fn release(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Nothing is promised and it is full: the same as one that was never used.
    pub const fn is_idle(&self, now_ns: u64) -> bool {
        self.promised == 0 && self.state <= now_ns
    }
}

#[cfg(test)]
mod tests;
