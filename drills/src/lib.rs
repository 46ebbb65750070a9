//! Crash drills and benches.
//!
//! A drill starts real node processes, loads them, breaks something on purpose, and has what is left judged from outside
//! (`ankusa-drills-check`): by what clients were told, by what the sink saw, and by every row of the store. The binary is
//! its own node (`ankusa-drills node ...`), so what is drilled is never stale.
//!
//! | module | |
//! |---|---|
//! | [`drill`] | the table of drills, what they are given and what they answer |
//! | [`kill9`] | SIGKILL at random moments under load, on one store |
//! | [`cut_every_op`] | a power cut at every operation on the disk, from one recording |
//! | [`crash_tree`] | every child of the supervision tree panics, in turn and at random |
//! | [`drain`] | SIGTERM under load, once and twice |
//! | [`pause`] | SIGSTOP and SIGCONT under load |
//! | [`slow_disk`], [`dead_disk`] | fsyncs that take long, or fail with every write for a while |
//! | [`full_disk`] | a small disk ([`tiny_disk`]) that fills up under load and is freed |
//! | [`clock`] | the wall clock jumps back and ahead under load |
//! | [`stage`] | what those share: one store, its clients and sink, and the judge |
//! | [`faults`], [`watch`] | faults of a disk that are switched at run time; what `/ready` says meanwhile |
//! | [`node`] | a node process: configuration, start, kill, dump |
//! | [`load`], [`worker`], [`journal`] | clients, the sink, and what both write down |
//! | [`reader`] | a store's rows, read from its files without the node |
//! | [`bench`](mod@bench) | the table of benches |

pub mod bench;
pub mod clock;
pub mod control;
pub mod crash_tree;
pub mod cut_every_op;
pub mod dead_disk;
pub mod drain;
pub mod drill;
pub mod faults;
pub mod full_disk;
pub mod http;
pub mod journal;
pub mod kill9;
pub mod load;
pub mod node;
pub mod pause;
pub mod reader;
pub mod scratch;
pub mod series;
pub mod slow_disk;
pub mod stage;
pub mod timings;
pub mod tiny_disk;
pub mod watch;
pub mod worker;
