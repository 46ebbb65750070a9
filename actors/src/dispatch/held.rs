//! Rows claimed and not finished: what bounds the memory dispatch uses. Pure.

use std::collections::BTreeMap;

use crate::model::ids::TenantOrd;
use crate::model::keys::ClaimedKey;
use crate::model::ops::Claimed;

/// Rows, and the bytes of their hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl Amount {
    pub(super) fn add(&mut self, size: u32) {
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(bytes(size));
    }

    fn take(&mut self, size: u32) {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes(size));
    }
}

fn bytes(size: u32) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    size: u32,
    ticket: u64,
}

/// Every row from its claim to the write of its outcome.
#[derive(Debug, Default)]
pub(super) struct Held {
    rows: BTreeMap<ClaimedKey, Claim>,
    tickets: u64,
    total: Amount,
    by_tenant: BTreeMap<TenantOrd, Amount>,
}

impl Held {
    /// Answers the number of this claim. A row can be forgotten while its attempt runs, and claimed again.
    pub(super) fn insert(&mut self, claimed: &Claimed) -> u64 {
        self.tickets += 1;
        let claim = Claim { size: claimed.size, ticket: self.tickets };
        if self.rows.insert(claimed.key(), claim).is_none() {
            self.total.add(claimed.size);
            self.by_tenant.entry(claimed.tenant).or_default().add(claimed.size);
        }
        self.tickets
    }

    /// Whether a row is still held by this claim: what came of any other is nobody's.
    pub(super) fn is_held_by(&self, key: &ClaimedKey, ticket: u64) -> bool {
        self.rows.get(key).is_some_and(|claim| claim.ticket == ticket)
    }

    pub(super) fn remove(&mut self, claimed: &Claimed) {
        let Some(Claim { size, ticket: _ }) = self.rows.remove(&claimed.key()) else { return };
        self.total.take(size);
        if let Some(amount) = self.by_tenant.get_mut(&claimed.tenant) {
            amount.take(size);
            if amount.rows == 0 {
                self.by_tenant.remove(&claimed.tenant);
            }
        }
    }

    pub(super) fn contains(&self, key: &ClaimedKey) -> bool {
        self.rows.contains_key(key)
    }

    pub(super) fn total(&self) -> Amount {
        self.total
    }

    pub(super) fn of_tenant(&self, tenant: TenantOrd) -> Amount {
        self.by_tenant.get(&tenant).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Seq;

    #[test]
    fn what_is_held_is_counted_in_all_and_by_tenant() {
        let row =
            |tenant, seq, size| Claimed { tenant: TenantOrd(tenant), seq: Seq(seq), sink: 0, size };
        let mut held = Held::default();
        for claimed in [row(1, 1, 10), row(2, 2, 20), row(1, 3, 30), row(1, 3, 30)] {
            held.insert(&claimed);
        }
        assert_eq!(held.total(), Amount { rows: 3, bytes: 60 });
        assert_eq!(held.of_tenant(TenantOrd(1)), Amount { rows: 2, bytes: 40 });
        held.remove(&row(1, 1, 10));
        held.remove(&row(1, 1, 10));
        held.remove(&row(2, 2, 20));
        assert_eq!(held.total(), Amount { rows: 1, bytes: 30 });
        assert_eq!(held.of_tenant(TenantOrd(2)), Amount::default());
        assert!(held.contains(&row(1, 3, 30).key()) && !held.contains(&row(1, 1, 10).key()));
    }

    #[test]
    fn a_row_is_held_by_its_last_claim_alone() {
        let claimed = Claimed { tenant: TenantOrd(1), seq: Seq(1), sink: 0, size: 10 };
        let mut held = Held::default();
        let first = held.insert(&claimed);
        assert!(held.is_held_by(&claimed.key(), first));
        held.remove(&claimed);
        assert!(!held.is_held_by(&claimed.key(), first));
        let second = held.insert(&claimed);
        assert!(held.is_held_by(&claimed.key(), second) && !held.is_held_by(&claimed.key(), first));
    }
}
