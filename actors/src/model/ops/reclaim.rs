//! The archive's obligations, and the end of a hook ("Reclamation: a hook is deleted by its obligations").
//!
//! Whoever clears an obligation puts a marker in the same batch and then looks: no row of the seq and no archive
//! obligation means the hook goes, in one batch with its markers; else only the markers go.

use super::Ops;
use crate::model::cf::Cf;
use crate::model::counters::Field;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{ArchiveKey, ClaimRefKey, ClearedKey, HookKey};

impl Ops {
    /// The hook is in a segment.
    pub fn clear_archive(&mut self, seq: Seq, tenant: TenantOrd) -> ClearedKey {
        self.drop_archive(seq, tenant);
        let cleared = ClearedKey::archive(seq);
        self.batch.put(Cf::Index, &cleared.encode(), &[]);
        cleared
    }

    /// An obligation that cannot be met: its hook does not exist, or cannot be read. No marker, so a hook that cannot be
    /// read stays for somebody to look at.
    pub fn drop_archive(&mut self, seq: Seq, tenant: TenantOrd) {
        self.batch.delete(Cf::Index, &ArchiveKey(seq).encode());
        self.count(tenant, &[(Field::ArchivePending, -1)]);
    }

    /// The hook owes nothing any more: it goes, with its markers and its claim-check reference.
    pub fn reclaim(
        &mut self,
        seq: Seq,
        cleared: impl IntoIterator<Item = ClearedKey>,
        has_claim_ref: bool,
    ) {
        self.batch.delete(Cf::Hooks, &HookKey(seq).encode());
        if has_claim_ref {
            self.batch.delete(Cf::Index, &ClaimRefKey(seq).encode());
        }
        for marker in cleared {
            self.unmark_cleared(marker);
        }
    }

    /// The hook still owes something: the marker goes, and the next obligation to clear brings another.
    pub fn unmark_cleared(&mut self, marker: ClearedKey) {
        self.batch.delete(Cf::Index, &marker.encode());
    }
}
