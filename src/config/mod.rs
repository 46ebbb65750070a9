//! The configuration: defaults, then the file, then the environment; checked whole before anything is opened.
//!
//! The structs stand beside what they configure, plain and with their defaults; here they are composed, read and
//! checked. A mistake is one line that names its dotted key, and every mistake that can be seen is told at once.
//! `config/reference.yml` documents every key for people.

mod check;
mod environment;
mod error;
mod interpolate;
pub(crate) mod key;
mod listeners;
mod node;
mod object_stores;
mod redact;
mod routes;
pub mod schema;
mod shape;
mod sources;
mod storage;
mod yaml;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use figment::error::Kind as FigmentKind;
use figment::providers::Serialized;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::{Deserialize, Serialize};

use ankusa_actors::dispatch::DispatchConfig;
use ankusa_actors::edge::{QuarantineConfig, RateLimitsConfig};
use ankusa_actors::model::egress::EgressConfig;
use ankusa_actors::model::source::SourceSpec;
use ankusa_actors::model::verify::VerifyType;
use ankusa_actors::queue::{BatcherConfig, DedupeConfig, TenantsConfig};
use ankusa_actors::store::StoreConfig;

pub use environment::Environment;
pub use error::{ConfigError, ConfigErrors};
pub use listeners::{
    AdminConfig, ClientAuth, Http2Config, HttpConfig, Secret, TlsConfig, TokenConfig,
};
pub use node::{ControlConfig, LogConfig, LogFormat, LogLevel, NodeConfig, Role, ShutdownConfig};
pub use object_stores::{
    BackupConfig, Block, ClaimCheckConfig, LocalConfig, NamedStore, ObjectStore, StorageConfig,
};
pub(crate) use redact::redacted_source;
pub use redact::{REDACTED, redacted};
pub use routes::{IpRulesConfig, RoutesAdminConfig, RoutesConfig};
pub(crate) use shape::shaped_source;
pub use sources::{SourceStoreConfig, SourceStoreType};
pub use storage::{
    CompactionStyle, QueueConfig, RocksdbConfig, WalConfig, WalType, WriteBuffersConfig,
};

/// Where the image keeps its configuration.
pub const DEFAULT_PATH: &str = "/etc/ankusa/ankusa.yml";

/// What a process that refuses its configuration exits with: EX_CONFIG.
pub const EXIT_CONFIG: u8 = 78;

/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The names of the layers that are no environment variable.
const DEFAULTS: &str = "defaults";
const FILE: &str = "file";

/// Everything a node can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub node: NodeConfig,
    pub log: LogConfig,
    pub http: HttpConfig,
    pub admin: AdminConfig,
    pub control: ControlConfig,
    pub wal: WalConfig,
    pub batcher: BatcherConfig,
    pub queue: QueueConfig,
    pub store: StoreConfig,
    pub tenants: TenantsConfig,
    pub dedupe: DedupeConfig,
    pub rate_limits: RateLimitsConfig,
    pub quarantine: QuarantineConfig,
    pub dispatch: DispatchConfig,
    pub egress: EgressConfig,
    pub shutdown: ShutdownConfig,
    pub source_store: SourceStoreConfig,
    pub routes: RoutesConfig,
    pub storage: StorageConfig,
    pub backup: BackupConfig,
    pub claim_check: ClaimCheckConfig,
    /// Who may send hooks, by source id.
    pub sources: BTreeMap<String, SourceSpec>,
}

impl Config {
    /// Reads and checks the file at `path`. Opens nothing else but the files it refers to.
    ///
    /// # Errors
    /// Every mistake, or that the file cannot be read.
    pub fn load(path: &Path, environment: &Environment) -> Result<Self, ConfigErrors> {
        let text = read(path).map_err(|text| ConfigError::at(path.display().to_string(), text))?;
        Self::parse(&text, &path.display().to_string(), environment)
    }

