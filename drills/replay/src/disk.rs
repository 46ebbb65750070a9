//! The model disk: what a process asked for, kept apart from what would survive a power cut.
//!
//! * **Data.** A file has its *current* bytes (the page cache) and its *durable* bytes. A write changes the current ones
//!   and waits as pending. An fsync that returns makes durable what was pending when it **began**: bytes written while
//!   it ran may or may not have been covered, so they are not.
//! * **Names.** Creates, renames, links and unlinks wait as pending too. [`NameRule`] says which sync makes them durable.
//! * **A failed fsync** marks its pages clean without writing them: a later fsync that succeeds does not cover them
//!   (what Linux does, see "fsyncgate"). They stay visible in the page cache and are gone after a cut. The model is a
//!   little harsher than Linux here: a later write to the same page would take its neighbours along.

use std::collections::BTreeMap;

use crate::image::Image;
use crate::oplog::Op;

/// No drill writes a file near this size; a log that says so is damaged, and following it would eat the machine.
pub const FILE_MAX_BYTES: u64 = 1 << 30;

/// Which sync makes a change of names durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A journal with one order, as ext4 and XFS have it: any fsync commits every earlier change of names.
    Journal,
    /// What POSIX promises: only an fsync of the directory itself. Within one directory, changes still reach the disk in
    /// their order, as on every Linux file system: RocksDB relies on that between a new `MANIFEST` and `CURRENT`.
    Strict,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Dir,
    File(u32),
}

/// Paths, absolute, each with what it names.
pub(crate) type Names = BTreeMap<String, Node>;

/// A change of a file's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
    Extend { length: usize },
}

impl Change {
    pub(crate) fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write_at(contents, *offset, bytes),
            Self::Truncate { length } => contents.resize(*length, 0),
            Self::Extend { length } => contents.resize(contents.len().max(*length), 0),
        }
    }
}

/// Writes `bytes` at `offset`, with zeros in any hole before it. The caller has checked the end against the file limit.
pub(crate) fn write_at(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset.saturating_add(bytes.len());
    contents.resize(contents.len().max(end), 0);
    if let Some(target) = contents.get_mut(offset..end) {
        target.copy_from_slice(bytes);
    }
}

/// A change of the name space.
#[derive(Clone, Debug)]
pub(crate) enum NameChange {
    Add { path: String, node: Node },
    Remove { path: String },
    Rename { from: String, to: String },
}

impl NameChange {
    pub(crate) fn apply(&self, names: &mut Names) {
        match self {
            Self::Add { path, node } => {
                names.insert(path.clone(), *node);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
            Self::Rename { from, to } => rename(names, from, to),
        }
    }

    /// The directory whose order of changes this one belongs to: a rename belongs to the one it goes to.
    pub(crate) fn directory(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Remove { path } => parent(path),
            Self::Rename { to, .. } => parent(to),
        }
    }

    fn is_in(&self, directory: &str) -> bool {
        match self {
            Self::Add { path, .. } | Self::Remove { path } => parent(path) == directory,
            Self::Rename { from, to } => parent(from) == directory || parent(to) == directory,
        }
    }
}

/// Moves `from`, and everything below it, to `to`. A name that is not there (a file the recorder did not see) moves
/// nothing.
fn rename(names: &mut Names, from: &str, to: &str) {
    let Some(node) = names.remove(from) else { return };
    if node == Node::Dir {
        let below = format!("{from}/");
        let moved: Vec<String> = names
            .range(below.clone()..)
            .map(|(path, _)| path.clone())
            .take_while(|path| path.starts_with(&below))
            .collect();
        for path in moved {
            if let (Some(node), Some(rest)) = (names.remove(&path), path.strip_prefix(from)) {
                names.insert(format!("{to}{rest}"), node);
            }
        }
    }
    names.insert(to.to_owned(), node);
}

/// The directory a path is in.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// A change that waits for a sync. `at` is the number of the operation that made it.
#[derive(Clone, Debug)]
pub(crate) struct Pending<T> {
    at: u64,
    pub(crate) change: T,
}

