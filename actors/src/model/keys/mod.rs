//! Every key of store format 8, and the values of fixed width beside it. A key is a struct; its bytes exist only
//! between here and the database.
//!
//! 1. Integers are big-endian and unsigned, so byte order is field order: that must remain like this.
//! 2. A key of fixed width encodes into an array and never allocates; its width is asserted when this compiles.
//! 3. A tag once given is never reused.
//! 4. A decoder answers `None` for any other width or tag, and never panics.

use std::ops::Range;

mod dead;
mod dedupe;
mod default;
mod deliveries;
mod held;
mod lanes;
mod obligations;
mod raw;
mod sentinel;
mod tenants;

pub use dead::{DeadByTenantKey, DeadKey, DeadValue};
pub use dedupe::{DedupeKey, DedupeValue, ExpiryKey, Held};
pub use default::{
    META_AUDIT_KEY, META_AUDIT_SEQ, META_FORMAT_VERSION, META_INCARNATION, META_LIFECYCLE_CURSOR,
    META_MIGRATION, META_NEXT_ORD, META_NEXT_SEQ, META_READY_PROBE, META_ROUTE_RULES,
    META_STORE_ID, META_SYNCED_THROUGH, RateLimitKey, ReplayKey, RouteKey, SourceKey,
    SourceRevisionKey, erase_progress_key, erased_key, imported_key, read_tolerant, read_u64,
    u32_value, u64_value,
};
pub use deliveries::{
    ActiveKey, ClaimedKey, DeliveryKey, DueKey, DueKind, DueValue, HookKey, SizeValue,
};
pub use held::{AuditKey, AuditPendingKey, QuarantineKey, QuarantinePart};
pub use lanes::{LaneHeadKey, LaneHeadValue, LaneKey, LaneMarkerKey, LaneMemberKey};
pub use obligations::{
    ArchiveKey, ArchiveValue, ClaimRefKey, ClearedKey, ClearedKind, LeaseKey, LegacyLocationKey,
    SegmentKey,
};
pub use sentinel::is_sentinel;
pub use tenants::{CounterKey, TenantKey, TenantNameKey};

/// Every key that starts with `prefix`, which is followed by at most `width` bytes.
fn starting_with(prefix: &[u8], width: usize) -> Range<Vec<u8>> {
    prefix.to_vec()..after_all(prefix, width)
}

/// The smallest key that is above everything starting with `prefix`.
fn after_all(prefix: &[u8], width: usize) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    // Only FFs: one byte more than the longest key is above them all.
    vec![0xff; prefix.len() + width + 1]
}

#[cfg(test)]
mod tests;
