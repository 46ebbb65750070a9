//! The rules that can be broken on purpose, and whether this build breaks one.

/// Every canary: its feature, and whether this build carries it.
pub const ALL: [(&str, bool); 17] = [
    ("canary-ack-before-apply", cfg!(feature = "canary-ack-before-apply")),
    ("canary-ack-before-sync", cfg!(feature = "canary-ack-before-sync")),
    ("canary-dedupe-unchecked", cfg!(feature = "canary-dedupe-unchecked")),
    ("canary-delete-before-send", cfg!(feature = "canary-delete-before-send")),
    ("canary-fence-unsynced", cfg!(feature = "canary-fence-unsynced")),
    ("canary-held-unsynced", cfg!(feature = "canary-held-unsynced")),
    ("canary-ignore-error", cfg!(feature = "canary-ignore-error")),
    ("canary-lane-skips-head", cfg!(feature = "canary-lane-skips-head")),
    ("canary-miss-on-error", cfg!(feature = "canary-miss-on-error")),
    ("canary-no-dir-fsync", cfg!(feature = "canary-no-dir-fsync")),
    ("canary-no-fence", cfg!(feature = "canary-no-fence")),
    ("canary-no-open-deadline", cfg!(feature = "canary-no-open-deadline")),
    ("canary-no-reopen-after-eio", cfg!(feature = "canary-no-reopen-after-eio")),
    ("canary-no-seal", cfg!(feature = "canary-no-seal")),
    ("canary-no-shares", cfg!(feature = "canary-no-shares")),
    ("canary-refuse-before-fence", cfg!(feature = "canary-refuse-before-fence")),
    ("canary-split-batch", cfg!(feature = "canary-split-batch")),
];

/// The canaries this build carries. None, but for a build that is to be caught.
#[must_use]
pub fn carried() -> Vec<&'static str> {
    ALL.into_iter().filter(|(_, carried)| *carried).map(|(name, _)| name).collect()
}
