//! The series of rate limits and of the quarantine pen.
//!
//! With tenants in URLs, whoever knows the URL of a shared source names tenants. So only those have a series that somebody
//! with a say in this node has named: in its configuration, or by giving them a limit. All others count as one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};

use ankusa_actors::model::ids::DEFAULT_TENANT;
use ankusa_actors::ports::QuarantineDeletion;
use prometheus_client::metrics::counter::Counter;

use super::Registrar;
use super::parts::OTHER;
use super::series::Family;
use crate::config::Config;

/// Series of tenants, at most: an operator who goes on naming tenants makes no more.
const MAX_TENANTS: usize = 20_000;

#[derive(Debug)]
pub(super) struct LimitSeries {
    rejected: Family<Counter>,
    tenants: RwLock<Tenants>,
    other: Counter,
    deleted: BTreeMap<QuarantineDeletion, Counter>,
}

#[derive(Debug)]
struct Tenants {
    counters: BTreeMap<String, Counter>,
    /// Named for good; others are while a source of the API is theirs.
    fixed: BTreeSet<String>,
}

impl LimitSeries {
    pub(super) fn new(to: &mut Registrar, config: &Config) -> Self {
        let rejected = to.counters(
            "ankusa_rate_limit_rejected",
            "Hooks that had verified and were over a limit",
        );
        let deleted = to.counters(
            "ankusa_quarantine_deleted",
            "Held hooks deleted, for their age or by an operator",
        );
        let named = config.sources.values().map(|source| source.tenant.as_str());
        let named = named.chain(config.rate_limits.tenants.keys().map(String::as_str));
        let series = |tenant: &str| (tenant.to_owned(), rejected.of([("tenant_id", tenant)]));
        let counters: BTreeMap<_, _> = named.chain([DEFAULT_TENANT]).map(series).collect();
        let fixed = counters.keys().cloned().collect();
        let deletion =
            |reason: QuarantineDeletion| (reason, deleted.of([("reason", reason.as_str())]));
        Self {
            tenants: RwLock::new(Tenants { counters, fixed }),
            other: rejected.of([("tenant_id", OTHER)]),
            rejected,
            deleted: QuarantineDeletion::ALL.map(deletion).into(),
        }
    }

    /// A tenant has been named by an operator.
    pub(super) fn named(&self, tenant: &str) {
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        if tenants.fixed.len() < MAX_TENANTS && tenants.fixed.insert(tenant.to_owned()) {
            self.count(&mut tenants, tenant);
        }
    }

    /// These tenants have sources of the API, and no others.
    pub(super) fn keep<'a>(&self, with_sources: impl Iterator<Item = &'a str>) {
        let now: BTreeSet<&str> = with_sources.take(MAX_TENANTS).collect();
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        let Tenants { counters, fixed } = &mut *tenants;
        counters.retain(|tenant, _| {
            let stays = fixed.contains(tenant) || now.contains(tenant.as_str());
            if !stays {
                self.rejected.forget("tenant_id", tenant);
            }
            stays
        });
        now.into_iter().for_each(|tenant| self.count(&mut tenants, tenant));
    }

    fn count(&self, tenants: &mut Tenants, tenant: &str) {
        let counter = || self.rejected.of([("tenant_id", tenant)]);
        tenants.counters.entry(tenant.to_owned()).or_insert_with(counter);
    }

    pub(super) fn rejected(&self, tenant: &str) {
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        tenants.counters.get(tenant).unwrap_or(&self.other).inc();
    }

    pub(super) fn deleted(&self, reason: QuarantineDeletion, entries: u64) {
        // The map holds every reason.
        if let Some(deleted) = self.deleted.get(&reason) {
            deleted.inc_by(entries);
        }
    }
}
