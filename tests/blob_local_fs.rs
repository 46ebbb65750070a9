//! Objects as files: the contract of every store, what crashes leave, where no key leads, what a disk refuses, and another
//! implementation of the same layout.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::contract::blob::{BlobTrial, holds_for};
use ankusa_actors::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobKey, BlobScope, BlobSource, GET_MAX_BYTES,
};
use ankusa_node::blob::local_fs::{self, LocalFs, LocalFsSpec};
use ankusa_node::blob::transport::World;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path as OtherPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use rustix::fs::{FileType, FlockOperation, Mode, flock, mknodat};
use rustix::process::{Gid, Uid};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// Longer than anything here takes on a busy machine; reached only by what hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store in a folder of its own, below the temporary one.
struct Store {
    fs: LocalFs,
    dir: TempDir,
}

impl Store {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { fs: at(&dir.path().join("root")), dir }
    }

    /// Another one on the same folder.
    fn another(&self) -> LocalFs {
        at(self.fs.root())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.fs.root().join(key)
    }

    /// A file that nobody wrote through the store.
    fn plant(&self, key: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    async fn put(&self, name: &str, body: &'static [u8]) -> Result<(), BlobError> {
        self.fs.put(&key(name), body.into(), None).await
    }

    async fn create(&self, name: &str, body: &'static [u8]) -> Result<(), BlobError> {
        self.fs.put_if_absent(&key(name), body.into(), None).await
    }

    async fn get(&self, name: &str) -> Result<Bytes, BlobError> {
        self.fs.get(&key(name), None).await
    }

    async fn delete(&self, name: &str) -> Result<(), BlobError> {
        self.fs.delete(&key(name), None).await
    }

    async fn list(&self, prefix: &str) -> Vec<String> {
        self.fs.list(prefix, None).await.unwrap().into_iter().map(|entry| entry.key).collect()
    }
}

fn at(root: &Path) -> LocalFs {
    LocalFs::new(&LocalFsSpec { root: root.to_owned() })
}

fn key(key: &str) -> BlobKey {
    BlobKey::new(key).unwrap()
}

fn word<T: std::fmt::Debug>(done: Result<T, BlobError>) -> &'static str {
    done.unwrap_err().as_str()
}

