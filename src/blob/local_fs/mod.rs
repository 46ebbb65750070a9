//! Objects as files below a folder of this host ("BlobStore.LocalFS"): the default.
//!
//! * A write goes into `<key>.tmp.<number>` beside its place, is fsynced, renamed, and the folder is fsynced; so is each
//!   folder above it, once, unless it is known to be on the disk. Readers see the old object or the new one.
//! * `put_if_absent` renames without replacing, in one step of the kernel; where the file system has no such step, it
//!   makes a hard link; where it has none of those either, it looks first, and one process should write.
//! * A file that a crash left unfinished is never listed and is removed when a store is opened on the folder. Which
//!   those are is not told by a clock: a writer holds a lock (`flock`) on its file until the file is in its place or
//!   gone, and a kernel gives up the locks of those that die. So a file that can be locked is nobody's.
//! * No key leads out of the folder: [`BlobKey`] has no `..`, and no symbolic link below the root is followed, listed or
//!   replaced: it is an error. The root itself may be one.
//! * The root is made at the first call, and never again: when a disk is no longer mounted, nothing is written beside it.
//! * A disk that does not answer is waited for until the deadline of a call; there is none unless the caller has one.
//!   What it does afterwards it does all the same, whole.
//! * Folders that become empty stay. They are no objects and are never listed.
//!
//! What the system answers comes to the following; nothing is tried again here, for a POSIX error does not pass by itself.
//!
//! | | |
//! |---|---|
//! | `ENOENT`, and a folder or an object in the way of a read | `not_found` |
//! | `EACCES`, `EPERM` | `forbidden` |
//! | `EROFS`, `EISDIR`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, `EFBIG`, `EINVAL` | `misconfigured` |
//! | `ENOSPC`, `EDQUOT`, `EIO` and the rest, and a root that is gone | `transport` |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ankusa_actors::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobKey, BlobScope, GET_MAX_BYTES, is_range_asked,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::body::read_in_time;
use super::spec_error::BlobSpecError;
use super::transport::World;
use folder::{Folder, Found, is_a_folder};
use object::Object;
use unfinished::Unfinished;

mod folder;
mod listing;
mod object;
mod root;
mod unfinished;

/// How much of a body is read and written at a time, in bytes: what a write holds in memory of one that lies elsewhere.
const AT_ONCE_BYTES: u64 = 4 << 20;

/// So many folders are remembered to be on the disk: more than a node writes to in a day.
const SETTLED_MAX: usize = 10_000;

/// Where the objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFsSpec {
    pub root: PathBuf,
}

/// The store `spec` speaks of. The disk is not touched before the first call.
///
/// # Errors
/// There is no root.
pub fn open(
    spec: &LocalFsSpec,
    _scope: BlobScope,
    _world: &World,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    if spec.root.as_os_str().is_empty() {
        return Err(BlobSpecError::new("root", "must not be empty"));
    }
    Ok(Arc::new(LocalFs::new(spec)))
}

/// A folder of objects.
pub struct LocalFs {
    place: Arc<Place>,
    opened: OnceCell<()>,
}

/// The folder, as the threads that wait for the disk know it.
struct Place {
    root: PathBuf,
    /// Folders whose names are on the disk, by their inodes: one that was made anew is another.
    settled: Mutex<BTreeMap<String, u64>>,
}

impl LocalFs {
    pub fn new(spec: &LocalFsSpec) -> Self {
        let (root, settled) = (spec.root.clone(), Mutex::default());
        Self { place: Arc::new(Place { root, settled }), opened: OnceCell::new() }
    }

    pub fn root(&self) -> &Path {
        &self.place.root
    }

