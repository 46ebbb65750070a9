//! The rules that can be broken on purpose, and whether this build breaks one.

/// Every canary: its feature, and whether this build carries it.
pub const ALL: [(&str, bool); 4] = [
    ("canary-ack-before-apply", cfg!(feature = "canary-ack-before-apply")),
    ("canary-ack-before-sync", cfg!(feature = "canary-ack-before-sync")),
    ("canary-no-open-deadline", cfg!(feature = "canary-no-open-deadline")),
    ("canary-no-seal", cfg!(feature = "canary-no-seal")),
];

/// The canaries this build carries. None, but for a build that is to be caught.
#[must_use]
pub fn carried() -> Vec<&'static str> {
    ALL.into_iter().filter(|(_, carried)| *carried).map(|(name, _)| name).collect()
}
