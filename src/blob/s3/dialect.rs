//! S3's language, as the transport needs to know it.

use std::sync::Arc;

use ankusa_actors::ports::{BlobError, Clock};
use async_trait::async_trait;
use http::StatusCode;
use reqwest::Request;
use tokio::time::Instant;

use super::credentials::Chain;
use super::refusal::{
    is_conflict, is_cut_short, is_expiry, is_throttle, parse_error, refusal, status_of,
};
use super::signing::sign;
use crate::blob::answer::{Answer, Refusal};
use crate::blob::transport::Dialect;
use crate::blob::xml::elements;

pub(super) struct S3Dialect {
    pub(super) region: String,
    pub(super) credentials: Chain,
    pub(super) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Dialect for S3Dialect {
    async fn authorize(&self, request: &mut Request, deadline: Instant) -> Result<(), BlobError> {
        let keys = self.credentials.get(deadline).await?;
        // The date comes last: waiting for credentials may have taken a while.
        sign(request, &keys, &self.region, self.clock.now_ms())
    }

    fn refusal(&self, answer: &Answer) -> Refusal {
        refusal(answer, &self.region)
    }

    async fn drops_credentials(&self, answer: &Answer, refusal: &Refusal) -> bool {
        let have_run_out = answer.status == StatusCode::UNAUTHORIZED || is_expiry(refusal);
        have_run_out && self.credentials.forget().await
    }

    fn is_throttle(&self, refusal: &Refusal) -> bool {
        is_throttle(refusal)
    }

    fn passes(&self, status: StatusCode, refusal: &Refusal) -> bool {
        is_conflict(status, refusal) || is_cut_short(status, refusal)
    }
}

/// The same for the end of an upload in parts, which answers 200 before it knows, and after a conflict of which the parts
/// are to be sent anew.
pub(super) struct Completing<'a>(pub(super) &'a S3Dialect);

#[async_trait]
impl Dialect for Completing<'_> {
    async fn authorize(&self, request: &mut Request, deadline: Instant) -> Result<(), BlobError> {
        self.0.authorize(request, deadline).await
    }

    fn status(&self, answer: &Answer) -> StatusCode {
        completion_status(answer)
    }

    fn refusal(&self, answer: &Answer) -> Refusal {
        self.0.refusal(answer)
    }

    async fn drops_credentials(&self, answer: &Answer, refusal: &Refusal) -> bool {
        self.0.drops_credentials(answer, refusal).await
    }

    fn is_throttle(&self, refusal: &Refusal) -> bool {
        self.0.is_throttle(refusal)
    }

    fn passes(&self, status: StatusCode, refusal: &Refusal) -> bool {
        is_cut_short(status, refusal)
    }
}

/// The status that the answer to the end of an upload stands for.
pub fn completion_status(answer: &Answer) -> StatusCode {
    if !answer.status.is_success() || is_completion(&answer.body) {
        return answer.status;
    }
    match parse_error(&answer.body).code.as_str() {
        // Neither the one nor the other: it stopped before it had said.
        "" => StatusCode::INTERNAL_SERVER_ERROR,
        code => status_of(code),
    }
}

fn is_completion(xml: &[u8]) -> bool {
    let mut is_completion = false;
    let whole = elements(xml, |path, _| is_completion = path == ["CompleteMultipartUploadResult"]);
    whole.is_ok() && is_completion
}
