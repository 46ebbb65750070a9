//! `ctl hooks`: the stored hooks in seq order, without their bodies ("Ankusa.Store and Ankusa.Queue": there is no cursor
//! per reader, a caller passes the last seq it saw).

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Admin, AdminError};
use crate::model::cf::Cf;
use crate::model::envelope::Envelope;
use crate::model::ids::Seq;
use crate::model::keys::{HookKey, is_sentinel};
use crate::ports::{Direction, Scan};

/// Most hooks answered at once.
const MAX_HOOKS: usize = 1_000;

/// Bytes of hook values read for one answer.
const MAX_BYTES: usize = 64 << 20;

impl Admin {
    /// Hooks with a seq above `after`, ascending, at most `limit` (clamped to [`MAX_HOOKS`]), and none past the synced
    /// mark: nobody outside sees a hook that a power cut could still take back.
    ///
    /// # Errors
    /// A value that does not decode is `corrupt_value`, never a shorter list.
    pub async fn hooks(&self, after: Seq, limit: usize) -> Result<Value, AdminError> {
        let synced = self.handles.mark.get();
        let scan = Scan {
            cf: Cf::Hooks,
            range: HookKey::between(after.plus(1), synced.plus(1)),
            direction: Direction::Forward,
            max_rows: limit.clamp(1, MAX_HOOKS),
            max_bytes: MAX_BYTES,
        };
        let page = self.handles.store.scan(scan).await?;
        let rows =
            page.pairs.into_iter().filter(|(key, value)| !is_sentinel(Cf::Hooks, key, value));
        let hooks: Result<Vec<_>, _> = rows.map(|(key, value)| hook(&key, value)).collect();
        Ok(json!({"hooks": hooks?, "more": page.more}))
    }
}

fn hook(key: &[u8], value: Vec<u8>) -> Result<Value, AdminError> {
    let corrupt = |reason: String| AdminError::CorruptValue {
        family: Cf::Hooks.name(),
        key: super::dump::hex(key),
        reason,
    };
    let HookKey(seq) = HookKey::decode(key).ok_or_else(|| corrupt("not a key".to_owned()))?;
    let envelope = Envelope::decode_shared(&Bytes::from(value))
        .map_err(|error| corrupt(error.as_str().to_owned()))?;
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(json!({
        "seq": seq.0,
        "id": envelope.id.as_str(),
        "source_id": envelope.source_id,
        "tenant_id": envelope.tenant(),
        "received_at": envelope.received_at_ms,
        "method": envelope.method,
        "path": envelope.path,
        "content_type": envelope.content_type.as_ref().map(text),
        "size": envelope.body.len(),
    }))
}
