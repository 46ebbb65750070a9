//! The probe of object stores: what it makes of a store that keeps its word, of each that does not, and of one that cannot
//! be asked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use ankusa_actors::ports::sim::{BlobFault, SimBlob};
use ankusa_actors::ports::{Blob, BlobBody, BlobEntry, BlobError, BlobKey, BlobVerb};
use ankusa_node::blob::probe::{Check, Finding, Report, Verdict, probe, probe_key};
use ankusa_node::host::HostEntropy;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Duration, Instant};

/// What a store says it did and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// A create replaces what is there.
    IgnoresTheCondition,
    /// It says that a create was refused, and replaces what is there.
    ReplacesAndRefuses,
    /// It says that something is there.
    ExistsAlready,
    /// What was written is not there.
    Forgets,
    OtherBytes,
    OtherRange,
    /// Behind the end of an object it answers the object.
    RangeFromTheStart,
    ListsNothing,
    ListsOtherSizes,
    DeletesNothing,
}

struct Liar {
    truth: Arc<SimBlob>,
    lie: Lie,
}

#[async_trait]
impl Blob for Liar {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        self.truth.put(key, body, deadline).await
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let is_there = self.truth.get(key, deadline).await.is_ok();
        match self.lie {
            Lie::IgnoresTheCondition => self.truth.put(key, body, deadline).await,
            Lie::ReplacesAndRefuses if is_there => {
                self.truth.put(key, body, deadline).await?;
                Err(BlobError::AlreadyExists)
            }
            Lie::ExistsAlready => Err(BlobError::AlreadyExists),
            Lie::Forgets if is_there => Err(BlobError::AlreadyExists),
            _ => self.truth.put_if_absent(key, body, deadline).await,
        }
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        let bytes = self.truth.get(key, deadline).await?;
        match self.lie {
            Lie::OtherBytes => Ok(bytes.slice(1..)),
            Lie::Forgets => Err(BlobError::NotFound),
            _ => Ok(bytes),
        }
    }

    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError> {
        let bytes = self.truth.get_range(key, offset, length, deadline).await?;
        match self.lie {
            Lie::OtherRange => self.truth.get_range(key, offset + 1, length, deadline).await,
            Lie::RangeFromTheStart if bytes.is_empty() => self.truth.get(key, deadline).await,
            Lie::Forgets => Err(BlobError::NotFound),
            _ => Ok(bytes),
        }
    }

    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError> {
        if self.lie == Lie::DeletesNothing {
            return Ok(());
        }
        self.truth.delete(key, deadline).await
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        let mut listed = self.truth.list(prefix, deadline).await?;
        match self.lie {
            Lie::ListsNothing | Lie::Forgets => listed.clear(),
            Lie::ListsOtherSizes => listed.iter_mut().for_each(|entry| entry.bytes += 1),
            _ => {}
        }
        Ok(listed)
    }
}

const ALL: [Check; 6] =
    [Check::Create, Check::CreateAgain, Check::Get, Check::Range, Check::List, Check::Delete];

async fn tried(store: &dyn Blob) -> Report {
    let key = probe_key("node-a/", &HostEntropy).unwrap();
    probe(store, &key, Instant::now() + Duration::from_secs(60)).await
}

/// Every check is kept but these.
fn but(others: &[(Check, Finding)]) -> Report {
    let finding = |check: Check| {
        let other = others.iter().find(|(other, _)| *other == check);
        other.map_or(Finding::Kept, |(_, finding)| finding.clone())
    };
    Report(ALL.map(|check| (check, finding(check))).into())
}

