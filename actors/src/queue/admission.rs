//! The bound in front of a mailbox that has none: a permit is taken before anything is queued and travels with it.
//!
//! Nobody gets all of it once others are there: of the room that the others leave, a tenant may have its share. So what is
//! kept free for a newcomer shrinks with every tenant that comes, and is never nothing.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use super::reply::Refusal;
use crate::sync::{Arc, Mutex, MutexGuard};

/// Hooks and their body bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    records: usize,
    bytes: usize,
}

impl Load {
    /// Taken by hooks that were counted, so it never goes below nothing.
    fn without(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_sub(other.records),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn with_hook(self, bytes: usize) -> Self {
        Self { records: self.records + 1, bytes: self.bytes.saturating_add(bytes) }
    }

    fn fits_in(self, room: Self) -> bool {
        self.records <= room.records && self.bytes <= room.bytes
    }

    fn percent(self, percent: u32) -> Self {
        let of = |whole: usize| {
            let share = whole as u128 * u128::from(percent) / 100;
            usize::try_from(share).unwrap_or(usize::MAX)
        };
        Self { records: of(self.records), bytes: of(self.bytes) }
    }
}

/// A tenant's, shared by all that it holds.
type Name = std::sync::Arc<str>;

#[derive(Debug, Default)]
struct Held {
    all: Load,
    /// Only tenants that hold something.
    tenants: BTreeMap<Name, Load>,
    /// The first tenant that came. As long as none but that one has, it need not leave room for any.
    first: Option<Box<str>>,
    is_shared: bool,
}

/// One batcher partition's room, in records and in body bytes, buffered and in flight.
#[derive(Debug)]
pub struct Admission {
    max: Load,
    held: Mutex<Held>,
}

/// Room for one hook; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    room: Arc<Admission>,
    tenant: Name,
    bytes: usize,
}

impl Admission {
    pub fn new(max_records: usize, max_bytes: usize) -> Arc<Self> {
        let max = Load { records: max_records, bytes: max_bytes };
        Arc::new(Self { max, held: Mutex::default() })
    }

    /// Room for one hook of `bytes`, of which its tenant may have `share_percent` of what the others leave, or the refusal
    /// at once. A single hook larger than the whole bound is let in alone, and one of a tenant that holds nothing whatever
    /// its share: its body was already held to `http.max_body_bytes`.
    ///
    /// # Errors
    /// `Overload` where there is no room for anybody, `TenantOverload` where this tenant has had its share.
    pub fn admit(
        self: &Arc<Self>,
        tenant: &str,
        bytes: usize,
        share_percent: u32,
    ) -> Result<Permit, Refusal> {
        let mut held = self.held();
        if !held.is_shared {
            held.is_shared = held.first.get_or_insert_with(|| tenant.into()).as_ref() != tenant;
        }
        let all = held.all.with_hook(bytes);
        let is_alone = held.all.records == 0;
        if all.records > self.max.records || !(is_alone || all.fits_in(self.max)) {
            return Err(Refusal::Overload);
        }
        let known = held.tenants.get_key_value(tenant).map(|(name, load)| (name.clone(), *load));
        let (tenant, own) = known.unwrap_or_else(|| (tenant.into(), Load::default()));
        let share = self.max.without(held.all.without(own)).percent(share_percent);
        if held.is_shared && own.records > 0 && !own.with_hook(bytes).fits_in(share) {
            return Err(Refusal::TenantOverload);
        }
        held.all = all;
        held.tenants.insert(tenant.clone(), own.with_hook(bytes));
        drop(held);
        Ok(Permit { room: Arc::clone(self), tenant, bytes })
    }

    /// Hooks admitted and not yet answered.
    pub fn records(&self) -> usize {
        self.held().all.records
    }

    pub fn bytes(&self) -> usize {
        self.held().all.bytes
    }