/// Every file below a folder, whatever it is, links not followed.
fn files(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                ahead.push(entry.path());
            } else {
                let path = entry.path();
                files.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let since = Instant::now();
    while !look() {
        assert!(since.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn files_keep_the_contract_of_object_stores() {
    let dir = tempfile::tempdir().unwrap();
    holds_for(async |name| BlobTrial::of(Arc::new(at(&dir.path().join(name))))).await;
}

#[tokio::test]
async fn files_keep_it_in_a_corner_of_one_root() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Blob> = Arc::new(at(dir.path()));
    holds_for(async |name| BlobTrial::of(Arc::clone(&store)).below(name)).await;
    assert_eq!(files(dir.path()).iter().filter(|name| name.contains(".tmp.")).count(), 0);
}

#[tokio::test]
async fn an_object_is_a_file_of_its_key_and_nothing_else_is_left() {
    let store = Store::new();
    store.put("archive/v1/dt=2026-11-30/node/seg-1.seg", b"bytes").await.unwrap();
    store.create("archive/v1/x", b"more").await.unwrap();
    assert_eq!(store.create("archive/v1/x", b"other").await, Err(BlobError::AlreadyExists));
    store.put("gone", b"1").await.unwrap();
    store.delete("gone").await.unwrap();
    let all = ["archive/v1/dt=2026-11-30/node/seg-1.seg", "archive/v1/x"];
    assert_eq!(files(store.fs.root()), all);
    assert_eq!(fs::read(store.path(all[0])).unwrap(), b"bytes");
    assert_eq!(fs::read(store.path(all[1])).unwrap(), b"more");
}

// The root.

#[tokio::test]
async fn the_root_is_made_at_the_first_call_with_all_above_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data/node/segments");
    let store = at(&root);
    assert!(!dir.path().join("data").exists());
    assert_eq!(store.list("", None).await, Ok(vec![]));
    assert!(root.is_dir());
    // A second one finds it.
    assert_eq!(at(&root).list("", None).await, Ok(vec![]));
}

#[tokio::test]
async fn a_root_that_is_a_link_is_the_operators() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    symlink("real", dir.path().join("link")).unwrap();
    let store = at(&dir.path().join("link"));
    store.put(&key("a/b"), Bytes::from_static(b"1").into(), None).await.unwrap();
    assert_eq!(files(&dir.path().join("real")), ["a/b"]);
    assert_eq!(store.list("", None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_root_that_is_gone_is_not_made_again_and_nothing_is_missing_from_it() {
    let store = Store::new();
    store.put("a/b", b"1").await.unwrap();
    let away = store.dir.path().join("away");
    fs::rename(store.fs.root(), &away).unwrap();
    assert_eq!(word(store.get("a/b").await), "transport");
    assert_eq!(word(store.put("a/c", b"2").await), "transport");
    assert_eq!(word(store.create("a/d", b"2").await), "transport");
    assert_eq!(word(store.delete("a/b").await), "transport");
    assert_eq!(word(store.fs.list("", None).await), "transport");
    assert!(!store.fs.root().exists());
    fs::rename(&away, store.fs.root()).unwrap();
    assert_eq!(store.get("a/b").await.unwrap(), "1");
}

#[tokio::test]
async fn a_root_that_cannot_be_made_is_an_error_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for root in [file.clone(), file.join("below")] {
        let store = at(&root);
        assert_eq!(word(store.list("", None).await), "misconfigured");
    }
    let store = at(&file);
    assert_eq!(word(store.list("", None).await), "misconfigured");
    fs::remove_file(&file).unwrap();
    assert_eq!(store.list("", None).await, Ok(vec![]));
}

#[test]
fn a_store_without_a_root_is_none() {
    let world = World {
        clock: Arc::new(ankusa_actors::ports::sim::SimClock::at(0)),
        entropy: Arc::new(ankusa_actors::ports::sim::SimEntropy::seeded(0)),
        events: Arc::new(ankusa_actors::ports::sim::JournalEvents::default()),
        pools: Arc::default(),
        breakers: Arc::default(),
    };
    let open = |root: &str| {
        local_fs::open(&LocalFsSpec { root: root.into() }, BlobScope::Backup, &world).err()
    };
    assert_eq!(open("").unwrap().to_string(), "root: must not be empty");
    assert_eq!(open("somewhere"), None);
}

// What is left of a write that did not end.

#[tokio::test]
async fn what_a_crash_left_is_never_listed_and_swept_when_a_store_is_opened() {
    let store = Store::new();
    let left = ["k.tmp.1", "a/b/seg-1.seg.tmp.4294967296", "a/.tmp.7"];
    let kept = ["a/b/seg-1.seg", "k.tmp", "k.tmp.", "k.tmp.1x", "k.tmp.x", "tmp.1"];
    for name in left.iter().chain(&kept) {
        store.plant(name, b"half of it");
    }
    let held = File::open(store.plant("a/held.tmp.9", b"somebody writes")).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(store.list("").await, kept);
    assert_eq!(store.list("a/").await, kept[..1]);
    until("it is swept", || files(store.fs.root()).len() == kept.len() + 1).await;
    let mut there = files(store.fs.root());
    there.retain(|name| !kept.contains(&name.as_str()));
    assert_eq!(there, ["a/held.tmp.9"]);

    // Its writer has died.
    drop(held);
    assert_eq!(store.another().list("", None).await.unwrap().len(), kept.len());
    until("it is swept", || files(store.fs.root()) == kept).await;
}

/// Bytes that come when they are let.
struct Held {
    bytes: u64,
    let_through: Arc<Semaphore>,
}

#[async_trait]
impl BlobSource for Held {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        self.let_through.acquire().await.unwrap().forget();
        Ok(vec![7; usize::try_from(range.end - range.start).unwrap()].into())
    }
}

fn held(bytes: u64, reads: usize) -> (BlobBody, Arc<Semaphore>) {
    let let_through = Arc::new(Semaphore::new(reads));
    (
        BlobBody::of_source(Arc::new(Held { bytes, let_through: Arc::clone(&let_through) })),
        let_through,
    )
}

fn unfinished(store: &Store) -> usize {
    files(store.fs.root()).iter().filter(|name| name.contains(".tmp.")).count()
}

#[tokio::test]
async fn a_write_under_way_is_not_swept_by_a_store_that_is_opened() {
    let store = Store::new();
    store.plant("left.tmp.1", b"by a crash");
    let (body, let_through) = held(9 << 20, 1);
    let (one, big) = (store.another(), key("big"));
    let write = one.put(&big, body, None);
    let meanwhile = async {
        until("half of it is written", || {
            unfinished(&store) == 1 && !store.path("left.tmp.1").exists()
        })
        .await;
        store.plant("left.tmp.1", b"by a crash");
        assert_eq!(store.list("").await, Vec::<String>::new());
        until("the other is swept", || !store.path("left.tmp.1").exists()).await;
        assert_eq!(unfinished(&store), 1);
        let_through.add_permits(10);
    };
    let (written, ()) = tokio::join!(write, meanwhile);
    written.unwrap();
    assert!(store.get("big").await.unwrap() == vec![7; 9 << 20]);
    assert_eq!(files(store.fs.root()), ["big"]);
}

#[tokio::test]
async fn a_write_that_is_given_up_leaves_nothing() {
    let store = Arc::new(Store::new());
    store.put("k", b"kept").await.unwrap();
    let (body, _let_through) = held(9 << 20, 1);
    let writing = Arc::clone(&store);
    let write = tokio::spawn(async move { writing.fs.put(&key("k"), body, None).await });
    until("half of it is written", || unfinished(&store) == 1).await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    until("nothing is left", || unfinished(&store) == 0).await;
    assert_eq!(store.get("k").await.unwrap(), "kept");
}

#[tokio::test]
async fn a_write_that_is_late_leaves_nothing() {
    let store = Store::new();
    store.put("k", b"kept").await.unwrap();
    let (body, let_through) = held(9 << 20, 1);
    let deadline = Instant::now() + Duration::from_secs(1);
    let k = key("k");
    let write = store.fs.put(&k, body, Some(deadline));
    let meanwhile = async {
        tokio::time::sleep_until(deadline).await;
        let_through.add_permits(10);
    };
    let (late, ()) = tokio::join!(write, meanwhile);
    assert_eq!(late, Err(BlobError::Deadline));
    assert_eq!(files(store.fs.root()), ["k"]);
    assert_eq!(store.get("k").await.unwrap(), "kept");
}

#[test]
fn a_disk_that_does_not_answer_is_waited_for_until_the_deadline() {
    // One thread waits for disks, and this one does for ever.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Store::new();
        store.put("k", b"1").await.unwrap();
        let (let_go, hangs) = std::sync::mpsc::channel::<()>();
        let hung = tokio::task::spawn_blocking(move || hangs.recv());
        let soon = || Some(Instant::now() + Duration::from_millis(50));
        let k = key("k");
        assert_eq!(store.fs.get(&k, soon()).await, Err(BlobError::Deadline));
        assert_eq!(
            store.fs.put(&k, BlobBody::from(vec![]), soon()).await,
            Err(BlobError::Deadline)
        );
        assert_eq!(store.fs.list("", soon()).await, Err(BlobError::Deadline));
        assert_eq!(store.another().get(&k, soon()).await, Err(BlobError::Deadline));
        let_go.send(()).unwrap();
        hung.await.unwrap().unwrap();
        assert_eq!(store.get("k").await.unwrap(), "1");
        assert_eq!(files(store.fs.root()), ["k"]);
    });
}

