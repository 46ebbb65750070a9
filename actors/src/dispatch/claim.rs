//! Claims rows that are due: which, how many, and from whom ("Claiming").

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::DispatchConfig;
use super::attempts::Attempts;
use super::canary;
use super::due::{Due, Share, TenantScan, Until};
use super::held::{Amount, Held};
use super::load::{Claimable, Claiming, load};
use super::markers::{Markers, Seen, first_due};
use super::outcomes::{DeadLetter, Rules, Settled};
use super::page::{Page, Weighted, window};
use super::targets::Targets;
use super::weights::Weights;
use super::writing::Writing;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{ActiveKey, ClearedKey};
use crate::model::ops::Ops;
use crate::ports::KvError;

/// How far back of what it claimed the next claim looks. The Writer's rows show up in the order of their stamps; another's
/// can be stamped a moment before it shows up, and one that was later still is found by its marker. All that was due in
/// this time and is delivered is stepped over by every claim.
const FLOOR_SLACK_MS: u64 = 50;

/// After so long every tenant is looked at from its oldest marker again.
const FLOORS_LAST: Duration = Duration::from_secs(300);

/// The longest sleep with nothing due.
const MAX_SLEEP_MS: u64 = 30_000;

/// Wait before the next page of markers, or before rows are claimed that came to light late.
const WALK_MS: u64 = 10;

/// Wait before it is asked when the next row is due, after a claim that found some: others are likely to follow.
const BUSY_MS: u64 = 50;

/// Wait before rows are looked at again that were left to tenants with all they may hold, if none of theirs has finished:
/// what others finish gives them a little room too.
const LEFT_MS: u64 = 1_000;

/// Everything a claim is made with.
pub(super) struct ClaimContext<'a> {
    pub(super) config: &'a DispatchConfig,
    pub(super) targets: &'a Targets,
    pub(super) rules: &'a Rules,
    pub(super) attempts: &'a Attempts,
    pub(super) now_ms: u64,
    pub(super) mark: Seq,
}

/// What a claim did.
#[derive(Debug, Default)]
pub(super) struct ClaimReport {
    pub(super) claimed: usize,
    pub(super) dead: Vec<DeadLetter>,
    /// Heads of lanes that ended at once.
    pub(super) settled: Vec<Settled>,
    pub(super) cleared: Vec<ClearedKey>,
    /// What it left of the rows that are due.
    pub(super) left: Left,
    /// The page was full: some of them can be claimed at once. Else their tenants hold all they may.
    pub(super) is_full: bool,
    /// When the oldest of them is due, in Unix milliseconds.
    pub(super) oldest_due_ms: Option<u64>,
    /// When to look again if nothing happens before, in Unix milliseconds; `None` where it failed before it knew.
    pub(super) next_ms: Option<u64>,
}

/// Rows that are due and were not claimed, by what has to finish before they can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Left {
    #[default]
    Nothing,
    /// Anything: there was no room for them.
    ForWantOfRoom,
    /// Rows of these tenants, who hold all they may. That others finish something is nothing to them, or next to nothing.
    OfTenants(BTreeSet<TenantOrd>),
}

impl Left {
    fn behind(scans: &[TenantScan], held: &Held, has_room: bool) -> Self {
        let mut tenants = BTreeSet::new();
        for scan in scans.iter().filter(|scan| scan.has_more()) {
            if !has_room || held.of_tenant(scan.tenant).rows == 0 {
                return Self::ForWantOfRoom;
            }
            tenants.insert(scan.tenant);
        }
        if tenants.is_empty() { Self::Nothing } else { Self::OfTenants(tenants) }
    }

    pub(super) fn is_something(&self) -> bool {
        *self != Self::Nothing
    }

    /// Whether some of it may be claimed once a row of this tenant is finished.
    pub(super) fn waits_for(&self, tenant: TenantOrd) -> bool {
        match self {
            Self::Nothing => false,
            Self::ForWantOfRoom => true,
            Self::OfTenants(tenants) => tenants.contains(&tenant),
        }
    }
}

