//! The adapter of Google Cloud Storage: before a strict server of our own, before what emulators do right, and beside the
//! `object_store` crate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm
)]

#[path = "support/fault_table.rs"]
mod fault_table;
mod gcs;

use ankusa_actors::ports::contract::blob::{self as contract, BlobTrial};

use gcs::emulators::Emulator;
use gcs::{Fake, STEP, Surroundings, spec};

/// A trial whose large objects are sent in parts, the last of them a short one.
fn trial(endpoint: &str) -> BlobTrial {
    let store = Surroundings::new().open(&spec(endpoint));
    BlobTrial { large_bytes: 4 * STEP + 3, ..BlobTrial::of(store) }
}

#[tokio::test]
async fn the_contract_holds_before_a_strict_server() {
    let fake = Fake::start().await;
    fake.state().page_max = 100;
    let trial = trial(&fake.url());
    contract::holds_for(async |_name| {
        // As good as a bucket of its own.
        fake.state().objects.clear();
        trial.clone()
    })
    .await;
}

/// All of the contract but these, each below its name.
#[allow(clippy::print_stdout)]
async fn holds_but(trial: &BlobTrial, wrong: &[&str]) {
    for (name, property) in contract::BLOB_CONTRACT {
        if !wrong.contains(name) {
            println!("contract: {name}");
            property(&trial.below(name)).await;
        }
    }
    let known = |wrong: &&str| contract::BLOB_CONTRACT.iter().any(|(name, _)| name == wrong);
    assert!(wrong.iter().all(known), "{wrong:?}");
}

#[tokio::test]
async fn the_contract_holds_before_fake_gcs_server() {
    let emulator = Emulator::fake_gcs_server().await;
    // It looks at no condition of an upload in parts.
    holds_but(&trial(&emulator.url()), &["a_large_create_is_a_create"]).await;
}

#[tokio::test]
async fn the_contract_holds_before_gcp_storage_emulator() {
    let emulator = Emulator::gcp_storage_emulator().await;
    // It looks at no condition at all, so a create is a put there.
    let creates = [
        "an_empty_object_is_an_object",
        "every_character_of_a_key_is_kept",
        "a_create_leaves_another_object_alone",
        "a_large_create_is_a_create",
        "of_creates_at_once_one_wins",
    ];
    // It answers one request at a time, and each more slowly than the one before.
    let trial = BlobTrial { many_objects: 40, ..trial(&emulator.url()) };
    holds_but(&trial, &creates).await;
}