// Where no key leads.

#[tokio::test]
async fn no_link_leads_out_of_the_root() {
    let store = Store::new();
    let outside = store.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), b"secret").unwrap();
    store.put("a/k", b"1").await.unwrap();
    // To a folder, to a file, to nowhere, and to what would be all right.
    symlink(&outside, store.path("a/folder")).unwrap();
    symlink(outside.join("secret"), store.path("a/file")).unwrap();
    symlink(outside.join("new"), store.path("a/nowhere")).unwrap();
    symlink("k", store.path("a/within")).unwrap();
    let names =
        ["a/folder", "a/folder/secret", "a/folder/d/new", "a/file", "a/nowhere", "a/within"];
    for name in names {
        assert_eq!(word(store.get(name).await), "misconfigured", "{name}");
        assert_eq!(word(store.fs.get_range(&key(name), 0, 9, None).await), "misconfigured");
        assert_eq!(word(store.put(name, b"new").await), "misconfigured", "{name}");
        assert_eq!(word(store.create(name, b"new").await), "misconfigured", "{name}");
        assert_eq!(word(store.create(name, b"secret").await), "misconfigured", "{name}");
        assert_eq!(word(store.delete(name).await), "misconfigured", "{name}");
    }
    // None of them is there, to one who lists.
    assert_eq!(store.list("").await, ["a/k"]);
    assert_eq!(store.list("a/folder/").await, Vec::<String>::new());
    assert_eq!(files(store.fs.root()), ["a/file", "a/folder", "a/k", "a/nowhere", "a/within"]);
    assert_eq!(files(&outside), ["secret"]);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[tokio::test]
