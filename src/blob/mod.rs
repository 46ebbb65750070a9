//! Object stores ("Ankusa.BlobStore"): one folder an adapter, and what all that speak HTTP share.
//!
//! | | |
//! |---|---|
//! | [`transport`] | one operation: attempts, waits and credentials inside one deadline |
//! | [`exchange`] | one request and its answer |
//! | [`retry`] | what is tried again, and after what wait |
//! | [`breaker`] | endpoints that fail are left alone |
//! | [`pool`] | connections to one endpoint |
//! | [`answer`] | what came back, and the error it means |
//! | [`body`], [`checksum`], [`multipart`] | bytes on their way |
//! | [`begun`] | uploads that must end |
//! | [`read_back`] | what is in the way of a create |
//! | [`cached`], [`side`] | credentials that expire, and those who give them out |
//! | [`xml`] | what S3 and Azure write |
//! | [`observed`] | any store, with what is asked of it told |
//! | [`probe`] | whether a store does what its answers say |
//! | [`advice`] | what an operator does about an error |
//! | [`file_source`] | a file as the bytes of an object |
//! | [`local_fs`] | files below a folder of this host |
//! | [`s3`] | S3, and what speaks its language |
//! | [`gcs`] | Google Cloud Storage |
//! | [`azure`] | Azure Blob Storage |
//! | [`oci`] | Object Storage of Oracle's cloud |

pub mod advice;
pub mod answer;
pub mod azure;
mod begun;
pub mod body;
pub mod breaker;
pub mod cached;
pub mod checksum;
mod exchange;
pub mod file_source;
pub mod gcs;
pub mod local_fs;
pub mod multipart;
pub mod observed;
pub mod oci;
pub mod options;
pub mod pool;
pub mod probe;
mod read_back;
pub mod retry;
pub mod s3;
pub mod side;
pub mod spec_error;
pub mod transport;
pub mod xml;
