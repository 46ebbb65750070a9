//! How many dedupe keys there are, and whether there may be one more: two look-ups in memory a key.
//!
//! The counters in the store are the truth. They are read for whoever needs them, at most once in [`TRUSTED_FOR`], and
//! moved here along with what the Writer does, which nobody else does: only a repair of miscounts changes them behind its
//! back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use tokio::time::Instant;

use super::config::DedupeConfig;
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::ids::TenantOrd;
use crate::model::keys::CounterKey;
use crate::ports::KvError;
use crate::store::StoreHandle;

/// After that they are read again.
const TRUSTED_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct KeyQuota {
    config: DedupeConfig,
    counts: BTreeMap<TenantOrd, i64>,
    since: Instant,
}

impl KeyQuota {
    pub(super) fn new(config: DedupeConfig) -> Self {
        Self { config, counts: BTreeMap::new(), since: Instant::now() }
    }

    /// The counters are not what was read any more.
    pub(super) fn forget(&mut self) {
        self.counts.clear();
        self.since = Instant::now();
    }

    /// Reads what is not known of the node and of these tenants.
    ///
    /// # Errors
    /// A counter cannot be read: nothing may be admitted.
    pub(super) fn read(
        &mut self,
        store: &StoreHandle,
        tenants: impl IntoIterator<Item = TenantOrd>,
    ) -> Result<(), KvError> {
        if self.since.elapsed() > TRUSTED_FOR {
            self.forget();
        }
        for tenant in std::iter::once(TenantOrd::NODE).chain(tenants) {
            if let Entry::Vacant(unknown) = self.counts.entry(tenant) {
                let key = CounterKey { tenant, field: Field::Dedupe }.encode();
                let count = store.get(Cf::Counters, &key)?;
                let count = count.as_deref().and_then(counters::read).unwrap_or(0);
                unknown.insert(count);
            }
        }
        Ok(())
    }

    /// Whether there may be one more of this tenant; `None` is one that is new to the store.
    pub(super) fn admits(&self, tenant: Option<TenantOrd>) -> bool {
        let has_room = |of, max| self.count(of) < i64::try_from(max).unwrap_or(i64::MAX);
        has_room(TenantOrd::NODE, self.config.max_entries)
            && tenant.is_none_or(|ord| has_room(ord, self.config.max_entries_per_tenant))
    }

    /// There is one more. A tenant that was not read is new to the store.
    pub(super) fn took(&mut self, tenant: TenantOrd) {
        self.counts.entry(tenant).or_insert(0);
        self.move_by(tenant, 1);
    }

    /// There is one less.
    pub(super) fn ended(&mut self, tenant: TenantOrd) {
        self.move_by(tenant, -1);
    }

    fn move_by(&mut self, tenant: TenantOrd, by: i64) {
        for tenant in [TenantOrd::NODE, tenant] {
            if let Some(count) = self.counts.get_mut(&tenant) {
                *count = count.saturating_add(by);
            }
        }
    }

    fn count(&self, tenant: TenantOrd) -> i64 {
        self.counts.get(&tenant).copied().unwrap_or(0)
    }
}