/// A page, as it was split.
struct Taken {
    scans: Vec<TenantScan>,
    /// The first that found it full.
    unserved: Option<TenantOrd>,
    is_full: bool,
}

/// What is remembered between claims. All of it can be lost.
pub(super) struct Claims {
    markers: Markers,
    /// By tenant, up to where nothing that is due was left. The range below is full of deleted keys, which cost a scan as
    /// much as rows do.
    floors: BTreeMap<TenantOrd, u64>,
    floors_since: Instant,
    /// The latest of the Writer's stamps seen, in Unix milliseconds.
    stamp_ms: u64,
    weights: Weights,
}

impl Claims {
    pub(super) fn new(config: &DispatchConfig) -> Self {
        Self {
            weights: Weights::new(&config.tenants),
            markers: Markers::default(),
            floors: BTreeMap::new(),
            floors_since: Instant::now(),
            stamp_ms: 0,
        }
    }

    /// This process wrote a row that is due then.
    pub(super) fn put(&mut self, tenant: TenantOrd, due_ms: u64) {
        self.markers.put(due_ms);
        self.lower_floor(tenant, due_ms);
    }

    /// Of a tenant, by now.
    pub(super) fn weight(&self, tenant: TenantOrd) -> u32 {
        self.weights.of(tenant)
    }

    /// Claims one page.
    ///
    /// # Errors
    /// The report says what was claimed before it failed.
    pub(super) async fn claim(
        &mut self,
        context: &ClaimContext<'_>,
        writing: &mut Writing,
        held: &mut Held,
        report: &mut ClaimReport,
    ) -> Result<(), KvError> {
        if self.floors_since.elapsed() >= FLOORS_LAST {
            self.floors.clear();
            self.markers.forget_floor();
            self.floors_since = Instant::now();
        }
        self.markers.verify(writing).await?;
        self.weights.learn(writing.store())?;
        let second = context.now_ms / 1_000;
        let seen = self.markers.read(writing.store(), second).await?;
        let Taken { scans, unserved, is_full } = self.take(context, writing, held, &seen).await?;
        let mut dues: Vec<Due> = scans.iter().flat_map(|scan| &scan.taken).copied().collect();
        dues.sort_unstable_by_key(|due| (due.key.at_ms, due.key.seq, due.key.sink));
        let claimed = claim_rows(context, &self.weights, writing, held, dues, report).await?;
        self.stamp_ms = self.stamp_ms.max(claimed.stamp_ms);
        report.left = match unserved {
            Some(_) => Left::ForWantOfRoom,
            None => Left::behind(&scans, held, !is_full),
        };
        report.is_full = is_full;
        report.oldest_due_ms = scans.iter().filter_map(TenantScan::left_ms).min();

        self.raise_floors(&scans);
        self.markers.walk_on(&seen, unserved);
        let found_more = self.remove_markers(writing, &seen, &scans, second).await?;
        let idle_ms = if self.markers.is_walking() || found_more {
            context.now_ms.saturating_add(WALK_MS)
        } else if report.claimed > 0 {
            context.now_ms.saturating_add(BUSY_MS)
        } else {
            let next_ms = Markers::next_ms(writing.store(), second).await?;
            next_ms.unwrap_or(u64::MAX).min(context.now_ms.saturating_add(MAX_SLEEP_MS))
        };
        let this_second = scans.iter().filter_map(|scan| scan.next_ms);
        let left_ms = report.left.is_something().then(|| context.now_ms.saturating_add(LEFT_MS));
        let dues = this_second.chain(claimed.parked_until_ms).chain(left_ms);
        report.next_ms = Some(dues.fold(idle_ms, u64::min));
        Ok(())
    }