async fn links_are_left_as_they_are() {
    let store = Store::new();
    let outside = store.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    store.put("k", b"1").await.unwrap();
    symlink(&outside, store.path("folder")).unwrap();
    symlink(outside.join("left.tmp.1"), store.path("link.tmp.1")).unwrap();
    fs::write(outside.join("left.tmp.1"), b"another's").unwrap();
    fs::write(store.path("swept.tmp.1"), b"").unwrap();
    let _refused = store.put("folder/x", b"1").await;
    store.another().list("", None).await.unwrap();
    until("it is swept", || !store.path("swept.tmp.1").exists()).await;
    assert_eq!(files(store.fs.root()), ["folder", "k", "link.tmp.1"]);
    assert_eq!(files(&outside), ["left.tmp.1"]);
}

#[tokio::test]
async fn what_is_no_file_is_no_object_and_holds_nobody() {
    let store = Store::new();
    store.put("k", b"1").await.unwrap();
    let root = File::open(store.fs.root()).unwrap();
    mknodat(&root, "pipe", FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(store.path("socket")).unwrap();
    for name in ["pipe", "socket"] {
        assert_eq!(word(store.get(name).await), "misconfigured", "{name}");
        assert_eq!(word(store.put(name, b"1").await), "misconfigured", "{name}");
        assert_eq!(word(store.create(name, b"1").await), "misconfigured", "{name}");
        assert_eq!(word(store.delete(name).await), "misconfigured", "{name}");
    }
    assert_eq!(store.list("").await, ["k"]);
    assert_eq!(files(store.fs.root()), ["k", "pipe", "socket"]);
}

#[tokio::test]
async fn a_folder_is_no_object_and_an_object_no_folder() {
    let store = Store::new();
    store.put("folder/k", b"1").await.unwrap();
    store.put("object", b"2").await.unwrap();
    let folder = "misconfigured: folder is a folder: there are objects below it";
    let object = "misconfigured: object is an object: there is none below it";
    for create in [false, true] {
        let put = async |name| match create {
            false => store.put(name, b"new").await.unwrap_err().to_string(),
            true => store.create(name, b"new").await.unwrap_err().to_string(),
        };
        assert_eq!(put("folder").await, folder);
        assert_eq!(put("object/k").await, object);
        assert_eq!(put("object/k/deeper").await, object);
    }
    // Also one that has become empty.
    store.delete("folder/k").await.unwrap();
    assert_eq!(store.put("folder", b"new").await.unwrap_err().to_string(), folder);
    assert_eq!(store.list("").await, ["object"]);
    assert_eq!(files(store.fs.root()), ["object"]);
    assert!(store.path("folder").is_dir());
}

#[tokio::test]
async fn names_of_others_are_listed_if_they_are_text() {
    let store = Store::new();
    store.put("a", b"1").await.unwrap();
    store.plant("line\nbreak", b"22");
    fs::write(store.fs.root().join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), b"3").unwrap();
    fs::create_dir_all(store.path("empty/folders/only")).unwrap();
    let entry = |key: &str, bytes| BlobEntry { key: key.to_owned(), bytes };
    assert_eq!(store.fs.list("", None).await, Ok(vec![entry("a", 1), entry("line\nbreak", 2)]));
}