    /// Tenants that hold something.
    pub fn tenants(&self) -> usize {
        self.held().tenants.len()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let hook = Load::default().with_hook(self.bytes);
        let mut held = self.room.held();
        held.all = held.all.without(hook);
        let Some(load) = held.tenants.get_mut(&self.tenant) else { return };
        *load = load.without(hook);
        if load.records == 0 {
            held.tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As one tenant that is alone.
    fn admit(room: &Arc<Admission>, bytes: usize) -> Option<Permit> {
        room.admit("acme", bytes, 50).ok()
    }

    #[test]
    fn a_full_queue_refuses_at_once_and_takes_again_when_room_is_given_back() {
        let room = Admission::new(2, 100);
        let first = admit(&room, 60);
        assert!(first.is_some());
        assert!(admit(&room, 41).is_none(), "too many bytes");
        let second = admit(&room, 40);
        assert!(second.is_some());
        assert!(admit(&room, 0).is_none(), "too many records");
        drop(first);
        assert!(admit(&room, 60).is_some());
        drop(second);
        assert_eq!((room.records(), room.bytes(), room.tenants()), (0, 0, 0));
    }

    #[test]
    fn a_hook_larger_than_the_bound_goes_alone() {
        let room = Admission::new(2, 100);
        let large = admit(&room, 500);
        assert!(large.is_some());
        assert!(admit(&room, 1).is_none());
    }

    fn refusal(admitted: Result<Permit, Refusal>) -> Option<Refusal> {
        admitted.err()
    }

    #[test]
    fn a_tenant_that_is_not_alone_gets_its_share_of_what_the_others_leave() {
        let room = Admission::new(10, 1_000);
        let other = room.admit("blue", 0, 50).unwrap();
        let mut held: Vec<_> = (0..4).map(|_| room.admit("acme", 0, 50).unwrap()).collect();
        // Half of the nine that blue leaves.
        assert_eq!(refusal(room.admit("acme", 0, 50)), Some(Refusal::TenantOverload));
        held.push(room.admit("acme", 0, 60).unwrap());
        assert_eq!(refusal(room.admit("acme", 0, 60)), Some(Refusal::TenantOverload));
        assert!(room.admit("blue", 0, 50).is_ok(), "the other is not touched by it");
        drop((held.pop(), held.pop()));
        assert!(room.admit("acme", 0, 50).is_ok());
        drop((other, held));
        assert_eq!((room.records(), room.tenants()), (0, 0));
    }

    #[test]
    fn the_share_counts_in_bytes_too_and_one_hook_always_passes() {
        let room = Admission::new(10, 1_000);
        let _other = room.admit("blue", 200, 50).unwrap();
        let large = room.admit("acme", 700, 50).unwrap();
        assert_eq!(refusal(room.admit("acme", 1, 50)), Some(Refusal::TenantOverload));
        drop(large);
        let _small = room.admit("acme", 400, 50).unwrap();
        assert_eq!(refusal(room.admit("acme", 1, 50)), Some(Refusal::TenantOverload));
        assert_eq!(refusal(room.admit("cyan", 401, 50)), Some(Refusal::Overload));
    }

    #[test]
    fn whoever_is_alone_may_have_everything_until_somebody_else_asks() {
        let room = Admission::new(4, 100);
        let mut held: Vec<_> = (0..4).map(|_| room.admit("acme", 0, 50).unwrap()).collect();
        assert_eq!(refusal(room.admit("acme", 0, 50)), Some(Refusal::Overload));
        assert_eq!(refusal(room.admit("blue", 0, 50)), Some(Refusal::Overload));
        held.pop();
        assert_eq!(refusal(room.admit("acme", 0, 50)), Some(Refusal::TenantOverload));
        assert!(room.admit("blue", 0, 50).is_ok());
    }

    #[test]
    fn a_share_of_everything_is_no_bound() {
        let room = Admission::new(3, 100);
        let _blue = room.admit("blue", 0, 100).unwrap();
        let _held = [room.admit("acme", 0, 100).unwrap(), room.admit("acme", 0, 100).unwrap()];
        assert_eq!(refusal(room.admit("acme", 0, 100)), Some(Refusal::Overload));
    }

    proptest! {
        /// Whatever comes and goes: the bounds hold, newcomers find room, and nothing is left when all have gone.
        #[test]
        fn no_tenant_takes_the_room_of_a_newcomer(
            steps in proptest::collection::vec((0_u8..4, 0_usize..40, any::<bool>()), 1..200),
            percent in 1_u32..=87,
        ) {
            let room = Admission::new(50, 1_000);
            drop((room.admit("a", 0, percent), room.admit("b", 0, percent)));
            let mut held: Vec<Permit> = Vec::new();
            for (tenant, bytes, comes) in steps {
                let name = ["a", "b", "c", "d"][usize::from(tenant)];
                if comes || held.is_empty() {
                    held.extend(room.admit(name, bytes, percent));
                } else {
                    held.swap_remove(bytes % held.len());
                }
                prop_assert!(room.records() <= 50 && room.bytes() <= 1_000);
                prop_assert_eq!(room.records(), held.len());
                prop_assert_eq!(room.bytes(), held.iter().map(|permit| permit.bytes).sum::<usize>());
                let newcomer = room.admit("newcomer", 0, percent);
                prop_assert!(newcomer.is_ok(), "four tenants leave room for a fifth");
            }
            drop(held);
            prop_assert_eq!((room.records(), room.bytes(), room.tenants()), (0, 0, 0));
        }
    }
}
