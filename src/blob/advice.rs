//! What an operator does about an error of a store, in a sentence.

use ankusa_actors::ports::BlobError;

/// The sentence. It stands behind the error, which says what happened.
pub const fn what_to_do(error: &BlobError) -> &'static str {
    match error {
        BlobError::NotFound => {
            "there is no such object; `ankusa ctl blob ls` shows those there are"
        }
        BlobError::AlreadyExists => {
            "another object has this key and was left as it is; take another key, or replace it by putting it without \
             if_absent"
        }
        BlobError::Integrity(_) => {
            "the bytes are not those that were sent; what was to be written can be written again, what was read is not to \
             be trusted"
        }
        BlobError::Throttled { .. } => {
            "the store wants to be left alone; try again after the time it names"
        }
        BlobError::Deadline => {
            "the store did not answer in time; try again, and if that goes on look at how slow it is or raise \
             op_deadline_ms"
        }
        BlobError::BreakerOpen => {
            "nothing was sent, because the store failed too often a moment ago; the log says how, and after \
             breaker_open_ms it is tried again"
        }
        BlobError::Forbidden(_) => {
            "check the credentials, or the owner of the folder, and what they allow: writing, reading, listing and deleting \
             objects are all needed"
        }
        BlobError::ClockSkew { .. } => "set this host's clock",
        BlobError::WrongRegion { .. } => "set region to the one that is named",
        BlobError::Misconfigured(_) => {
            "check the name of the bucket or folder, the endpoint and the region"
        }
        BlobError::Transport(_) => {
            "the store could not be reached or failed, a local one its disk; look at endpoint, network or disk and try \
             again"
        }
    }
}
