//! Address space and memory that give out. The node may die of it; what it acked is kept, and it starts again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use super::{CLIENTS, HELD};
use crate::drill::{CannotInject, OrCannot};
use crate::load::Load;
use crate::node::Node;
use crate::stage::Stage;

/// Address space the node may still take.
const LEFT_BYTES: u64 = 4 << 20;

/// What its control group may have, in MiB: the first of these that the kernel can shrink it to.
const GROUP_MIB: [u64; 7] = [16, 24, 32, 48, 64, 96, 128];

/// Longest wait for the kernel to notice that a group has too much.
const KILLED_WITHIN: Duration = Duration::from_secs(6);

/// No address space: allocations and new threads fail.
pub(super) async fn no_address_space(stage: &mut Stage) -> Result<(), CannotInject> {
    let place = "no address space";
    let Some(node) = stage.start(place).await? else { return Ok(()) };
    let load = stage.load(CLIENTS);
    stage.acks(Instant::now(), 20, HELD * 10).await;
    let used = address_space(&node)?;
    let maximum = getrlimit(Resource::As).maximum;
    let limit = Rlimit { current: Some(used + LEFT_BYTES), maximum };
    prlimit(Some(node.pid()?), Resource::As, limit).or_cannot("limit the node's address space")?;
    wait_and_judge(stage, node, load, HELD * 2, "without_address_space", place).await
}

/// The kernel kills it for memory, where a control group can be made to want that.
pub(super) async fn no_memory(stage: &mut Stage) -> Result<(), CannotInject> {
    let place = "no memory";
    let name = format!("ankusa-drill-{}", std::process::id());
    let group = match Group::new(&name) {
        Ok(group) => group,
        Err(why) => {
            stage.report.count("without_memory", format!("not tried: {why}"));
            return Ok(());
        }
    };
    let Some(node) = stage.start(place).await? else { return Ok(()) };
    let load = stage.load(CLIENTS);
    stage.acks(Instant::now(), 20, HELD * 10).await;
    group.take_in(&node)?;
    wait_and_judge(stage, node, load, KILLED_WITHIN, "without_memory", place).await
}

/// Gives the node so long to die of it, reports under `name` whether it did, and judges what it left.
async fn wait_and_judge(
    stage: &mut Stage,
    mut node: Node,
    load: Load,
    within: Duration,
    name: &'static str,
    place: &str,
) -> Result<(), CannotInject> {
    let ended = node.ended(within).await?;
    stage
        .report
        .count(name, ended.map_or("it lived".to_owned(), |status| format!("it died: {status}")));
    if ended.is_none() {
        node.kill()?;
    }
    load.stop().await;
    stage.judge_files(place);
    Ok(())
}

/// The process's address space, in bytes.
fn address_space(node: &Node) -> Result<u64, CannotInject> {
    let path = format!("/proc/{}/status", node.pid()?.as_raw_nonzero());
    let text = fs::read_to_string(path).or_cannot("read the size of the node")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| CannotInject("read the size of the node".to_owned()))
}

/// A control group with a limit on memory. Removed when this is dropped.
struct Group {
    path: PathBuf,
    limit: &'static str,
}

impl Group {
    fn new(name: &str) -> Result<Self, String> {
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let (parent, limit) = if first.join("memory.limit_in_bytes").exists() {
            (first, "memory.limit_in_bytes")
        } else {
            (second, "memory.max")
        };
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let group = Self { path, limit };
        if !group.path.join(limit).exists() {
            return Err("the control groups of this machine do not limit memory".to_owned());
        }
        Ok(group)
    }

    /// Takes the node in, with what it uses already, and then limits it.
    fn take_in(&self, node: &Node) -> Result<(), CannotInject> {
        let write = |file: &str, text: String| fs::write(self.path.join(file), text);
        // Groups of the first kind leave behind what is used already, unless they are told.
        let _ = write("memory.move_charge_at_immigrate", "3".to_owned());
        let pid = node.pid()?.as_raw_nonzero().to_string();
        write("cgroup.procs", pid).or_cannot("put the node into a control group")?;
        let shrunk = |mib: &u64| write(self.limit, (mib << 20).to_string()).is_ok();
        match GROUP_MIB.iter().any(shrunk) {
            true => Ok(()),
            false => Err(CannotInject("limit the memory of a control group".to_owned())),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Empty by now: whoever was in it has been waited for. A leftover does no harm.
        let _ = fs::remove_dir(&self.path);
    }
}
