//! Keeps the limits that operators set while the node runs.
//!
//! A limit is in force once it is durable, and before whoever set it hears of it. Where a write fails nobody knows whether
//! it will be there after the next open of the store; until that has been looked up, what was in force stays so.
//!
//! * **Owns:** the rows under `r:`, and what of them is in force.
//! * **Talks to:** the store.
//! * **Supervised by:** `services`, one_for_one: the limits stay in force while it is down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tracing::{info, warn};

use super::limits::LimitsHandle;
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::model::keys::{RateLimitKey, is_sentinel};
use crate::model::rate_limit::TenantLimit;
use crate::ports::{Direction, Event, Events, KvError, Lane, Scan};
use crate::store::StoreHandle;
use crate::supervision::{Crash, told_to_crash};

/// Tenants that can have a limit of their own set; the ones in the configuration do not count.
pub const MAX_OVERRIDES: usize = 10_000;

/// Wait before rows that could not be read are read again.
const RETRY: Duration = Duration::from_millis(500);

/// Why a limit was not set.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SetError {
    /// It may have been written all the same; it is in force once that has been looked up.
    #[error(transparent)]
    Store(#[from] KvError),
    /// There are [`MAX_OVERRIDES`] already.
    #[error("too many limits")]
    TooMany,
}

pub enum RateLimiterMsg {
    /// Give a tenant a limit, or take it away: answers whether it had one.
    Set { tenant: String, limit: Option<TenantLimit>, reply: RpcReplyPort<Result<bool, SetError>> },
    /// Read the rows back, and keep trying until they are read.
    ReadBack,
    /// Panic, for a drill.
    Crash,
}

impl Crash for RateLimiterMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct RateLimiterArgs {
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    pub handle: LimitsHandle,
}

pub struct RateLimiterState {
    args: RateLimiterArgs,
    /// What the rows say; `None` while that is not known.
    rows: Option<BTreeMap<String, TenantLimit>>,
    /// The open in which a write failed: rows are believed once there is a later one.
    failed_in: Option<u64>,
}

pub struct RateLimiter;

