//! Which tenant has which weight: the configuration names tenants, rows their ordinals.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::config::ShareConfig;
use crate::model::cf::Cf;
use crate::model::ids::TenantOrd;
use crate::model::keys::TenantNameKey;
use crate::ports::KvError;
use crate::store::StoreHandle;

/// How often it is asked whether tenants that are named have come by now.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Every weight there is. An ordinal is never another tenant's, so what is known stays true.
#[derive(Debug)]
pub(super) struct Weights {
    default: u32,
    known: BTreeMap<TenantOrd, u32>,
    /// Named, and without an ordinal so far.
    unknown: BTreeMap<String, u32>,
    ask_at: Instant,
}

impl Weights {
    pub(super) fn new(config: &ShareConfig) -> Self {
        let ShareConfig { default_weight, weights, .. } = config;
        Self {
            default: *default_weight,
            known: BTreeMap::new(),
            unknown: weights.clone(),
            ask_at: Instant::now(),
        }
    }

    /// Looks for those that are not known yet, now and then.
    pub(super) fn learn(&mut self, store: &StoreHandle) -> Result<(), KvError> {
        if self.unknown.is_empty() || Instant::now() < self.ask_at {
            return Ok(());
        }
        self.ask_at = Instant::now() + ASK_EVERY;
        for (id, weight) in std::mem::take(&mut self.unknown) {
            let ordinal = match store.get(Cf::Tenants, &TenantNameKey(&id).encode()) {
                Ok(value) => value.and_then(|value| TenantNameKey::read_value(&value)),
                Err(error) => {
                    self.unknown.insert(id, weight);
                    return Err(error);
                }
            };
            match ordinal {
                Some(tenant) => self.known.insert(tenant, weight),
                None => self.unknown.insert(id, weight).and(None),
            };
        }
        Ok(())
    }

    pub(super) fn of(&self, tenant: TenantOrd) -> u32 {
        self.known.get(&tenant).copied().unwrap_or(self.default).max(1)
    }
}
