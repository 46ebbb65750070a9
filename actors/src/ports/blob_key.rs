//! The name of an object, held to what every store and every file system takes.

use std::fmt;

/// The longest key, in bytes: S3's, GCS's and OCI's bound.
pub const BLOB_KEY_MAX_BYTES: usize = 1_024;

/// The longest part between two slashes, in bytes: what a file name may be, with room for the suffix of an unfinished
/// write.
pub const BLOB_KEY_PART_MAX_BYTES: usize = 230;

/// What the file of a write that is not finished ends with, before a number: no key does.
const UNFINISHED: &str = ".tmp.";

/// A full key: parts joined by `/`, each of them a name a file could have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobKey(String);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobKeyError {
    #[error("a key is 1 to {BLOB_KEY_MAX_BYTES} bytes long")]
    Length,
    #[error("a part of a key is at most {BLOB_KEY_PART_MAX_BYTES} bytes long")]
    PartLength,
    #[error("no part of a key is empty, '.' or '..', and a key begins and ends with no '/'")]
    Part,
    #[error("a key holds no control characters")]
    Control,
    #[error("keys that end with {UNFINISHED}<number> are unfinished writes")]
    Unfinished,
}

impl BlobKey {
    /// # Errors
    /// The text is none.
    pub fn new(key: impl Into<String>) -> Result<Self, BlobKeyError> {
        let key = key.into();
        if key.is_empty() || key.len() > BLOB_KEY_MAX_BYTES {
            return Err(BlobKeyError::Length);
        }
        if key.chars().any(char::is_control) {
            return Err(BlobKeyError::Control);
        }
        for part in key.split('/') {
            if matches!(part, "" | "." | "..") {
                return Err(BlobKeyError::Part);
            }
            if part.len() > BLOB_KEY_PART_MAX_BYTES {
                return Err(BlobKeyError::PartLength);
            }
        }
        // A part of it, too: it would be a folder that is swept.
        if key.split('/').any(is_unfinished) {
            return Err(BlobKeyError::Unfinished);
        }
        Ok(Self(key))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands between the slashes.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a file of this name is what a write left behind that did not end.
pub fn is_unfinished(name: &str) -> bool {
    name.rsplit_once(UNFINISHED)
        .is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_key_is_what_every_store_and_file_system_takes() {
        let odd = "archive/v1/dt=2026-11-30/näh + %2F &<>\"'#?:\\*~/seg-1.seg";
        for key in ["a", "a/b", "a.tmp", "a.tmp.", "a.tmp.x1", "..a", "a..", "...", odd] {
            assert_eq!(BlobKey::new(key).unwrap().as_str(), key);
        }
        let long = "k".repeat(BLOB_KEY_PART_MAX_BYTES + 1);
        let deep = "d/".repeat(BLOB_KEY_MAX_BYTES / 2) + "x";
        let wrong = [
            ("", BlobKeyError::Length),
            (&deep, BlobKeyError::Length),
            (&long, BlobKeyError::PartLength),
            ("/a", BlobKeyError::Part),
            ("a/", BlobKeyError::Part),
            ("a//b", BlobKeyError::Part),
            ("a/../b", BlobKeyError::Part),
            ("..", BlobKeyError::Part),
            ("./a", BlobKeyError::Part),
            ("a\0b", BlobKeyError::Control),
            ("a\nb", BlobKeyError::Control),
            ("a\u{85}", BlobKeyError::Control),
            ("a/b.tmp.17", BlobKeyError::Unfinished),
            ("a.tmp.0/b", BlobKeyError::Unfinished),
        ];
        for (key, why) in wrong {
            assert_eq!(BlobKey::new(key), Err(why), "{key:?}");
        }
    }
}
