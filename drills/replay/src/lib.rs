//! What a disk could hold after a power cut, built from a log of what a process asked of it.
//!
//! The recorder (`ankusa-drills-shim`) writes every create, write, truncate, fsync, rename, link and unlink of a process
//! into one totally ordered operation log. This package reads the log ([`oplog`]), replays it into a model of a file
//! system that keeps *applied* and *durable* apart ([`disk`]), and materialises the directory as a crash at that very
//! operation could have left it ([`image`]). Nothing here knows the product: the judge opens the images.
//!
//! The layouts the recorder and the drills share, the log and the [`control`] page, are defined here, once.

pub mod control;
pub mod disk;
pub mod image;
pub mod oplog;
mod rng;

pub use disk::{Disk, NameRule};
pub use image::{Image, Mirror, Policy};
pub use oplog::{Op, OpLogError, decode};
pub use rng::Rng;
