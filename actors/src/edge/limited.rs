//! What ingest asks of the limits and of the quarantine pen.

use std::net::IpAddr;

use bytes::Bytes;

use super::answer::Answer;
use super::ingest::{Decided, Ingest, RequestHead};
use super::limits::Sender;
use super::pen::{PenRefusal, Promise};
use crate::model::client_ip::client_ip;
use crate::model::envelope::{Envelope, VerificationTerm};
use crate::model::ids::DEFAULT_TENANT;
use crate::model::source::OnVerifyFailure;
use crate::model::verify::Reason;
use crate::ports::{Event, IngestOutcome};
use crate::queue::CommitAnswer;
use crate::sources::Source;

impl Ingest {
    /// Charges a hook that has verified to all it is limited by.
    pub(super) fn charge(
        &self,
        source: &Source,
        tenant_id: Option<&str>,
        head: &RequestHead,
        bytes: usize,
    ) -> Result<(), Decided> {
        let tenant = tenant_id.unwrap_or(DEFAULT_TENANT);
        let client = if self.limits.limits_clients() { self.client(head) } else { None };
        let sender = Sender { tenant, source_id: &source.id, source: source.rate_limit, client };
        self.limits.charge(sender, bytes).map_err(|retry_after_s| {
            self.events.emit(&Event::RateLimited { tenant_id: tenant });
            (IngestOutcome::RateLimited, Answer::rate_limited(retry_after_s))
        })
    }

    /// Whose request it is. Where trusted proxies leave that unclear, whoever passed it on is charged.
    fn client(&self, head: &RequestHead) -> Option<IpAddr> {
        let is_forwarded = |name: &Bytes| name.eq_ignore_ascii_case(b"x-forwarded-for");
        let forwarded: Vec<&Bytes> = head
            .headers
            .iter()
            .filter(|(name, _)| is_forwarded(name))
            .map(|(_, value)| value)
            .collect();
        let remote = head.remote?;
        Some(client_ip(remote, &forwarded, &self.config.trusted_proxies).unwrap_or(remote))
    }

    /// What becomes of a hook that did not verify: a refusal, or a place among those of its source that are held or
    /// flagged. It uses up nobody's limits.
    pub(super) fn unverified(
        &self,
        source: &Source,
        reason: Reason,
    ) -> Result<(VerificationTerm, Promise), Decided> {
        let mut verification = source.verifier.verification(Err(reason));
        self.events.emit(&Event::VerifyFailed {
            source_id: &source.id,
            provider: verification.provider.as_deref().unwrap_or("none"),
            scheme: verification.scheme.as_deref().unwrap_or("none"),
        });
        match source.on_verify_failure {
            OnVerifyFailure::Reject => {
                let answer = Answer::verification_failed(reason.as_term_text());
                return Err((IngestOutcome::Rejected, answer));
            }
            OnVerifyFailure::Quarantine => {}
            OnVerifyFailure::AcceptFlag => verification.flagged = true,
        }
        let place = self.quarantine.promise(&source.id).map_err(|retry_after_s| {
            let answer = Answer::quarantine_rate_limited(retry_after_s);
            (IngestOutcome::QuarantineRateLimited, answer)
        })?;
        Ok((verification, place))
    }

    /// Puts a hook into the pen and waits until it is there for good.
    pub(super) async fn hold(
        &self,
        envelope: &Envelope,
        reason: Reason,
        place: Promise,
    ) -> Decided {
        let answer = match self.quarantine.submit(envelope, reason.as_str(), place) {
            Ok((waiting, deadline)) => waiting.answer(deadline).await,
            Err(PenRefusal::Full) => {
                return (IngestOutcome::QuarantineFull, Answer::quarantine_full());
            }
            Err(PenRefusal::Unavailable(refusal)) => CommitAnswer::Refused(refusal),
        };
        match answer {
            // Nothing in the pen is a duplicate of anything.
            CommitAnswer::Committed(_) | CommitAnswer::Duplicate(_) => {
                (IngestOutcome::Quarantined, Answer::quarantined(reason.as_term_text()))
            }
            CommitAnswer::Refused(refusal) => self.refused(refusal),
            CommitAnswer::Unknown => (IngestOutcome::Unknown, Answer::CloseUnanswered),
        }
    }
}
