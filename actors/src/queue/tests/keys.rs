//! What dedupe keys do to a group.

use std::time::Duration;

use tokio::time::Instant;

use super::super::config::DedupeConfig;
use super::super::group::{Built, GroupPlan, Known};
use super::super::key_quota::KeyQuota;
use super::super::recent_keys::KeyClaim;
use super::super::reply::{CommitAnswer, Refusal, Waiting};
use super::super::writer_handle::CommitEntry;
use super::{entry, known, open, put};
use crate::model::batch::Change;
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::failure::FailureClass;
use crate::model::ids::{HookId, Seq, TenantOrd};
use crate::model::keys::*;
use crate::model::ops::Ops;
use crate::ports::sim::{Fault, SimDisk, SimOp};

const AT_MS: u64 = 1_700_000_000_123;
const TTL_MS: u64 = 60_000;

fn plan(first: u64) -> GroupPlan {
    GroupPlan {
        first: Seq(first),
        at_ms: AT_MS,
        archive: false,
        max_tenants: 9,
        synced_through: Seq(0),
    }
}

fn id(n: u128) -> HookId {
    HookId::v7(AT_MS, n)
}

fn by(n: u128, expires_at_ms: u64) -> Held {
    Held::By(DedupeValue { expires_at_ms, original: id(n) })
}

fn key_of(tenant: &'static str, key: &'static str) -> DedupeKey<'static> {
    DedupeKey::new(tenant, "src", key.as_bytes()).unwrap()
}

/// A hook of a tenant with a key, under which a look has found `held`.
fn keyed(tenant: &'static str, key: &'static str, n: u128, held: Held) -> (CommitEntry, Waiting) {
    let (mut entry, waiting) = entry(tenant, "", Instant::now() + Duration::from_secs(2));
    let key = key_of(tenant, key).encode().into();
    entry.key = Some(Box::new(KeyClaim { key, hook: id(n), ttl_ms: TTL_MS, held, seen: 0 }));
    (entry, waiting)
}

fn build(first: u64, entries: Vec<CommitEntry>, known: &mut Known) -> Built {
    plan(first).build(entries, known)
}

fn of_group(built: &Built) -> Vec<CommitAnswer> {
    built.new.iter().flat_map(|new| &new.group.callers).map(|caller| caller.answer).collect()
}

fn repeated(built: &Built) -> Vec<(u64, CommitAnswer)> {
    built.repeated.iter().map(|(seq, caller)| (seq.0, caller.answer)).collect()
}

async fn told(waiting: Waiting) -> CommitAnswer {
    waiting.answer(Instant::now()).await
}

/// What a batch does to keys, their expiry and the node's count of them.
fn moves(built: &Built) -> Vec<String> {
    let batch = &built.new.as_ref().unwrap().batch;
    let key = |key: DedupeKey<'_>| String::from_utf8(key.key().to_vec()).unwrap();
    let told = |sign: &str, bytes: &[u8]| {
        if let Some(found) = DedupeKey::decode(bytes) {
            return Some(format!("{sign} {}", key(found)));
        }
        let ExpiryKey { expires_at_ms, dedupe } = ExpiryKey::decode(bytes)?;
        Some(format!("{sign} {} at {expires_at_ms}", key(dedupe)))
    };
    let count = CounterKey { tenant: TenantOrd::NODE, field: Field::Dedupe }.encode();
    let of = |change| match change {
        Change::Put { cf: Cf::Index, key, .. } => told("+", key),
        Change::Delete { cf: Cf::Index, key } => told("-", key),
        Change::Merge { key, operand, .. } if key == count => {
            Some(format!("{:+}", counters::read(operand).unwrap()))
        }
        Change::Put { .. } | Change::Delete { .. } | Change::Merge { .. } => None,
    };
    batch.changes().filter_map(of).collect()
}

const COMMITTED: fn(u64) -> CommitAnswer = |seq| CommitAnswer::Committed(Seq(seq));
const DUPLICATE: fn(u128) -> CommitAnswer = |n| CommitAnswer::Duplicate(id(n));
const TOO_MANY: CommitAnswer = CommitAnswer::Refused(Refusal::DedupeQuota);

