//! What every object store must do ("Ankusa.BlobStore"): the simulated one, the local file system's, and each adapter
//! before a server that speaks its protocol.
//!
//! One function a property, all of them in [`BLOB_CONTRACT`]. Each is given a [`BlobTrial`] whose prefix nobody else
//! writes under, so that one bucket will do for all.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::ports::{Blob, BlobBody, BlobEntry, BlobError, BlobKey};

mod creates;
mod listings;
mod objects;
mod sources;

pub use creates::*;
pub use listings::*;
pub use objects::*;
pub use sources::*;

/// A store, and how much is asked of it.
#[derive(Clone)]
pub struct BlobTrial {
    pub store: Arc<dyn Blob>,
    /// What every key of this trial begins with: empty for a store of its own, else it ends with `/`.
    pub prefix: String,
    /// Objects of the long listing: more than a page of the store's has, where that can be had in a test.
    pub many_objects: usize,
    /// The size of a large object, in bytes: it should be cut into parts, and the last of them a short one.
    pub large_bytes: usize,
    /// Whether of several creates at once exactly one wins. Some emulators look first and write later.
    pub creates_are_atomic: bool,
    /// Those of [`ODD_KEYS`] which the server of this test, not the adapter, cannot keep.
    pub keys_not_kept: &'static [&'static str],
}

impl BlobTrial {
    /// Of a store that nobody else uses, with all there is to ask of it.
    pub fn of(store: Arc<dyn Blob>) -> Self {
        Self {
            store,
            prefix: String::new(),
            many_objects: 1_050,
            large_bytes: (9 << 20) + 3,
            creates_are_atomic: true,
            keys_not_kept: &[],
        }
    }

    /// The same in a corner of its own.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self { prefix: format!("{}{name}/", self.prefix), ..self.clone() }
    }

    fn key(&self, key: &str) -> BlobKey {
        BlobKey::new(format!("{}{key}", self.prefix)).expect("the contract asks for legal keys")
    }

    async fn put(&self, key: &str, body: impl Into<BlobBody>) {
        let put = self.store.put(&self.key(key), body.into(), None).await;
        put.unwrap_or_else(|error| panic!("put {key:?}: {error}"));
    }

    async fn create(&self, key: &str, body: impl Into<BlobBody>) -> Result<(), BlobError> {
        self.store.put_if_absent(&self.key(key), body.into(), None).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, BlobError> {
        self.store.get(&self.key(key), None).await
    }

    async fn range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, BlobError> {
        self.store.get_range(&self.key(key), offset, length, None).await
    }

    async fn delete(&self, key: &str) {
        let deleted = self.store.delete(&self.key(key), None).await;
        deleted.unwrap_or_else(|error| panic!("delete {key:?}: {error}"));
    }

    async fn whole_list(&self, prefix: &str) -> Vec<BlobEntry> {
        let listed = self.store.list(prefix, None).await;
        listed.unwrap_or_else(|error| panic!("list {prefix:?}: {error}"))
    }

    /// What is listed under a prefix of this trial, as keys without the trial's own and sizes.
    async fn list(&self, prefix: &str) -> Vec<(String, u64)> {
        let listed = self.whole_list(&format!("{}{prefix}", self.prefix)).await;
        listed.into_iter().map(|entry| self.own(entry)).collect()
    }

    fn own(&self, entry: BlobEntry) -> (String, u64) {
        let own = entry.key.strip_prefix(&self.prefix);
        (own.expect("what is listed begins with the prefix").to_owned(), entry.bytes)
    }

    /// All of them, some at a time.
    async fn put_all(&self, objects: BTreeMap<String, Bytes>) {
        let mut puts = JoinSet::new();
        for (key, body) in objects {
            if puts.len() == AT_ONCE {
                puts.join_next().await.expect("there are some").expect("a put does not panic");
            }
            let trial = self.clone();
            puts.spawn(async move { trial.put(&key, body).await });
        }
        while let Some(put) = puts.join_next().await {
            put.expect("a put does not panic");
        }
    }
}

/// Requests on their way at once, in the long listing.
const AT_ONCE: usize = 16;

/// One property.
pub type BlobProperty = for<'a> fn(&'a BlobTrial) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// All of them, by name.
pub const BLOB_CONTRACT: &[(&str, BlobProperty)] = &[
    ("a_put_object_comes_back", |t| Box::pin(a_put_object_comes_back(t))),
    ("a_put_replaces_what_is_there", |t| Box::pin(a_put_replaces_what_is_there(t))),
    ("a_missing_object_is_not_found", |t| Box::pin(a_missing_object_is_not_found(t))),
    ("a_range_is_what_lies_within", |t| Box::pin(a_range_is_what_lies_within(t))),
    ("a_range_too_long_is_refused", |t| Box::pin(a_range_too_long_is_refused(t))),
    ("what_is_deleted_is_gone", |t| Box::pin(what_is_deleted_is_gone(t))),
    ("an_empty_object_is_an_object", |t| Box::pin(an_empty_object_is_an_object(t))),
    ("what_keys_begin_with_is_no_object", |t| Box::pin(what_keys_begin_with_is_no_object(t))),
    ("a_reader_sees_one_whole_object", |t| Box::pin(a_reader_sees_one_whole_object(t))),
    ("nothing_is_done_past_the_deadline", |t| Box::pin(nothing_is_done_past_the_deadline(t))),
    ("every_character_of_a_key_is_kept", |t| Box::pin(every_character_of_a_key_is_kept(t))),
    ("the_longest_key_is_kept", |t| Box::pin(the_longest_key_is_kept(t))),
    ("a_body_in_pieces_is_one_object", |t| Box::pin(a_body_in_pieces_is_one_object(t))),
    ("a_body_elsewhere_is_one_object", |t| Box::pin(a_body_elsewhere_is_one_object(t))),
    ("a_large_object_comes_back", |t| Box::pin(a_large_object_comes_back(t))),
    ("a_body_that_cannot_be_read_is_not_written", |t| {
        Box::pin(a_body_that_cannot_be_read_is_not_written(t))
    }),
    ("a_create_writes_where_nothing_is", |t| Box::pin(a_create_writes_where_nothing_is(t))),
    ("a_create_of_the_same_bytes_has_succeeded", |t| {
        Box::pin(a_create_of_the_same_bytes_has_succeeded(t))
    }),
    ("a_create_leaves_another_object_alone", |t| Box::pin(a_create_leaves_another_object_alone(t))),
    ("a_large_create_is_a_create", |t| Box::pin(a_large_create_is_a_create(t))),
    ("of_creates_at_once_one_wins", |t| Box::pin(of_creates_at_once_one_wins(t))),
    ("a_listing_is_in_the_order_of_bytes", |t| Box::pin(a_listing_is_in_the_order_of_bytes(t))),
    ("a_prefix_is_any_text", |t| Box::pin(a_prefix_is_any_text(t))),
    ("a_listing_goes_on_to_its_end", |t| Box::pin(a_listing_goes_on_to_its_end(t))),
];

/// Runs the whole contract, each property over the trial it is given: with a store of its own, or below its name.
pub async fn holds_for(new_trial: impl AsyncFn(&'static str) -> BlobTrial) {
    for (name, property) in BLOB_CONTRACT {
        let trial = new_trial(name).await;
        say(name);
        property(&trial).await;
    }
}

/// Where it is: the test runner shows it of a test that failed.
#[allow(clippy::print_stdout)]
fn say(name: &str) {
    println!("contract: {name}");
}

/// So many bytes that repeat nowhere near the size of a part.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

fn len(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a length")
}