    /// Makes the root, if there is none, and has what crashes left there removed: beside everything else, for a folder
    /// can be large.
    async fn opened(&self, deadline: Option<Instant>) -> Result<(), BlobError> {
        let open = async || {
            let place = Arc::clone(&self.place);
            blocking(deadline, move || root::make(&place.root)).await?;
            let place = Arc::downgrade(&self.place);
            drop(tokio::task::spawn_blocking(move || sweep(&place)));
            Ok::<(), BlobError>(())
        };
        self.opened.get_or_try_init(open).await.copied()
    }

    async fn at<T: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        work: impl FnOnce(&Place) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        self.opened(deadline).await?;
        let place = Arc::clone(&self.place);
        blocking(deadline, move || work(&place)).await
    }

    /// A file beside the place of `key` with all of `body` in it.
    async fn written(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        deadline: Option<Instant>,
    ) -> Result<Unfinished, BlobError> {
        let named = key.clone();
        let mut file = self.at(deadline, move |place| place.begin(&named)).await?;
        let mut at = 0;
        while at < body.bytes() {
            let end = body.bytes().min(at + AT_ONCE_BYTES);
            let pieces = read_in_time(body, at..end, deadline).await?;
            file = blocking(deadline, move || file.with(&pieces)).await?;
            at = end;
        }
        Ok(file)
    }

    /// Whether there is an object already, and if so, whether it is `body`: then it is durable as well.
    ///
    /// # Errors
    /// `already_exists`.
    async fn is_there(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        deadline: Option<Instant>,
    ) -> Result<bool, BlobError> {
        let named = key.clone();
        let object = self.at(deadline, move |place| place.in_the_way(&named)).await?;
        let Some(object) = object else { return Ok(false) };
        if object.bytes() != body.bytes() {
            return Err(BlobError::AlreadyExists);
        }
        let object = Arc::new(object);
        let mut at = 0;
        while at < body.bytes() {
            let end = body.bytes().min(at + AT_ONCE_BYTES);
            let pieces = read_in_time(body, at..end, deadline).await?;
            let object = Arc::clone(&object);
            if !blocking(deadline, move || object.holds(at, &pieces)).await? {
                return Err(BlobError::AlreadyExists);
            }
            at = end;
        }
        // It may have been left there by a write that ended before it was durable.
        let named = key.clone();
        self.at(deadline, move |place| place.settle(&named, &object)).await?;
        Ok(true)
    }
}

impl Place {
    fn root(&self) -> Result<Folder, BlobError> {
        Folder::root(&self.root)
    }

    /// The object, for one who reads.
    fn object(&self, key: &BlobKey) -> Result<Option<Object>, BlobError> {
        let (above, name) = split(key);
        let Some(folder) = self.root()?.below(above)? else { return Ok(None) };
        match folder.find(name, key)? {
            Found::Object(object) => Ok(Some(object)),
            Found::Folder | Found::Nothing => Ok(None),
        }
    }

    /// What is there, for one who writes.
    fn in_the_way(&self, key: &BlobKey) -> Result<Option<Object>, BlobError> {
        let (above, name) = split(key);
        let Some(folder) = self.root()?.below(above)? else { return Ok(None) };
        match folder.find(name, key)? {
            Found::Object(object) => Ok(Some(object)),
            Found::Folder => Err(is_a_folder(key)),
            Found::Nothing => Ok(None),
        }
    }

    fn begin(&self, key: &BlobKey) -> Result<Unfinished, BlobError> {
        let (folder, name) = self.folder_for(key)?;
        folder.takes(name, key)?;
        Unfinished::new(folder, name, key)
    }

    fn settle(&self, key: &BlobKey, object: &Object) -> Result<(), BlobError> {
        object.sync(key)?;
        self.folder_for(key)?.0.sync(key.as_str())
    }

