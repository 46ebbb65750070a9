//! Objects on a disk.

use std::fs::{self, File};
use std::path::Path;

use ankusa_actors::ports::{BlobKey, BlobScope};
use ankusa_node::blob::local_fs::{self, LocalFsSpec};

use super::{OBJECT_BYTES, Turns, random_bytes, timed};
use crate::drill::{CannotInject, OrCannot};

/// The same bytes by the adapter, and by a copy of a file that the page cache has.
pub(super) async fn measure(directory: &Path, rounds: usize) -> Result<Turns, CannotInject> {
    let spec = LocalFsSpec { root: directory.join("objects") };
    let store = local_fs::open(&spec, BlobScope::Segments, &super::world())
        .or_cannot("open the store on the disk")?;
    let bytes = random_bytes(OBJECT_BYTES);
    let source = directory.join("source");
    fs::write(&source, &bytes).or_cannot("write what is to be copied")?;
    let copies = directory.join("copies");
    fs::create_dir(&copies).or_cannot("make a directory for copies")?;
    let mut turns = Turns::default();
    for n in 0..rounds {
        let key = BlobKey::new(format!("seg-{n}")).or_cannot("name an object")?;
        let put = store.put(&key, bytes.clone().into(), None);
        turns.ours.push(timed("put an object", put).await?.1);
        let (from, to) = (source.clone(), copies.join(n.to_string()));
        let copy = async move {
            tokio::task::spawn_blocking(move || copied(&from, &to)).await.unwrap_or(Ok(()))
        };
        turns.theirs.push(timed("copy a file", copy).await?.1);
    }
    Ok(turns)
}

fn copied(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}
