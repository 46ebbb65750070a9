//! The column families of the one database ("Ankusa.Store and Ankusa.Queue").

/// A column family. The order is the order of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cf {
    /// The next-seq marker, the format stamp and other single facts.
    Default,
    /// Each committed hook, keyed by its seq.
    Hooks,
    /// One delivery row per hook and sink.
    Deliveries,
    /// Due, claimed and dead rows, active-tenant markers, archive obligations, cleared markers, dedupe keys.
    Index,
    /// The segment catalogue.
    Archive,
    /// The quarantine pen.
    Quarantine,
    /// The audit trail.
    Audit,
    /// Tenant ordinal to tenant id and back.
    Tenants,
    /// Per-tenant queue counters, written only as merge operands.
    Counters,
}

impl Cf {
    pub const ALL: [Self; 9] = [
        Self::Default,
        Self::Hooks,
        Self::Deliveries,
        Self::Index,
        Self::Archive,
        Self::Quarantine,
        Self::Audit,
        Self::Tenants,
        Self::Counters,
    ];

    /// The name RocksDB knows it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Hooks => "hooks",
            Self::Deliveries => "deliveries",
            Self::Index => "index",
            Self::Archive => "archive",
            Self::Quarantine => "quarantine",
            Self::Audit => "audit",
            Self::Tenants => "tenants",
            Self::Counters => "counters",
        }
    }

    /// Its place in [`Cf::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}
