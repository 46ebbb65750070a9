//! Rows, as a person reads them. Times are told from now on, to a tenth of a second.

use std::collections::BTreeMap;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters;
use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::ids::{Seq, TenantOrd};
use ankusa_actors::model::keys::{
    ActiveKey, ArchiveKey, ClaimedKey, ClearedKey, CounterKey, DeadByTenantKey, DeadKey,
    DeliveryKey, DueKey, HookKey, TenantKey, is_sentinel,
};
use ankusa_actors::ports::Pair;
use ankusa_actors::ports::sim::SimDisk;

/// All rows at one moment.
pub(crate) struct Rows {
    families: BTreeMap<Cf, Vec<Pair>>,
}

fn from_now(at_ms: u64, now_ms: u64) -> String {
    let tenths = |ms: u64| format!("{}.{}s", ms / 1_000, ms % 1_000 / 100);
    match at_ms.checked_sub(now_ms) {
        Some(ms) if ms > 0 => format!("in {}", tenths(ms + 50)),
        Some(_) | None => "now".to_owned(),
    }
}

impl Rows {
    pub(crate) fn of(disk: &SimDisk, durable: bool) -> Self {
        let rows = |cf| if durable { disk.durable_rows(cf) } else { disk.rows(cf) };
        let family = |cf| {
            let rows = rows(cf).into_iter();
            (cf, rows.filter(|(key, value)| !is_sentinel(cf, key, value)).collect())
        };
        Self { families: Cf::ALL.into_iter().map(family).collect() }
    }

    /// Seq and body.
    pub(crate) fn hooks(&self) -> Vec<String> {
        self.bodies().iter().map(|(seq, body)| format!("{}: {body}", seq.0)).collect()
    }

    fn bodies(&self) -> BTreeMap<Seq, String> {
        let hooks = self.families[&Cf::Hooks].iter().map(|(key, value)| {
            let body = Envelope::decode(value).unwrap().body.to_vec();
            (HookKey::decode(key).unwrap().0, String::from_utf8(body).unwrap())
        });
        hooks.collect()
    }

    fn body(&self, seq: Seq) -> String {
        self.bodies().get(&seq).cloned().unwrap_or_else(|| format!("(seq {})", seq.0))
    }

    fn name(&self, seq: Seq, sink: u16) -> String {
        let body = self.body(seq);
        if sink == 0 { body } else { format!("{body}/{sink}") }
    }

    pub(crate) fn deliveries(&self, now_ms: u64) -> Vec<String> {
        let rows = self.families[&Cf::Deliveries].iter().map(|(key, value)| {
            let (key, row) = (DeliveryKey::decode(key).unwrap(), DeliveryRow::decode(value));
            let name = self.name(key.seq, key.sink);
            let Ok(row) = row else { return format!("{name}: unreadable") };
            let error = row.error.map(|error| format!(", {error}")).unwrap_or_default();
            let state = match row.state {
                RowState::Pending => format!("pending {}", from_now(row.at_ms, now_ms)),
                RowState::Dead => "dead".to_owned(),
            };
            format!("{name}: {state}, {} attempts{error}", row.attempts)
        });
        rows.collect()
    }

    pub(crate) fn index(&self, now_ms: u64) -> Vec<String> {
        let line = |(key, value): &Pair| {
            let named = |seq, sink| self.name(seq, sink);
            if let Some(due) = DueKey::decode(key) {
                let at = from_now(due.at_ms, now_ms);
                format!("due {at}: {} of tenant {}", named(due.seq, due.sink), due.tenant.0)
            } else if let Some(claimed) = ClaimedKey::decode(key) {
                let name = named(claimed.seq, claimed.sink);
                format!("claimed: {name} of tenant {}", claimed.tenant.0)
            } else if let Some(active) = ActiveKey::decode(key) {
                let age = (now_ms / 1_000).abs_diff(active.second);
                let when = if active.second > now_ms / 1_000 { "ahead" } else { "ago" };
                format!("active: tenant {}, {age} seconds {when}", active.tenant.0)
            } else if let Some(dead) = DeadKey::decode(key) {
                format!("dead: {}", named(dead.seq, dead.sink))
            } else if let Some(dead) = DeadByTenantKey::decode(key) {
                format!("dead of tenant {}: {}", dead.tenant.0, named(dead.seq, dead.sink))
            } else if let Some(ArchiveKey(seq)) = ArchiveKey::decode(key) {
                format!("owed to the archive: {}", self.body(seq))
            } else if let Some(cleared) = ClearedKey::decode(key) {
                format!("cleared: {} {}, {:?}", self.body(cleared.seq), cleared.sink, cleared.kind)
            } else {
                format!("{key:02x?} {value:02x?}")
            }
        };
        self.families[&Cf::Index].iter().map(line).collect()
    }

    fn tenant_names(&self) -> BTreeMap<TenantOrd, String> {
        let tenants = self.families[&Cf::Tenants].iter().filter_map(|(key, value)| {
            let TenantKey(tenant) = TenantKey::decode(key)?;
            Some((tenant, String::from_utf8_lossy(value).into_owned()))
        });
        tenants.collect()
    }

    pub(crate) fn tenants(&self) -> Vec<String> {
        self.tenant_names().iter().map(|(tenant, name)| format!("{}: {name}", tenant.0)).collect()
    }

    /// Those that are not zero.
    pub(crate) fn counters(&self) -> Vec<String> {
        let names = self.tenant_names();
        let mut of_tenant: BTreeMap<TenantOrd, Vec<String>> = BTreeMap::new();
        for (key, value) in &self.families[&Cf::Counters] {
            let (key, count) = (CounterKey::decode(key).unwrap(), counters::read(value).unwrap());
            if count != 0 {
                let counts = of_tenant.entry(key.tenant).or_default();
                counts.push(format!("{} {count}", key.field.as_str()));
            }
        }
        let line = |(tenant, counts): (&TenantOrd, &Vec<String>)| {
            let name = names.get(tenant).map_or("node", String::as_str);
            format!("{name}: {}", counts.join(", "))
        };
        of_tenant.iter().map(line).collect()
    }

    pub(crate) fn dead(&self) -> Vec<String> {
        let rows = self.families[&Cf::Index].iter().filter_map(|(key, _)| DeadKey::decode(key));
        rows.map(|dead| self.name(dead.seq, dead.sink)).collect()
    }
}
