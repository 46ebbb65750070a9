//! Stores of objects that cannot be made as they are configured.

use std::sync::Arc;

use super::super::error::ConfigError;
use super::super::key::child;
use super::super::object_stores::{Block, NamedStore};
use super::Config;
use crate::blob::options::TransportOptions;
use crate::blob::spec_error::BlobSpecError;
use crate::blob::transport::World;
use crate::host::{HostClock, HostEntropy, NoEvents};

/// The unit of `multipart_part_bytes`, in bytes.
const PART_UNIT_BYTES: u64 = 256 << 10;

pub(super) fn check(config: &Config, errors: &mut Vec<ConfigError>) {
    let prefix = &config.storage.key_prefix;
    if !is_prefix(prefix) {
        let constraint = "\"\" or parts like name/, of A-Z a-z 0-9 . _ -";
        errors.push(ConfigError::must("storage.key_prefix", constraint, format!("{prefix:?}")));
    }
    let stores = config.object_stores();
    // As the node will: whatever it would refuse is told here, and what stores owe each other, too.
    let world = world();
    for (at, named) in stores.iter().enumerate() {
        // One that stands for others, too, is wrong once.
        if stores.iter().position(|other| other.key == named.key) == Some(at) {
            check_store(config, named, stores.get(..at).unwrap_or_default(), &world, errors);
        }
    }
}

fn world() -> World {
    World {
        clock: Arc::new(HostClock),
        entropy: Arc::new(HostEntropy),
        events: Arc::new(NoEvents),
        pools: Arc::default(),
        breakers: Arc::default(),
    }
}

fn is_prefix(prefix: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_plain);
    prefix.is_empty() || prefix.strip_suffix('/').is_some_and(|parts| parts.split('/').all(is_part))
}

fn check_store(
    config: &Config,
    named: &NamedStore<'_>,
    before: &[NamedStore<'_>],
    world: &World,
    errors: &mut Vec<ConfigError>,
) {
    let store = named.store;
    let key = child(&named.key, store.block.as_str());
    if let Block::Local(local) = &store.block {
        if let Some(root) = local.root.as_ref().filter(|root| !root.is_absolute()) {
            let got = format!("{:?}", root.display().to_string());
            errors.push(ConfigError::must(child(&key, "root"), "an absolute path", got));
        }
        // Making it would make its folder.
        return;
    }
    if let Some(transport) = store.block.transport()
        && let Err(error) = check_transport(&key, transport)
    {
        errors.push(error);
        return;
    }
    let opened = store.open(&config.local_root(), named.scope, world);
    if let Err(error) = opened {
        let other = before.iter().find(|other| is_with(config, other, named, &error));
        let told = |other: &NamedStore<'_>| {
            let block = child(&other.key, other.store.block.as_str());
            format!("{}, and {} is another", error.text, child(&block, &error.key))
        };
        let text = other.map_or_else(|| error.text.clone(), told);
        errors.push(ConfigError::at(child(&key, &error.key), text));
    }
}

/// Whether it is with `other` that `named` cannot be made: they share something, and say different things of it.
fn is_with(
    config: &Config,
    other: &NamedStore<'_>,
    named: &NamedStore<'_>,
    error: &BlobSpecError,
) -> bool {
    // Making a local store would make its folder, and it shares nothing.
    let is_remote = other.store.block.transport().is_some();
    let wrong = |named: &NamedStore<'_>, world: &World| {
        named.store.open(&config.local_root(), named.scope, world).err()
    };
    let both = world();
    is_remote
        && wrong(named, &world()).as_ref() != Some(error)
        && wrong(other, &both).is_none()
        && wrong(named, &both).as_ref() == Some(error)
}

/// # Errors
/// What the sizes of parts owe each other, or a file that is not what it must be.
fn check_transport(key: &str, transport: &TransportOptions) -> Result<(), ConfigError> {
    let (part, threshold) = (transport.multipart_part_bytes, transport.multipart_threshold_bytes);
    if part % PART_UNIT_BYTES != 0 {
        let key = child(key, "multipart_part_bytes");
        let constraint = format!("a multiple of {PART_UNIT_BYTES}");
        return Err(ConfigError::must(key, constraint, part.to_string()));
    }
    if threshold < part {
        let constraint = format!(">= multipart_part_bytes ({part})");
        let key = child(key, "multipart_threshold_bytes");
        return Err(ConfigError::must(key, constraint, threshold.to_string()));
    }
    let Some(path) = &transport.cacertfile else { return Ok(()) };
    match std::fs::read(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = format!("cannot read {}: {error}", path.display());
            Err(ConfigError::at(child(key, "cacertfile"), text))
        }
    }
}
