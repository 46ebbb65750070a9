//! A file as the bytes of an object: read in the pieces it is sent in, and again when it is sent again.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ankusa_actors::ports::{BlobError, BlobSource};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::spawn_blocking;

/// The first bytes of a file that nobody changes any more.
pub struct FileSource {
    file: Arc<File>,
    bytes: u64,
}

impl FileSource {
    /// Those that are in it now.
    ///
    /// # Errors
    /// The file system cannot say how many.
    pub fn new(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), bytes })
    }
}

#[async_trait]
impl BlobSource for FileSource {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        let file = Arc::clone(&self.file);
        let failed = |why: String| BlobError::Transport(format!("the file to be sent: {why}"));
        let read = spawn_blocking(move || {
            let length = usize::try_from(range.end.saturating_sub(range.start));
            let mut bytes = vec![0; length.map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, range.start).map(|()| Bytes::from(bytes))
        });
        let read = read.await.map_err(|ended| failed(ended.to_string()))?;
        read.map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn a_file_is_read_in_pieces_and_one_that_shrank_is_no_object() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), b"0123456789").unwrap();
        let source = FileSource::new(File::open(path.path()).unwrap()).unwrap();
        assert_eq!(source.bytes(), 10);
        assert_eq!(source.read(3..6).await.unwrap(), "345");
        assert_eq!(source.read(0..10).await.unwrap(), "0123456789");
        std::fs::write(path.path(), b"0123").unwrap();
        let why = "the file to be sent: failed to fill whole buffer";
        assert_eq!(source.read(3..6).await, Err(BlobError::Transport(why.to_owned())));
    }
}
