//! Files and names: as programs see them, and as far as they are durable.
//!
//! The rules are those of a journalling file system. A file's bytes are durable once it is fsynced. Names are durable once
//! anything is fsynced: the commit of the journal takes all of them with it. At a cut each file keeps its durable bytes
//! and, as the kernel writes back when it pleases, some first part of the writes since; names are, now and then, further
//! than the last fsync took them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use ankusa_drills_replay::Rng;

/// The number of the root directory.
pub const ROOT: u64 = 1;

/// One cut in so many finds the names as they are, not as they were at the last fsync.
const NAMES_KEPT_ONE_IN: u64 = 4;

/// One file in so many keeps some of its unsynced writes.
const WRITES_KEPT_ONE_IN: u64 = 3;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power is off.
    Off,
    NotFound,
    NotEmpty,
    /// Longer than anything can be in memory.
    TooLarge,
}

/// What a node of the tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Socket,
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub number: u64,
    pub kind: Kind,
    pub bytes: u64,
    pub mode: u16,
    pub links: u32,
    pub owner: (u32, u32),
}

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset.saturating_add(bytes.len());
                if to.len() < end {
                    to.resize(end, 0);
                }
                if let Some(place) = to.get_mut(*offset..end) {
                    place.copy_from_slice(bytes);
                }
            }
            Self::Resize(length) => to.resize(*length, 0),
        }
    }
}

type Names = BTreeMap<OsString, u64>;

#[derive(Clone, Debug)]
struct Inode {
    kind: Kind,
    mode: u16,
    owner: (u32, u32),
    links: u32,
    bytes: Vec<u8>,
    durable_bytes: Vec<u8>,
    unsynced: Vec<Change>,
    names: Names,
    durable_names: Names,
}

impl Inode {
    fn new(kind: Kind, mode: u16, owner: (u32, u32)) -> Self {
        Self {
            kind,
            mode,
            owner,
            links: 1,
            bytes: Vec::new(),
            durable_bytes: Vec::new(),
            unsynced: Vec::new(),
            names: Names::new(),
            durable_names: Names::new(),
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.bytes);
        self.unsynced.push(change);
    }
}

/// What a cut found and forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Fsyncs so far.
    pub syncs: u64,
    /// Writes that were forgotten.
    pub forgotten: usize,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Tree {
    inodes: BTreeMap<u64, Inode>,
    last: u64,
    is_off: bool,
    syncs: u64,
}

impl Tree {
    /// An empty root directory of this owner.
    #[must_use]
    pub fn new(owner: (u32, u32)) -> Self {
        let root = Inode::new(Kind::Directory, 0o700, owner);
        Self { inodes: BTreeMap::from([(ROOT, root)]), last: ROOT, is_off: false, syncs: 0 }
    }

    /// The power goes: what is not durable is forgotten, but for what the seed lets the disk have by chance.
    pub fn cut(&mut self, seed: u64) -> Cut {
        let mut rng = Rng::new(seed);
        self.is_off = true;
        let mut forgotten = 0;
        let keeps_names = rng.below(NAMES_KEPT_ONE_IN) == 0;
        for inode in self.inodes.values_mut() {
            if !keeps_names {
                inode.names.clone_from(&inode.durable_names);
            }
            inode.durable_names.clone_from(&inode.names);
            let most = inode.unsynced.len();
            let kept =
                if most > 0 && rng.below(WRITES_KEPT_ONE_IN) == 0 { rng.up_to(most) } else { 0 };
            for change in inode.unsynced.drain(..).take(kept) {
                change.apply(&mut inode.durable_bytes);
            }
            forgotten += most - kept;
            inode.bytes.clone_from(&inode.durable_bytes);
        }
        Cut { syncs: self.syncs, forgotten }
    }

    /// The power is back.
    pub fn power_on(&mut self) {
        self.is_off = false;
    }

    fn inode(&self, number: u64) -> Result<&Inode, Fault> {
        if self.is_off {
            return Err(Fault::Off);
        }
        self.inodes.get(&number).ok_or(Fault::NotFound)
    }

    fn inode_mut(&mut self, number: u64) -> Result<&mut Inode, Fault> {
        if self.is_off {
            return Err(Fault::Off);
        }
        self.inodes.get_mut(&number).ok_or(Fault::NotFound)
    }

