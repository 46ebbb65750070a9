//! Reads what the store holds of routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::warn;

use crate::model::cf::Cf;
use crate::model::keys::{META_ROUTE_RULES, RouteKey, is_sentinel};
use crate::model::route::{self, IpRules, Route, is_route_id};
use crate::ports::{Direction, KvError, Scan};
use crate::store::StoreHandle;

/// Rows read at a time.
const PAGE_ROWS: usize = 500;
/// Bytes read at a time, and one row.
const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) routes: BTreeMap<String, Arc<Route>>,
    /// Ids whose routes cannot be read, and why.
    pub(super) unreadable: BTreeMap<String, String>,
    /// None where they were never written.
    pub(super) rules: Option<Result<IpRules, String>>,
}

pub(super) async fn read(store: &StoreHandle) -> Result<Rows, KvError> {
    let mut rows = Rows::default();
    let rules = store.get(Cf::Default, META_ROUTE_RULES)?;
    rows.rules = rules.map(|value| route::decode_rules(&value).map_err(|error| error.to_string()));
    let mut range = RouteKey::all();
    loop {
        let scan = Scan {
            cf: Cf::Default,
            range: range.clone(),
            direction: Direction::Forward,
            max_rows: PAGE_ROWS,
            max_bytes: PAGE_BYTES,
        };
        let page = store.scan(scan).await?;
        let real = page.pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Default, key, value));
        real.for_each(|(key, value)| rows.take(key, value));
        match page.pairs.last() {
            Some((last, _)) if page.more => range.start = [last.as_slice(), &[0]].concat(),
            Some(_) | None => return Ok(rows),
        }
    }
}

impl Rows {
    fn take(&mut self, key: &[u8], value: &[u8]) {
        match route::decode(key, value) {
            Ok(route) => drop(self.routes.insert(route.id.clone(), Arc::new(route))),
            Err(error) => match RouteKey::decode(key).filter(|RouteKey(id)| is_route_id(id)) {
                Some(RouteKey(id)) => {
                    drop(self.unreadable.insert(id.to_owned(), error.to_string()));
                }
                None => warn!(key = %key.escape_ascii(), %error, "a stored route is passed over"),
            },
        }
    }
}