#[test]
fn a_probe_has_a_key_of_its_own_below_the_prefix() {
    let keys = [0, 1].map(|_| probe_key("node-a/", &HostEntropy).unwrap());
    assert_ne!(keys[0], keys[1]);
    for key in keys {
        let name = key.as_str().strip_prefix("node-a/_probe/").unwrap();
        assert!(name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{key}");
    }
    assert!(probe_key("", &HostEntropy).unwrap().as_str().starts_with("_probe/"));
    assert!(probe_key(&"a/".repeat(512), &HostEntropy).is_err());
}

#[tokio::test]
async fn a_store_that_keeps_its_word_is_safe_and_left_as_it_was() {
    let store = SimBlob::empty();
    store.plant("node-a/_probe/", "another's");
    let report = tried(store.as_ref()).await;
    assert_eq!(report, but(&[]));
    assert_eq!(report.verdict(), Verdict::Safe);
    assert_eq!(store.keys(), ["node-a/_probe/"]);
}

#[tokio::test]
async fn every_lie_is_found_named_and_cleaned_up_after() {
    let ignores = "the store ignores If-None-Match: a second create replaced the first, so two nodes could own one key";
    let replaced = "the store refused a second create and replaced the object all the same, so two nodes could own one \
                    key";
    let bytes = "the store answers other bytes than were written";
    let range = "the store answers other bytes than those of the range that was asked for";
    let gone = "the store does not have the object it said it wrote";
    let listed = "the store does not list the object it said it wrote, with its size";
    let deleted = "the store still has the object it said it deleted";
    let broken = Finding::Broken;
    for (lie, found) in [
        (
            Lie::IgnoresTheCondition,
            vec![
                (Check::CreateAgain, broken(ignores)),
                (Check::Get, broken(replaced)),
                (Check::Range, broken(range)),
                (Check::List, broken(listed)),
            ],
        ),
        (
            Lie::ReplacesAndRefuses,
            vec![
                (Check::Get, broken(replaced)),
                (Check::Range, broken(range)),
                (Check::List, broken(listed)),
            ],
        ),
        (
            Lie::Forgets,
            vec![
                (Check::Get, broken(gone)),
                (Check::Range, broken(gone)),
                (Check::List, broken(listed)),
            ],
        ),
        (Lie::OtherBytes, vec![(Check::Get, broken(bytes))]),
        (Lie::OtherRange, vec![(Check::Range, broken(range))]),
        (Lie::RangeFromTheStart, vec![(Check::Range, broken(range))]),
        (Lie::ListsNothing, vec![(Check::List, broken(listed))]),
        (Lie::ListsOtherSizes, vec![(Check::List, broken(listed))]),
        (Lie::DeletesNothing, vec![(Check::Delete, broken(deleted))]),
    ] {
        let liar = Liar { truth: SimBlob::empty(), lie };
        let report = tried(&liar).await;
        assert_eq!(report, but(&found), "{lie:?}");
        let (check, Finding::Broken(why)) = &found[0] else { panic!("{lie:?}") };
        assert_eq!(report.verdict(), Verdict::Unsafe { check: *check, why });
        assert_eq!(liar.truth.keys().is_empty(), lie != Lie::DeletesNothing, "{lie:?}");
    }
    let liar = Liar { truth: SimBlob::empty(), lie: Lie::ExistsAlready };
    let why = "the store says that an object exists which nobody wrote";
    assert_eq!(tried(&liar).await, Report(vec![(Check::Create, broken(why))]));
}

#[tokio::test]
async fn what_fails_is_named_and_is_no_lie() {
    let forbidden = BlobError::Forbidden("AccessDenied".to_owned());
    for (verb, found) in [
        (BlobVerb::Get, vec![Check::Get, Check::Delete]),
        (BlobVerb::GetRange, vec![Check::Range]),
        (BlobVerb::List, vec![Check::List]),
        (BlobVerb::Delete, vec![Check::Delete]),
    ] {
        let store = SimBlob::empty();
        store.fail(BlobFault::refuse(verb, forbidden.clone()).until_healed());
        let report = tried(store.as_ref()).await;
        let failed: Vec<_> =
            found.iter().map(|check| (*check, Finding::Failed(forbidden.clone()))).collect();
        assert_eq!(report, but(&failed), "{verb:?}");
        assert_eq!(
            report.verdict(),
            Verdict::Unknown { check: found[0], error: forbidden.clone() }
        );
    }
    // What cannot be created is not tried any further. The answer may have been lost: it is removed.
    for fault in [BlobFault::refuse, BlobFault::answer_lost] {
        let store = SimBlob::empty();
        let region = BlobError::WrongRegion { region: "eu-west-1".to_owned() };
        store.fail(fault(BlobVerb::PutIfAbsent, region.clone()));
        let report = tried(store.as_ref()).await;
        assert_eq!(report, Report(vec![(Check::Create, Finding::Failed(region.clone()))]));
        assert_eq!(report.verdict(), Verdict::Unknown { check: Check::Create, error: region });
        assert_eq!(store.keys(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn one_lie_outweighs_every_failure() {
    let truth = SimBlob::empty();
    truth.fail(BlobFault::refuse(BlobVerb::GetRange, BlobError::Deadline).until_healed());
    let liar = Liar { truth, lie: Lie::ListsNothing };
    let why = "the store does not list the object it said it wrote, with its size";
    assert_eq!(tried(&liar).await.verdict(), Verdict::Unsafe { check: Check::List, why });
}
