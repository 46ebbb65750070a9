//! Rows as a disk may hold them: read or refused, and what is read is written as something that is read as the same.
#![no_main]

use ankusa_actors::model::counters;
use ankusa_actors::model::delivery::DeliveryRow;
use ankusa_actors::model::envelope::{Envelope, VerificationTerm};
use ankusa_actors::model::keys::{
    ActiveKey, ArchiveKey, ClaimedKey, CounterKey, DeadByTenantKey, DeadKey, DedupeKey,
    DeliveryKey, DueKey, ExpiryKey, HookKey, LaneHeadKey, LaneMarkerKey, LaneMemberKey,
    QuarantineKey, TenantKey, TenantNameKey,
};
use ankusa_actors::model::value_version::ValueVersion;
use libfuzzer_sys::fuzz_target;

const VERSIONS: [ValueVersion; 2] = [ValueVersion::V0, ValueVersion::V1];

/// A key that is read is the only one that is written for it.
macro_rules! exact {
    ($bytes:expr, $($key:ident),+) => {$(
        if let Some(key) = $key::decode($bytes) {
            assert_eq!(&key.encode()[..], $bytes, stringify!($key));
        }
    )+};
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => {
            if let Ok(envelope) = Envelope::decode(bytes) {
                for version in VERSIONS {
                    let written = envelope.encode(version);
                    assert_eq!(Envelope::decode(&written).as_ref(), Ok(&envelope));
                }
            }
        }
        1 => {
            if let Ok(row) = DeliveryRow::decode(bytes) {
                for version in VERSIONS {
                    let written = row.encode(version);
                    assert_eq!(DeliveryRow::decode(&written).as_ref(), Ok(&row));
                }
            }
        }
        2 => {
            if let Ok(term) = VerificationTerm::decode(bytes) {
                assert_eq!(VerificationTerm::decode(&term.encode()).as_ref(), Ok(&term));
            }
        }
        3 => {
            let _ = counters::read(bytes);
        }
        _ => {
            exact!(
                bytes,
                ActiveKey,
                ArchiveKey,
                ClaimedKey,
                CounterKey,
                DeadByTenantKey,
                DeadKey,
                DedupeKey,
                DeliveryKey,
                DueKey,
                ExpiryKey,
                HookKey,
                LaneHeadKey,
                LaneMarkerKey,
                LaneMemberKey,
                QuarantineKey,
                TenantKey,
                TenantNameKey
            );
        }
    }
});
