//! Takes in a body of any size: a small one stays in memory, a larger one lies in a file without a name until it has been
//! sent on, so that neither memory nor a crash keeps it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ankusa_actors::ports::BlobBody;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use rustix::fs::statvfs;
use tokio::io::AsyncWriteExt;

use crate::blob::file_source::FileSource;

/// More is not kept in memory, in bytes.
const IN_MEMORY_MAX_BYTES: usize = 8 << 20;

/// How much is written between two looks at the disk, in bytes.
const BETWEEN_LOOKS_BYTES: u64 = 8 << 20;

/// Where such files are, and what must stay free there.
#[derive(Clone, Debug)]
pub struct Spool {
    pub folder: PathBuf,
    /// What hooks need: a body that would leave less free is refused, in bytes.
    pub leave_bytes: u64,
}

/// Why a body could not be taken in.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// It did not come to its end.
    Broken(String),
    /// The disk has no room for it.
    NoRoom,
    Disk(io::Error),
}

impl Spool {
    /// Reads `body` to its end. It is read to its end, too, when it cannot be taken: whoever sends it listens only then.
    pub(super) async fn take(&self, mut body: Body) -> Result<BlobBody, NotTaken> {
        let taken = self.taken(&mut body).await;
        if matches!(taken, Err(NotTaken::NoRoom | NotTaken::Disk(_))) {
            while let Some(Ok(_)) = body.frame().await {}
        }
        taken
    }

    async fn taken(&self, body: &mut Body) -> Result<BlobBody, NotTaken> {
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut bytes = 0;
        while let Some(data) = next(body).await? {
            bytes += data.len();
            pieces.push(data);
            if bytes > IN_MEMORY_MAX_BYTES {
                return self.in_a_file(pieces, body).await;
            }
        }
        Ok(BlobBody::of_pieces(pieces))
    }

    async fn in_a_file(&self, first: Vec<Bytes>, body: &mut Body) -> Result<BlobBody, NotTaken> {
        self.look()?;
        let file = nameless(&self.folder).map_err(NotTaken::Disk)?;
        let mut file = tokio::fs::File::from_std(file);
        let mut since = 0;
        for data in first {
            file.write_all(&data).await.map_err(NotTaken::Disk)?;
        }
        while let Some(data) = next(body).await? {
            file.write_all(&data).await.map_err(NotTaken::Disk)?;
            since += u64::try_from(data.len()).unwrap_or(u64::MAX);
            if since >= BETWEEN_LOOKS_BYTES {
                since = 0;
                self.look()?;
            }
        }
        file.flush().await.map_err(NotTaken::Disk)?;
        let source = FileSource::new(file.into_std().await).map_err(NotTaken::Disk)?;
        Ok(BlobBody::of_source(Arc::new(source)))
    }

    /// Whether there is room for some more.
    fn look(&self) -> Result<(), NotTaken> {
        let disk = statvfs(&self.folder).map_err(|errno| NotTaken::Disk(errno.into()))?;
        let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed_bytes = self.leave_bytes.saturating_add(2 * BETWEEN_LOOKS_BYTES);
        if free_bytes < needed_bytes { Err(NotTaken::NoRoom) } else { Ok(()) }
    }
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, NotTaken> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| NotTaken::Broken(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// A file that is gone with whoever holds it.
fn nameless(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!("spool-{:032x}", rand::random::<u128>()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures_util::stream;

    use super::*;

    fn chunks(count: u8) -> Body {
        let chunk = |n: u8| Ok::<_, io::Error>(Bytes::from(vec![n; 1 << 20]));
        Body::from_stream(stream::iter((0..count).map(chunk)))
    }

    #[tokio::test]
    async fn a_body_is_the_same_in_memory_and_in_a_file_and_no_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool { folder: folder.path().to_owned(), leave_bytes: 0 };
        for count in [0, 1, 8, 9, 20] {
            let body = spool.take(chunks(count)).await.unwrap();
            assert_eq!(body.bytes(), u64::from(count) << 20);
            for n in 0..u64::from(count) {
                let piece = body.read(n << 20..(n + 1) << 20).await.unwrap();
                let found: Vec<u8> = piece.iter().flat_map(|piece| piece.to_vec()).collect();
                assert!(found.len() == 1 << 20 && found.iter().all(|b| u64::from(*b) == n), "{n}");
            }
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn a_file_that_would_take_what_hooks_need_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool { folder: folder.path().to_owned(), leave_bytes: u64::MAX };
        assert!(spool.take(chunks(8)).await.is_ok());
        assert!(matches!(spool.take(chunks(9)).await, Err(NotTaken::NoRoom)));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_object() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool { folder: folder.path().to_owned(), leave_bytes: 0 };
        for before in [0_u8, 10] {
            let whole = (0..before).map(|n| Ok(Bytes::from(vec![n; 1 << 20])));
            let broken = whole.chain([Err(io::Error::other("gone"))]);
            let taken = spool.take(Body::from_stream(stream::iter(broken))).await;
            assert!(matches!(taken, Err(NotTaken::Broken(_))), "{before}");
        }
    }
}
