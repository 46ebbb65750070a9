//! Crash images: one legal state of the disk after a cut, and a directory that shows it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Change, Disk, File, NameChange, NameRule, Names, Node, parent, write_at};
use crate::rng::Rng;

/// The unit in which a disk tears a write.
const SECTOR_BYTES: usize = 512;
/// The unit in which a page cache writes back.
const PAGE_BYTES: usize = 4096;

/// What happens at the cut to what no sync made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// All of it is gone.
    DropUnsynced,
    /// All of it stays: the process died, the machine did not.
    KeepAll,
    /// Of each file nothing, everything, or a prefix of its writes whose last one is torn at a 512-byte boundary.
    Torn512,
    /// A file's new size reached the disk, its new bytes did not: zeros up to a random length.
    ZeroTail,
    /// The page cache was written back in any order: each 4 KiB page of a file's unsynced bytes lands or does not.
    PageReorder,
}

impl Policy {
    /// Every policy, from the plain to the wild.
    pub const ALL: [Self; 5] =
        [Self::DropUnsynced, Self::KeepAll, Self::Torn512, Self::ZeroTail, Self::PageReorder];

    /// The name used on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DropUnsynced => "drop-unsynced",
            Self::KeepAll => "keep-all",
            Self::Torn512 => "torn-512",
            Self::ZeroTail => "zero-tail",
            Self::PageReorder => "page-reorder",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Tells two states of a file apart without comparing bytes: equal stamps, equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: u32,
    version: u64,
    durable: bool,
}

/// What a path of an image is.
#[derive(Clone, Debug)]
enum Entry<'a> {
    Dir,
    /// A file. Without a stamp its bytes were drawn and must be written whatever the directory holds.
    File {
        bytes: Cow<'a, [u8]>,
        stamp: Option<Stamp>,
    },
}

/// One state of the directory after a cut. Paths are relative to the root; the root itself is not listed.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    entries: BTreeMap<String, Entry<'a>>,
}

impl<'a> Image<'a> {
    /// The bytes of the file at `path`, if the image has one there.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        match self.entries.get(path)? {
            Entry::Dir => None,
            Entry::File { bytes, .. } => Some(bytes),
        }
    }

    /// Every path, files and directories, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

impl Disk {
    /// The disk as a cut at this moment could leave it. The seeded policies draw from `rng`; the same disk and the same
    /// generator give the same image.
    pub fn image(&self, policy: Policy, rng: &mut Rng) -> Image<'_> {
        let names = self.names_after_cut(policy, rng);
        let prefix = format!("{}/", self.root());
        let mut entries = BTreeMap::new();
        // A file drawn once has the same bytes under all its names.
        let mut drawn: BTreeMap<u32, Entry<'_>> = BTreeMap::new();
        for (path, node) in &names {
            let Some(relative) = path.strip_prefix(&prefix) else { continue };
            if !is_reachable(&names, self.root(), path) {
                continue;
            }
            let entry = match node {
                Node::Dir => Entry::Dir,
                Node::File(number) => drawn
                    .entry(*number)
                    .or_insert_with(|| self.file_after_cut(*number, policy, rng))
                    .clone(),
            };
            entries.insert(relative.to_owned(), entry);
        }
        Image { entries }
    }

    fn names_after_cut(&self, policy: Policy, rng: &mut Rng) -> Names {
        match policy {
            Policy::KeepAll => self.current_names().clone(),
            Policy::DropUnsynced => self.durable_names().clone(),
            Policy::Torn512 | Policy::ZeroTail | Policy::PageReorder => {
                let mut names = self.durable_names().clone();
                for waiting in self.names_that_land(rng) {
                    waiting.apply(&mut names);
                }
                names
            }
        }
    }

    /// The changes of names that reached the disk although nothing forced them: a prefix of what waits, in all or, under
    /// the strict rule, in each directory.
    fn names_that_land(&self, rng: &mut Rng) -> Vec<&NameChange> {
        let pending = || self.pending_names().iter().map(|waiting| &waiting.change);
        let order_of = |change: &'_ NameChange| match self.rule() {
            NameRule::Journal => String::new(),
            NameRule::Strict => change.directory().to_owned(),
        };
        let mut landing: BTreeMap<String, usize> = BTreeMap::new();
        for change in pending() {
            *landing.entry(order_of(change)).or_default() += 1;
        }
        for count in landing.values_mut() {
            *count = rng.up_to(*count);
        }
        let lands = |change: &&NameChange| match landing.get_mut(&order_of(change)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        pending().filter(lands).collect()
    }

    fn file_after_cut(&self, number: u32, policy: Policy, rng: &mut Rng) -> Entry<'_> {
        let Some(file) = self.file(number) else {
            return Entry::File { bytes: Cow::Borrowed(&[]), stamp: None };
        };
        if policy == Policy::KeepAll {
            let stamp = Stamp { file: number, version: file.current_version, durable: false };
            return Entry::File { bytes: Cow::Borrowed(&file.current), stamp: Some(stamp) };
        }
        if policy == Policy::DropUnsynced || file.pending.is_empty() {
            let stamp = Stamp { file: number, version: file.durable_version, durable: true };
            return Entry::File { bytes: Cow::Borrowed(&file.durable), stamp: Some(stamp) };
        }
        let bytes = match policy {
            Policy::DropUnsynced | Policy::KeepAll => file.durable.clone(),
            Policy::Torn512 => torn(file, rng),
            Policy::ZeroTail => zero_tail(file, rng),
            Policy::PageReorder => pages_in_any_order(file, rng),
        };
        Entry::File { bytes: Cow::Owned(bytes), stamp: None }
    }
}

