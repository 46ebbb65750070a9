//! The process environment: the variables that override keys, and those that a file refers to.

use std::collections::BTreeMap;
use std::ffi::OsString;

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider, util};

/// Variables that override a key whatever the file says: name, dotted key. A later one beats an earlier one.
const OVERRIDES: &[(&str, &str)] = &[
    ("ANKUSA_ROLES", "node.roles"),
    ("ANKUSA_DATA_DIR", "node.data_dir"),
    ("ANKUSA_LOG_LEVEL", "log.level"),
    ("PORT", "http.port"),
    ("ANKUSA_HTTP_PORT", "http.port"),
    ("ANKUSA_ADMIN_PORT", "admin.port"),
    ("ANKUSA_ADMIN_IP", "admin.ip"),
    ("ANKUSA_ROUTES_ENABLED", "routes.enabled"),
    ("ANKUSA_WAL_TYPE", "wal.type"),
    ("ANKUSA_STORAGE_TYPE", "storage.type"),
    ("ANKUSA_STORAGE_KEY_PREFIX", "storage.key_prefix"),
    ("ANKUSA_S3_BUCKET", "storage.s3.bucket"),
    ("ANKUSA_S3_REGION", "storage.s3.region"),
    ("ANKUSA_S3_ENDPOINT", "storage.s3.endpoint"),
    ("ANKUSA_GCS_BUCKET", "storage.gcs.bucket"),
];

/// The variables a configuration may see.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub fn of_the_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// `None` when it is not set.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub(super) fn get(&self, name: &str) -> Result<Option<&str>, String> {
        let value = self.0.get(std::ffi::OsStr::new(name));
        value.map(|value| value.to_str().ok_or_else(|| format!("{name} is not UTF-8"))).transpose()
    }

    /// The overrides that are set and not empty, the strongest last.
    pub(super) fn overrides(&self) -> Vec<Result<Override, String>> {
        let set = |(name, key): &(&'static str, &'static str)| match self.get(name) {
            Ok(None | Some("")) => None,
            Ok(Some(text)) => Some(Ok(Override { name, key, text: text.to_owned() })),
            Err(error) => Some(Err(error)),
        };
        OVERRIDES.iter().filter_map(set).collect()
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// One variable that is set.
pub(super) struct Override {
    name: &'static str,
    key: &'static str,
    text: String,
}

impl Provider for Override {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let value = match self.key {
            "node.roles" => Value::from(self.text.split(',').map(str::trim).collect::<Vec<_>>()),
            _single => Value::from(self.text.as_str()),
        };
        let dict = util::nest(self.key, value).into_dict().unwrap_or_default();
        Ok(Profile::Default.collect(dict))
    }
}
