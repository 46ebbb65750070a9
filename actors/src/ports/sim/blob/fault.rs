//! What can go wrong with a simulated object store, and for how long.

use crate::ports::{BlobError, BlobVerb};

/// How far the failing call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It did nothing.
    Nothing,
    /// All of it was done, and the answer was lost.
    Landed,
    /// A listing was answered in part: its caller may use none of it.
    Half,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    Times(u32),
    UntilHealed,
}

/// One way to fail. Once, at the next call of its verb, unless told otherwise.
#[derive(Clone, Debug)]
pub struct BlobFault {
    verb: BlobVerb,
    error: BlobError,
    effect: Effect,
    /// What the key, or the prefix of a listing, begins with.
    below: String,
    skip: u32,
    lasts: Lasts,
}

impl BlobFault {
    /// `verb` fails and does nothing.
    pub const fn refuse(verb: BlobVerb, error: BlobError) -> Self {
        let (effect, lasts) = (Effect::Nothing, Lasts::Times(1));
        Self { verb, error, effect, below: String::new(), skip: 0, lasts }
    }

    /// A `put`, a `put_if_absent` or a `delete` takes effect whole; the caller is told otherwise.
    pub fn answer_lost(verb: BlobVerb, error: BlobError) -> Self {
        Self { effect: Effect::Landed, ..Self::refuse(verb, error) }
    }

    /// A listing breaks off midway.
    pub fn listing_breaks_off() -> Self {
        let error = BlobError::Transport("the listing broke off".to_owned());
        Self { effect: Effect::Half, ..Self::refuse(BlobVerb::List, error) }
    }

    /// Lets `calls` pass first: `after(2)` hits the third.
    #[must_use]
    pub fn after(self, calls: u32) -> Self {
        Self { skip: calls, ..self }
    }

    /// Hits `calls` calls in a row.
    #[must_use]
    pub fn times(self, calls: u32) -> Self {
        Self { lasts: Lasts::Times(calls), ..self }
    }

    /// Hits every call until `SimBlob::heal`.
    #[must_use]
    pub fn until_healed(self) -> Self {
        Self { lasts: Lasts::UntilHealed, ..self }
    }

    /// Hits only keys, or prefixes of listings, that begin with `prefix`.
    #[must_use]
    pub fn below(self, prefix: &str) -> Self {
        Self { below: prefix.to_owned(), ..self }
    }
}

/// The faults that are switched on.
#[derive(Debug, Default)]
pub(super) struct Faults {
    active: Vec<BlobFault>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: BlobFault) {
        self.active.push(fault);
    }

    pub(super) fn heal(&mut self) {
        self.active.clear();
    }

    /// What this call meets, if anything: the first fault that was switched on and is due.
    pub(super) fn hit(&mut self, verb: BlobVerb, key: &str) -> Option<(BlobError, Effect)> {
        let mut hit = None;
        for fault in &mut self.active {
            let concerns_it = fault.verb == verb && key.starts_with(&fault.below);
            if !concerns_it || fault.lasts == Lasts::Times(0) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if hit.is_none() {
                hit = Some((fault.error.clone(), fault.effect));
                if let Lasts::Times(left) = &mut fault.lasts {
                    *left -= 1;
                }
            }
        }
        self.active.retain(|fault| fault.lasts != Lasts::Times(0));
        hit
    }
}
