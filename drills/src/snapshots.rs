//! A real ext4 on a loop device, whose image lies on an XFS that can clone files: a clone of the image, which takes the
//! kernel an instant, is the disk at that instant, and mounting it is what a start after a power cut does: the journal is
//! replayed.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::ioctl_ficlone;

use crate::drill::{CannotInject, OrCannot};
use crate::keeper::{Keeper, Rights};

/// The size of the disk, and of the XFS that holds it and a clone, in MiB. mkfs.xfs makes none below 300.
const DISK_MIB: u64 = 256;
const HOST_MIB: u64 = 1_024;

/// Sets everything up below the directory it is given, then does what it is told, a command a line.
///
/// No image lies on a mount that another one of these is mounted upon: such a pair would hold on to each other when the
/// process is killed, and the loop devices with them.
const SCRIPT: &str = r#"
set -e
cd "$0"
mkdir memory host live
mount -t tmpfs -o "size=$(($2 + 16))m,mode=0700" tmpfs memory
truncate -s "$2M" memory/host.img
mkfs.xfs -q -m reflink=1 memory/host.img
mount -o loop memory/host.img host
truncate -s "$1M" host/disk.img
mkfs.ext4 -q -F host/disk.img
mount -o loop host/disk.img live
set +e
echo mounted
while read -r line; do
  if said=$(eval "$line" 2>&1); then echo ok; else echo "failed: $(echo "$said" | tr '\n' ' ')"; fi
done
"#;

/// The disk.
pub struct Snapshots {
    keeper: Keeper,
    host: PathBuf,
    live: PathBuf,
    taken: u64,
}

/// A clone of the disk.
#[derive(Debug)]
pub struct Snapshot {
    file: String,
}

impl Snapshots {
    /// Mounts a new one below the directory `at`.
    ///
    /// # Errors
    /// When it takes rights, loop devices or programs that are not there.
    pub fn mount(at: &Path) -> Result<Self, CannotInject> {
        let words = [
            "sh".into(),
            "-c".into(),
            SCRIPT.into(),
            at.into(),
            DISK_MIB.to_string().into(),
            HOST_MIB.to_string().into(),
        ];
        let keeper = Keeper::start(Rights::Roots, &words)?;
        let (host, live) = (keeper.path(&at.join("host")), keeper.path(&at.join("live")));
        Ok(Self { keeper, host, live, taken: 0 })
    }

    /// The mounted disk.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.live
    }

    /// The disk as it is at this instant.
    ///
    /// # Errors
    /// When it cannot be cloned.
    pub fn take(&mut self) -> Result<Snapshot, CannotInject> {
        self.taken += 1;
        let file = format!("disk-{}.img", self.taken);
        let disk = File::open(self.host.join("disk.img")).or_cannot("open the disk's image")?;
        let clone = File::create(self.host.join(&file)).or_cannot("make another image")?;
        ioctl_ficlone(&clone, &disk).or_cannot("clone the disk's image")?;
        Ok(Snapshot { file })
    }

    /// Takes the disk away and puts the snapshot in its place. Nobody may use the disk.
    ///
    /// # Errors
    /// When somebody does, or the snapshot cannot be mounted.
    pub fn put(&mut self, Snapshot { file }: Snapshot) -> Result<(), CannotInject> {
        self.tell("umount live")?;
        self.tell(&format!("mv host/{file} host/disk.img"))?;
        self.tell("mount -o loop host/disk.img live")
    }

    fn tell(&mut self, command: &str) -> Result<(), CannotInject> {
        match self.keeper.ask(command)?.as_str() {
            "ok" => Ok(()),
            failed => Err(CannotInject(format!("{command}: {failed}"))),
        }
    }
}