#[tokio::test]
async fn an_object_too_large_to_hold_is_read_in_parts() {
    let store = Store::new();
    let file = File::create(store.plant("large", b"")).unwrap();
    file.set_len(GET_MAX_BYTES + 1).unwrap();
    assert_eq!(word(store.get("large").await), "misconfigured");
    let last = store.fs.get_range(&key("large"), GET_MAX_BYTES, 10, None).await;
    assert_eq!(last.unwrap(), &[0][..]);
    file.set_len(GET_MAX_BYTES).unwrap();
    assert_eq!(store.get("large").await.map(|bytes| bytes.len() as u64), Ok(GET_MAX_BYTES));
}

// What the system refuses.

/// A runtime whose threads that wait for the disk are nobody's.
fn as_nobody(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(|| {
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_gid(Gid::from_raw(65_534)).unwrap();
                rustix::thread::set_thread_uid(Uid::from_raw(65_534)).unwrap();
            }
        })
        .build()
        .unwrap();
    runtime.block_on(test);
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_may_not_be_read_or_written_is_forbidden() {
    as_nobody(async {
        let store = Store::new();
        allow(store.dir.path(), 0o777);
        store.put("open/k", b"1").await.unwrap();
        for name in ["unreadable/k", "closed/k", "readonly/k", "lost+found/x"] {
            store.plant(name, b"1");
        }
        allow(&store.path("unreadable/k"), 0o000);
        allow(&store.path("readonly"), 0o555);
        allow(&store.path("lost+found"), 0o000);
        assert_eq!(word(store.get("unreadable/k").await), "forbidden");
        assert_eq!(word(store.create("unreadable/k", b"1").await), "forbidden");
        assert_eq!(store.get("readonly/k").await.unwrap(), "1");
        assert_eq!(store.create("readonly/k", b"1").await, Ok(()), "it is there");
        assert_eq!(store.create("readonly/k", b"2").await, Err(BlobError::AlreadyExists));
        for refused in [
            store.put("readonly/k", b"2").await,
            store.create("readonly/new", b"2").await,
            store.put("readonly/folder/new", b"2").await,
            store.delete("readonly/k").await,
        ] {
            assert_eq!(word(refused), "forbidden");
        }
        // Of the file system's own folder at the top nothing is ours; of any other a listing would be too short.
        assert_eq!(store.list("").await, ["closed/k", "open/k", "readonly/k", "unreadable/k"]);
        allow(&store.path("closed"), 0o000);
        assert_eq!(word(store.fs.list("", None).await), "forbidden");
        assert_eq!(word(store.fs.list("closed", None).await), "forbidden");
        assert_eq!(store.list("open").await, ["open/k"]);
        for refused in [store.get("closed/k").await.map(|_| ()), store.put("closed/k", b"2").await]
        {
            assert_eq!(word(refused), "forbidden");
        }
        allow(&store.path("closed"), 0o755);
        allow(&store.path("lost+found"), 0o755);
        assert_eq!(fs::read(store.path("readonly/k")).unwrap(), b"1");
        assert_eq!(unfinished(&store), 0);
    });
}

#[test]
fn a_root_that_may_not_be_made_is_forbidden() {
    as_nobody(async {
        let dir = tempfile::tempdir().unwrap();
        allow(dir.path(), 0o555);
        let root = dir.path().join("root");
        let told = at(&root).list("", None).await.unwrap_err().to_string();
        let why = "Permission denied (os error 13)";
        assert_eq!(told, format!("forbidden: cannot make {}: {why}", root.display()));
        // One that is there needs nothing to be written above it.
        fs::create_dir(&root).unwrap();
        allow(&root, 0o777);
        assert_eq!(at(&root).list("", None).await, Ok(vec![]));
    });
}

// Another implementation of the same layout.

/// What one of them did, in the words of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    It,
    Exists,
}

struct Oracle(LocalFileSystem);

impl Oracle {
    fn path(key: &str) -> OtherPath {
        OtherPath::parse(key).unwrap()
    }

    async fn put(&self, key: &str, body: Bytes) {
        self.0.put(&Self::path(key), body.into()).await.unwrap();
    }

