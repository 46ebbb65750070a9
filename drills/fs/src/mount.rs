//! The tree as a FUSE file system: every call takes the one lock, so a cut comes between two calls.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType,
    Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags, spawn_mount,
};

use crate::tree::{Cut, Fault, Kind, ROOT, Stat, Tree};

/// The kernel remembers nothing: after a cut, nothing it remembered would be true.
const NEVER: Duration = Duration::ZERO;

/// What an fsync takes, as on a disk: in memory it would be over before anything can happen meanwhile.
const SYNC_TAKES: Duration = Duration::from_millis(2);

/// Calls at once: some wait for an fsync.
const THREADS: usize = 4;

const BLOCK_BYTES: u32 = 4_096;

/// Blocks it says it has: what is in memory needs no limit.
const BLOCKS: u64 = 1 << 20;

/// The type bits of a mode, and those of a socket.
const TYPE_BITS: u32 = 0o170_000;
const SOCKET_BITS: u32 = 0o140_000;

/// Fallocate that leaves the length alone.
const KEEP_SIZE: i32 = 1;

/// A mounted file system. It is unmounted when this is dropped.
pub struct Mounted {
    tree: Arc<Mutex<Tree>>,
    _session: BackgroundSession,
}

impl Mounted {
    /// Mounts an empty one. Everything in it belongs to `owner`, user and group, until somebody makes it.
    ///
    /// # Errors
    /// When there is no `/dev/fuse`, or no right to mount.
    pub fn at(path: &Path, owner: (u32, u32)) -> io::Result<Self> {
        let tree = Arc::new(Mutex::new(Tree::new(owner)));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("drill".to_owned())];
        config.n_threads = Some(THREADS);
        let session = spawn_mount(Forgetful(Arc::clone(&tree)), path, &config)?;
        Ok(Self { tree, _session: session })
    }

    /// The power goes.
    #[must_use]
    pub fn cut(&self, seed: u64) -> Cut {
        lock(&self.tree).cut(seed)
    }

    /// The power is back.
    pub fn power_on(&self) {
        lock(&self.tree).power_on();
    }
}

fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Forgetful(Arc<Mutex<Tree>>);

impl Forgetful {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.0)
    }
}

fn errno(fault: Fault) -> Errno {
    match fault {
        Fault::Off => Errno::EIO,
        Fault::NotFound => Errno::ENOENT,
        Fault::NotEmpty => Errno::ENOTEMPTY,
        Fault::TooLarge => Errno::EFBIG,
    }
}

fn attributes(stat: &Stat) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(stat.number),
        size: stat.bytes,
        blocks: stat.bytes.div_ceil(512),
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: kind(stat.kind),
        perm: stat.mode,
        nlink: stat.links,
        uid: stat.owner.0,
        gid: stat.owner.1,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Socket => FileType::Socket,
    }
}

fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

fn entry(made: Result<Stat, Fault>, reply: ReplyEntry) {
    match made {
        Ok(stat) => reply.entry(&NEVER, &attributes(&stat), Generation(0)),
        Err(fault) => reply.error(errno(fault)),
    }
}

fn done(result: Result<(), Fault>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(fault) => reply.error(errno(fault)),
    }
}

fn owner(request: &Request) -> (u32, u32) {
    (request.uid(), request.gid())
}

impl Filesystem for Forgetful {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.tree().look_up(parent.0, name), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree().stat(ino.0) {
            Ok(stat) => reply.attr(&NEVER, &attributes(&stat)),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.tree();
        let resized = size.map_or(Ok(()), |size| tree.resize(ino.0, size));
        let set = resized.and_then(|()| mode.map_or(Ok(()), |mode| tree.set_mode(ino.0, mode)));
        match set.and_then(|()| tree.stat(ino.0)) {
            Ok(stat) => reply.attr(&NEVER, &attributes(&stat)),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let kind = if mode & TYPE_BITS == SOCKET_BITS { Kind::Socket } else { Kind::File };
        let owner = owner(request);
        entry(self.tree().make(parent.0, name, kind, permissions(mode), owner), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let owner = owner(request);
        entry(self.tree().make(parent.0, name, Kind::Directory, permissions(mode), owner), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let owner = owner(request);
        match self.tree().make(parent.0, name, Kind::File, permissions(mode), owner) {
            Ok(stat) => {
                let flags = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&NEVER, &attributes(&stat), Generation(0), FileHandle(0), flags);
            }
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.tree().remove(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.tree().remove(parent.0, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        done(self.tree().rename((parent.0, name), (new_parent.0, new_name)), reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        entry(self.tree().link(ino.0, new_parent.0, new_name), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.tree().stat(ino.0) {
            Ok(_) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.tree().read(ino.0, offset, size) {
            Ok(bytes) => reply.data(bytes),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.tree().write(ino.0, offset, data) {
            // A request of the kernel is a megabyte at most.
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        std::thread::sleep(SYNC_TAKES);
        done(self.tree().sync(ino.0), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.tree().sync(ino.0), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let extends = mode & KEEP_SIZE == 0;
        let end = if extends { offset.saturating_add(length) } else { 0 };
        done(self.tree().extend(ino.0, end), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = match self.tree().list(ino.0) {
            Ok(listed) => listed,
            Err(fault) => return reply.error(errno(fault)),
        };
        let dots = [(ino.0, ".".into()), (ROOT, "..".into())]
            .map(|(number, name)| (number, Kind::Directory, name));
        for (next, (number, what, name)) in (1_u64..).zip(dots.into_iter().chain(listed)) {
            if next > offset && reply.add(INodeNo(number), next, kind(what), name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}
