//! Whether the memory the node was told to use is there: a budget beyond it ends in the kernel killing the process.

use std::path::{Path, PathBuf};

use crate::config::{Config, Role};

/// The cap on all memtables together, in bytes: `rocks::options` sets it.
const MEMTABLES_BYTES: u64 = crate::rocks::MEMTABLES_MAX_BYTES;

/// What the process needs beside its budgets: code, threads, connections, the metadata of files.
const BASE_BYTES: u64 = 128 << 20;

/// A sentence for the log when the configured budgets do not fit into the memory the process may use.
pub(super) fn warning(config: &Config) -> Option<String> {
    let available = available(Path::new("/"))?;
    let budget = budget(config);
    (budget > available.bytes).then(|| {
        format!(
            "the configured budgets come to {budget} bytes of memory, and {} allows {}: the kernel may kill this node \
             under load; lower queue.rocksdb.block_cache_bytes, batcher.max_queue_bytes, http.max_body_memory_bytes or \
             dispatch.max_inflight_bytes",
            available.who, available.bytes
        )
    })
}

/// The most the node uses when every bounded thing is full, in bytes.
fn budget(config: &Config) -> u64 {
    let batcher = &config.batcher;
    let partitions = batcher.partitions as u64;
    let queued = partitions.saturating_mul(batcher.max_queue_bytes as u64);
    let received = config.http.max_body_memory_bytes as u64;
    let group = 2_u64.saturating_mul(batcher.group_commit_max_bytes as u64);
    let inflight = config.dispatch.max_inflight_bytes as u64;
    let of_role = |role, bytes| if config.has_role(role) { bytes } else { 0 };
    [
        BASE_BYTES,
        MEMTABLES_BYTES,
        config.queue.rocksdb.block_cache_bytes as u64,
        of_role(Role::Edge, queued.saturating_add(group).saturating_add(received)),
        of_role(Role::Dispatch, inflight),
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

/// A bound on the process's memory and who sets it.
#[derive(Debug, PartialEq, Eq)]
struct Available {
    who: String,
    bytes: u64,
}

/// The tightest bound below `root`, the file system's root: of a cgroup, of either version, or the machine's memory.
/// Nothing where none can be read.
fn available(root: &Path) -> Option<Available> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(|line| cgroup_limits(root, line)).flatten();
    let machine = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let of_machine = total(&machine).map(|bytes| Available { who: "this machine".into(), bytes });
    of_groups.chain(of_machine).min_by_key(|bound| bound.bytes)
}

/// The limits of a line of `/proc/self/cgroup`, of its group and of all above it: each of them binds.
fn cgroup_limits(root: &Path, line: &str) -> Option<Vec<Available>> {
    let mut fields = line.splitn(3, ':');
    let (_hierarchy, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        of_v1 if of_v1.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _without_memory => return None,
    };
    let group = Path::new(group.trim_start_matches('/'));
    let limit = |group: &Path| {
        let path = root.join(mount).join(group).join(file);
        let bytes = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        let shown: PathBuf = Path::new("/").join(path.strip_prefix(root).ok()?);
        Some(Available { who: shown.display().to_string(), bytes })
    };
    Some(group.ancestors().filter_map(limit).collect())
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn bound(files: &[(&str, &str)]) -> Option<(String, u64)> {
        available(machine(files).path()).map(|bound| (bound.who, bound.bytes))
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\n");

    #[test]
    fn without_a_group_the_machine_is_the_bound() {
        assert_eq!(bound(&[MEMINFO]), Some(("this machine".to_owned(), 2_097_152)));
        assert_eq!(bound(&[]), None);
    }

    #[test]
    fn a_group_and_every_group_above_it_binds() {
        let own = ("proc/self/cgroup", "0::/a.slice/b.service\n");
        let unlimited = ("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        let above = ("sys/fs/cgroup/a.slice/memory.max", "1000\n");
        assert_eq!(
            bound(&[MEMINFO, own, unlimited, above]),
            Some(("/sys/fs/cgroup/a.slice/memory.max".to_owned(), 1_000))
        );
        let larger = ("sys/fs/cgroup/a.slice/memory.max", "9000000\n");
        let machine = Some(("this machine".to_owned(), 2_097_152));
        assert_eq!(bound(&[MEMINFO, own, unlimited, larger]), machine);
    }

    #[test]
    fn a_group_of_the_first_version_is_under_its_controller() {
        let own = ("proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory,hugetlb:/x\n0::/\n");
        let limit = ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4096\n");
        assert_eq!(
            bound(&[MEMINFO, own, limit]),
            Some(("/sys/fs/cgroup/memory/x/memory.limit_in_bytes".to_owned(), 4_096))
        );
        let of_cpu = ("sys/fs/cgroup/cpu,cpuacct/x/memory.limit_in_bytes", "1\n");
        let machine = Some(("this machine".to_owned(), 2_097_152));
        assert_eq!(bound(&[MEMINFO, own, of_cpu]), machine);
    }

    #[test]
    fn every_budget_of_a_role_that_runs_is_counted() {
        let mut config = Config::default();
        config.batcher.partitions = 2;
        config.batcher.max_queue_bytes = 1_000;
        config.batcher.group_commit_max_bytes = 100;
        config.http.max_body_memory_bytes = 10_000;
        config.dispatch.max_inflight_bytes = 10;
        config.queue.rocksdb.block_cache_bytes = 1;
        let fixed = BASE_BYTES + MEMTABLES_BYTES;
        config.node.roles = [Role::Edge, Role::Dispatch].into();
        assert_eq!(budget(&config), fixed + 12_211);
        config.node.roles = [Role::Dispatch].into();
        assert_eq!(budget(&config), fixed + 11);
    }
}