    /// Splits a page among the tenants with work.
    async fn take(
        &self,
        context: &ClaimContext<'_>,
        writing: &Writing,
        held: &Held,
        seen: &Seen,
    ) -> Result<Taken, KvError> {
        let until = Until { now_ms: context.now_ms, mark: context.mark };
        let scans = seen.tenants().into_iter().map(|(tenant, second)| {
            let (from_ms, reached_ms) = match self.floors.get(&tenant) {
                Some(reached_ms) => (reached_ms.saturating_sub(FLOOR_SLACK_MS), *reached_ms),
                None => (second.saturating_mul(1_000), second.saturating_mul(1_000)),
            };
            let scan = TenantScan::new(tenant, from_ms, reached_ms);
            Weighted { tenant: scan, weight: self.weights.of(tenant) }
        });
        let room = context.config.max_inflight.saturating_sub(held.total().rows);
        let mut page = Page::new(context.config.batch.min(room), scans);
        let (mut finished, mut taken) = (Vec::new(), Amount::default());
        while let Some((Weighted { tenant: mut scan, weight }, rows)) = page.next() {
            let share = share(context.config, held, taken, &scan, rows);
            if share.rows == 0 || share.bytes == 0 {
                scan.pass_over();
                finished.push(scan);
                continue;
            }
            let bytes_before = scan.taken_bytes;
            let rows = scan.take(writing.store(), until, share).await?;
            page.took(rows);
            taken.rows += rows;
            taken.bytes += scan.taken_bytes - bytes_before;
            if scan.has_more() && rows > 0 {
                page.again(Weighted { tenant: scan, weight });
            } else {
                finished.push(scan);
            }
        }
        let is_full = page.is_full();
        let (unserved, with_more) = page.rest();
        finished.extend(with_more);
        let unserved = unserved.first().map(|scan| scan.tenant);
        Ok(Taken { scans: finished, unserved, is_full })
    }

    fn raise_floors(&mut self, scans: &[TenantScan]) {
        for scan in scans {
            if let Some(reached_ms) = scan.reached_ms() {
                self.floors.insert(scan.tenant, reached_ms);
            }
        }
    }

    /// Removes markers whose second is over and whose tenant was seen to have nothing left in it. False if there are
    /// more such.
    async fn remove_markers(
        &mut self,
        writing: &mut Writing,
        seen: &Seen,
        scans: &[TenantScan],
        second: u64,
    ) -> Result<bool, KvError> {
        let mut found_more = false;
        let scans: BTreeMap<_, _> = scans.iter().map(|scan| (scan.tenant, scan)).collect();
        let mut empty: Vec<ActiveKey> = Vec::new();
        for marker in &seen.markers {
            let Some(scan) = scans.get(&marker.tenant) else { continue };
            if marker.second >= second || !scan.emptied(marker.second) {
                continue;
            }
            if scan.covers(marker.second) {
                empty.push(*marker);
                continue;
            }
            // Its floor was above: a row may have shown up below it.
            match first_due(writing.store(), *marker).await? {
                None => empty.push(*marker),
                Some(at_ms) => {
                    self.lower_floor(marker.tenant, at_ms);
                    found_more = true;
                }
            }
        }
        self.markers.raise_floor(seen, &empty, self.stamp_ms);
        self.markers.remove(writing, empty).await?;
        Ok(found_more)
    }

    fn lower_floor(&mut self, tenant: TenantOrd, at_ms: u64) {
        if let Some(floor_ms) = self.floors.get_mut(&tenant) {
            *floor_ms = (*floor_ms).min(at_ms);
        }
    }
}

/// What one tenant may take in its turn.
fn share(
    config: &DispatchConfig,
    held: &Held,
    taken: Amount,
    scan: &TenantScan,
    rows: usize,
) -> Share {
    let (total, mine) = (held.total(), held.of_tenant(scan.tenant));
    let mine = Amount {
        rows: mine.rows + scan.taken.len(),
        bytes: mine.bytes.saturating_add(scan.taken_bytes),
    };
    let others = Amount {
        rows: (total.rows + taken.rows).saturating_sub(mine.rows),
        bytes: total.bytes.saturating_add(taken.bytes).saturating_sub(mine.bytes),
    };
    let (tenants, gets_on) = (&config.tenants, held.is_getting_on(scan.tenant, Instant::now()));
    let percent = tenants.percents().of(gets_on, others.rows);
    let bytes = window(config.max_inflight_bytes, others.bytes, mine.bytes, percent);
    let own_rows = tenants.max_inflight.map_or(usize::MAX, |most| most.saturating_sub(mine.rows));
    let is_first = total.rows + taken.rows == 0;
    Share {
        rows: rows.min(window(config.max_inflight, others.rows, mine.rows, percent)).min(own_rows),
        // A hook larger than the whole bound goes alone.
        bytes: if is_first { bytes.max(1) } else { bytes },
    }
}