    /// The folder an object is to be in, made where it is missing, and on the disk; and the name of its file.
    fn folder_for<'a>(&self, key: &'a BlobKey) -> Result<(Folder, &'a str), BlobError> {
        let (above, name) = split(key);
        let mut folder = self.root()?;
        let mut path = String::new();
        for part in above.split('/').filter(|part| !part.is_empty()) {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(part);
            let below = folder.enter_or_make(part, &path)?;
            if !self.is_settled(&path, &below)? {
                folder.sync(&path)?;
                self.remember(&path, below.inode()?);
            }
            folder = below;
        }
        Ok((folder, name))
    }

    fn is_settled(&self, path: &str, folder: &Folder) -> Result<bool, BlobError> {
        let inode = folder.inode()?;
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(settled.get(path) == Some(&inode))
    }

    fn remember(&self, path: &str, inode: u64) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() >= SETTLED_MAX {
            settled.clear();
        }
        settled.insert(path.to_owned(), inode);
    }
}

/// Removes what crashes left, until there is no store any more that wants it.
fn sweep(place: &Weak<Place>) {
    let Some(root) = place.upgrade().map(|place| place.root.clone()) else { return };
    let swept = Folder::root(&root).and_then(|folder| listing::sweep(&folder, place));
    match swept {
        Ok(0) => {}
        Ok(files) => {
            info!(root = %root.display(), files, "removed what unfinished writes had left")
        }
        Err(error) => {
            warn!(root = %root.display(), %error, "cannot remove what unfinished writes have left");
        }
    }
}

/// The folders of a key, and the name in the last of them.
fn split(key: &BlobKey) -> (&str, &str) {
    key.as_str().rsplit_once('/').unwrap_or(("", key.as_str()))
}

fn in_time(deadline: Option<Instant>) -> Result<(), BlobError> {
    match deadline {
        Some(deadline) if Instant::now() >= deadline => Err(BlobError::Deadline),
        Some(_) | None => Ok(()),
    }
}

/// Waits for the disk, not past `deadline`: what it does later it does all the same.
async fn blocking<T: Send + 'static>(
    deadline: Option<Instant>,
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    in_time(deadline)?;
    let working = tokio::task::spawn_blocking(work);
    let done = match deadline {
        None => working.await,
        Some(deadline) => match timeout_at(deadline, working).await {
            Ok(done) => done,
            Err(_) => return Err(BlobError::Deadline),
        },
    };
    // It is cancelled with the runtime alone.
    done.unwrap_or_else(|error| Err(BlobError::Transport(error.to_string())))
}

#[async_trait]
impl Blob for LocalFs {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let file = self.written(key, &body, deadline).await?;
        blocking(deadline, move || file.replace()).await
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        if self.is_there(key, &body, deadline).await? {
            return Ok(());
        }
        let file = self.written(key, &body, deadline).await?;
        if blocking(deadline, move || file.create()).await?
            || self.is_there(key, &body, deadline).await?
        {
            return Ok(());
        }
        Err(BlobError::Transport(format!("{key} was there and is gone")))
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        let named = key.clone();
        let read = move |place: &Place| {
            let object = place.object(&named)?.ok_or(BlobError::NotFound)?;
            if object.bytes() > GET_MAX_BYTES {
                return Err(BlobError::too_much());
            }
            object.read(0, object.bytes(), &named)
        };
        self.at(deadline, read).await
    }

    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError> {
        if !is_range_asked(length)? {
            return Ok(Bytes::new());
        }
        let named = key.clone();
        let read = move |place: &Place| {
            let object = place.object(&named)?.ok_or(BlobError::NotFound)?;
            object.read(offset, length, &named)
        };
        self.at(deadline, read).await
    }

    /// On the disk when it returns: an object that came back would be nobody's.
    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError> {
        let named = key.clone();
        let delete = move |place: &Place| {
            let (above, name) = split(&named);
            match place.root()?.below(above)? {
                Some(folder) => folder.remove(name, &named),
                None => Ok(()),
            }
        };
        self.at(deadline, delete).await
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        let prefix = prefix.to_owned();
        self.at(deadline, move |place| listing::list(&place.root()?, &prefix, deadline)).await
    }
}
