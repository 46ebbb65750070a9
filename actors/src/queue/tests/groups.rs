//! What a group is built from, and what it leaves out.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::super::group::{GroupPlan, Known, NewGroup};
use super::super::reply::{CommitAnswer, Refusal, Waiting};
use super::super::writer_handle::CommitEntry;
use super::{entry, known};
use crate::model::batch::{Batch, Change};
use crate::model::cf::Cf;
use crate::model::delivery::DeliveryRow;
use crate::model::envelope::Envelope;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::*;

const AT_MS: u64 = 1_700_000_000_123;

fn plan(max_tenants: u32) -> GroupPlan {
    GroupPlan { first: Seq(7), at_ms: AT_MS, archive: false, max_tenants, synced_through: Seq(5) }
}

fn no_tenants() -> Known {
    known([])
}

fn build(plan: GroupPlan, entries: Vec<CommitEntry>, known: &mut Known) -> Option<NewGroup> {
    plan.build(entries, known).new
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

fn entries(of: &[(&str, &str)]) -> (Vec<CommitEntry>, Vec<Waiting>) {
    of.iter().map(|(tenant, body)| entry(tenant, body, later())).unzip()
}

fn puts(batch: &Batch, of: Cf) -> Vec<(&[u8], &[u8])> {
    let put = |change| match change {
        Change::Put { cf, key, value } if cf == of => Some((key, value)),
        Change::Put { .. } | Change::Delete { .. } | Change::Merge { .. } => None,
    };
    batch.changes().filter_map(put).collect()
}

/// Seq and body of every hook of the batch.
fn hooks(batch: &Batch) -> Vec<(u64, String)> {
    let hook = |(key, value): (&[u8], &[u8])| {
        let body = Envelope::decode(value).unwrap().body;
        (HookKey::decode(key).unwrap().0.0, String::from_utf8(body.to_vec()).unwrap())
    };
    puts(batch, Cf::Hooks).into_iter().map(hook).collect()
}

/// Seq and due time of every row of the batch.
fn rows(batch: &Batch) -> Vec<(u64, u64)> {
    let row = |(key, value): (&[u8], &[u8])| {
        (DeliveryKey::decode(key).unwrap().seq.0, DeliveryRow::decode(value).unwrap().at_ms)
    };
    puts(batch, Cf::Deliveries).into_iter().map(row).collect()
}

/// The ordinals the batch gives out.
fn ordinals(batch: &Batch) -> Vec<(u64, String)> {
    let given = |(key, id): (&[u8], &[u8])| {
        Some((TenantKey::decode(key)?.0.0.into(), String::from_utf8(id.to_vec()).unwrap()))
    };
    puts(batch, Cf::Tenants).into_iter().filter_map(given).collect()
}

fn fact(batch: &Batch, key: &[u8]) -> Option<u64> {
    let facts = puts(batch, Cf::Default);
    facts.iter().find(|(found, _)| *found == key).and_then(|(_, value)| read_tolerant(value))
}

fn answers(built: &NewGroup) -> Vec<CommitAnswer> {
    built.group.callers.iter().map(|caller| caller.answer).collect()
}

fn text(of: &[(u64, &str)]) -> Vec<(u64, String)> {
    of.iter().map(|(n, text)| (*n, (*text).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn hooks_get_seqs_in_the_order_they_came_and_one_stamp() {
    let (entries, _waiting) = entries(&[("acme", "a"), ("blue", "b"), ("acme", "c")]);
    let built = build(plan(9), entries, &mut no_tenants()).unwrap();
    assert_eq!(hooks(&built.batch), text(&[(7, "a"), (8, "b"), (9, "c")]));
    assert_eq!(rows(&built.batch), [(7, AT_MS), (8, AT_MS), (9, AT_MS)]);
    assert_eq!((built.group.first, built.group.last), (Seq(7), Seq(9)));
    assert_eq!(answers(&built), [7, 8, 9].map(|seq| CommitAnswer::Committed(Seq(seq))));
}

#[tokio::test(start_paused = true)]
async fn a_group_says_what_comes_next_and_how_far_the_log_was_synced() {
    let (entries, _waiting) = entries(&[("acme", "a"), ("acme", "b")]);
    let built = build(plan(9), entries, &mut no_tenants()).unwrap();
    let facts = [META_NEXT_SEQ, META_SYNCED_THROUGH, META_NEXT_ORD];
    assert_eq!(facts.map(|key| fact(&built.batch, key)), [Some(9), Some(5), Some(2)]);
    assert_eq!(built.next_seq, Seq(9));
}

#[tokio::test(start_paused = true)]
async fn a_new_tenant_is_written_once_and_a_known_one_not_at_all() {
    let mut tenants = no_tenants();
    let (first, _waiting) = entries(&[("acme", "a"), ("acme", "b"), ("blue", "c")]);
    let built = build(plan(9), first, &mut tenants).unwrap();
    assert_eq!(ordinals(&built.batch), text(&[(1, "acme"), (2, "blue")]));
    let (second, _waiting) = entries(&[("blue", "d")]);
    let built = build(plan(9), second, &mut tenants).unwrap();
    assert_eq!(ordinals(&built.batch), text(&[]));
    assert_eq!(fact(&built.batch, META_NEXT_ORD), None);
    assert_eq!(tenants.tenants.next(), TenantOrd(3));
}

#[tokio::test(start_paused = true)]
async fn a_hook_past_its_deadline_or_given_up_takes_no_seq_and_is_refused() {
    let now = Instant::now();
    let (expired, expired_waiting) = entry("gone", "expired", now);
    let (on_time, _on_time_waiting) = entry("acme", "on time", now + Duration::from_millis(1));
    let (given_up, given_up_waiting) = entry("gone", "given up", later());
    let (last, _last_waiting) = entry("acme", "last", later());
    drop(given_up_waiting);
    advance(Duration::from_millis(1)).await;
    let mut tenants = no_tenants();
    let built = build(plan(9), vec![expired, on_time, given_up, last], &mut tenants).unwrap();
    assert_eq!(hooks(&built.batch), text(&[(7, "on time"), (8, "last")]));
    assert_eq!(tenants.tenants.next(), TenantOrd(2), "nor an ordinal");
    let answer = expired_waiting.answer(later()).await;
    assert_eq!(answer, CommitAnswer::Refused(Refusal::StoreUnavailable));
}

#[tokio::test(start_paused = true)]
async fn one_tenant_too_many_takes_no_seq_and_is_told_so_and_the_others_are_committed() {
    let (entries, waiting) = entries(&[("acme", "a"), ("blue", "b"), ("acme", "c"), ("cyan", "d")]);
    let mut tenants = no_tenants();
    let built = build(plan(1), entries, &mut tenants).unwrap();
    assert_eq!(hooks(&built.batch), text(&[(7, "a"), (8, "c")]));
    assert_eq!(built.next_seq, Seq(9));
    drop(built);
    let mut answers = Vec::new();
    for waiting in waiting {
        answers.push(waiting.answer(later()).await);
    }
    let limit = CommitAnswer::Refused(Refusal::TenantLimit);
    assert_eq!(answers, [CommitAnswer::Unknown, limit, CommitAnswer::Unknown, limit]);
    assert_eq!(tenants.tenants.next(), TenantOrd(2));
}

#[tokio::test(start_paused = true)]
async fn with_nobody_left_there_is_no_group() {
    let (entries, waiting) = entries(&[("acme", "a"), ("blue", "b")]);
    drop(waiting);
    assert!(build(plan(9), entries, &mut no_tenants()).is_none());
    let (entries, _waiting) = self::entries(&[("acme", "a")]);
    assert!(build(plan(0), entries, &mut no_tenants()).is_none());
    assert!(build(plan(9), Vec::new(), &mut no_tenants()).is_none());
}

#[tokio::test(start_paused = true)]
async fn with_the_archive_role_every_hook_owes_itself_to_the_archive() {
    let (entries, _waiting) = entries(&[("acme", "a"), ("acme", "b")]);
    let plan = GroupPlan { archive: true, ..plan(9) };
    let built = build(plan, entries, &mut no_tenants()).unwrap();
    let owed = puts(&built.batch, Cf::Index);
    let owed: Vec<_> = owed.iter().filter_map(|(key, _)| ArchiveKey::decode(key)).collect();
    assert_eq!(owed, [ArchiveKey(Seq(7)), ArchiveKey(Seq(8))]);
}
