//! What the queue holds of each tenant, from the counters: a page costs what it shows, however many rows there are.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::{Admin, AdminError};
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::ids::TenantOrd;
use crate::model::keys::{
    CounterKey, META_NEXT_ORD, TenantKey, TenantNameKey, is_sentinel, read_tolerant,
};
use crate::ports::{Direction, Scan};

/// Most tenants answered at once.
const MAX_TENANTS: usize = 1_000;

/// Tenants whose counters are read at once.
const TENANTS_AT_ONCE: u32 = 1_000;

/// What counts rows that are not finished.
const UNFINISHED: [Field; 4] =
    [Field::Pending, Field::Scheduled, Field::Inflight, Field::LaneMembers];

/// Behind which tenant a page goes on. Ordinals are dense and never reused, so the pages hold each tenant once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantCursor(TenantOrd);

impl fmt::Display for TenantCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.0)
    }
}

impl FromStr for TenantCursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(TenantOrd(text.parse()?)))
    }
}

impl Admin {
    /// `GET /v1/queue`: what the node holds in all.
    pub async fn queue(&self) -> Result<Value, AdminError> {
        let (next_seq, stats) = (self.next_seq()?, self.store_stats().await?);
        let next_ord = self.handles.store.get(Cf::Default, META_NEXT_ORD)?;
        let next_ord = next_ord.as_deref().and_then(read_tolerant);
        Ok(json!({
            "instance": self.settings.instance,
            "next_seq": next_seq.0,
            "synced_through": self.handles.mark.get().0,
            "hooks": stats.hooks,
            "deliveries": stats.deliveries,
            "disk_bytes": stats.disk_bytes,
            "tenants": next_ord.map_or(0, |next| next.saturating_sub(TenantOrd::FIRST.0.into())),
            "queue": self.counters(TenantOrd::NODE).await?,
        }))
    }

    /// `GET /v1/queue/tenants`: what it holds of each, in the order in which they first had a hook; at most `limit`
    /// (clamped to [`MAX_TENANTS`]) behind `after`.
    pub async fn tenants(
        &self,
        after: Option<TenantCursor>,
        limit: usize,
    ) -> Result<Value, AdminError> {
        let from = after
            .map_or(TenantOrd::FIRST, |TenantCursor(last)| TenantOrd(last.0.saturating_add(1)));
        let scan = Scan {
            cf: Cf::Tenants,
            range: TenantKey(from).encode().to_vec()..TenantKey::all().end,
            direction: Direction::Forward,
            max_rows: limit.clamp(1, MAX_TENANTS),
            max_bytes: usize::MAX,
        };
        let page = self.handles.store.scan(scan).await?;
        let tenant = |(key, name): &(Vec<u8>, Vec<u8>)| {
            Some((TenantKey::decode(key)?.0, String::from_utf8_lossy(name).into_owned()))
        };
        let real = page.pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Tenants, key, value));
        let tenants: Vec<(TenantOrd, String)> = real.filter_map(tenant).collect();
        let last = tenants.last().map(|(last, _)| *last);
        let mut counted = self.counted(from, last.unwrap_or(from)).await?;
        let entries = tenants.into_iter().map(|(tenant, id)| {
            let fields = counted.remove(&tenant).unwrap_or_default();
            of_tenant(&id, tenant, named(&fields))
        });
        let entries: Vec<Value> = entries.collect();
        let next = last.filter(|_| page.more).map(|last| TenantCursor(last).to_string());
        Ok(json!({"tenants": entries, "next_cursor": next}))
    }

    /// `GET /v1/tenants/{tenant}/queue`: what it holds of one.
    pub async fn tenant_queue(&self, tenant_id: &str) -> Result<Value, AdminError> {
        let tenant = self.tenant(tenant_id)?;
        let counted = self.counted(tenant, tenant).await?;
        let fields = counted.get(&tenant).cloned().unwrap_or_default();
        Ok(of_tenant(tenant_id, tenant, named(&fields)))
    }

    /// The ordinal of a tenant.
    pub(super) fn tenant(&self, id: &str) -> Result<TenantOrd, AdminError> {
        let stored = self.handles.store.get(Cf::Tenants, &TenantNameKey(id).encode())?;
        let tenant = stored.as_deref().and_then(TenantNameKey::read_value);
        tenant.ok_or_else(|| AdminError::TenantNotFound(id.to_owned()))
    }

    /// Tenants with rows that are not finished, by the counters.
    pub(super) async fn tenants_with_rows(&self) -> Result<Vec<TenantOrd>, AdminError> {
        let next_ord = self.handles.store.get(Cf::Default, META_NEXT_ORD)?;
        let next_ord = next_ord.as_deref().and_then(read_tolerant).unwrap_or(0);
        let end = u32::try_from(next_ord).unwrap_or(u32::MAX);
        let (mut with_rows, mut first) = (Vec::new(), TenantOrd::FIRST.0);
        while first < end {
            let last = end.min(first.saturating_add(TENANTS_AT_ONCE)) - 1;
            let counted = self.counted(TenantOrd(first), TenantOrd(last)).await?;
            let unfinished = counted.into_iter().filter(|(_, counts)| {
                UNFINISHED.iter().any(|field| counts.get(field).is_some_and(|count| *count != 0))
            });
            with_rows.extend(unfinished.map(|(tenant, _)| tenant));
            first = last + 1;
        }
        Ok(with_rows)
    }

    /// Every counter of one tenant, or of the node.
    pub(super) async fn counters(&self, tenant: TenantOrd) -> Result<Value, AdminError> {
        let counted = self.counted(tenant, tenant).await?;
        Ok(Value::Object(named(&counted.get(&tenant).cloned().unwrap_or_default())))
    }

    /// Those of the tenants `first` to `last`. A counter that never moved is not stored.
    async fn counted(
        &self,
        first: TenantOrd,
        last: TenantOrd,
    ) -> Result<BTreeMap<TenantOrd, BTreeMap<Field, i64>>, AdminError> {
        let range = CounterKey::of_tenant(first).start..CounterKey::of_tenant(last).end;
        let direction = Direction::Forward;
        // Each tenant has so many at most, and a newer release perhaps some more.
        let (max_rows, max_bytes) = ((MAX_TENANTS + 1) * 256, usize::MAX);
        let scan = Scan { cf: Cf::Counters, range, direction, max_rows, max_bytes };
        let mut counted: BTreeMap<TenantOrd, BTreeMap<Field, i64>> = BTreeMap::new();
        for (key, value) in self.handles.store.scan(scan).await?.pairs {
            if let Some(CounterKey { tenant, field }) = CounterKey::decode(&key) {
                let count = counters::read(&value).unwrap_or(0);
                counted.entry(tenant).or_default().insert(field, count);
            }
        }
        Ok(counted)
    }
}

/// Who a tenant is, and its counters beside that.
fn of_tenant(id: &str, tenant: TenantOrd, counters: Map<String, Value>) -> Value {
    let mut told = Map::new();
    told.insert("tenant_id".to_owned(), json!(id));
    told.insert("ordinal".to_owned(), json!(tenant.0));
    told.extend(counters);
    Value::Object(told)
}

/// All of them by their names, in their order.
fn named(counts: &BTreeMap<Field, i64>) -> Map<String, Value> {
    let fields = Field::ALL
        .into_iter()
        .map(|field| (field.as_str().to_owned(), json!(counts.get(&field).copied().unwrap_or(0))));
    fields.collect()
}
