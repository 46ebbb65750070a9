//! Why a store call failed, in the documented eight words ("Durability, corruption, full disk").

/// The closed set that `/ready`, the metrics and the logs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// ENOSPC or EDQUOT.
    NoSpace,
    IoError,
    ReadOnly,
    Corruption,
    Busy,
    Timeout,
    /// The database is closed: reopening, restoring, or between incarnations.
    NotRunning,
    Other,
}

impl FailureClass {
    pub const ALL: [Self; 8] = [
        Self::NoSpace,
        Self::IoError,
        Self::ReadOnly,
        Self::Corruption,
        Self::Busy,
        Self::Timeout,
        Self::NotRunning,
        Self::Other,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSpace => "no_space",
            Self::IoError => "io_error",
            Self::ReadOnly => "read_only",
            Self::Corruption => "corruption",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::NotRunning => "not_running",
            Self::Other => "other",
        }
    }
}
