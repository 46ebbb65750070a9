//! What the figures were measured on. Nothing is pinned: neither processes to cores nor clocks to a frequency.

use std::fs;
use std::path::Path;

use crate::drill::{CannotInject, OrCannot};

/// File systems that keep nothing: an fsync on them costs nothing, and a figure that holds one means nothing.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// The machine, as lines of a report.
///
/// # Errors
/// When the directory cannot be resolved.
pub(super) fn describe(directory: &Path) -> Result<Vec<String>, CannotInject> {
    let directory = directory.canonicalize().or_cannot("resolve the directory of the bench")?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let word = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (kind, device) = mount_of(&directory, &mounts)
        .unwrap_or_else(|| ("unknown".to_owned(), "unknown".to_owned()));
    let mut lines = vec![
        format!(
            "machine: {cores} cores, {}, kernel {}, load average at the start {}",
            cpu_model(&word("/proc/cpuinfo")),
            word("/proc/sys/kernel/osrelease"),
            word("/proc/loadavg")
        ),
        format!("data below {}: {kind} on {device}", directory.display()),
        "nothing is pinned; the load generator runs on the same cores".to_owned(),
    ];
    if IN_MEMORY.contains(&kind.as_str()) {
        lines.push(format!("{kind} keeps nothing: these figures say nothing of a disk (--dir)"));
    }
    if cfg!(debug_assertions) {
        lines.push("this is a debug build: no ratio below means anything".to_owned());
    }
    Ok(lines)
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Kind and device of the file system a path is on: of the mounts it is below, the last of the longest.
fn mount_of(path: &Path, mountinfo: &str) -> Option<(String, String)> {
    let mut best: Option<(usize, String, String)> = None;
    for line in mountinfo.lines() {
        // ... mount point, options, optional fields, then a hyphen: kind, device, options.
        let (before, after) = line.split_once(" - ")?;
        let point = Path::new(before.split(' ').nth(4)?);
        let mut after = after.split(' ');
        let (kind, device) = (after.next()?, after.next()?);
        let depth = point.components().count();
        if path.starts_with(point) && best.as_ref().is_none_or(|(deepest, ..)| depth >= *deepest) {
            best = Some((depth, kind.to_owned(), device.to_owned()));
        }
    }
    best.map(|(_, kind, device)| (kind, device))
}

/// The release of RocksDB that made the store in `path`, by its newest options file.
pub(super) fn rocksdb_version(path: &Path) -> Option<String> {
    let files = fs::read_dir(path).ok()?.flatten().map(|file| file.path());
    let options = files.filter(|file| {
        file.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("OPTIONS-"))
    });
    let text = fs::read_to_string(options.max()?).ok()?;
    text.lines().find_map(|line| line.trim().strip_prefix("rocksdb_version=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_deepest_mount_above_it() {
        let mounts = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      30 22 0:25 / /tmp rw,nosuid shared:5 - tmpfs tmpfs rw\n\
                      31 22 0:26 / /tmp/disk rw master:1 - xfs /dev/vdb rw\n";
        let on = |path: &str| mount_of(Path::new(path), mounts).unwrap();
        assert_eq!(on("/home/x"), ("ext4".into(), "/dev/vda".into()));
        assert_eq!(on("/tmp/x"), ("tmpfs".into(), "tmpfs".into()));
        assert_eq!(on("/tmp/disk/x"), ("xfs".into(), "/dev/vdb".into()));
        assert_eq!(on("/tmpfs"), ("ext4".into(), "/dev/vda".into()));
    }
}
