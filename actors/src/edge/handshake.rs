//! Handshakes at the edge: what a provider asks before it sends hooks, answered without a store.

use tokio::time::Instant;

use super::answer::Answer;
use super::ingest::{Ingest, RequestHead};
use crate::model::handshake::{HandshakeRefusal, Reply};
use crate::model::verify::Reason;
use crate::ports::{Event, IngestOutcome, RefusedReason};
use crate::sources::Source;

impl Ingest {
    /// Answers a GET of a catch URL: only of a source whose provider asks that way, any other is not found.
    pub fn get(&self, head: &RequestHead) -> Answer {
        let started = Instant::now();
        if let Err(denied) = self.guard(head) {
            return denied;
        }
        let Some((url_tenant, source_id)) = self.resolve(&head.path) else {
            return Answer::not_found();
        };
        let source = match self.source(source_id) {
            Ok(source) => source,
            Err((RefusedReason::StoreUnavailable, unavailable)) => return unavailable,
            Err((_, _)) => return Answer::not_found(),
        };
        let reached = source.tenant_of(url_tenant).is_some();
        match &source.answers.handshake {
            Some(handshake) if reached && handshake.answers_get() => {
                self.shaken(&source, handshake.on_get(head.query.as_deref()), started)
            }
            Some(_) | None => Answer::not_found(),
        }
    }

    /// Answers a POST that is a handshake by its query; none if it is a hook.
    pub(super) fn post_handshake(
        &self,
        source: &Source,
        head: &RequestHead,
        started: Instant,
    ) -> Option<Answer> {
        let answered = source.answers.handshake.as_ref()?.on_post(head.query.as_deref())?;
        Some(self.shaken(source, answered, started))
    }

    fn shaken(
        &self,
        source: &Source,
        answered: Result<Reply, HandshakeRefusal>,
        started: Instant,
    ) -> Answer {
        let outcome = match answered {
            Ok(_) => IngestOutcome::Handshake,
            Err(_) => IngestOutcome::Rejected,
        };
        let took = started.elapsed();
        self.events.emit(&Event::IngestAnswered { source_id: &source.id, outcome, took });
        Answer::handshake(answered)
    }
}

/// Whether the signature of a hook proves anything, though the source signs what it is asked to.
pub(super) fn is_no_forgery(source: &Source, body: &[u8]) -> Result<(), Reason> {
    let handshake = source.answers.handshake.as_ref();
    let may_be_one = handshake.is_some_and(|handshake| handshake.may_have_signed(body));
    if may_be_one { Err(Reason::NoMatch) } else { Ok(()) }
}

/// What the provider hears of a hook that was taken: what its source was told to say, if it was.
pub(super) fn in_its_words(source: &Source, outcome: IngestOutcome, answer: Answer) -> Answer {
    // A hook that was stored before is as good as one that was stored now.
    let is_taken = matches!(outcome, IngestOutcome::Committed | IngestOutcome::Duplicate);
    match &source.answers.response {
        Some(response) if is_taken => Answer::said(response),
        Some(_) | None => answer,
    }
}

/// Answers a hook that has verified and is a handshake.
pub(super) fn of_hook(source: &Source, body: &[u8]) -> Option<Answer> {
    let reply = source.answers.handshake.as_ref()?.on_verified(body)?;
    Some(Answer::handshake(Ok(reply)))
}
