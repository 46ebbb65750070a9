//! Listings of many pages, and pages that do not make one listing.

use ankusa_actors::ports::{BlobEntry, BlobError};
use serde_json::{Value, json};

use super::{Fake, Fault, Said, Surroundings, spec};

fn page(keys: &[&str], next: Option<&str>) -> Fault {
    let items: Vec<Value> = keys.iter().map(|key| json!({"name": key, "size": "1"})).collect();
    let mut page = json!({"kind": "storage#objects", "items": items});
    if let Some(next) = next {
        page["nextPageToken"] = next.into();
    }
    Fault::Says(Said::json(&page))
}

async fn listed(fake: &Fake) -> Result<Vec<BlobEntry>, BlobError> {
    Surroundings::new().open(&spec(&fake.url())).list("d/", None).await
}

async fn why(fake: &Fake) -> String {
    listed(fake).await.unwrap_err().to_string()
}

/// A bucket of nine objects, four of them a page.
async fn nine() -> Fake {
    let fake = Fake::start().await;
    fake.state().page_max = 4;
    for n in 0..9 {
        fake.state().insert(&format!("d/{n}"), vec![0; n].into(), None);
    }
    fake
}

#[tokio::test]
async fn every_page_is_asked_for_with_the_token_of_the_one_before() {
    let fake = nine().await;
    fake.state().insert("other", "x".into(), None);
    let expected: Vec<BlobEntry> =
        (0..9).map(|n| BlobEntry { key: format!("d/{n}"), bytes: n }).collect();
    assert_eq!(listed(&fake).await.unwrap(), expected);
    // Base64 of the last key of each.
    assert_eq!(fake.journal(), ["list", "list ZC8z", "list ZC83"]);
}

#[tokio::test]
async fn a_page_that_is_empty_or_late_is_no_end() {
    let fake = nine().await;
    fake.fault("list", page(&[], Some("")));
    assert_eq!(listed(&fake).await.unwrap(), []);
    fake.fault("list", page(&[], Some("a")));
    fake.fault("list", page(&["d/0"], None));
    assert_eq!(listed(&fake).await.unwrap().len(), 1);
    fake.fault_after(1, "list", Fault::Says(Said::new(503, "")));
    fake.fault("list", Fault::LostOnTheWayBack);
    assert_eq!(listed(&fake).await.unwrap().len(), 9);
}

#[tokio::test]
async fn a_listing_that_fails_midway_is_no_shorter_one() {
    let failed = Fake::start().await;
    failed.state().page_max = 1;
    for n in 0..3 {
        failed.state().insert(&format!("d/{n}"), "x".into(), None);
    }
    failed.fault_after(2, "list", Fault::Says(Said::error(403, "forbidden", "no")));
    assert_eq!(why(&failed).await, "forbidden: 403 forbidden: no");
    failed.fault_after(2, "list", Fault::Says(Said::error(400, "invalid", "token")));
    assert_eq!(why(&failed).await, "misconfigured: 400 invalid: token");
    for body in
        ["", "{}", "null", "<html>", r#"{"kind":"storage#objects","items":[{"name":"d/2"}]}"#]
    {
        failed.fault_after(2, "list", Fault::Says(Said::new(200, body)));
        let why = why(&failed).await;
        assert!(why.starts_with("transport: its listing: "), "{body:?}: {why}");
    }
    failed.fault_after(1, "list", Fault::Says(Said::new(503, "")));
    failed.fault("list", Fault::Says(Said::new(503, "")));
    failed.fault("list", Fault::Says(Said::new(503, "")));
    assert_eq!(why(&failed).await, "transport: 503");
}

#[tokio::test]
async fn pages_that_come_twice_or_in_another_order_are_no_listing_with_a_gap() {
    let fake = Fake::start().await;
    // In another order, all the same they are all there.
    fake.fault("list", page(&["d/2", "d/1"], Some("a")));
    fake.fault("list", page(&["d/0"], None));
    let keys: Vec<String> = listed(&fake).await.unwrap().into_iter().map(|e| e.key).collect();
    assert_eq!(keys, ["d/0", "d/1", "d/2"]);
    // The first in the place of the second: there may have been another.
    fake.fault("list", page(&["d/0", "d/1"], Some("a")));
    fake.fault("list", page(&["d/0", "d/1"], None));
    assert_eq!(why(&fake).await, r#"transport: its listing: "d/0" comes twice"#);
    // Round and round.
    fake.fault("list", page(&["d/0"], Some("a")));
    fake.fault("list", page(&["d/1"], Some("b")));
    fake.fault("list", page(&["d/2"], Some("a")));
    assert_eq!(why(&fake).await, "transport: its listing: it goes round in circles");
}

#[tokio::test]
async fn whatever_a_key_of_another_writer_is_it_is_listed() {
    let fake = Fake::start().await;
    let odd = ["d//x", "d/../y", "d/\u{1}", "d/a.tmp.1", "d/ü+ %2F"];
    for name in odd {
        fake.state().insert(name, "x".into(), None);
    }
    let mut expected = odd.map(str::to_owned).to_vec();
    expected.sort();
    let keys: Vec<String> = listed(&fake).await.unwrap().into_iter().map(|e| e.key).collect();
    assert_eq!(keys, expected);
}
