//! The stores that are damaged: made by real nodes, then left alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use ankusa_drills_check::{Dump, Family};
use serde_json::json;
use tokio::time::sleep;

use crate::drill::{CannotInject, OrCannot, Report};
use crate::journal::Journal;
use crate::load::{Load, LoadPlan};
use crate::node::{Node, NodeSetup};
use crate::scratch::Scratch;

/// Hooks that a restart has written into tables, and hooks that are in the log.
const IN_TABLES: u64 = 700;
const IN_THE_LOG: u64 = 800;

/// Many at once, that wait for each other: large groups, so few records, and no header of them goes unflipped.
const CLIENTS: usize = 64;
const GATHER_MS: u64 = 20;

/// Longest wait until a node says in its log that the last hook is on the disk.
const NOTED_WITHIN: Duration = Duration::from_secs(20);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Written whenever somebody asks whether the node is ready.
const READY_PROBE: &[u8] = b"m:ready_probe";

/// What the log says of itself, and nobody of a hook. The note behind the last group may be lost: with nothing behind it,
/// it cannot be told from a torn write, and holds nothing that was promised.
const SYNCED_THROUGH: &[u8] = b"m:synced_through";

/// A store nobody has open.
pub(super) struct AtRest {
    pub(super) name: &'static str,
    /// Every file, but for what RocksDB writes about itself.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// What it holds.
    pub(super) dump: Dump,
}

/// A node that takes hooks and delivers none, in a directory of its own.
pub(super) fn setup(directory: &Path) -> Result<NodeSetup, CannotInject> {
    let data_dir = directory.join("data");
    let setup = NodeSetup::new(directory, &data_dir, "http://127.0.0.1:9/nobody")?;
    setup.with_config(&json!({
        "node": {"roles": ["edge"]},
        "batcher": {"max_delay_ms": GATHER_MS},
        "store": {"open_deadline_ms": 3_000},
    }))
}

/// Makes the killed and the stopped store.
pub(super) async fn make(
    seed: u64,
    scratch: &Scratch,
    report: &mut Report,
) -> Result<Vec<AtRest>, CannotInject> {
    let directory = scratch.subdirectory("made")?;
    let setup = setup(&directory)?;
    let (journal, next) = (Arc::new(Journal::new()), Arc::new(AtomicU64::new(0)));
    let load = async |node: &Node, end: u64| {
        let load =
            Load::start(CLIENTS, setup.http_port(), LoadPlan::new(seed), &next, end, &journal);
        load.finish().await;
        noted(node).await
    };
    let node = start(&setup).await?;
    load(&node, IN_TABLES).await?;
    node.stop().await?;
    let base = read_files(&setup.store())?;

    let node = start(&setup).await?;
    // Numbers beyond the end were drawn and not used.
    next.store(IN_TABLES, std::sync::atomic::Ordering::SeqCst);
    load(&node, IN_TABLES + IN_THE_LOG).await?;
    let dump = dump(&node).await?;
    node.kill()?;
    let killed = AtRest { name: "killed", files: read_files(&setup.store())?, dump };

    write_files(&setup.store(), &base)?;
    let node = start(&setup).await?;
    next.store(IN_TABLES + IN_THE_LOG, std::sync::atomic::Ordering::SeqCst);
    load(&node, IN_TABLES + 2 * IN_THE_LOG).await?;
    let dump = self::dump(&node).await?;
    node.stop().await?;
    let stopped = AtRest { name: "stopped", files: read_files(&setup.store())?, dump };

    let tally = journal.tally();
    (report.acked, report.refused, report.unknown) = (tally.acked, tally.refused, tally.unknown);
    let stores = vec![killed, stopped];
    let hooks = usize::try_from(IN_TABLES + IN_THE_LOG).unwrap_or(usize::MAX);
    if let Some(store) = stores.iter().find(|store| hooks_of(&store.dump).count() != hooks) {
        let found = hooks_of(&store.dump).count();
        return Err(CannotInject(format!("the {} store has {found} of {hooks} hooks", store.name)));
    }
    Ok(stores)
}

async fn start(setup: &NodeSetup) -> Result<Node, CannotInject> {
    setup.start().await.or_cannot("start a node on a sound store")
}

/// The node says behind its last group that it was synced; until then it is not at rest.
async fn noted(node: &Node) -> Result<(), CannotInject> {
    let began = Instant::now();
    while began.elapsed() < NOTED_WITHIN {
        let dump = node.dump().await?;
        let noted = dump.rows.iter().find(|row| row.key == SYNCED_THROUGH);
        let noted =
            noted.and_then(|row| Some(u64::from_be_bytes(row.value.as_slice().try_into().ok()?)));
        if noted.is_some_and(|noted| noted + 1 == dump.next_seq) {
            return Ok(());
        }
        sleep(LOOK_AGAIN).await;
    }
    Err(CannotInject(format!("the log says nothing of its last hook after {NOTED_WITHIN:?}")))
}

/// Every row that stands for something.
pub(super) async fn dump(node: &Node) -> Result<Dump, CannotInject> {
    let mut dump = node.dump().await?;
    dump.rows.retain(|row| row.key != READY_PROBE && row.key != SYNCED_THROUGH);
    Ok(dump)
}

/// The keys of the hooks.
pub(super) fn hooks_of(dump: &Dump) -> impl Iterator<Item = &[u8]> {
    let hooks = dump.rows.iter().filter(|row| row.family == Family::Hooks && row.key.len() == 8);
    hooks.map(|row| row.key.as_slice())
}

fn read_files(store: &Path) -> Result<BTreeMap<String, Vec<u8>>, CannotInject> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(store).or_cannot("read a store")? {
        let entry = entry.or_cannot("read a store")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_about_itself = name == "LOCK" || name.starts_with("LOG");
        if !is_about_itself && entry.path().is_file() {
            files.insert(name, std::fs::read(entry.path()).or_cannot("read a store")?);
        }
    }
    Ok(files)
}

/// Puts a store of these files in the place of what is there.
pub(super) fn write_files(
    store: &Path,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<(), CannotInject> {
    if store.exists() {
        std::fs::remove_dir_all(store).or_cannot("remove a store")?;
    }
    std::fs::create_dir_all(store).or_cannot("make a store's directory")?;
    for (name, bytes) in files {
        std::fs::write(store.join(name), bytes).or_cannot("write a store")?;
    }
    Ok(())
}
