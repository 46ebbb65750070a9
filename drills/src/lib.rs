//! Crash drills and benches.
//!
//! A drill starts real node processes, loads them, breaks something on purpose, and has what is left judged from outside
//! (`ankusa-drills-check`): by what clients were told, by what the sink saw, and by every row of the store. The binary is
//! its own node (`ankusa-drills node ...`), so what is drilled is never stale.
//!
//! | module | |
//! |---|---|
//! | [`table`] | every drill: what it needs, how CI runs it, the canaries it must catch |
//! | [`drill`] | what a drill is given and what it answers |
//! | [`ci`] | all of them, in short, with one report |
//! | [`canary`](mod@canary) | the rules a build can break on purpose |
//! | [`kill9`] | SIGKILL at random moments under load, on one store |
//! | [`recorded`] | one recording, cut at every operation: what the next three share |
//! | [`cut_every_op`], [`cut_reorder`], [`kill9_every_op`] | power cuts, power cuts with reordered pages, kills |
//! | [`crash_loop`] | crashes during recovery, several deep |
//! | [`crash_tree`] | every child of the supervision tree panics, in turn and at random |
//! | [`drain`] | SIGTERM under load, once and twice |
//! | [`pause`] | SIGSTOP and SIGCONT under load |
//! | [`slow_disk`], [`dead_disk`] | fsyncs that take long, or fail with every write for a while |
//! | [`flip_store`] | single flipped bits in every kind of file of a store at rest |
//! | [`full_disk`] | a small disk ([`tiny_disk`]) that fills up under load and is freed |
//! | [`clock`] | the wall clock jumps back and ahead under load |
//! | [`noisy_neighbour`] | one tenant floods for a sink that hangs, another is timed |
//! | [`hostile`] | thousands of connections that hold what they can |
//! | [`bucket_faults`] | everything that goes wrong with a bucket, in turn, before a real S3 server ([`seaweedfs`]) |
//! | [`starve`] | too few descriptors, short files, no memory, crowds of idle connections |
//! | [`cut_fuse`] | live power cuts on a file system that forgets ([`forgetful`]) |
//! | [`cut_ext4`] | live power cuts on clones of a real ext4 ([`snapshots`]) |
//! | [`keeper`] | mounts that nobody else sees and that are gone with the drill |
//! | [`stage`] | what those share: one store, its clients and sink, and the judge |
//! | [`faults`], [`watch`] | faults of a disk that are switched at run time; what `/ready` says meanwhile |
//! | [`nth`] | the Nth fsync, write or read fails, for every N |
//! | [`node`] | a node process: configuration, start, kill, dump |
//! | [`load`], [`worker`], [`journal`] | clients, the sink, and what both write down |
//! | [`ports`] | ports nobody listens on |
//! | [`reader`] | a store's rows, read from its files without the node |
//! | [`bench`](mod@bench) | the table of benches |

pub mod bench;
pub mod bucket_faults;
pub mod canary;
pub mod ci;
pub mod clock;
pub mod control;
pub mod crash_loop;
pub mod crash_tree;
pub mod cut_every_op;
pub mod cut_ext4;
pub mod cut_fuse;
pub mod cut_reorder;
pub mod dead_disk;
pub mod drain;
pub mod drill;
pub mod faults;
pub mod flip_store;
pub mod forgetful;
pub mod full_disk;
pub mod hostile;
pub mod http;
pub mod journal;
pub mod keeper;
pub mod kill9;
pub mod kill9_every_op;
pub mod load;
pub mod node;
pub mod noisy_neighbour;
pub mod nth;
pub mod pause;
pub mod ports;
pub mod reader;
pub mod recorded;
pub mod repeats;
pub mod scratch;
pub mod seaweedfs;
pub mod series;
pub mod slow_disk;
pub mod snapshots;
pub mod stage;
pub mod starve;
pub mod table;
pub mod timings;
pub mod tiny_disk;
pub mod watch;
pub mod worker;
