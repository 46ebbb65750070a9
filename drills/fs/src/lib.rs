//! A file system for live power cuts: everything is in memory, and at a cut whatever was not fsynced is forgotten.
//!
//! The recorder of `drills/shim` sees what goes through libc; this sees what reaches the kernel, from any program. The two
//! check each other. It needs `/dev/fuse`, and root or a user namespace; no system library.
//!
//! | module | |
//! |---|---|
//! | [`tree`] | the files and names, what of them is durable, and the cut |
//! | [`mount`] | the same as a FUSE file system |

pub mod mount;
pub mod tree;
