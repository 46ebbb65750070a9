//! Rows claimed and not finished: what bounds the memory dispatch uses. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tokio::time::Instant;

use super::page::is_lately;
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

/// What a tenant holds, or held a moment ago.
#[derive(Debug, Default)]
struct OfTenant {
    amount: Amount,
    /// When a row of it was last finished.
    finished_at: Option<Instant>,
}

/// Every row from its claim to the write of its outcome.
#[derive(Debug, Default)]
pub(super) struct Held {
    rows: BTreeMap<ClaimedKey, Claim>,
    tickets: u64,
    total: Amount,
    by_tenant: BTreeMap<TenantOrd, OfTenant>,
}

impl Held {
    /// Answers the number of this claim. A row can be forgotten while its attempt runs, and claimed again.
    pub(super) fn insert(&mut self, claimed: &Claimed) -> u64 {
        self.tickets += 1;
        let claim = Claim { size: claimed.size, ticket: self.tickets };
        if self.rows.insert(claimed.key(), claim).is_none() {
            self.total.add(claimed.size);
            self.by_tenant.entry(claimed.tenant).or_default().amount.add(claimed.size);
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
        if let Some(of_tenant) = self.by_tenant.get_mut(&claimed.tenant) {
            of_tenant.amount.take(size);
        }
    }

    /// One of a tenant's rows was attempted, and what came of it is written.
    pub(super) fn finished(&mut self, tenant: TenantOrd, now: Instant) {
        if let Some(of_tenant) = self.by_tenant.get_mut(&tenant) {
            of_tenant.finished_at = Some(now);
        }
    }

    /// Whether a tenant gets anywhere: one whose sinks all hang does not.
    pub(super) fn is_getting_on(&self, tenant: TenantOrd, now: Instant) -> bool {
        let of_tenant = self.by_tenant.get(&tenant);
        is_lately(of_tenant.and_then(|of_tenant| of_tenant.finished_at), now)
    }

    /// Forgets tenants that hold nothing and have finished nothing lately.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.by_tenant.retain(|_, of_tenant| {
            of_tenant.amount.rows > 0 || is_lately(of_tenant.finished_at, now)
        });
    }

    pub(super) fn contains(&self, key: &ClaimedKey) -> bool {
        self.rows.contains_key(key)
    }

    pub(super) fn total(&self) -> Amount {
        self.total
    }

    /// The tenants that hold the most rows, at most `count` of them, and how many each.
    pub(super) fn most(&self, count: usize) -> Vec<(TenantOrd, usize)> {
        let by_tenant = self.by_tenant.iter().map(|(tenant, of)| (*tenant, of.amount.rows));
        let mut most: Vec<_> = by_tenant.filter(|(_, rows)| *rows > 0).collect();
        most.sort_unstable_by_key(|(tenant, rows)| (Reverse(*rows), *tenant));
        most.truncate(count);
        most
    }

    pub(super) fn of_tenant(&self, tenant: TenantOrd) -> Amount {
        self.by_tenant.get(&tenant).map(|of_tenant| of_tenant.amount).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::page::LATELY;
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
        assert_eq!(held.most(9), [(TenantOrd(1), 2), (TenantOrd(2), 1)]);
        assert_eq!(held.most(1), [(TenantOrd(1), 2)]);
        held.remove(&row(1, 1, 10));
        held.remove(&row(1, 1, 10));
        held.remove(&row(2, 2, 20));
        assert_eq!(held.total(), Amount { rows: 1, bytes: 30 });
        assert_eq!(held.of_tenant(TenantOrd(2)), Amount::default());
        assert!(held.contains(&row(1, 3, 30).key()) && !held.contains(&row(1, 1, 10).key()));
    }

    #[test]
    fn a_tenant_gets_on_for_a_while_after_a_row_was_finished_though_it_holds_none() {
        let claimed = Claimed { tenant: TenantOrd(1), seq: Seq(1), sink: 0, size: 10 };
        let (tenant, now) = (claimed.tenant, Instant::now());
        let mut held = Held::default();
        held.insert(&claimed);
        assert!(!held.is_getting_on(tenant, now));
        held.finished(tenant, now);
        held.remove(&claimed);
        held.tidy(now);
        assert!(held.is_getting_on(tenant, now) && held.most(9).is_empty());
        assert_eq!(held.by_tenant.len(), 1);
        let later = now + LATELY;
        assert!(!held.is_getting_on(tenant, later));
        held.tidy(later);
        assert!(held.by_tenant.is_empty());
        held.insert(&claimed);
        held.tidy(later);
        assert_eq!(held.of_tenant(tenant).rows, 1);
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