impl Actor for RateLimiter {
    type Msg = RateLimiterMsg;
    type State = RateLimiterState;
    type Arguments = RateLimiterArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<RateLimiterMsg>,
        args: RateLimiterArgs,
    ) -> Result<RateLimiterState, ActorProcessingErr> {
        let mut state = RateLimiterState { args, rows: None, failed_in: None };
        if let Err(error) = state.read_back().await {
            // Limits that cannot be read refuse the boot; they are never taken for none. Later they are waited for.
            if state.args.store.state().open && !state.args.handle.has_read() {
                return Err(error.into());
            }
            myself.cast(RateLimiterMsg::ReadBack)?;
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<RateLimiterMsg>,
        message: RateLimiterMsg,
        state: &mut RateLimiterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RateLimiterMsg::Set { tenant, limit, reply } => {
                let set = state.set(tenant, limit, &myself).await;
                let _ = reply.send(set);
            }
            RateLimiterMsg::ReadBack => state.keep_reading(&myself).await,
            RateLimiterMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl RateLimiterState {
    async fn set(
        &mut self,
        tenant: String,
        limit: Option<TenantLimit>,
        myself: &ActorRef<RateLimiterMsg>,
    ) -> Result<bool, SetError> {
        let Some(rows) = &mut self.rows else { return Err(unknown().into()) };
        let had_one = rows.contains_key(&tenant);
        let mut batch = Batch::default();
        let key = RateLimitKey(&tenant).encode();
        match &limit {
            None if !had_one => return Ok(false),
            Some(_) if !had_one && rows.len() >= MAX_OVERRIDES => return Err(SetError::TooMany),
            None => batch.delete(Cf::Default, &key),
            // A limit always is JSON.
            Some(limit) => {
                batch.put(Cf::Default, &key, &serde_json::to_vec(limit).unwrap_or_default());
            }
        }
        let store = &self.args.store;
        let generation = store.state().generation;
        if let Err(error) = store.apply_synced(batch, Lane::Commit).await {
            warn!(%error, tenant, "a rate limit was not written; it is looked up once the store is open again");
            (self.rows, self.failed_in) = (None, Some(generation));
            myself.send_after(RETRY, || RateLimiterMsg::ReadBack);
            return Err(error.into());
        }
        match limit {
            Some(limit) => rows.insert(tenant.clone(), limit),
            None => rows.remove(&tenant),
        };
        self.args.handle.set_overrides(rows);
        self.args.handle.reset(&tenant);
        if let Some(limit) = &limit {
            info!(tenant, limit = ?serde_json::to_string(limit), "a rate limit was set");
            self.args.events.emit(&Event::TenantLimited { tenant_id: &tenant });
        } else {
            info!(tenant, "a rate limit was taken away");
        }
        Ok(had_one)
    }

    async fn keep_reading(&mut self, myself: &ActorRef<RateLimiterMsg>) {
        if self.rows.is_none()
            && let Err(error) = self.read_back().await
        {
            if error.class != FailureClass::NotRunning {
                warn!(%error, "the rate limits cannot be read; those in force stay so");
            }
            myself.send_after(RETRY, || RateLimiterMsg::ReadBack);
        }
    }

    async fn read_back(&mut self) -> Result<(), KvError> {
        let state = self.args.store.state();
        let is_settled = state.failing.is_none() && state.open;
        if self.failed_in.is_some_and(|failed| state.generation <= failed || !is_settled) {
            return Err(unknown());
        }
        let rows = read(&self.args.store).await?;
        self.args.handle.set_overrides(&rows);
        for tenant_id in rows.keys() {
            self.args.events.emit(&Event::TenantLimited { tenant_id });
        }
        (self.rows, self.failed_in) = (Some(rows), None);
        Ok(())
    }
}

async fn read(store: &StoreHandle) -> Result<BTreeMap<String, TenantLimit>, KvError> {
    let scan = Scan {
        cf: Cf::Default,
        range: RateLimitKey::all(),
        direction: Direction::Forward,
        // A store that another node has written may hold more than this one would.
        max_rows: MAX_OVERRIDES * 10,
        max_bytes: usize::MAX,
    };
    let page = store.scan(scan).await?;
    let real = page.pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Default, key, value));
    let row = |(key, value): &(Vec<u8>, Vec<u8>)| {
        let RateLimitKey(tenant) = RateLimitKey::decode(key).ok_or_else(|| corrupt("its key"))?;
        let limit = TenantLimit::stored(value).ok_or_else(|| corrupt(tenant))?;
        Ok((tenant.to_owned(), limit))
    };
    real.map(row).collect()
}

fn corrupt(what: &str) -> KvError {
    let detail = format!("cannot read the rate limit of {what}");
    KvError { class: FailureClass::Corruption, op: "rate_limits", detail }
}

fn unknown() -> KvError {
    let detail = "what was written last is not known yet".to_owned();
    KvError { class: FailureClass::NotRunning, op: "rate_limits", detail }
}

impl LimitsHandle {
    /// Gives a tenant a limit, at once and for good, or takes it away: answers whether it had one.
    ///
    /// # Errors
    /// See [`SetError`].
    pub async fn set(&self, tenant: &str, limit: Option<TenantLimit>) -> Result<bool, SetError> {
        let ended = || KvError {
            class: FailureClass::NotRunning,
            op: "rate_limits",
            detail: "the rate limiter is between incarnations".to_owned(),
        };
        let limiter = self.slot().get().ok_or_else(ended)?;
        let tenant = tenant.to_owned();
        let set = |reply| RateLimiterMsg::Set { tenant, limit, reply };
        match limiter.call(set, None).await {
            Ok(CallResult::Success(set)) => set,
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => Err(ended().into()),
        }
    }
}
