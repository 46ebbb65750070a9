//! Where objects are kept: the config sections `storage`, `backup.store` and `claim_check.stores`, which are alike.
//!
//! A store is its type and the block of that type. Blocks of other types are held to the spelling of their keys and then
//! dropped, so that one file can carry several.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobScope};
use figment::value::{Dict, Value};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use super::Config;
use super::error::ConfigError;
use super::key::{child, element};
use crate::blob::azure::{self, AzureSpec};
use crate::blob::gcs::{self, GcsSpec};
use crate::blob::local_fs::{self, LocalFsSpec};
use crate::blob::oci::{self, OciSpec};
use crate::blob::options::TransportOptions;
use crate::blob::s3::{self, S3Spec};
use crate::blob::spec_error::BlobSpecError;
use crate::blob::transport::World;

/// The hosts of the provider whose conditions need no proof end with one of these.
const AWS: [&str; 2] = [".amazonaws.com", ".amazonaws.com.cn"];

/// Section `storage`: where segments are, and whatever has no store of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageConfig {
    /// Goes before the keys of segments and backups, never of claims: nothing, or parts that each end with `/`.
    pub key_prefix: String,
    #[serde(flatten)]
    pub store: ObjectStore,
}

/// Section `backup`. This release makes none: only its store is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupConfig {
    /// `None` for that of `storage`.
    pub store: Option<ObjectStore>,
}

/// Section `claim_check`. This release makes no claims: only their stores are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimCheckConfig {
    /// In the order they are written to, the next one when one fails; none for that of `storage`.
    pub stores: Vec<ObjectStore>,
}

/// One store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectStore {
    /// Whether it is tried at a boot; `None` where that is worth it: an S3-compatible endpoint that is not AWS.
    pub probe: Option<bool>,
    pub block: Block,
}

/// What is configured of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    Local(LocalConfig),
    S3(Box<S3Spec>),
    Gcs(Box<GcsSpec>),
    Azure(Box<AzureSpec>),
    Oci(Box<OciSpec>),
}

/// Block `local`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalConfig {
    /// The folder of the objects, an absolute path; `None` for `<data_dir>/<instance>/segments`.
    pub root: Option<PathBuf>,
}

impl Default for Block {
    fn default() -> Self {
        Self::Local(LocalConfig::default())
    }
}

impl Block {
    /// The word of `type`, which is also the name of the block.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::S3(_) => "s3",
            Self::Gcs(_) => "gcs",
            Self::Azure(_) => "azure",
            Self::Oci(_) => "oci",
        }
    }

    /// Of a store that is reached over HTTP.
    pub const fn transport(&self) -> Option<&TransportOptions> {
        match self {
            Self::Local(_) => None,
            Self::S3(spec) => Some(&spec.transport),
            Self::Gcs(spec) => Some(&spec.transport),
            Self::Azure(spec) => Some(&spec.transport),
            Self::Oci(spec) => Some(&spec.transport),
        }
    }
}

impl ObjectStore {
    /// Whether it is tried at a boot.
    pub fn probes(&self) -> bool {
        self.probe.unwrap_or(match &self.block {
            Block::S3(spec) => spec.endpoint.as_deref().is_some_and(|endpoint| !is_aws(endpoint)),
            Block::Local(_) | Block::Gcs(_) | Block::Azure(_) | Block::Oci(_) => false,
        })
    }

    /// The folder of a local store, if that is what it is.
    pub fn local_root(&self, otherwise: &Path) -> Option<PathBuf> {
        match &self.block {
            Block::Local(local) => Some(local.root.clone().unwrap_or_else(|| otherwise.to_owned())),
            Block::S3(_) | Block::Gcs(_) | Block::Azure(_) | Block::Oci(_) => None,
        }
    }

    /// Makes it, a local one in `otherwise` unless it says where. Nothing is asked of it yet.
    ///
    /// # Errors
    /// The first mistake in its block, at a key below it.
    pub fn open(
        &self,
        otherwise: &Path,
        scope: BlobScope,
        world: &World,
    ) -> Result<Arc<dyn Blob>, BlobSpecError> {
        match &self.block {
            Block::Local(local) => {
                let root = local.root.clone().unwrap_or_else(|| otherwise.to_owned());
                local_fs::open(&LocalFsSpec { root }, scope, world)
            }
            Block::S3(spec) => s3::open(spec, scope, world),
            Block::Gcs(spec) => gcs::open(spec, scope, world),
            Block::Azure(spec) => azure::open(spec, scope, world),
            Block::Oci(spec) => oci::open(spec, scope, world),
        }
    }

    /// Which it is, in words without secrets.
    pub fn shown(&self, otherwise: &Path) -> String {
        let at = |endpoint: Option<&str>| {
            endpoint.map(|endpoint| format!(" at {endpoint}")).unwrap_or_default()
        };
        match &self.block {
            Block::Local(local) => {
                format!("local {}", local.root.as_deref().unwrap_or(otherwise).display())
            }
            Block::S3(spec) => format!("s3 {}{}", spec.bucket, at(spec.endpoint.as_deref())),
            Block::Gcs(spec) => format!("gcs {}{}", spec.bucket, at(Some(&spec.endpoint))),
            Block::Azure(spec) => {
                let name = format!("azure {}/{}", spec.account_name, spec.container);
                format!("{name}{}", at(spec.endpoint.as_deref()))
            }
            Block::Oci(spec) => {
                let name = format!("oci {}/{}", spec.namespace, spec.bucket);
                format!("{name}{}", at(spec.endpoint.as_deref()))
            }
        }
    }
}

