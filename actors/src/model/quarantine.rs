//! A hook that did not verify and is kept: a summary to list it by, and the envelope as it would have been stored.
//!
//! Both rows are written and deleted together. No counter counts them: the summaries say how large the pen is.

use bytes::Bytes;

use super::batch::Batch;
use super::cf::Cf;
use super::etf::{EtfError, Reader, TermWriter};
use super::keys::{QuarantineKey, QuarantinePart};

/// Bytes of a foreign reason that are shown to a person.
const MAX_REASON_BYTES: usize = 1_024;

/// The summary of a held hook, without its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub id: String,
    pub source_id: String,
    /// `None` is the tenant `default`.
    pub tenant_id: Option<String>,
    /// Unix milliseconds.
    pub received_at_ms: u64,
    /// Why it did not verify. Written as an atom of this name.
    pub reason: &'static str,
}

/// A summary as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSummary {
    pub id: String,
    pub source_id: String,
    pub tenant_id: Option<String>,
    pub received_at_ms: u64,
    /// As a printed term, as in `:no_match`.
    pub reason: String,
    /// What the hook takes in the pen: see [`Summary::encode`].
    pub size: u64,
}

/// Which held hook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldKey {
    pub received_at_ms: u64,
    pub id: Vec<u8>,
}

impl HeldKey {
    pub fn of(&self, part: QuarantinePart) -> Vec<u8> {
        QuarantineKey { part, received_at_ms: self.received_at_ms, id: &self.id }.encode()
    }

    /// Deletes both rows.
    pub fn delete(&self, batch: &mut Batch) {
        batch.delete(Cf::Quarantine, &self.of(QuarantinePart::Summary));
        batch.delete(Cf::Quarantine, &self.of(QuarantinePart::Body));
    }

    /// Writes both rows.
    pub fn put(&self, summary: &[u8], envelope: Bytes, batch: &mut Batch) {
        batch.put(Cf::Quarantine, &self.of(QuarantinePart::Summary), summary);
        batch.put_shared(Cf::Quarantine, &self.of(QuarantinePart::Body), envelope);
    }
}

impl Summary {
    pub fn key(&self) -> HeldKey {
        HeldKey { received_at_ms: self.received_at_ms, id: self.id.as_bytes().to_vec() }
    }

    /// The stored summary of a hook whose envelope takes `envelope_bytes`, and its size: the bytes of the summary without
    /// it, and those of the envelope.
    pub fn encode(&self, envelope_bytes: usize) -> (Vec<u8>, u64) {
        let bare = self.write(None).len().saturating_add(envelope_bytes);
        let size = u64::try_from(bare).unwrap_or(u64::MAX);
        (self.write(Some(size)), size)
    }

    fn write(&self, size: Option<u64>) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        TermWriter::versioned(&mut out).map(5 + usize::from(size.is_some()), |map| {
            map.key("id").text(&self.id);
            map.key("reason").atom(self.reason);
            map.key("received_at").uint(self.received_at_ms);
            if let Some(size) = size {
                map.key("size").uint(size);
            }
            map.key("source_id").text(&self.source_id);
            map.key("tenant_id").optional_text(self.tenant_id.as_deref());
        });
        out
    }
}

impl StoredSummary {
    /// Reads a stored summary; keys this release does not know are dropped.
    ///
    /// # Errors
    /// Bytes that are no summary.
    pub fn decode(value: &[u8]) -> Result<Self, EtfError> {
        let (mut id, mut source_id, mut tenant_id) = (None, None, None);
        let (mut received_at_ms, mut reason, mut size) = (None, None, None);
        let mut reader = Reader::versioned(value)?;
        reader.map(|key, value| {
            match key.as_atom() {
                Some("id") => id = Some(value.text()?.to_owned()),
                Some("reason") => reason = Some(value.term()?.text(MAX_REASON_BYTES)),
                Some("received_at") => received_at_ms = Some(value.uint()?),
                Some("size") => size = Some(value.uint()?),
                Some("source_id") => source_id = Some(value.text()?.to_owned()),
                Some("tenant_id") => tenant_id = value.optional_text()?.map(str::to_owned),
                Some(_) | None => value.skip()?,
            }
            Ok::<_, EtfError>(())
        })?;
        reader.end()?;
        let missing = EtfError::MissingKey;
        Ok(Self {
            id: id.ok_or(missing("id"))?,
            source_id: source_id.ok_or(missing("source_id"))?,
            tenant_id,
            received_at_ms: received_at_ms.ok_or(missing("received_at"))?,
            reason: reason.ok_or(missing("reason"))?,
            size: size.ok_or(missing("size"))?,
        })
    }
}

