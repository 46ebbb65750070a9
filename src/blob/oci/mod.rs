//! Oracle Cloud Infrastructure's Object Storage, over its own API.
//!
//! | | |
//! |---|---|
//! | [`spec`] | what a bucket is configured with |
//! | [`signing`], [`instance_principal`] | every request is signed, by a key of a user's or of the instance |
//! | [`bucket`], [`multipart`] | the requests |
//! | [`listing`], [`refused`] | what is answered |

mod bucket;
mod instance_principal;
pub mod listing;
mod multipart;
pub mod refused;
pub mod signing;
mod spec;

use std::sync::Arc;

use ankusa_actors::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobKey, BlobScope, is_range_asked,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::multipart::parts;
use super::spec_error::BlobSpecError;
use super::transport::{Transport, World};
use bucket::{Bucket, Signer, Written, encoded};
use instance_principal::InstancePrincipal;
use spec::Signs;

pub use bucket::part_of;
pub use instance_principal::{certificates, parse_token, parse_token_end_ms, region_of, tenancy};
pub use listing::parse_listing;
pub use multipart::parse_upload_id;
pub use refused::{error, parse_error};
pub use spec::{OciAuth, OciSpec};

/// One bucket as a store.
struct Oci(Arc<Bucket>);

/// The store of `spec`. Nothing is asked yet.
///
/// # Errors
/// The first key of it that is wrong.
pub fn open(
    spec: &OciSpec,
    scope: BlobScope,
    world: &World,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    spec.check_names()?;
    let endpoint = spec.endpoint_url()?;
    let sse_key = spec.sse_key()?;
    let signer = match spec.signs()? {
        Signs::Fixed(identity) => Signer::Fixed(identity),
        Signs::Instance(spec) => {
            let instance = InstancePrincipal::new(spec, Arc::clone(&world.clock))?;
            Signer::Instance(Box::new(instance))
        }
    };
    let transport = Transport::new(scope, &endpoint, &spec.bucket, &spec.transport, world)?;
    let path = format!("/n/{}/b/{}", encoded(&spec.namespace), encoded(&spec.bucket));
    Ok(Arc::new(Oci(Arc::new(Bucket { transport, endpoint, path, sse_key, signer }))))
}

impl Oci {
    async fn write(
        &self,
        key: &BlobKey,
        body: BlobBody,
        only_new: bool,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let Self(bucket) = self;
        let deadline = bucket.transport.deadline(deadline);
        let options = bucket.transport.options();
        let written = match parts(options, body.bytes(), multipart::PARTS_MAX) {
            None => bucket.put_whole(key, &body, only_new, deadline).await?,
            Some(parts) => multipart::put(bucket, key, &body, parts, only_new, deadline).await?,
        };
        match written {
            Written::Done => Ok(()),
            // It may be this one, landed in an attempt whose answer was lost.
            Written::Taken if bucket.holds(key, &body, deadline).await? => Ok(()),
            Written::Taken => Err(BlobError::AlreadyExists),
        }
    }
}

#[async_trait]
impl Blob for Oci {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        self.write(key, body, false, deadline).await
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        self.write(key, body, true, deadline).await
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        self.0.get(key, self.0.transport.deadline(deadline)).await
    }

    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError> {
        if !is_range_asked(length)? {
            return Ok(Bytes::new());
        }
        self.0.get_range(key, offset, length, self.0.transport.deadline(deadline)).await
    }

    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError> {
        self.0.delete(key, self.0.transport.deadline(deadline)).await
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        self.0.list(prefix, self.0.transport.deadline(deadline)).await
    }
}
