//! The object stores of a node: opened at its boot, never asked anything by that, and tried before it runs where their
//! conditions need proof.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobScope, BlobStores};

use crate::blob::observed::Observed;
use crate::blob::transport::World;
use crate::config::{Config, NamedStore, ObjectStore};

/// The stores, and each of them once.
pub(crate) struct Opened {
    pub(crate) stores: BlobStores,
    pub(crate) distinct: Vec<Distinct>,
}

/// A store, whatever is in it.
#[derive(Clone)]
pub(crate) struct Distinct {
    /// What is in it, as `--store` calls it: `segments, backup, claims`.
    pub(crate) names: String,
    /// Which it is, for people.
    pub(crate) shown: String,
    /// What goes before the key it is tried with.
    pub(crate) prefix: String,
    /// Whether it is tried at a boot.
    pub(crate) probes: bool,
    pub(crate) store: Arc<dyn Blob>,
}

/// Opens every store. One that is reached at the same endpoint as another has its connections, and one in the same bucket
/// its breaker.
///
/// # Errors
/// The dotted key that is wrong, and why.
pub(crate) fn open(config: &Config, world: &World) -> Result<Opened, String> {
    let named = config.object_stores();
    let mut folders: BTreeMap<PathBuf, Arc<dyn Blob>> = BTreeMap::new();
    let mut opened: Vec<(&NamedStore<'_>, Arc<dyn Blob>)> = Vec::new();
    for of in &named {
        opened.push((of, open_one(config, of, world, &mut folders)?));
    }
    let in_scope = |scope: BlobScope| {
        let found = opened.iter().filter(move |(of, _)| of.scope == scope);
        found.map(|(_, store)| Arc::clone(store))
    };
    let first = |scope: BlobScope| {
        in_scope(scope).next().ok_or_else(|| format!("there is no store of {}", scope.as_str()))
    };
    let stores = BlobStores {
        segments: first(BlobScope::Segments)?,
        backup: first(BlobScope::Backup)?,
        claims: in_scope(BlobScope::Claims).collect(),
    };
    Ok(Opened { stores, distinct: distinct(config, &opened) })
}

/// Two that share a folder share what keeps its writes apart.
fn open_one(
    config: &Config,
    of: &NamedStore<'_>,
    world: &World,
    folders: &mut BTreeMap<PathBuf, Arc<dyn Blob>>,
) -> Result<Arc<dyn Blob>, String> {
    let (otherwise, block) = (config.local_root(), of.store.block.as_str());
    let open = || {
        let opened = of.store.open(&otherwise, of.scope, world);
        opened.map_err(|error| format!("{}.{block}.{error}", of.key))
    };
    let store = match of.store.local_root(&otherwise) {
        None => open()?,
        Some(root) => match folders.get(&root) {
            Some(store) => Arc::clone(store),
            None => Arc::clone(folders.entry(root).or_insert(open()?)),
        },
    };
    Ok(Arc::new(Observed::new(of.scope, store, Arc::clone(&world.events))))
}

fn distinct(config: &Config, opened: &[(&NamedStore<'_>, Arc<dyn Blob>)]) -> Vec<Distinct> {
    let mut distinct: Vec<(&ObjectStore, Distinct)> = Vec::new();
    for (of, store) in opened {
        if let Some((_, known)) = distinct.iter_mut().find(|(spec, _)| spec.block == of.store.block)
        {
            known.names = format!("{}, {}", known.names, of.name);
            known.probes |= of.store.probes();
            continue;
        }
        let found = Distinct {
            names: of.name.clone(),
            shown: of.store.shown(&config.local_root()),
            prefix: of.prefix.to_owned(),
            probes: of.store.probes(),
            store: Arc::clone(store),
        };
        distinct.push((of.store, found));
    }
    distinct.into_iter().map(|(_, distinct)| distinct).collect()
}