/// Whether the size that a summary says is that of the rest of it and of an envelope of so many bytes.
pub fn says_its_size(value: &[u8], envelope_bytes: usize) -> bool {
    let Ok(summary) = StoredSummary::decode(value) else { return false };
    let mut field = Vec::new();
    let mut writer = TermWriter::bare(&mut field);
    writer.atom("size");
    writer.uint(summary.size);
    let bare = value.len().saturating_sub(field.len()).saturating_add(envelope_bytes);
    u64::try_from(bare) == Ok(summary.size)
}

/// What a summary row takes in the pen: what it says, or what can be seen of one that cannot be read.
pub fn size_of(value: &[u8]) -> u64 {
    let seen = u64::try_from(value.len()).unwrap_or(u64::MAX);
    StoredSummary::decode(value).map_or(seen, |summary| summary.size)
}

/// Which held hooks; the default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldFilter {
    pub source_id: Option<String>,
    pub id: Option<String>,
    /// Received then or later, in Unix milliseconds.
    pub since_ms: Option<u64>,
    /// Received then or earlier.
    pub until_ms: Option<u64>,
}

impl HeldFilter {
    pub fn takes(&self, summary: &StoredSummary) -> bool {
        let Self { source_id, id, since_ms, until_ms } = self;
        source_id.as_ref().is_none_or(|wanted| *wanted == summary.source_id)
            && id.as_ref().is_none_or(|wanted| *wanted == summary.id)
            && since_ms.is_none_or(|since| summary.received_at_ms >= since)
            && until_ms.is_none_or(|until| summary.received_at_ms <= until)
    }

    /// Whether it looks at no more than the time: then a summary that cannot be read is taken too.
    pub const fn is_by_time(&self) -> bool {
        self.source_id.is_none() && self.id.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::etf::Term;

    fn summary() -> Summary {
        Summary {
            id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
            source_id: "github".to_owned(),
            tenant_id: Some("acme".to_owned()),
            received_at_ms: 1_688_169_000_086,
            reason: "no_match",
        }
    }

    #[test]
    fn a_summary_comes_back_and_its_size_is_that_of_the_rest_and_the_envelope() {
        for tenant_id in [None, Some("acme".to_owned())] {
            let summary = Summary { tenant_id: tenant_id.clone(), ..summary() };
            let (stored, size) = summary.encode(1_000);
            assert_eq!(size, 1_000 + summary.write(None).len() as u64);
            let expected = StoredSummary {
                id: summary.id.clone(),
                source_id: "github".to_owned(),
                tenant_id,
                received_at_ms: 1_688_169_000_086,
                reason: ":no_match".to_owned(),
                size,
            };
            assert_eq!(StoredSummary::decode(&stored), Ok(expected));
            assert_eq!(size_of(&stored), size);
            assert!(says_its_size(&stored, 1_000) && !says_its_size(&stored, 999));
        }
    }

    #[test]
    fn the_reason_of_another_node_may_be_any_term_and_keys_come_in_any_order() {
        let mut stored = Vec::new();
        TermWriter::versioned(&mut stored).map(7, |map| {
            map.key("id").text("x");
            map.key("more").nil();
            map.key("reason").list([1, 2].into_iter(), |writer, n| writer.int(n));
            map.key("received_at").uint(7);
            map.key("size").uint(9);
            map.key("source_id").text("s");
            map.key("tenant_id").nil();
        });
        let read = StoredSummary::decode(&stored).unwrap();
        assert_eq!((read.reason.as_str(), read.size, read.tenant_id), ("[1, 2]", 9, None));
    }

    #[test]
    fn damage_is_an_error_and_still_takes_room() {
        let (stored, _) = summary().encode(0);
        for cut in 0..stored.len() {
            assert!(StoredSummary::decode(&stored[..cut]).is_err(), "{cut}");
        }
        assert_eq!(size_of(b"rot"), 3);
        assert!(Term::decode(&stored).is_ok());
    }

    #[test]
    fn a_filter_takes_what_all_of_it_says() {
        let stored = StoredSummary::decode(&summary().encode(0).0).unwrap();
        let at = stored.received_at_ms;
        let all = HeldFilter::default;
        let table = [
            (all(), true),
            (HeldFilter { source_id: Some("github".to_owned()), ..all() }, true),
            (HeldFilter { source_id: Some("stripe".to_owned()), ..all() }, false),
            (HeldFilter { id: Some(stored.id.clone()), ..all() }, true),
            (HeldFilter { id: Some("other".to_owned()), ..all() }, false),
            (HeldFilter { since_ms: Some(at), until_ms: Some(at), ..all() }, true),
            (HeldFilter { since_ms: Some(at + 1), ..all() }, false),
            (HeldFilter { until_ms: Some(at - 1), ..all() }, false),
        ];
        for (filter, takes) in table {
            assert_eq!(filter.takes(&stored), takes, "{filter:?}");
        }
        assert!(all().is_by_time());
    }
}