#[tokio::test(start_paused = true)]
async fn the_first_of_a_group_takes_the_key_and_the_others_wait_with_it() {
    let mut known = known(["acme"]);
    let (one, _one) = keyed("acme", "k", 1, Held::Nothing);
    let (two, _two) = keyed("acme", "k", 2, Held::Nothing);
    let (other, _other) = keyed("acme", "other", 3, Held::Nothing);
    let built = build(7, vec![one, two, other], &mut known);
    assert_eq!(of_group(&built), [COMMITTED(7), DUPLICATE(1), COMMITTED(8)]);
    let expires = AT_MS + TTL_MS;
    let written = [
        "+ k".to_owned(),
        format!("+ k at {expires}"),
        "+ other".to_owned(),
        format!("+ other at {expires}"),
        "+2".to_owned(),
    ];
    assert_eq!(moves(&built), written);
    assert_eq!(built.new.unwrap().next_seq, Seq(9), "a duplicate takes no seq");
}

#[tokio::test(start_paused = true)]
async fn one_key_in_two_tenants_or_sources_is_two_keys() {
    let (one, _one) = keyed("acme", "k", 1, Held::Nothing);
    let (two, _two) = keyed("blue", "k", 2, Held::Nothing);
    let built = build(7, vec![one, two], &mut known([]));
    assert_eq!(of_group(&built), [COMMITTED(7), COMMITTED(8)]);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_group_took_after_the_look_is_known_and_waits_for_that_group() {
    let mut known = known(["acme"]);
    let (one, _one) = keyed("acme", "k", 1, Held::Nothing);
    build(7, vec![one], &mut known);
    known.keys.applied(Seq(7), Seq(6));
    let (stale, _stale) = keyed("acme", "k", 2, Held::Nothing);
    let (fresh, _fresh) = keyed("acme", "k", 3, by(1, AT_MS + TTL_MS));
    let built = build(8, vec![stale, fresh], &mut known);
    assert!(built.new.is_none(), "nothing is written");
    assert_eq!(repeated(&built), [(7, DUPLICATE(1)), (7, DUPLICATE(1))]);
}

#[tokio::test(start_paused = true)]
async fn a_live_key_of_a_hook_that_is_long_synced_is_answered_at_once() {
    let mut known = known(["acme"]);
    let (live, waiting) = keyed("acme", "k", 2, by(1, AT_MS + 1));
    assert!(build(7, vec![live], &mut known).new.is_none());
    assert_eq!(told(waiting).await, DUPLICATE(1));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_expired_or_cannot_be_read_is_replaced_in_place() {
    let mut known = known(["acme"]);
    let (expired, _expired) = keyed("acme", "k", 2, by(1, AT_MS));
    let built = build(7, vec![expired], &mut known);
    assert_eq!(of_group(&built), [COMMITTED(7)]);
    let (old, new) = (AT_MS, AT_MS + TTL_MS);
    let expected = [format!("- k at {old}"), "+ k".to_owned(), format!("+ k at {new}")];
    assert_eq!(moves(&built), expected, "there are as many as before");
    let (unreadable, _unreadable) = keyed("acme", "u", 3, Held::Unreadable);
    let built = build(8, vec![unreadable], &mut known);
    assert_eq!(moves(&built), ["+ u".to_owned(), format!("+ u at {new}")]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_owed_to_nobody_is_not_stored_and_takes_no_key() {
    let mut known = known(["acme"]);
    let (mut unowed, _unowed) = keyed("acme", "k", 1, Held::Nothing);
    unowed.rows.clear();
    let built = build(7, vec![unowed], &mut known);
    assert_eq!(of_group(&built), [COMMITTED(7)]);
    assert_eq!(moves(&built), [""; 0]);
    let (owed, _owed) = keyed("acme", "k", 2, Held::Nothing);
    assert_eq!(of_group(&build(8, vec![owed], &mut known)), [COMMITTED(8)]);
}

/// A disk on which acme has so many keys.
async fn with_keys(of_acme: i64) -> std::sync::Arc<SimDisk> {
    let disk = SimDisk::empty();
    let mut ops = Ops::default();
    ops.new_tenant(TenantOrd(1), "acme", TenantOrd(3));
    ops.new_tenant(TenantOrd(2), "blue", TenantOrd(3));
    for n in 0..of_acme {
        let name = n.to_string();
        let key = DedupeKey::new("acme", "src", name.as_bytes()).unwrap();
        let value = DedupeValue { expires_at_ms: 1, original: id(1) };
        ops.take_key(TenantOrd(1), key, value, Held::Nothing);
    }
    put(&disk, ops.finish()).await;
    disk
}

fn quota(max_entries: u64, max_entries_per_tenant: u64) -> KeyQuota {
    KeyQuota::new(DedupeConfig { max_entries, max_entries_per_tenant, ..DedupeConfig::default() })
}

#[tokio::test(start_paused = true)]
async fn a_new_key_past_a_cap_is_refused_and_a_live_or_expired_one_is_not() {
    let store = open(&with_keys(3).await).await;
    let mut known = known(["acme", "blue"]);
    known.quota = quota(5, 4);
    known.quota.read(&store, [TenantOrd(1), TenantOrd(2)]).unwrap();
    let mut entries = Vec::new();
    let mut waiting = Vec::new();
    for (tenant, key, n, held) in [
        ("acme", "a", 1, Held::Nothing),
        ("acme", "b", 2, Held::Nothing),
        ("acme", "live", 3, by(30, AT_MS + 1)),
        ("acme", "over", 4, by(40, AT_MS)),
        ("blue", "c", 5, Held::Nothing),
        ("blue", "d", 6, Held::Nothing),
        ("cyan", "e", 7, Held::Nothing),
    ] {
        let (entry, answer) = keyed(tenant, key, n, held);
        entries.push(entry);
        waiting.push(answer);
    }
    let built = build(7, entries, &mut known);
    assert_eq!(of_group(&built), [COMMITTED(7), COMMITTED(8), COMMITTED(9)]);
    assert_eq!(known.tenants.known("cyan"), None, "nor does it get an ordinal");
    drop(built);
    let mut answers = Vec::new();
    for waiting in waiting {
        answers.push(told(waiting).await);
    }
    let in_group = CommitAnswer::Unknown;
    let expected = [in_group, TOO_MANY, DUPLICATE(30), in_group, in_group, TOO_MANY, TOO_MANY];
    assert_eq!(answers, expected);
}

#[tokio::test(start_paused = true)]
async fn the_first_keys_of_a_tenant_count_too() {
    let store = open(&with_keys(0).await).await;
    let mut known = known(["acme", "blue"]);
    known.quota = quota(100, 1);
    known.quota.read(&store, []).unwrap();
    let (one, _one) = keyed("cyan", "a", 1, Held::Nothing);
    let (two, two_waiting) = keyed("cyan", "b", 2, Held::Nothing);
    assert_eq!(of_group(&build(7, vec![one, two], &mut known)), [COMMITTED(7)]);
    assert_eq!(told(two_waiting).await, TOO_MANY);
}

#[tokio::test(start_paused = true)]
async fn counters_are_read_once_a_minute_and_one_that_cannot_be_admits_nobody() {
    let disk = with_keys(3).await;
    let store = open(&disk).await;
    let mut quota = quota(4, 100);
    let reads = disk.counts().reads;
    quota.read(&store, [TenantOrd(1)]).unwrap();
    quota.read(&store, [TenantOrd(1)]).unwrap();
    assert_eq!(disk.counts().reads, reads + 2);
    assert!(quota.admits(Some(TenantOrd(1))));
    quota.took(TenantOrd(1));
    assert!(!quota.admits(None));
    quota.ended(TenantOrd(1));
    assert!(quota.admits(None));
    tokio::time::advance(Duration::from_secs(61)).await;
    disk.fail(Fault::refuse(SimOp::Read, FailureClass::IoError));
    assert!(quota.read(&store, [TenantOrd(1)]).is_err());
    quota.read(&store, [TenantOrd(1)]).unwrap();
    assert_eq!(disk.counts().reads, reads + 5);
}