    /// # Errors
    /// As every call here: when the power is off, or there is no such thing.
    pub fn stat(&self, number: u64) -> Result<Stat, Fault> {
        let inode = self.inode(number)?;
        Ok(Stat {
            number,
            kind: inode.kind,
            bytes: u64::try_from(inode.bytes.len()).unwrap_or(u64::MAX),
            mode: inode.mode,
            links: inode.links.max(1),
            owner: inode.owner,
        })
    }

    /// # Errors
    /// As [`Self::stat`].
    pub fn look_up(&self, directory: u64, name: &OsStr) -> Result<Stat, Fault> {
        let number = self.inode(directory)?.names.get(name).copied().ok_or(Fault::NotFound)?;
        self.stat(number)
    }

    /// The names in a directory, with what they are.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn list(&self, directory: u64) -> Result<Vec<(u64, Kind, OsString)>, Fault> {
        let names = self.inode(directory)?.names.iter();
        let entries = names.filter_map(|(name, number)| {
            Some((*number, self.inodes.get(number)?.kind, name.clone()))
        });
        Ok(entries.collect())
    }

    /// Makes something new under a name.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn make(
        &mut self,
        directory: u64,
        name: &OsStr,
        kind: Kind,
        mode: u16,
        owner: (u32, u32),
    ) -> Result<Stat, Fault> {
        let number = self.last + 1;
        self.inode_mut(directory)?.names.insert(name.to_owned(), number);
        self.inodes.insert(number, Inode::new(kind, mode & 0o7777, owner));
        self.last = number;
        self.stat(number)
    }

    /// Another name for a file.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn link(&mut self, number: u64, directory: u64, name: &OsStr) -> Result<Stat, Fault> {
        self.inode(directory)?;
        self.inode_mut(number)?.links += 1;
        self.inode_mut(directory)?.names.insert(name.to_owned(), number);
        self.stat(number)
    }

    /// Takes a name away. What it named stays for those that have it open, and for a cut that brings the name back.
    ///
    /// # Errors
    /// As [`Self::stat`], or when it is a directory with something in it.
    pub fn remove(&mut self, directory: u64, name: &OsStr) -> Result<(), Fault> {
        let number = self.look_up(directory, name)?.number;
        if !self.inode(number)?.names.is_empty() {
            return Err(Fault::NotEmpty);
        }
        self.inode_mut(directory)?.names.remove(name);
        let inode = self.inode_mut(number)?;
        inode.links = inode.links.saturating_sub(1);
        Ok(())
    }

    /// Moves a name, over another one if need be.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<(), Fault> {
        let number = self.look_up(from.0, from.1)?.number;
        self.inode(to.0)?;
        self.inode_mut(from.0)?.names.remove(from.1);
        self.inode_mut(to.0)?.names.insert(to.1.to_owned(), number);
        Ok(())
    }

    /// # Errors
    /// As [`Self::stat`].
    pub fn set_mode(&mut self, number: u64, mode: u32) -> Result<(), Fault> {
        self.inode_mut(number)?.mode = u16::try_from(mode & 0o7777).unwrap_or(0);
        Ok(())
    }

    /// # Errors
    /// As [`Self::stat`], or when it cannot be so long.
    pub fn resize(&mut self, number: u64, length: u64) -> Result<(), Fault> {
        let length = usize::try_from(length).map_err(|_| Fault::TooLarge)?;
        self.inode_mut(number)?.change(Change::Resize(length));
        Ok(())
    }

    /// Makes a file at least so long.
    ///
    /// # Errors
    /// As [`Self::resize`].
    pub fn extend(&mut self, number: u64, length: u64) -> Result<(), Fault> {
        if self.stat(number)?.bytes < length { self.resize(number, length) } else { Ok(()) }
    }

    /// # Errors
    /// As [`Self::resize`].
    pub fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let offset = usize::try_from(offset).map_err(|_| Fault::TooLarge)?;
        self.inode_mut(number)?.change(Change::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    /// Up to `length` bytes from `offset` on.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn read(&self, number: u64, offset: u64, length: u32) -> Result<&[u8], Fault> {
        let bytes = &self.inode(number)?.bytes;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let end = start.saturating_add(length).min(bytes.len());
        Ok(bytes.get(start..end).unwrap_or_default())
    }

    /// Makes a file's bytes durable, and all names.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn sync(&mut self, number: u64) -> Result<(), Fault> {
        let inode = self.inode_mut(number)?;
        for change in std::mem::take(&mut inode.unsynced) {
            change.apply(&mut inode.durable_bytes);
        }
        self.syncs += 1;
        for inode in self.inodes.values_mut().filter(|inode| inode.kind == Kind::Directory) {
            inode.durable_names.clone_from(&inode.names);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: (u32, u32) = (0, 0);

    fn file(tree: &mut Tree, name: &str) -> u64 {
        tree.make(ROOT, OsStr::new(name), Kind::File, 0o600, OWNER).unwrap().number
    }

    fn found(tree: &Tree, name: &str) -> Option<Vec<u8>> {
        let number = tree.look_up(ROOT, OsStr::new(name)).ok()?.number;
        Some(tree.read(number, 0, 1 << 20).unwrap().to_vec())
    }

    #[test]
    fn what_was_synced_is_there_after_every_cut() {
        for seed in 0..200 {
            let mut tree = Tree::new(OWNER);
            let number = file(&mut tree, "a");
            tree.write(number, 0, b"synced").unwrap();
            tree.sync(number).unwrap();
            tree.write(number, 6, b" and not").unwrap();
            tree.cut(seed);
            assert_eq!(tree.stat(number), Err(Fault::Off));
            tree.power_on();
            let bytes = found(&tree, "a").unwrap();
            assert!(bytes == b"synced" || bytes == b"synced and not", "{bytes:?}");
        }
    }

    #[test]
    fn what_was_not_synced_is_mostly_forgotten_and_sometimes_there() {
        let mut outcomes = [0; 3];
        for seed in 0..400 {
            let mut tree = Tree::new(OWNER);
            let number = file(&mut tree, "a");
            tree.write(number, 0, b"x").unwrap();
            tree.cut(seed);
            tree.power_on();
            match found(&tree, "a").as_deref() {
                None => outcomes[0] += 1,
                Some(b"") => outcomes[1] += 1,
                Some(_) => outcomes[2] += 1,
            }
        }
        assert!(outcomes.iter().all(|count| *count > 5), "{outcomes:?}");
        assert!(outcomes[0] > 200, "{outcomes:?}");
    }

    #[test]
    fn the_journal_takes_every_name_with_it() {
        let mut tree = Tree::new(OWNER);
        let (a, b) = (file(&mut tree, "a"), file(&mut tree, "b"));
        tree.write(a, 0, b"1").unwrap();
        tree.sync(b).unwrap();
        tree.rename((ROOT, OsStr::new("b")), (ROOT, OsStr::new("c"))).unwrap();
        tree.remove(ROOT, OsStr::new("a")).unwrap();
        let seed = (0..).find(|seed| Rng::new(*seed).below(NAMES_KEPT_ONE_IN) != 0).unwrap();
        tree.cut(seed);
        tree.power_on();
        assert!(found(&tree, "a").is_some_and(|bytes| bytes.len() <= 1));
        assert_eq!((found(&tree, "b"), found(&tree, "c")), (Some(vec![]), None));
    }

    #[test]
    fn a_directory_goes_when_it_is_empty() {
        let mut tree = Tree::new(OWNER);
        let name = OsStr::new("d");
        let directory = tree.make(ROOT, name, Kind::Directory, 0o755, OWNER).unwrap().number;
        let inner = tree.make(directory, OsStr::new("f"), Kind::File, 0o600, OWNER).unwrap();
        tree.link(inner.number, ROOT, OsStr::new("g")).unwrap();
        assert_eq!(tree.stat(inner.number).map(|stat| stat.links), Ok(2));
        assert_eq!(tree.remove(ROOT, name), Err(Fault::NotEmpty));
        tree.remove(directory, OsStr::new("f")).unwrap();
        assert_eq!(tree.remove(ROOT, name), Ok(()));
        assert_eq!(tree.list(ROOT).unwrap().len(), 1);
    }

    #[test]
    fn files_grow_and_shrink() {
        let mut tree = Tree::new(OWNER);
        let number = file(&mut tree, "a");
        tree.write(number, 2, b"xy").unwrap();
        tree.extend(number, 3).unwrap();
        assert_eq!(tree.read(number, 1, 2), Ok(&b"\0x"[..]));
        tree.resize(number, 1).unwrap();
        tree.extend(number, 2).unwrap();
        assert_eq!(tree.read(number, 0, 9), Ok(&b"\0\0"[..]));
        assert_eq!(tree.read(number, 7, 9), Ok(&b""[..]));
    }
}