    /// Reads and checks `text`, called `name` where it is not even YAML.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse(text: &str, name: &str, environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut file = yaml::parse(text).map_err(|text| ConfigError::at(name, text))?;
        let mut errors = Vec::new();
        interpolate::interpolate(&mut file, environment, &mut errors);
        ConfigErrors::none_of(errors)?;
        Self::layered(file, environment)
    }

    fn layered(file: Dict, environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let mut figment = Figment::from(Defaults).merge(Layer(file));
        for variable in environment.overrides() {
            match variable {
                Ok(variable) => figment = figment.merge(variable),
                Err(text) => errors.push(ConfigError::at("environment", text)),
            }
        }
        let merged = figment.find_value("").map_err(|error| at_path(&error, None))?;
        let mut shaped = shape::shaped(merged, &figment, &mut errors);
        ConfigErrors::none_of(errors)?;
        ConfigErrors::none_of(object_stores::select(&mut shaped))?;
        let config = Self::deserialize(&shaped).map_err(|error| at_path(&error, Some(&shaped)))?;
        check::check(&config)?;
        Ok(config)
    }

    /// The folder of this instance: the store, and the control socket unless it is elsewhere.
    pub fn instance_dir(&self) -> PathBuf {
        self.node.data_dir.join(&self.node.instance)
    }

    /// Where the control socket is.
    pub fn control_socket(&self) -> PathBuf {
        let beside_the_store = || self.instance_dir().join("control.sock");
        self.control.socket.clone().unwrap_or_else(beside_the_store)
    }

    pub fn has_role(&self, role: Role) -> bool {
        self.node.roles.contains(&role)
    }

    /// What is worth a log line at boot although it is no mistake.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.has_role(Role::Storage) {
            warnings.push(
                "node.roles has storage, but this release has no archive: hooks keep an archive obligation and stay on \
                 disk until a release that has one runs on this store"
                    .to_owned(),
            );
        }
        let is_static = self.source_store.kind == SourceStoreType::Static;
        if self.has_role(Role::Edge) && self.sources.is_empty() && is_static {
            warnings.push("sources is empty: every hook is answered 404 unknown_source".to_owned());
        }
        let asks_for_certificates = self.http.tls.client_ca_file.is_some();
        for (id, source) in self.sources.iter().filter(|_| !asks_for_certificates) {
            if source.verify.kind == VerifyType::Mtls {
                warnings.push(format!(
                    "sources.{id} is for clients with a certificate, and without http.tls.client_ca_file nobody is asked for \
                     one: all of its hooks are refused"
                ));
            }
        }
        let without_dedupe: Vec<&str> = self
            .sources
            .iter()
            .filter(|(_, source)| source.dedupe.is_none())
            .map(|(id, _)| id.as_str())
            .collect();
        if self.has_role(Role::Edge) && !without_dedupe.is_empty() {
            warnings.push(format!(
                "sources without dedupe: {}: a provider that sends a hook again because its answer was lost makes a second \
                 hook of it",
                without_dedupe.join(", ")
            ));
        }
        if self.control.allow_crash {
            warnings.push(
                "control.allow_crash is on: `ankusa ctl crash` can panic this node".to_owned(),
            );
        }
        warnings
    }
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let mut text = String::new();
    let mut bounded = std::fs::File::open(path).map_err(cannot)?.take(MAX_FILE_BYTES + 1);
    bounded.read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than {MAX_FILE_BYTES} bytes"));
    }
    Ok(text)
}

/// What serde refused although the schema let it through, at its dotted key.
fn at_path(error: &figment::Error, root: Option<&Value>) -> ConfigError {
    let mut key = String::new();
    let mut place = root;
    for name in &error.path {
        place = match place {
            Some(Value::Array(_, values)) => {
                let at = name.parse().unwrap_or(usize::MAX);
                key = key::element(&key, at);
                values.get(at)
            }
            Some(Value::Dict(_, dict)) => {
                key = key::child(&key, name);
                dict.get(name)
            }
            _leaf => None,
        };
    }
    if let FigmentKind::MissingField(name) = &error.kind {
        ConfigError::at(key::child(&key, name), "is required")
    } else if let FigmentKind::UnknownField(name, known) = &error.kind {
        let text = format!("unknown key; known here: {}", known.join(", "));
        ConfigError::at(key::child(&key, name), text)
    } else {
        ConfigError::at(key, error.kind.to_string())
    }
}

/// The keys of one source in a text of its own, YAML or JSON. Nothing in it stands for anything else.
///
/// # Errors
/// It is no mapping.
pub(crate) fn source_of(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    match serde_json::to_value(yaml::parse(text)?) {
        Ok(serde_json::Value::Object(source)) => Ok(source),
        Ok(_) => Err("must be a mapping".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The layer everything else is laid on.
struct Defaults;

impl Provider for Defaults {
    fn metadata(&self) -> Metadata {
        Metadata::named(DEFAULTS)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Serialized::defaults(Config::default()).data()
    }
}

/// The file's layer.
struct Layer(Dict);

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(FILE)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}
