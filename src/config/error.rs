//! What is wrong with a configuration: one line a mistake, each naming its dotted key.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{key} must be {constraint}, got {got}")]
    Bound { key: String, constraint: String, got: String },
    #[error("{key}: {text}")]
    At { key: String, text: String },
}

impl ConfigError {
    /// `key` must be `constraint`, but is `got`.
    pub fn must(
        key: impl Into<String>,
        constraint: impl Into<String>,
        got: impl Into<String>,
    ) -> Self {
        Self::Bound { key: key.into(), constraint: constraint.into(), got: got.into() }
    }

    /// Anything else that is wrong at `key`.
    pub fn at(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self::At { key: key.into(), text: text.into() }
    }
}

/// Every mistake that could be seen at once, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `Ok` when there is none.
    ///
    /// # Errors
    /// There is one.
    pub fn none_of(errors: Vec<ConfigError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            // A line is a mistake, whatever bytes the file holds.
            f.write_str(&error.to_string().replace('\n', "\\n").replace('\r', "\\r"))?;
        }
        Ok(())
    }
}