/// Whether every directory above `path` survived too: what hangs below a lost directory is lost with it.
fn is_reachable(names: &Names, root: &str, path: &str) -> bool {
    let mut above = parent(path);
    while above.len() > root.len() {
        if names.get(above) != Some(&Node::Dir) {
            return false;
        }
        above = parent(above);
    }
    above == root
}

/// The file with all its pending changes: what an fsync now would make durable.
fn settled(file: &File) -> Vec<u8> {
    let mut contents = file.durable.clone();
    file.pending.iter().for_each(|waiting| waiting.change.apply(&mut contents));
    contents
}

fn torn(file: &File, rng: &mut Rng) -> Vec<u8> {
    match rng.below(3) {
        0 => file.durable.clone(),
        1 => settled(file),
        _ => {
            let whole = rng.up_to(file.pending.len());
            let mut contents = file.durable.clone();
            file.pending.iter().take(whole).for_each(|waiting| waiting.change.apply(&mut contents));
            if let Some(Change::Write { offset, bytes }) =
                file.pending.get(whole).map(|waiting| &waiting.change)
            {
                let landed = rng.up_to(bytes.len()) / SECTOR_BYTES * SECTOR_BYTES;
                write_at(&mut contents, *offset, bytes.get(..landed).unwrap_or_default());
            }
            contents
        }
    }
}

fn zero_tail(file: &File, rng: &mut Rng) -> Vec<u8> {
    let mut contents = file.durable.clone();
    let grown = settled(file).len().saturating_sub(contents.len());
    contents.resize(contents.len() + rng.up_to(grown), 0);
    contents
}

fn pages_in_any_order(file: &File, rng: &mut Rng) -> Vec<u8> {
    let settled = settled(file);
    let mut contents = file.durable.clone();
    // The size is metadata and lands; what no page brought is zeros.
    contents.resize(settled.len(), 0);
    for (ours, theirs) in contents.chunks_mut(PAGE_BYTES).zip(settled.chunks(PAGE_BYTES)) {
        if rng.coin() {
            ours.copy_from_slice(theirs);
        }
    }
    contents
}

/// A directory that shows one image after another, writing only the files that changed in between.
#[derive(Debug)]
pub struct Mirror {
    directory: PathBuf,
    shown: BTreeMap<String, Shown>,
}

/// What the mirror last put at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Dir,
    File(Option<Stamp>),
}

impl Mirror {
    /// A mirror over `directory`, which is emptied (and made, if it is not there).
    ///
    /// # Errors
    /// When the directory cannot be emptied or made.
    pub fn new(directory: &Path) -> io::Result<Self> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(directory)?,
        }
        Ok(Self { directory: directory.to_owned(), shown: BTreeMap::new() })
    }

    /// Where the images are shown.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory hold exactly this image. Whoever looked at the last one must not have written to it.
    /// Answers how much had to change: files written, directories made, paths removed. 0: the image is the last one.
    ///
    /// # Errors
    /// When a file or directory cannot be written or removed.
    pub fn show(&mut self, image: &Image<'_>) -> io::Result<usize> {
        let mut changes = self.remove_all_but(image)?;
        // Paths are in order, so a directory comes before what is in it.
        for (path, entry) in &image.entries {
            let target = self.directory.join(path);
            match entry {
                Entry::Dir => {
                    if self.shown.get(path) != Some(&Shown::Dir) {
                        fs::create_dir(&target)?;
                        changes += 1;
                    }
                    self.shown.insert(path.clone(), Shown::Dir);
                }
                Entry::File { bytes, stamp } => {
                    if stamp.is_none() || self.shown.get(path) != Some(&Shown::File(*stamp)) {
                        // Forgotten first: a write that fails half way leaves a file of unknown bytes.
                        self.shown.insert(path.clone(), Shown::File(None));
                        fs::write(&target, bytes)?;
                        changes += 1;
                    }
                    self.shown.insert(path.clone(), Shown::File(*stamp));
                }
            }
        }
        Ok(changes)
    }

    /// Removes what the image does not have, or has as something else. Children come before their directory. Answers how
    /// many paths went.
    fn remove_all_but(&mut self, image: &Image<'_>) -> io::Result<usize> {
        let gone: Vec<(String, Shown)> = self
            .shown
            .iter()
            .rev()
            .filter(|(path, shown)| match (shown, image.entries.get(*path)) {
                (Shown::Dir, Some(Entry::Dir)) | (Shown::File(_), Some(Entry::File { .. })) => {
                    false
                }
                (Shown::Dir | Shown::File(_), _) => true,
            })
            .map(|(path, shown)| (path.clone(), *shown))
            .collect();
        for (path, shown) in &gone {
            let target = self.directory.join(path);
            match shown {
                Shown::Dir => fs::remove_dir_all(&target)?,
                Shown::File(_) => fs::remove_file(&target)?,
            }
            self.shown.remove(path);
        }
        Ok(gone.len())
    }
}