/// Takes out of `pending` what was there before operation `before`, in order.
fn take_before<T>(pending: &mut Vec<Pending<T>>, before: u64) -> Vec<T> {
    let count = pending.partition_point(|waiting| waiting.at < before);
    pending.drain(..count).map(|waiting| waiting.change).collect()
}

/// A file's bytes. The versions change whenever the bytes do, so that an image can tell what it already wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) durable: Vec<u8>,
    pub(crate) durable_version: u64,
    pub(crate) current: Vec<u8>,
    pub(crate) current_version: u64,
    pub(crate) pending: Vec<Pending<Change>>,
}

/// An fsync that began and has not ended: what it will cover.
#[derive(Clone, Copy, Debug)]
struct Begun {
    before: u64,
}

/// Why an operation cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    #[error("file {file} would grow to {bytes} bytes, over the limit of {FILE_MAX_BYTES}")]
    FileTooLarge { file: u32, bytes: u64 },
    #[error("the sync with token {token} ends without having begun")]
    SyncNeverBegan { token: u64 },
}

/// The disk of one recorded process, from an empty root directory on or from what an earlier cut left.
#[derive(Clone, Debug)]
pub struct Disk {
    root: String,
    rule: NameRule,
    files: BTreeMap<u32, File>,
    /// The recorder's numbers of files that were there before it, with ours.
    found: BTreeMap<u32, u32>,
    current_names: Names,
    durable_names: Names,
    pending_names: Vec<Pending<NameChange>>,
    syncs: BTreeMap<u64, Begun>,
    operations: u64,
    forgotten_writes: u64,
}

impl Disk {
    /// An empty, durable directory `root` (an absolute path without a slash at its end).
    #[must_use]
    pub fn new(root: &str, rule: NameRule) -> Self {
        let names = Names::from([(root.to_owned(), Node::Dir)]);
        Self {
            root: root.to_owned(),
            rule,
            files: BTreeMap::new(),
            found: BTreeMap::new(),
            current_names: names.clone(),
            durable_names: names,
            pending_names: Vec::new(),
            syncs: BTreeMap::new(),
            operations: 0,
            forgotten_writes: 0,
        }
    }

    /// A durable directory `root` that holds what `image` shows: the disk a process is started on after a cut.
    #[must_use]
    pub fn holding(image: &Image<'_>, root: &str, rule: NameRule) -> Self {
        let mut disk = Self::new(root, rule);
        // The recorder numbers files from 1 up; those that were there before it are ours to number, from the top down.
        let mut number = u32::MAX;
        for path in image.paths() {
            let node = match image.file(path) {
                None => Node::Dir,
                Some(bytes) => {
                    let file = File {
                        durable: bytes.to_vec(),
                        current: bytes.to_vec(),
                        ..File::default()
                    };
                    disk.files.insert(number, file);
                    number -= 1;
                    Node::File(number + 1)
                }
            };
            disk.durable_names.insert(format!("{root}/{path}"), node);
        }
        disk.current_names = disk.durable_names.clone();
        disk
    }

    /// The number we have for the recorder's number of a file.
    fn ours(&self, file: u32) -> u32 {
        self.found.get(&file).copied().unwrap_or(file)
    }

    /// Writes that a failed fsync marked clean: lost for ever if the power is cut, whatever is synced later.
    #[must_use]
    pub fn forgotten_writes(&self) -> u64 {
        self.forgotten_writes
    }

