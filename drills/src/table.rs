//! The table of drills: one row a drill. What is listed, run, run in CI and tried on canaries is what stands here.

use crate::drill::{Ci, Drill, Form, Needs};
use crate::{
    bucket_faults, clock, crash_loop, crash_tree, cut_every_op, cut_ext4, cut_fuse, cut_reorder,
    dead_disk, drain, flip_store, full_disk, hostile, kill9, kill9_every_op, noisy_neighbour, nth,
    pause, slow_disk, starve,
};

/// Every drill there is. CI runs them in this order.
pub const DRILLS: &[Drill] = &[
    Drill {
        name: "kill9",
        what: "SIGKILL at a random moment under load, restart, again: every 201 is delivered, in order where that was asked for, once however often it was sent, no refused hook ever is",
        cycles_are: "kills",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(3), budget_s: 15 }),
        canaries: &["canary-dedupe-unchecked", "canary-lane-skips-head"],
        canary_form: Form::cycles(2),
        run: kill9::run,
    },
    Drill {
        name: "cut_every_op",
        what: "a power cut at every operation on the disk, unsynced bytes dropped, kept, torn or zeroed: every image opens and keeps every promise",
        cycles_are: "images, about",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(1_000), budget_s: 50 }),
        canaries: &[
            "canary-ack-before-apply",
            "canary-ack-before-sync",
            "canary-held-unsynced",
            "canary-no-dir-fsync",
        ],
        canary_form: Form::stride(24),
        run: cut_every_op::run,
    },
    Drill {
        name: "cut_reorder",
        what: "a power cut at every operation, unsynced pages on the disk in any order: nothing acked is lost and no operator is needed",
        cycles_are: "images, about",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(600), budget_s: 35 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: cut_reorder::run,
    },
    Drill {
        name: "kill9_every_op",
        what: "what a SIGKILL at each operation on the disk leaves: every image keeps every promise",
        cycles_are: "images, about",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(800), budget_s: 35 }),
        canaries: &[
            "canary-delete-before-send",
            "canary-refuse-before-fence",
            "canary-split-batch",
        ],
        canary_form: Form::cycles(600),
        run: kill9_every_op::run,
    },
    Drill {
        name: "crash_loop",
        what: "a crash during recovery, and again during the next, five deep: every image of each keeps every promise, every node comes up",
        cycles_are: "chains of crashes",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(2), budget_s: 35 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: crash_loop::run,
    },
    Drill {
        name: "fsync_eio_nth",
        what: "EIO from the Nth fsync of a node's life, once or for a while: refused hooks stay refused, also after a power cut; it takes hooks again by itself",
        cycles_are: "trials, of every N and form without it",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(5), budget_s: 25 }),
        canaries: &[
            "canary-fence-unsynced",
            "canary-ignore-error",
            "canary-no-fence",
            "canary-no-reopen-after-eio",
        ],
        canary_form: Form::cycles(5),
        run: nth::run_fsync_eio,
    },
    Drill {
        name: "write_eio_nth",
        what: "EIO from the Nth write, create or rename, whole or in part: as fsync_eio_nth",
        cycles_are: "trials, of every N and form without it",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(5), budget_s: 20 }),
        canaries: &["canary-ignore-error"],
        canary_form: Form::cycles(4),
        run: nth::run_write_eio,
    },
    Drill {
        name: "read_eio_nth",
        what: "EIO from the Nth read, on a store with hooks in it: never taken for an absence",
        cycles_are: "trials, of every N and form without it",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(6), budget_s: 20 }),
        canaries: &["canary-miss-on-error"],
        canary_form: Form::cycles(8),
        run: nth::run_read_eio,
    },
    Drill {
        name: "full_nth",
        what: "a full disk at the Nth write: of anything, of the log, of MANIFEST, OPTIONS or CURRENT",
        cycles_are: "trials, of every N and form without it",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::cycles(6), budget_s: 40 }),
        canaries: &[],
        canary_form: Form::cycles(12),
        run: nth::run_full,
    },
    Drill {
        name: "crash_tree",
        what: "every child of the supervision tree panics under load: every caller is answered or closed, nothing acked is lost",
        cycles_are: "panics",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 15 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: crash_tree::run,
    },
    Drill {
        name: "drain",
        what: "SIGTERM under full load with slow sinks: no accepted request stays unanswered, exit 0, nothing acked is lost",
        cycles_are: "stops",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 25 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: drain::run,
    },
    Drill {
        name: "pause",
        what: "SIGSTOP and SIGCONT at random moments under load: nothing acked is lost, no false alarm",
        cycles_are: "pauses",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 20 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: pause::run,
    },
    Drill {
        name: "slow_disk",
        what: "fsyncs of 50 and 500 ms, and one that stalls: taken at the disk's pace, refused in the stall, no pile-up",
        cycles_are: "rounds",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 40 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: slow_disk::run,
    },
    Drill {
        name: "dead_disk",
        what: "EIO on every write for a while: refused meanwhile, taken again by itself, nothing lost, no ghosts",
        cycles_are: "faults",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 25 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: dead_disk::run,
    },
    Drill {
        name: "full_disk",
        what: "192 MiB filled under load and freed, a restart while full: refused meanwhile, taken again by itself, nothing lost",
        cycles_are: "rounds",
        needs: Needs::UserNamespace,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 40 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: full_disk::run,
    },
    Drill {
        name: "flip_store",
        what: "a flipped bit in every record header of log and manifest, and bits at random: refused, reported or harmless, never a row less",
        cycles_are: "random flips",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form { cycles: Some(100), ..Form::stride(9) }, budget_s: 40 }),
        canaries: &["canary-no-open-deadline", "canary-no-seal"],
        canary_form: Form { cycles: Some(20), ..Form::stride(9) },
        run: flip_store::run,
    },
    Drill {
        name: "bucket_faults",
        what: "a bucket refuses, throttles, resets, stays silent, cuts, drips, corrupts and loses its answers, in turn: hooks are taken as ever, each object is whole or not there, no call outlives its deadline, and all goes on once it is well",
        cycles_are: "rounds of all faults",
        needs: Needs::S3Server,
        ci: Some(Ci { form: Form::cycles(1), budget_s: 40 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: bucket_faults::run,
    },
    Drill {
        name: "clock",
        what: "the wall clock jumps back an hour, ahead two, ahead 30 days under load: no hook is stranded or lost",
        cycles_are: "rounds",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 15 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: clock::run,
    },
    Drill {
        name: "hostile",
        what: "five thousand connections that are silent, dribble heads or bodies, or fall silent: each is closed, nothing of theirs is stored, all good traffic is accepted, memory is bounded",
        cycles_are: "crowds",
        needs: Needs::Nothing,
        ci: None,
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: hostile::run,
    },
    Drill {
        name: "starve",
        what: "too few descriptors, files that may not grow, no memory, idle and slow crowds: refuses or sheds, keeps what it acked",
        cycles_are: "rounds",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 30 }),
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: starve::run,
    },
    Drill {
        name: "noisy_neighbour",
        what: "tenants flood for sinks that hang: another's hooks arrive about as fast as without them",
        cycles_are: "turns, each on a node of its own",
        needs: Needs::Nothing,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 15 }),
        canaries: &["canary-no-shares"],
        canary_form: Form::DEFAULT,
        run: noisy_neighbour::run,
    },
    Drill {
        name: "cut_fuse",
        what: "live power cuts under load, on a file system that forgets what was not fsynced: nothing acked is lost, no operator is needed",
        cycles_are: "cuts",
        needs: Needs::Fuse,
        ci: Some(Ci { form: Form::DEFAULT, budget_s: 20 }),
        canaries: &["canary-ack-before-sync"],
        canary_form: Form::cycles(60),
        run: cut_fuse::run,
    },
    Drill {
        name: "cut_ext4",
        what: "live power cuts under load on a real ext4, whose journal is replayed: nothing acked is lost, no operator is needed",
        cycles_are: "cuts",
        // And mkfs.xfs, which few machines have: on demand only.
        needs: Needs::RootAndLoop,
        ci: None,
        canaries: &[],
        canary_form: Form::DEFAULT,
        run: cut_ext4::run,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::canary;
    use crate::ci::LIMIT;

    #[test]
    fn the_budgets_of_ci_add_up_to_at_most_its_limit() {
        let budget_s: u64 = DRILLS.iter().filter_map(|drill| drill.ci).map(|ci| ci.budget_s).sum();
        assert!(budget_s <= LIMIT.as_secs(), "{budget_s} s of {LIMIT:?}");
    }

    #[test]
    fn every_canary_there_is_has_a_drill_that_must_catch_it() {
        let caught: BTreeSet<&str> =
            DRILLS.iter().flat_map(|drill| drill.canaries).copied().collect();
        assert_eq!(caught, canary::ALL.into_iter().map(|(name, _)| name).collect());
    }

    #[test]
    fn names_are_given_once() {
        let names: BTreeSet<&str> = DRILLS.iter().map(|drill| drill.name).collect();
        assert_eq!(names.len(), DRILLS.len());
    }
}
