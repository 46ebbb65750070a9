//! Reading back which tenant has which ordinal.

use super::super::tenants::{Resolved, Tenants};
use super::{open, put};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::model::ids::TenantOrd;
use crate::model::keys::{META_NEXT_ORD, TenantKey, u32_value};
use crate::ports::sim::{Fault, SimDisk, SimOp};

const NO_LIMIT: u32 = u32::MAX;

fn tenants(of: impl IntoIterator<Item = (u32, String)>, marker: Option<u32>) -> Batch {
    let mut batch = Batch::default();
    for (ord, id) in of {
        batch.put(Cf::Tenants, &TenantKey(TenantOrd(ord)).encode(), id.as_bytes());
    }
    if let Some(marker) = marker {
        batch.put(Cf::Default, META_NEXT_ORD, &u32_value(marker));
    }
    batch
}

async fn load(rows: Batch) -> Tenants {
    let disk = SimDisk::empty();
    put(&disk, rows).await;
    Tenants::load(&open(&disk).await).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_tenant_of_an_empty_store_gets_the_first_ordinal() {
    let mut tenants = load(Batch::default()).await;
    assert_eq!(tenants.resolve("acme", NO_LIMIT), Resolved::New(TenantOrd::FIRST));
    assert_eq!(tenants.resolve("acme", NO_LIMIT), Resolved::Known(TenantOrd::FIRST));
}

#[tokio::test(start_paused = true)]
async fn the_next_ordinal_is_above_the_marker_and_above_every_one_in_use() {
    let seven = || [(7, "acme".to_owned())];
    for (marker, next) in [(None, 8), (Some(3), 8), (Some(8), 8), (Some(20), 20)] {
        let mut tenants = load(tenants(seven(), marker)).await;
        assert_eq!(tenants.resolve("acme", 0), Resolved::Known(TenantOrd(7)));
        assert_eq!(tenants.resolve("blue", NO_LIMIT), Resolved::New(TenantOrd(next)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordinal_whose_tenant_cannot_be_read_is_not_given_out_again() {
    let mut rows = tenants([(1, "acme".to_owned())], Some(2));
    rows.put(Cf::Tenants, &TenantKey(TenantOrd(5)).encode(), b"\xff\xfe");
    assert_eq!(load(rows).await.next(), TenantOrd(6));
}

#[tokio::test(start_paused = true)]
async fn the_limit_counts_ordinals_and_lets_known_tenants_in() {
    let two = [(1, "acme".to_owned()), (2, "blue".to_owned())];
    let mut tenants = load(tenants(two, Some(3))).await;
    assert_eq!(tenants.resolve("cyan", 2), Resolved::Full);
    assert_eq!(tenants.resolve("blue", 2), Resolved::Known(TenantOrd(2)));
    assert_eq!(tenants.resolve("cyan", 3), Resolved::New(TenantOrd(3)));
}

#[tokio::test(start_paused = true)]
async fn more_tenants_than_are_read_at_a_time_are_all_read() {
    let many = (1..=10_001).map(|ord| (ord, format!("tenant-{ord}")));
    let mut tenants = load(tenants(many, None)).await;
    assert_eq!(tenants.next(), TenantOrd(10_002));
    for ord in [1, 10_000, 10_001] {
        let known = tenants.resolve(&format!("tenant-{ord}"), 0);
        assert_eq!(known, Resolved::Known(TenantOrd(ord)));
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_none_are_passed_over() {
    let mut rows = tenants([(1, "acme".to_owned())], Some(2));
    for sentinel in [&b"t"[..], b"t\0\0\0\0", b"t\xff\xff\xff\xff", b"t\xff\xff\xff\xff\xff\xff"] {
        rows.put(Cf::Tenants, sentinel, b"");
    }
    let mut tenants = load(rows).await;
    assert_eq!(tenants.resolve("blue", 100), Resolved::New(TenantOrd(2)));
    assert_eq!(tenants.resolve("", 100), Resolved::New(TenantOrd(3)), "no tenant is nameless");
}

#[tokio::test(start_paused = true)]
async fn tenants_that_cannot_be_read_are_an_error_and_not_fewer_tenants() {
    let disk = SimDisk::empty();
    let store = open(&disk).await;
    for calls in [0, 1] {
        disk.fail(Fault::refuse(SimOp::Read, FailureClass::Corruption).after(calls));
        let error = Tenants::load(&store).await.unwrap_err();
        assert_eq!(error.class, FailureClass::Corruption);
    }
}