/// One batch: due to claimed, or to what a row that cannot be attempted becomes.
async fn claim_rows(
    context: &ClaimContext<'_>,
    weights: &Weights,
    writing: &mut Writing,
    held: &mut Held,
    dues: Vec<Due>,
    report: &mut ClaimReport,
) -> Result<Claimable, KvError> {
    let mut claimable = Claimable::default();
    if dues.is_empty() {
        return Ok(claimable);
    }
    let count = dues.len();
    let mut ops = Ops::with_capacity(count * 4 + 16, count * 96 + 1_024);
    let ClaimContext { targets, rules, attempts, now_ms, config: _, mark: _ } = *context;
    let claiming = Claiming { targets, rules, attempts, now_ms };
    for loaded in load(writing.store(), dues).await? {
        claiming.claim(loaded, &mut ops, &mut claimable);
    }
    writing.apply(ops.finish()).await?;
    canary::before_send(writing, &claimable).await?;
    for mut job in claimable.jobs.drain(..) {
        job.ticket = held.insert(&job.claimed);
        let weight = weights.of(job.claimed.tenant);
        attempts.push(job, weight);
    }
    report.claimed = count;
    report.dead.append(&mut claimable.dead);
    report.cleared.append(&mut claimable.cleared);
    for settled in &claimable.settled {
        held.insert(&settled.claimed);
    }
    report.settled.append(&mut claimable.settled);
    Ok(claimable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ops::Claimed;

    #[test]
    fn what_is_left_to_tenants_that_hold_all_they_may_waits_for_theirs_and_what_found_no_room_for_any()
     {
        let (acme, blue) = (TenantOrd(1), TenantOrd(2));
        let left = |tenant| {
            let mut scan = TenantScan::new(tenant, 0, 0);
            scan.pass_over();
            scan
        };
        let mut held = Held::default();
        let claimed = Claimed { tenant: acme, seq: Seq(7), sink: 0, size: 1 };
        held.insert(&claimed);
        let of_acme = Left::behind(&[left(acme), TenantScan::new(blue, 0, 0)], &held, true);
        assert_eq!(of_acme, Left::OfTenants(BTreeSet::from([acme])));
        assert_eq!((of_acme.waits_for(acme), of_acme.waits_for(blue)), (true, false));
        // It holds nothing that could finish.
        assert_eq!(Left::behind(&[left(acme), left(blue)], &held, true), Left::ForWantOfRoom);
        assert_eq!(Left::behind(&[left(acme)], &held, false), Left::ForWantOfRoom);
        assert!(Left::ForWantOfRoom.waits_for(blue));
        let nothing = Left::behind(&[TenantScan::new(acme, 0, 0)], &held, false);
        assert_eq!((nothing.is_something(), nothing.waits_for(acme)), (false, false));
    }

    #[test]
    fn a_row_that_was_written_below_a_tenants_floor_lowers_it_and_nobody_elses() {
        let (acme, blue) = (TenantOrd(1), TenantOrd(2));
        let mut claims = Claims::new(&DispatchConfig::default());
        claims.floors = BTreeMap::from([(acme, 9_000), (blue, 9_000)]);
        claims.put(acme, 12_000);
        assert_eq!(claims.floors, BTreeMap::from([(acme, 9_000), (blue, 9_000)]));
        claims.put(acme, 7_000);
        assert_eq!(claims.floors, BTreeMap::from([(acme, 7_000), (blue, 9_000)]));
    }
}
