//! Azure Blob Storage, over its REST interface ("BlobStore.Azure").
//!
//! | | |
//! |---|---|
//! | [`AzureSpec`] | what the configuration says |
//! | `dialect`, `sas`, `identity` | what proves who asks |
//! | `objects`, `blocks` | what is asked for each operation |
//! | `listing`, `refusal`, on `xml` | what the answers say |
//!
//! Objects are block blobs. Deleting one takes only that: snapshots are somebody's who took them, and a blob that has some
//! is refused (`409 SnapshotsPresent`) instead of being lost with them.

mod blocks;
mod dialect;
mod identity;
mod listing;
mod objects;
mod percent;
mod refusal;
mod sas;
mod spec;

use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobScope};

pub use self::identity::{Environment, parse_token, refused};
pub use self::listing::{Page, parse_listing};
pub use self::objects::is_range;
pub use self::refusal::{error, parse_error, refusal};
pub use self::sas::Sas;
pub use self::spec::{AzureAuth, AzureSpec};

use self::dialect::Language;
use self::objects::{Azure, Container, Over, Written, insert};
use super::spec_error::BlobSpecError;
use super::transport::{Transport, World};

/// The store a section describes. Nothing is asked of it.
///
/// # Errors
/// What is wrong in the section.
pub fn open(
    spec: &AzureSpec,
    scope: BlobScope,
    world: &World,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    open_in(spec, scope, world, &Environment::of_process())
}

/// The same, with variables that need not be this process's.
///
/// # Errors
/// What is wrong in the section, or in the variables.
pub fn open_in(
    spec: &AzureSpec,
    scope: BlobScope,
    world: &World,
    environment: &Environment,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    let url = spec.container_url()?;
    let encryption_scope = spec.encryption_scope()?;
    let credentials = spec.credentials(environment)?;
    let bucket = url.path().trim_start_matches('/');
    let transport = Transport::new(scope, &url, bucket, &spec.transport, world)?;
    let language = Language { credentials, clock: Arc::clone(&world.clock) };
    let entropy = Arc::clone(&world.entropy);
    Ok(Arc::new(Azure::new(Container { url, transport, language, encryption_scope, entropy })))
}
