//! Why a store cannot be made of what the configuration says.

/// One mistake, at a key below the section of the adapter, such as `sse.key_id`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {text}")]
pub struct BlobSpecError {
    pub key: String,
    pub text: String,
}

impl BlobSpecError {
    pub fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { key: key.into(), text: text.into() }
    }
}
