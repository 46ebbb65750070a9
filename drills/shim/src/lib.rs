//! A recorder and fault injector for the files of one process, loaded with `LD_PRELOAD`. It needs no root and no device.
//!
//! It stands in for the file functions of libc. Every call that changes something below one directory is carried out
//! and then appended, under one lock, to an operation log (`ankusa_drills_replay::oplog`), so the log's order is an order
//! in which the operations took effect. Calls about anything else pass straight through.
//!
//! | variable | meaning |
//! |---|---|
//! | `DRILL_ROOT` | the directory to record: absolute, without symbolic links. A replay must know what it held when the process started. Unset: the library does nothing |
//! | `DRILL_LOG` | the operation log, opened for append. Unset: faults only |
//! | `DRILL_MARK` | writes to this file are also logged as marks: a ledger line, ordered with the disk operations |
//! | `DRILL_CTL` | the control page (`ankusa_drills_replay::control`): faults and delays, changeable while the process runs |
//! | `DRILL_NOFSYNC` | set: an fsync is logged but not carried out; the cut is modelled anyway, and the machine's disk is spared |
//!
//! It can also shift the wall clock of the process, from the control page.
//!
//! Another process may append marks to the log as well: each record is one `write` to a file opened with `O_APPEND`.
//!
//! # What it does not see
//!
//! * Programs without a dynamic libc, and crates that make system calls of their own (rustix's `linux_raw` backend and
//!   whatever stands on it). Code that is to be drilled keeps to `std::fs`.
//! * `io_uring`; `sync` and `syncfs`; `O_TMPFILE`; descriptors that arrive over a socket or through `execve`.
//! * What libc does inside itself: `fopen` and everything on its streams (RocksDB's `LOG` files), whose names still
//!   appear in renames and unlinks. A replay treats such a name as absent.
//! * Writes through a shared, writable mapping. It says so on standard error when one is made.
//! * One log is one process: file numbers start again with the next. Two processes in one log would be nonsense.
//!
//! # Why the unsafe code is sound
//!
//! Each exported function has the signature of the libc function it replaces and hands its arguments, unchanged, to the
//! same system call ([`raw`]); whoever was entitled to call libc's is entitled to call ours. Beyond that we read caller
//! memory in two ways only, both covered by libc's own contract for the call: the path argument as a C string, and
//! the buffer of a write (or, flipping a bit, of a read) that the kernel has just accepted for that many bytes. The
//! control page is mapped once, never unmapped, and touched through atomics alone. No hook calls a libc function that
//! is hooked here, so none can recurse; none unwinds across the C boundary, since none panics: no indexing, no unwrap, a
//! poisoned lock is entered anyway.

mod clock;
mod control;
mod descriptors;
mod names;
mod raw;
mod recorder;
mod syncs;
mod transfers;