    async fn create(&self, key: &str, body: Bytes) -> Did {
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.0.put_opts(&Self::path(key), body.into(), create).await {
            Ok(_) => Did::It,
            Err(object_store::Error::AlreadyExists { .. }) => Did::Exists,
            Err(error) => panic!("{error}"),
        }
    }

    async fn get(&self, key: &str) -> Option<Bytes> {
        match self.0.get(&Self::path(key)).await {
            Ok(found) => Some(found.bytes().await.unwrap()),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn delete(&self, key: &str) {
        match self.0.delete(&Self::path(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn list(&self, folder: Option<&str>) -> Vec<(String, u64)> {
        let folder = folder.map(Self::path);
        let all: Vec<_> = self.0.list(folder.as_ref()).try_collect().await.unwrap();
        let mut all: Vec<_> =
            all.into_iter().map(|meta| (meta.location.to_string(), meta.size)).collect();
        all.sort();
        all
    }
}

/// Numbers that follow from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}

const KEYS: [&str; 9] = [
    "a",
    "b/1",
    "b/2",
    "b/c/d/e",
    "bc",
    "dt=2026-11-30/seg 1+2.seg",
    "ü/日本",
    "x.y/.hidden",
    "b/c.d",
];

async fn agree(ours: &LocalFs, oracle: &Oracle, model: &BTreeMap<&'static str, Bytes>) {
    for name in KEYS {
        let (expected, found) = (model.get(name), ours.get(&key(name), None).await);
        assert_eq!(found.as_ref().ok(), expected, "{name}: {found:?}");
        assert_eq!(oracle.get(name).await.as_ref(), expected, "{name}");
    }
    for folder in [None, Some("b"), Some("b/c"), Some("x.y"), Some("none")] {
        let prefix = folder.map(|folder| format!("{folder}/")).unwrap_or_default();
        let listed = ours.list(&prefix, None).await.unwrap();
        let listed: Vec<_> = listed.into_iter().map(|it| (it.key, it.bytes)).collect();
        let expected = model.iter().filter(|(name, _)| name.starts_with(&prefix));
        let mut expected: Vec<_> =
            expected.map(|(name, body)| ((*name).to_owned(), body.len() as u64)).collect();
        expected.sort();
        assert_eq!(listed, expected);
        assert_eq!(oracle.list(folder).await, expected);
    }
}

#[tokio::test]
async fn object_store_reads_what_we_write_and_writes_what_we_read() {
    let store = Store::new();
    store.fs.list("", None).await.unwrap();
    let oracle = Oracle(LocalFileSystem::new_with_prefix(store.fs.root()).unwrap());
    let mut model = BTreeMap::new();
    let mut chance = Chance(11);
    for step in 0..300 {
        let name = KEYS[chance.below(KEYS.len())];
        let body = Bytes::from(vec![b'a' + u8::try_from(step % 26).unwrap(); chance.below(2_000)]);
        let ours = chance.below(2) == 0;
        match chance.below(4) {
            0 | 1 if ours => {
                store.fs.put(&key(name), body.clone().into(), None).await.unwrap();
                model.insert(name, body);
            }
            0 | 1 => {
                oracle.put(name, body.clone()).await;
                model.insert(name, body);
            }
            2 => {
                let did = if ours {
                    match store.fs.put_if_absent(&key(name), body.clone().into(), None).await {
                        Ok(()) => Did::It,
                        Err(error) => {
                            assert_eq!(error, BlobError::AlreadyExists);
                            Did::Exists
                        }
                    }
                } else {
                    oracle.create(name, body.clone()).await
                };
                let there = model.contains_key(name);
                assert_eq!(did, if there { Did::Exists } else { Did::It }, "{step} {name}");
                model.entry(name).or_insert(body);
            }
            _delete if ours => {
                store.fs.delete(&key(name), None).await.unwrap();
                model.remove(name);
            }
            _delete => {
                oracle.delete(name).await;
                model.remove(name);
            }
        }
        if step % 20 == 0 {
            agree(&store.fs, &oracle, &model).await;
        }
    }
    agree(&store.fs, &oracle, &model).await;
}