fn is_aws(endpoint: &str) -> bool {
    let url = Url::parse(endpoint).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    AWS.iter().any(|domain| host.ends_with(domain))
}

impl Serialize for ObjectStore {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.block.as_str();
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("type", name)?;
        map.serialize_entry("probe", &self.probe)?;
        match &self.block {
            Block::Local(block) => map.serialize_entry(name, block)?,
            Block::S3(block) => map.serialize_entry(name, block)?,
            Block::Gcs(block) => map.serialize_entry(name, block)?,
            Block::Azure(block) => map.serialize_entry(name, block)?,
            Block::Oci(block) => map.serialize_entry(name, block)?,
        }
        map.end()
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Type {
    Local,
    S3,
    Gcs,
    Azure,
    Oci,
}

/// As it is written.
#[derive(Debug, Deserialize)]
struct Written {
    #[serde(rename = "type")]
    kind: Type,
    #[serde(default)]
    probe: Option<bool>,
    #[serde(default)]
    local: LocalConfig,
    #[serde(default)]
    s3: Box<S3Spec>,
    #[serde(default)]
    gcs: Box<GcsSpec>,
    #[serde(default)]
    azure: Box<AzureSpec>,
    #[serde(default)]
    oci: Box<OciSpec>,
}

impl<'de> Deserialize<'de> for ObjectStore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let block = match written.kind {
            Type::Local => Block::Local(written.local),
            Type::S3 => Block::S3(written.s3),
            Type::Gcs => Block::Gcs(written.gcs),
            Type::Azure => Block::Azure(written.azure),
            Type::Oci => Block::Oci(written.oci),
        };
        Ok(Self { probe: written.probe, block })
    }
}

/// A store of this node, by the places that say what is in it.
#[derive(Clone, Debug)]
pub struct NamedStore<'a> {
    /// Where it is configured: `storage`, `backup.store`, `claim_check.stores[1]`.
    pub key: String,
    pub scope: BlobScope,
    /// As `ankusa ctl blob --store` calls it.
    pub name: String,
    /// What goes before keys in it.
    pub prefix: &'a str,
    pub store: &'a ObjectStore,
}

impl Config {
    /// Every store, that of segments first, then that of backups, then those of claims: one of them more than once where
    /// others have none of their own.
    pub fn object_stores(&self) -> Vec<NamedStore<'_>> {
        let storage = &self.storage;
        let prefix = storage.key_prefix.as_str();
        let named = |key: &str, scope: BlobScope, store| {
            let name = scope.as_str().to_owned();
            NamedStore { key: key.to_owned(), scope, name, prefix, store }
        };
        let backup = match &self.backup.store {
            Some(store) => named("backup.store", BlobScope::Backup, store),
            None => named("storage", BlobScope::Backup, &storage.store),
        };
        let mut stores = vec![named("storage", BlobScope::Segments, &storage.store), backup];
        let claims = &self.claim_check.stores;
        if claims.is_empty() {
            let claims = named("storage", BlobScope::Claims, &storage.store);
            stores.push(NamedStore { prefix: "", ..claims });
        }
        for (at, store) in claims.iter().enumerate() {
            let key = element("claim_check.stores", at);
            let name = if at == 0 { "claims".to_owned() } else { format!("claims[{at}]") };
            let scope = BlobScope::Claims;
            stores.push(NamedStore { key, scope, name, prefix: "", store });
        }
        stores
    }

    /// Where a local store is that does not say.
    pub fn local_root(&self) -> PathBuf {
        self.instance_dir().join("segments")
    }
}

/// Drops the blocks that are not selected from every store of a tree that has been held against the schema, and checks what
/// the types cannot say at the key that is wrong.
pub(super) fn select(root: &mut Value) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let Value::Dict(_, root) = root else { return errors };
    if let Some(Value::Dict(_, storage)) = root.get_mut("storage") {
        select_block(storage, "storage", &mut errors);
    }
    if let Some(Value::Dict(_, backup)) = root.get_mut("backup")
        && let Some(Value::Dict(_, store)) = backup.get_mut("store")
    {
        select_block(store, "backup.store", &mut errors);
    }
    if let Some(Value::Dict(_, claims)) = root.get_mut("claim_check")
        && let Some(Value::Array(_, stores)) = claims.get_mut("stores")
    {
        for (at, store) in stores.iter_mut().enumerate() {
            if let Value::Dict(_, store) = store {
                select_block(store, &element("claim_check.stores", at), &mut errors);
            }
        }
    }
    errors
}

fn select_block(store: &mut Dict, key: &str, errors: &mut Vec<ConfigError>) {
    let Some(kind) = store.get("type").and_then(Value::as_str).map(str::to_owned) else {
        errors.push(ConfigError::at(child(key, "type"), "is required"));
        return;
    };
    store.retain(|name, _| {
        !matches!(name.as_str(), "local" | "s3" | "gcs" | "azure" | "oci") || *name == kind
    });
    let sse = store.get(&kind).and_then(Value::as_dict).and_then(|block| block.get("sse"));
    let Some(Value::Dict(_, sse)) = sse else { return };
    let key = child(&child(key, &kind), "sse");
    let word = sse.get("type").and_then(Value::as_str);
    match (word, sse.contains_key("key_id")) {
        (None, _) => errors.push(ConfigError::at(child(&key, "type"), "is required")),
        (Some("kms"), false) => {
            errors.push(ConfigError::at(child(&key, "key_id"), "is required with type kms"));
        }
        (Some("aes256"), true) => {
            errors.push(ConfigError::at(child(&key, "key_id"), "is used with type kms alone"));
        }
        (Some(_), _) => {}
    }
}