    /// Replays the next operation. A mark changes nothing.
    ///
    /// # Errors
    /// When the log cannot have been recorded: a file past [`FILE_MAX_BYTES`], a sync that ends without a beginning.
    pub fn apply(&mut self, op: &Op<'_>) -> Result<(), DiskError> {
        self.operations += 1;
        match *op {
            Op::Create { file, path } => {
                self.files.insert(file, File::default());
                self.change_names(NameChange::Add {
                    path: path.to_owned(),
                    node: Node::File(file),
                });
            }
            Op::Found { file, path } => {
                if let Some(Node::File(ours)) = self.current_names.get(path) {
                    self.found.insert(file, *ours);
                }
            }
            Op::Write { file, offset, bytes } => {
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                within_limit(file, offset.saturating_add(length))?;
                let offset = within_limit(file, offset)?;
                self.change_file(file, Change::Write { offset, bytes: bytes.to_vec() });
            }
            Op::Truncate { file, length } => {
                let length = within_limit(file, length)?;
                self.change_file(file, Change::Truncate { length });
            }
            Op::Extend { file, length } => {
                let length = within_limit(file, length)?;
                self.change_file(file, Change::Extend { length });
            }
            Op::SyncBegin { token, .. } => {
                self.syncs.insert(token, Begun { before: self.operations });
            }
            Op::SyncEnd { file, token } => self.file_synced(file, token)?,
            Op::DirSyncEnd { path, token } => self.directory_synced(path, token)?,
            Op::SyncFailed { file, token } => self.sync_failed(file, token)?,
            Op::Rename { from, to } => {
                self.change_names(NameChange::Rename { from: from.to_owned(), to: to.to_owned() })
            }
            Op::Link { from, to } => {
                if let Some(node) = self.current_names.get(from).copied() {
                    self.change_names(NameChange::Add { path: to.to_owned(), node });
                }
            }
            Op::Unlink { path } | Op::RemoveDir { path } => {
                self.change_names(NameChange::Remove { path: path.to_owned() })
            }
            Op::MakeDir { path } => {
                self.change_names(NameChange::Add { path: path.to_owned(), node: Node::Dir })
            }
            Op::Mark { .. } => {}
        }
        Ok(())
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.current_names);
        self.pending_names.push(Pending { at: self.operations, change });
    }

    fn change_file(&mut self, file: u32, change: Change) {
        let file = self.files.entry(self.ours(file)).or_default();
        change.apply(&mut file.current);
        file.current_version += 1;
        file.pending.push(Pending { at: self.operations, change });
    }

    fn file_synced(&mut self, file: u32, token: u64) -> Result<(), DiskError> {
        let begun = self.end_sync(token)?;
        let file = self.files.entry(self.ours(file)).or_default();
        for change in take_before(&mut file.pending, begun.before) {
            change.apply(&mut file.durable);
            file.durable_version += 1;
        }
        if self.rule == NameRule::Journal {
            self.commit_names(begun.before);
        }
        Ok(())
    }

    fn directory_synced(&mut self, path: &str, token: u64) -> Result<(), DiskError> {
        let begun = self.end_sync(token)?;
        match self.rule {
            NameRule::Journal => self.commit_names(begun.before),
            NameRule::Strict => {
                for waiting in std::mem::take(&mut self.pending_names) {
                    if waiting.at < begun.before && waiting.change.is_in(path) {
                        waiting.change.apply(&mut self.durable_names);
                    } else {
                        self.pending_names.push(waiting);
                    }
                }
            }
        }
        Ok(())
    }

    fn sync_failed(&mut self, file: u32, token: u64) -> Result<(), DiskError> {
        let begun = self.end_sync(token)?;
        if let Some(file) = self.files.get_mut(&self.ours(file)) {
            let forgotten = take_before(&mut file.pending, begun.before).len();
            self.forgotten_writes += u64::try_from(forgotten).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    fn end_sync(&mut self, token: u64) -> Result<Begun, DiskError> {
        self.syncs.remove(&token).ok_or(DiskError::SyncNeverBegan { token })
    }

    fn commit_names(&mut self, before: u64) {
        for change in take_before(&mut self.pending_names, before) {
            change.apply(&mut self.durable_names);
        }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn rule(&self) -> NameRule {
        self.rule
    }

    pub(crate) fn file(&self, file: u32) -> Option<&File> {
        self.files.get(&file)
    }

    pub(crate) fn current_names(&self) -> &Names {
        &self.current_names
    }

    pub(crate) fn durable_names(&self) -> &Names {
        &self.durable_names
    }

    pub(crate) fn pending_names(&self) -> &[Pending<NameChange>] {
        &self.pending_names
    }
}

/// The number as an index, if the file may be that long.
fn within_limit(file: u32, bytes: u64) -> Result<usize, DiskError> {
    if bytes > FILE_MAX_BYTES {
        return Err(DiskError::FileTooLarge { file, bytes });
    }
    usize::try_from(bytes).map_err(|_| DiskError::FileTooLarge { file, bytes })
}
